"""Services that are functions of a batch: engines, graders and users' functions. They run in the caller's thread."""

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
        """Answers all pending requests. What the function raises goes to the caller."""
        pending, self._asked = self._asked, []
        answers = self.answer([payload for _, payload in pending]) if pending else []
        return [(ticket, answer) for (ticket, _), answer in zip(pending, answers, strict=True)]

    def done(self, payloads: Sequence[Any]) -> None: ...

    def restart(self) -> None:
        self._asked = []


def service_of(service: Service | BatchFunction) -> Service:
    """A function that answers batches, as a service."""
    return Batched(service) if callable(service) else service
