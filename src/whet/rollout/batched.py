"""Services that are functions of a batch: engines, graders, and a user's own; each runs in its caller's thread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.rollout.services import Answers, BatchFunction, Service


@dataclass
class Batched:
    """A function that answers a batch of payloads, one answer each, in order; run in the caller's thread."""

    answer: BatchFunction
    is_stepped: bool = False
    queued: Collection[int] = ()
    _asked: list[tuple[int, Any]] = field(default_factory=list)

    def submit(self, ticket: int, payload: Any) -> None:
        self._asked.append((ticket, payload))

    def advance(self, *, wait: bool) -> Answers:
        """All that was asked. What the function raises goes to the caller."""
        asked, self._asked = self._asked, []
        answers = self.answer([payload for _, payload in asked]) if asked else []
        return [(ticket, answer) for (ticket, _), answer in zip(asked, answers, strict=True)]

    def done(self, payloads: Sequence[Any]) -> None: ...

    def restart(self) -> None:
        self._asked = []


def service_of(given: Service | BatchFunction) -> Service:
    """A function that answers batches, as a service."""
    return Batched(given) if callable(given) else given
