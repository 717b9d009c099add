"""Users' callbacks: classes that are told what a run does. They read records, and have no way to the run itself.

They run in the run's process, so a slow one makes the run slow. What one raises is logged once, and the run goes on
unless `callbacks.on_error` is stop. Torch-free, so that a plug-in is loaded at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from whet.errors import WhetError
from whet.plugins import line_of, said
from whet.registry import Registry

CALLBACKS: Registry[Any] = Registry("callback")
"""Classes whose instances are told what a run does, by the names that `callbacks.use` has."""
HOOKS = ("begin", "step", "validation", "checkpoint", "end")
"""The methods that a callback may have. Each takes one record."""
C = TypeVar("C", bound=type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A session of a run begins: the first one, or one that resumes it."""

    run: Path
    """The run's folder."""
    config: Mapping[str, Any]
    """The run's settings as plain values."""
    is_resumed: bool
    total_steps: int
    """Steps of all phases that the session starts after. A resumed run makes those after its checkpoint again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMade:
    """A step is made, and its metrics are logged."""

    phase: str
    step: int
    """In the phase, from 1 on."""
    num_steps: int
    """Of the phase."""
    total_steps: int
    """Of all phases so far."""
    metrics: Mapping[str, float | None]
    """By name, as in metrics.jsonl. None: it could not be measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """A validation is made. Its step's own record comes after it."""

    phase: str
    step: int
    """0: before the phase's first step."""
    metrics: Mapping[str, float | None]
    """Their names begin with `validation/`, but for `time/validate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A checkpoint is written and whole."""

    folder: Path
    phase: str
    step: int
    """0: the phase has ended."""
    total_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A session of a run ends."""

    summary: Mapping[str, Any] | None
    """The contents of summary.json. None: the run has not finished."""
    reason: str
    """Why it has not finished. Empty: it has."""


def callback(name: str, *, says: str = "") -> Callable[[C], C]:
    """Registers a class, for `callbacks.use=[NAME]` in a config:

        @callback("bell")
        class Bell:
            def validation(self, record):
                print(record.phase, record.step, record.metrics["validation/acc"])

    A session of a run makes one instance, without arguments. It may have the methods begin, step, validation,
    checkpoint and end, each with one record.

    Args:
        says: a line about it. Empty: the docstring's first one.
    Raises: ValueError where it is no class, has none of the methods, or one that cannot be called with a record.
    """

    def register(kind: C) -> C:
        if not inspect.isclass(kind):
            raise ValueError(f"the callback {name!r} has to be a class, with one or more of {', '.join(HOOKS)}")
        hooks = [hook for hook in HOOKS if hasattr(kind, hook)]
        if not hooks:
            raise ValueError(f"the callback {name!r} has none of the methods {', '.join(HOOKS)}: write one")
        for hook in hooks:
            try:
                inspect.signature(getattr(kind, hook)).bind(None, None)
            except TypeError as error:
                raise ValueError(f"the callback {name!r} has to take (self, record) in {hook}: {error}") from error
        CALLBACKS.add(name, kind, says=says or (kind.__doc__ or "").strip().partition("\n")[0])
        return kind

    return register


@dataclass
class Callbacks:
    """The callbacks of a session, in the order of `callbacks.use`."""

    names: Sequence[str] = ()
    warn: Callable[[str], None] = lambda text: None
    """Is given a sentence on each callback that raises, once."""
    stop: Callable[[str], None] | None = None
    """Ends the run after its step, for a reason. None: what callbacks raise ends no run."""
    _instances: dict[str, Any] = field(default_factory=dict)
    _failed: dict[str, int] = field(default_factory=dict)
    """How often each one raised."""

    def check(self) -> None:
        """Raises: UnknownName where a name is not registered."""
        for name in self.names:
            CALLBACKS.entry(name)

    def call(self, hook: str, make_record: Callable[[], Any]) -> None:
        """Give all callbacks the record of a hook.

        Args:
            make_record: is called if there is a callback at all.
        """
        if not self.names:
            return
        record = make_record()
        for name in self.names:
            try:
                if name not in self._instances:
                    self._instances[name] = CALLBACKS.get(name)()
                if (method := getattr(self._instances[name], hook, None)) is not None:
                    method(record)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit and CancelledError too
                self._report(name, hook, error)

    def _report(self, name: str, hook: str, error: BaseException) -> None:
        self._failed[name] = self._failed.get(name, 0) + 1
        origin = CALLBACKS.entry(name).origin
        text = f"the callback {name!r} of {origin}{line_of(error, origin)} raised {said(error)} in {hook}"
        if self._failed[name] == 1:
            more = "the run ends after this step" if self.stop is not None else "the run goes on, and counts any more"
            self.warn(f"{text}; {more}")
        if self.stop is not None:
            self.stop(text)

    def close(self) -> None:
        """Report how often callbacks raised, where more than once."""
        for name, count in self._failed.items():
            if count > 1:
                self.warn(f"the callback {name!r} raised {count:,} times in this session")


def read_only(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """A copy that cannot be changed, its inner mappings and lists too."""
    return MappingProxyType({name: _frozen(value) for name, value in metrics.items()})


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return read_only(value)
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def reason_of(error: BaseException) -> str:
    """Why a session ended, in a line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return str(error).partition("\n")[0] if isinstance(error, WhetError) else said(error)
