"""Who watches a run that Python started: bars, nobody, a function of the caller's, or an object that is told all."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from whet.config import ConfigError
from whet.types import in_brief

if TYPE_CHECKING:
    from whet.trainer.loop import Progress

logger = logging.getLogger(__name__)
StepFunction = Callable[[str, int, int, Mapping[str, float | None]], object]
"""Takes the phase, the step, the number of steps in the phase, and the metrics that a progress line shows."""


class _Quiet:
    """Shows nothing; what should be known is logged."""

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
    """Raises: ConfigError where it is neither."""
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


@contextmanager
def watched(progress: bool | Progress | StepFunction, titles: Mapping[str, str] | None = None) -> Iterator[Progress]:
    """Who is told of what is done within this block; bars are closed at its end.

    Args:
        titles: of phases, by name, for bars.
    Raises: ConfigError where `progress` is none of those that `whet.train` takes.
    """
    if not isinstance(progress, bool):
        yield _watcher(progress)
        return
    if not progress:
        yield _Quiet()
        return
    from rich.console import Console

    from whet.report.progress import RichProgress

    shown = RichProgress(Console(), titles)
    try:
        yield shown
    finally:
        shown.close()
