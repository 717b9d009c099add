"""Runs flows: plain coroutines that ask for things (`await Ask(...)`) and branch (`await together(...)`).

The driver runs every flow until it waits, gathers what all of them ask of one service, hands it over as one batch,
and goes on. It is single-threaded and first-in-first-out throughout, so a play is a pure function of its flows and
services: the same requests reach the engines in the same order every time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

GRADER = "grader"
"""The service that grades: payloads `(reply, task)`, answers `Grade`."""
T = TypeVar("T")
Flow = Coroutine[Any, Any, T]
Service = Callable[[Sequence[Any]], Sequence[Any]]
"""Answers a batch of payloads, one answer each, in order."""


@dataclass(frozen=True, slots=True)
class Ask:
    """`await Ask(service, payload)` gives the service's answer."""

    service: str
    payload: Any

    def __await__(self) -> Generator[Ask, Any, Any]:
        return (yield self)


@dataclass(frozen=True, slots=True)
class _Fork:
    flows: tuple[Flow[Any], ...]

    def __await__(self) -> Generator[_Fork, Any, Any]:
        return (yield self)


async def together(flows: Iterable[Flow[T]]) -> list[T]:
    """Run flows side by side; their results in the order given."""
    return await _Fork(tuple(flows))


@dataclass(eq=False)
class _Task:
    flow: Flow[Any]
    parent: _Task | None
    place: int
    results: list[Any] = field(default_factory=list)
    """Of the flows it forked."""
    missing: int = 0


def play(flows: Iterable[Flow[T]], services: Mapping[str, Service]) -> list[T]:
    """Run the flows to their ends.

    Args:
        services: by the name that flows ask for: an engine's `generate`, a grader's `grade`, ...
    Returns: the flows' results, in order.
    Raises: what a service or a flow raises; the other flows are closed then.
    """
    root = _Task(together([]), None, 0)
    root.flow.close()
    every = _children(root, tuple(flows))
    ready: deque[tuple[_Task, Any]] = deque((task, None) for task in every)
    waiting: dict[str, list[tuple[_Task, Any]]] = {}
    try:
        while ready or waiting:
            while ready:
                every += _advance(*ready.popleft(), ready, waiting)
            if waiting:
                # The longest queue first: the other one can only grow meanwhile, so that batches stay large.
                name = max(waiting, key=lambda service: len(waiting[service]))
                asked = waiting.pop(name)
                answers = services[name]([payload for _, payload in asked])
                ready.extend((task, answer) for (task, _), answer in zip(asked, answers, strict=True))
    finally:
        for task in every:
            task.flow.close()
    return root.results


def _advance(
    task: _Task, value: Any, ready: deque[tuple[_Task, Any]], waiting: dict[str, list[tuple[_Task, Any]]]
) -> list[_Task]:
    """Run a flow until it asks, forks or ends. Returns: the flows that it forked."""
    try:
        wish = task.flow.send(value)
    except StopIteration as end:
        parent = task.parent
        assert parent is not None
        parent.results[task.place] = end.value
        parent.missing -= 1
        if parent.missing == 0 and parent.parent is not None:
            ready.append((parent, parent.results))
        return []
    if isinstance(wish, Ask):
        waiting.setdefault(wish.service, []).append((task, wish.payload))
        return []
    children = _children(task, wish.flows)
    ready.extend((child, None) for child in children)
    if not children:
        ready.append((task, []))
    return children


def _children(parent: _Task, flows: tuple[Flow[Any], ...]) -> list[_Task]:
    parent.results, parent.missing = [None] * len(flows), len(flows)
    return [_Task(flow, parent, place) for place, flow in enumerate(flows)]
