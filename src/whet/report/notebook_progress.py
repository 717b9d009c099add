"""Shows a run's progress in a notebook: a bar for each phase, with the curve of its first metric, in one place."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from markupsafe import escape

from whet.report.progress import clock_text, metric_texts
from whet.report.spec import title_of
from whet.report.svg import chart_svg

EVERY_S = 0.25
"""Seconds between two drawings, at least."""
MAX_POINTS = 300
"""Of the small curve."""

Show = Callable[[str, str], object]
"""Draws HTML in the place of what it drew before. The second text is for readers without HTML."""


class NotebookProgress:
    """A line for each phase: name, bar, count, time left and metrics. Notes stand below them.

    Args:
        show: called with HTML and text.
        titles: of the phases. Others get titles from their names.
        clock: seconds, monotonic.
    """

    def __init__(
        self, show: Show, titles: Mapping[str, str] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._show, self.titles, self._clock = show, titles or {}, clock
        self._ended: list[tuple[str, str]] = []
        """HTML and text of each phase that has ended."""
        self._notes: list[tuple[str, str]] = []
        self._name, self._done, self._step, self._total = "", 0, 0, 0
        self._metrics: tuple[str, ...] = ()
        self._curve_name, self._curve = "", list[tuple[int, float]]()
        self._began, self._drawn = 0.0, float("-inf")

    def begin(self, phase: str, done: int, total: int) -> None:
        self._name, self._done, self._step, self._total = self.titles.get(phase) or title_of(phase), done, done, total
        self._metrics, self._curve_name, self._curve = (), "", []
        self._began = self._clock()
        self._draw(is_due=True)

    def step(self, step: int, shown: Mapping[str, float | None]) -> None:
        self._step, self._metrics = step, metric_texts(shown)
        first = next(((name, value) for name, value in shown.items() if value is not None), None)
        if first is not None:
            self._curve_name = self._curve_name or first[0]
            if (value := shown.get(self._curve_name)) is not None:
                self._curve.append((step, value))
        self._draw(is_due=step == self._total)

    def tell(self, level: str, text: str) -> None:
        self._notes.append(("look" if level == "warning" else "note", text))
        self._draw(is_due=True)

    def end(self) -> None:
        if self._name:
            self._step = self._total
            self._ended.append(self._line())
            self._name = ""
            self._draw(is_due=True)

    def close(self) -> None:
        self._draw(is_due=True)

    def _draw(self, *, is_due: bool) -> None:
        now = self._clock()
        if not is_due and now - self._drawn < EVERY_S:
            return
        self._drawn = now
        lines = [*self._ended, *([self._line()] if self._name else [])]
        notes = "".join(f"<p><b>{kind}:</b> {escape(text)}</p>" for kind, text in self._notes)
        html = f"<table>{''.join(line for line, _ in lines)}</table>{notes}"
        text = [*(text for _, text in lines), *(f"{kind}: {said}" for kind, said in self._notes)]
        self._show(html, "\n".join(text))

    def _line(self) -> tuple[str, str]:
        """The phase as a row of HTML, and as text."""
        spent = self._clock() - self._began
        made = self._step - self._done
        is_over = self._step >= self._total
        left = None if made <= 0 else spent / made * (self._total - self._step)
        when = f"in {clock_text(spent)}" if is_over else f"{clock_text(left)} left"
        count, metrics = f"{self._step}/{self._total}", "  ".join(self._metrics)
        cells = (
            escape(self._name),
            f'<progress value="{self._step}" max="{max(1, self._total)}"></progress>',
            escape(count),
            escape(when),
            escape(metrics),
            self._small_curve(),
        )
        row = "".join(f'<td style="text-align:left;white-space:nowrap">{cell}</td>' for cell in cells)
        return f"<tr>{row}</tr>", f"{self._name} {count}  {when}  {metrics}".rstrip()

    def _small_curve(self) -> str:
        if len(self._curve) < 2:
            return ""
        every = -(-len(self._curve) // MAX_POINTS)
        points = self._curve[::every]
        places = {"x": [x for x, _ in points], "y": [y for _, y in points]}
        series = {"name": self._curve_name, "colour": "blue", "kind": "train", **places}
        chart = {"title": self._curve_name, "unit": "number", "staged": False, "series": [series]}
        return chart_svg(chart, is_small=True)
