"""Shows a run's progress: phase, step, time left, and the metrics that matter now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Table
from rich.text import Text

from whet.report.spec import title_of

EVERY_S = 5.0
"""Seconds between two lines if the output is no terminal."""
NAME_WIDTH, BAR_WIDTH = 18, 20
"""Columns of a phase's name and of its bar. With count and time left they take 60 of a terminal's 80."""


def print_note(console: Console, markup: str) -> None:
    """Prints a sentence: wrapped between words at a terminal, and as one line in a file or a pipe."""
    console.print(markup, soft_wrap=not console.is_terminal, highlight=False)


class RichProgress:
    """A bar for each phase. If the output is no terminal, a line every few seconds.

    Args:
        titles: of the phases, as in a report spec's `phases`. Others get titles from their names.
        clock: seconds, monotonic.
    """

    def __init__(
        self, console: Console, titles: Mapping[str, str] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console, self.titles, self._clock = console, titles or {}, clock
        self._bars = Progress(_Line(console), console=console, get_time=clock)
        self._task: TaskID | None = None
        self._name, self._total, self._done = "", 0, 0
        self._began = 0.0
        self._spoke: float | None = None
        """Time of the last line. None: this phase has none yet."""

    def begin(self, phase: str, done: int, total: int) -> None:
        self._name, self._total, self._done = self.titles.get(phase) or title_of(phase), total, done
        self._began, self._spoke = self._clock(), None
        if not self.console.is_terminal:
            self.console.print(
                f"{self._name}: {total} {'step' if total == 1 else 'steps'}"
                + (f", {done} of them done" if done else "")
            )
            return
        self._bars.start()
        self._task = self._bars.add_task(self._name, total=total, completed=done, shown=())

    def step(self, step: int, shown: Mapping[str, float | None]) -> None:
        metrics = metric_texts(shown)
        if self._task is not None:
            self._bars.update(self._task, completed=step, shown=metrics)
        else:
            self._say(step, metrics)

    def _say(self, step: int, metrics: Sequence[str]) -> None:
        """A line, if it is time for one: at the first step since `begin`, at the last, and every few seconds."""
        now = self._clock()
        if self._spoke is not None and step < self._total and now - self._spoke < EVERY_S:
            return
        self._spoke = now
        made = step - self._done
        left = (now - self._began) / made * (self._total - step) if made > 0 else None
        when = "" if step == self._total else f"{clock_text(left)} left"
        text = "  ".join(filter(None, (f"{self._name} {step}/{self._total}", when, *metrics)))
        self.console.print(f"  {text}", highlight=False, markup=False, soft_wrap=True)

    def tell(self, level: str, text: str) -> None:
        """Prints a line above the bar, where it stays.

        Args:
            level: of its event: `warning`, or `info`.
        """
        mark = "[bold yellow]look:[/bold yellow]" if level == "warning" else "[bold]note:[/bold]"
        print_note(self.console, f"{mark} {escape(text)}")

    def end(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=self._total)
            self._bars.stop_task(self._task)
            self._task = None

    def close(self) -> None:
        self._bars.stop()


class _Line(ProgressColumn):
    """A phase's line: name, bar, count and time left. Metrics, rate and time so far follow, as many as fit uncut."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console, self.bar = console, BarColumn(bar_width=BAR_WIDTH)

    def render(self, task: Task) -> RenderableType:
        name = task.description
        if cell_len(name) > NAME_WIDTH:
            name = set_cell_size(name, NAME_WIDTH - 1) + "…"
        count = f"{task.completed:.0f}/{task.total or 0:.0f}"
        spent = clock_text(task.finished_time if task.finished else task.elapsed)
        left = f" in {spent}" if task.finished else f"{clock_text(task.time_remaining)} left"
        widths = (NAME_WIDTH, BAR_WIDTH, max(7, len(count)), 12)
        details = (*task.fields["shown"], *(() if task.finished else (_rate(task), f"{spent} so far")))
        line = Table.grid(padding=(0, 1, 0, 0))
        for width in widths:
            line.add_column(width=width, no_wrap=True)
        line.add_column(no_wrap=True)
        rest = _fitting(filter(None, details), self.console.width - sum(widths) - len(widths))
        cells = (Text(count, "progress.download", justify="right"), Text(left, "progress.remaining"), Text(rest))
        line.add_row(Text(name), self.bar.render(task), *cells)
        return line


def _fitting(texts: Iterable[str], width: int) -> str:
    """As many of the first texts as fit uncut."""
    line = ""
    for text in texts:
        longer = f"{line}  {text}" if line else text
        if cell_len(longer) > width:
            break
        line = longer
    return line


def _rate(task: Task) -> str:
    speed = task.speed
    return "" if not speed else f"{speed:.1f} steps/s" if speed >= 1 else f"{1 / speed:.1f} s/step"


def metric_texts(metrics: Mapping[str, float | None]) -> tuple[str, ...]:
    """The metrics of a progress line, each as its short name and value. Those without a value are left out."""
    return tuple(f"{_short(name)} {_number(value)}" for name, value in metrics.items() if value is not None)


def clock_text(seconds: float | None) -> str:
    """`0:01:23`, or dashes for None."""
    if seconds is None:
        return "-:--:--"
    minutes, second = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{second:02}"


def _number(value: float) -> str:
    """Counts without decimals; a whole number below 2 may be a share."""
    return f"{value:.0f}" if value >= 2 and value == int(value) else f"{value:.3f}"


def _short(name: str) -> str:
    """`critique/acc_refine` is shown as `acc_refine`, `reward/mean` as `reward`."""
    area, _, statistic = name.rpartition("/")
    return area if statistic == "mean" else statistic
