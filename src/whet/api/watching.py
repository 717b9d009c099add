"""Reports the progress of a run started from Python: by bars, not at all, to a function, or to a `Progress` object."""

from __future__ import annotations

import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from whet.config import ConfigError
from whet.types import in_brief

if TYPE_CHECKING:
    from whet.trainer.loop import Progress

logger = logging.getLogger(__name__)
StepFunction = Callable[[str, int, int, Mapping[str, float | None]], object]
"""(phase, step, number of steps in the phase, metrics of a progress line)."""


class _Quiet:
    """Shows nothing, and logs notes and warnings."""

    def begin(self, phase: str, done: int, total: int) -> None: ...
    def step(self, step: int, shown: Mapping[str, float | None]) -> None: ...
    def end(self) -> None: ...

    def tell(self, level: str, text: str) -> None:
        logger.log(logging.WARNING if level == "warning" else logging.INFO, "%s", text)


class _EachStep(_Quiet):
    """Calls a function after each step."""

    def __init__(self, function: StepFunction) -> None:
        self._function = function
        self._phase, self._total = "", 0

    def begin(self, phase: str, done: int, total: int) -> None:
        self._phase, self._total = phase, total

    def step(self, step: int, shown: Mapping[str, float | None]) -> None:
        self._function(self._phase, step, self._total, shown)


def _watcher(progress: Progress | StepFunction) -> Progress:
    """Raises: ConfigError where it is neither an object nor a function of that form."""
    if all(callable(getattr(progress, name, None)) for name in ("begin", "step", "tell", "end")):
        return cast("Progress", progress)
    try:
        inspect.signature(cast(StepFunction, progress)).bind("", 0, 0, {})
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"progress = {in_brief(progress)} has to be True, False, a function that takes (phase, step, num_steps, "
            "metrics), or an object with begin, step, tell and end"
        ) from error
    return _EachStep(cast(StepFunction, progress))


def _notebook() -> Callable[[str, str], object] | None:
    """Draws in the output of the cell that runs, in one place. None: this is no notebook's kernel."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    shell = ipython.get_ipython() if ipython is not None else None
    if getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    place = display({"text/plain": ""}, raw=True, display_id=True)
    return lambda html, text: place.update({"text/html": html, "text/plain": text}, raw=True)


@contextmanager
def watched(progress: bool | Progress | StepFunction, titles: Mapping[str, str] | None = None) -> Iterator[Progress]:
    """The watcher of a run within this block, which closes its bars at the end.

    Args:
        titles: of phases, by name, for bars.
    Raises: ConfigError where `whet.train` does not take such a `progress`.
    """
    if not isinstance(progress, bool):
        yield _watcher(progress)
        return
    if not progress:
        yield _Quiet()
        return
    if show := _notebook():
        from whet.report.notebook_progress import NotebookProgress

        in_place = NotebookProgress(show, titles)
        try:
            yield in_place
        finally:
            in_place.close()
        return
    from rich.console import Console

    from whet.report.progress import RichProgress

    shown = RichProgress(Console(), titles)
    try:
        yield shown
    finally:
        shown.close()
