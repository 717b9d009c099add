"""Comparing runs from Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from whet.api.run import WIDTH, Run
from whet.report.comparison import Comparison, compare_runs


@dataclass(frozen=True, repr=False)
class ComparedRuns(Comparison):
    """Runs beside one another, as `whet.compare` makes it. Printed, it shows its tables."""

    def report(self, path: str | Path = "comparison.html") -> Path:
        """Write a page with the tables and the curves, one file that opens from disk.

        Returns: its path.
        Raises: RunError where it cannot be written.
        """
        from whet.report.comparison_page import write_comparison

        return write_comparison(self, Path(path))

    def __repr__(self) -> str:
        return f"<ComparedRuns: {', '.join(f'{arm.name} ({len(arm.runs)})' for arm in self.arms)}>"

    def __str__(self) -> str:
        """The tables and the notes, as the terminal shows them."""
        from rich.console import Console

        from whet.report.comparison_tables import print_comparison

        console = Console(width=WIDTH, no_color=True, force_terminal=False)
        with console.capture() as shown:
            print_comparison(self, console)
        return "\n".join(line.rstrip() for line in shown.get().split("\n")).strip("\n")


def compare(*runs: str | Path | Run) -> ComparedRuns:
    """Compare runs: what their settings differ in, their tables, and differences paired by seed.

        compared = whet.compare("runs/grpo0", "runs/grpo1", "runs/rloo0", "runs/rloo1")
        print(compared)
        pandas.DataFrame(compared.rows)

    Runs whose settings are the same but for the seed are one arm. The first run's arm is what others are compared with.

    Args:
        runs: folders or runs, finished or not, two at least.
    Raises: ReportError where a folder holds no run, or there are fewer than two.
    """
    compared = compare_runs([run.folder if isinstance(run, Run) else run for run in runs])
    return ComparedRuns(compared.arms, compared.differing, compared.notes)
