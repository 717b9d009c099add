"""A run in Python: reads its folder on access, also while the run goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.report.notebook import Plot, plot, run_html
from whet.report.read import check_is_run, read_object, read_report_spec, read_rows, read_run, read_settings
from whet.report.rows import summary_rows
from whet.report.spec import ReportSpec
from whet.run_folder.files import BEST

if TYPE_CHECKING:
    from whet.config.runs import RunConfig

WIDTH = 100
"""Columns of a table."""


@dataclass(frozen=True, repr=False)
class Run:
    """A run folder.

        run = whet.Run.open("runs/first")
        print(run)                                            # its table; in a notebook, `run` shows curves too
        [row["reward/mean"] for row in run.metrics_of("train")]

    Every property reads its file anew. A line that the run is still writing is left out.
    """

    folder: Path

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """Open the run in a folder, finished or not.

        Raises: ReportError where there is none.
        """
        return cls(check_is_run(folder))

    @property
    def config(self) -> RunConfig:
        """Its settings, as the object that it was started with. Loads its plug-ins.

        Raises: ConfigError where this whet does not know a setting.
        """
        from whet.run.launch import saved_config

        return saved_config(self.folder)

    @property
    def settings(self) -> dict[str, Any]:
        """The same as plain values, also where this whet refuses them. Empty where they cannot be read."""
        return dict(read_settings(self.folder))

    @property
    def report_spec(self) -> ReportSpec:
        """Its columns, charts and views of traces, with their titles."""
        return read_report_spec(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A dict for each step: `phase`, `step`, and metrics by name (`pandas.DataFrame` takes the list as it is). Step
        0 of a phase is its start."""
        return _rows([self.folder / "metrics.jsonl"])

    def metrics_of(self, phase: str) -> list[dict[str, Any]]:
        """Metrics of one phase, such as `train` or `stage2`."""
        return [row for row in self.metrics if row.get("phase") == phase]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The run's events: `time`, `level` (info, warning), `event`, `message`."""
        return _rows([self.folder / "events.jsonl"])

    @property
    def traces(self) -> list[dict[str, Any]]:
        """The recorded texts with their rewards: question, answer, reward, ... Phases in the order of their names."""
        return _rows(sorted((self.folder / "traces").glob("*.jsonl")))

    @property
    def checkpoints(self) -> list[Path]:
        """The folders of its checkpoints, newest first. The models in `policies/` load with `from_pretrained`."""
        from whet.trainer.checkpoint import newest_first

        return newest_first(self.folder)

    @property
    def best(self) -> Path | None:
        """The folder of the best policy's weights, which load with `from_pretrained` (with LoRA: by PEFT). None: the
        run is unfinished."""
        link = self.folder / BEST
        if link.is_dir() or not self.finished:
            return link if link.is_dir() else None
        from whet.run.load import load_run

        trained = load_run(self.folder)  # where the file system has no links
        return trained.place(trained.best)

    @property
    def finished(self) -> bool:
        return read_object(self.folder / "summary.json") is not None

    @property
    def table(self) -> dict[str, dict[str, float | None]]:
        """The final table: metrics by row, shares between 0 and 1. Empty until the run is finished."""
        summary = read_object(self.folder / "summary.json")
        # A run that begins has no report spec yet.
        return summary_rows(summary, self.report_spec) if summary is not None else {}

    @property
    def strategies(self) -> dict[str, dict[str, Any]]:
        """Results of inference scaling (`whet.scale`, `whet eval --strategy`): records by critic, split and changed
        settings. Empty without any."""
        from whet.report.inference_scaling import read_scaling_records

        return {name: dict(record) for name, record in read_scaling_records(self.folder)}

    def plot(self, *names: str, phase: str | None = None) -> Plot:
        """A chart of metrics by their names in `metrics`, which a notebook shows:

            run.plot("reward/mean")
            run.plot("reward/mean", "validation/acc", phase="train").save("reward.svg")

        Args:
            names: of metrics. Long phases get a running mean.
            phase: only this one. None: all that have the metrics, one after another.
        Raises: ReportError where there is no such metric, with names that are near.
        """
        return plot(read_run(self.folder), names, phase)

    def report(self) -> Path:
        """Write `report.html`, one file that opens from disk.

        Returns: its path.
        """
        from whet.report.page import write_report

        return write_report(self.folder)

    def __repr__(self) -> str:
        return f"<Run {self.folder}: {self.settings.get('method', 'no method')}, {self._stands()}>"

    def _repr_html_(self) -> str:
        """Its table and curves, in a notebook."""
        return run_html(read_run(self.folder), f"{self.folder.name}: {self.settings.get('method')}, {self._stands()}")

    def __str__(self) -> str:
        """The table, as the terminal shows it; of an unfinished run, its phase and step."""
        if not self.finished:
            return repr(self)
        from rich.console import Console

        from whet.report.table import summary_tables

        console = Console(width=WIDTH, no_color=True, force_terminal=False)
        with console.capture() as shown:
            for table in summary_tables({"rows": self.table}, self.report_spec, width=WIDTH):
                console.print(table)
        return "\n".join(line.rstrip() for line in shown.get().split("\n")).strip("\n")

    def _stands(self) -> str:
        if self.finished:
            return "finished"
        rows = self.metrics
        return f"unfinished, {rows[-1].get('phase')} step {rows[-1].get('step')}" if rows else "unfinished, no step yet"


def _rows(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [dict(row) for file in files for row in read_rows(file)]
