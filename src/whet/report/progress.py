"""What the user sees while a run goes on: phase, step, rate, time left, and the numbers that matter now."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from whet.runs.sheet import title_of


class RichProgress:
    """A bar a phase; where the output is no terminal, a line now and then.

    Args:
        titles: of the phases, as in a sheet's `phases`; others are called what their names say.
    """

    def __init__(self, console: Console, titles: Mapping[str, str] | None = None) -> None:
        self.console, self.titles = console, titles or {}
        self._bars = Progress(
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("[cyan]{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[shown]}"),
            console=console,
        )
        self._task: TaskID | None = None
        self._name, self._total = "", 0

    def begin(self, phase: str, done: int, total: int) -> None:
        self._name, self._total = self.titles.get(phase) or title_of(phase), total
        if not self.console.is_terminal:
            self.console.print(
                f"{self._name}: {total} {'step' if total == 1 else 'steps'}"
                + (f", {done} of them done" if done else "")
            )
            return
        self._bars.start()
        self._task = self._bars.add_task(self._name, total=total, completed=done, shown="", rate="")

    def step(self, step: int, shown: Mapping[str, float | None]) -> None:
        text = "  ".join(f"{_short(name)} {value:.3f}" for name, value in shown.items() if value is not None)
        if self._task is not None:
            speed = self._bars.tasks[self._task].speed
            rate = "" if not speed else f"{speed:.1f} steps/s" if speed >= 1 else f"{1 / speed:.1f} s/step"
            self._bars.update(self._task, completed=step, shown=text, rate=rate)
        elif step % max(1, self._total // 4) == 0 or step == self._total:
            self.console.print(f"  {self._name} {step}/{self._total}  {text}", highlight=False)

    def tell(self, level: str, text: str) -> None:
        """A line above the bar, where it stays.

        Args:
            level: of the event that it is about: `warning`, or `info`.
        """
        mark = "[bold yellow]look:[/bold yellow]" if level == "warning" else "[bold]note:[/bold]"
        self.console.print(f"{mark} {escape(text)}", soft_wrap=True, highlight=False)

    def end(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=self._total)
            self._bars.stop_task(self._task)
            self._task = None

    def close(self) -> None:
        self._bars.stop()


def _short(name: str) -> str:
    """`critique/acc_refine` is shown as `acc_refine`, `reward/mean` as `reward`."""
    area, _, what = name.rpartition("/")
    return area if what == "mean" else what
