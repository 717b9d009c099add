"""Requests of many clients, in batches: a queue, and one thread that takes from it and works the engine.

A request joins the next batch of its policy and gets its tokens as they come. Who no longer waits frees its place: in
the queue at once, in the running batch at the next token. One thread for all policies, as those with LoRA share a base.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from whet.config.parts import EngineConfig
from whet.engines.local import LocalEngine
from whet.models.policy import Policy
from whet.types import Completion, Request

MAX_WAITING = 1024
"""Requests that may wait; more are refused."""

Event = tuple[int, float] | Completion
"""A token with its logprob; at last the completion."""


class Overloaded(Exception):
    """The queue is full, or the server is closing."""


@dataclass(eq=False)
class Ticket:
    """A request on its way, of one event loop."""

    policy: str
    request: Request
    loop: asyncio.AbstractEventLoop
    gone: bool = False
    """Nobody waits any more. Written by the loop's thread, read by the worker."""
    queue: asyncio.Queue[Event | Exception] = field(default_factory=asyncio.Queue)

    def tell(self, event: Event | Exception) -> None:
        """From the worker's thread to whoever waits."""
        try:
            self.loop.call_soon_threadsafe(self.queue.put_nowait, event)
        except RuntimeError:  # the loop is closed: nobody waits
            self.gone = True


class Batcher:
    """See the module's docstring.

    Args:
        policies: by name.
        settings: of the engine; at most `max_rows` requests are in work at a time.
    """

    def __init__(self, policies: Mapping[str, Policy], settings: EngineConfig) -> None:
        self.max_rows = settings.max_rows
        self._engines = {
            name: LocalEngine(policy, max_rows=settings.max_rows, prefill_tokens=settings.prefill_tokens)
            for name, policy in policies.items()
        }
        self._waiting: deque[Ticket] = deque()
        self._running: Sequence[Ticket] = ()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    @property
    def num_waiting(self) -> int:
        return sum(not ticket.gone for ticket in self._waiting)

    @property
    def num_running(self) -> int:
        """Requests in the batch that is written now and still has somebody waiting for it."""
        return sum(not ticket.gone for ticket in self._running)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Refuse what comes now, finish what is there, and return when the worker is done."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    async def events(self, policy: str, request: Request) -> AsyncIterator[Event]:
        """Tokens as they come, then the completion. Who stops iterating gives up the place.

        Raises: Overloaded, and what the engine raises.
        """
        ticket = Ticket(policy, request, asyncio.get_running_loop())
        with self._changed:
            if self._closing or self.num_waiting >= MAX_WAITING:
                raise Overloaded
            self._waiting.append(ticket)
            self._changed.notify_all()
        try:
            while True:
                event = await ticket.queue.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                if isinstance(event, Completion):
                    return
        finally:
            ticket.gone = True

    def _work(self) -> None:
        while batch := self._next_batch():
            self._running = batch
            try:
                self._engines[batch[0].policy].generate([ticket.request for ticket in batch], _Watched(batch))
            except Exception as error:  # theirs to answer for; the next batch may do
                for ticket in batch:
                    ticket.tell(error)
            self._running = ()

    def _next_batch(self) -> list[Ticket]:
        """Of the policy whose request waits longest, all that fit. Empty: the server closes, and all is done."""
        with self._changed:
            while True:
                self._waiting = deque(ticket for ticket in self._waiting if not ticket.gone)
                if self._waiting or self._closing:
                    break
                self._changed.wait()
            policy = self._waiting[0].policy if self._waiting else ""
            batch = [ticket for ticket in self._waiting if ticket.policy == policy][: self.max_rows]
            taken = set(map(id, batch))
            self._waiting = deque(ticket for ticket in self._waiting if id(ticket) not in taken)
            return batch


@dataclass(frozen=True)
class _Watched:
    """Tells each ticket of a batch what is its own."""

    batch: Sequence[Ticket]

    def wrote(self, index: int, token: int, logprob: float) -> None:
        self.batch[index].tell((token, logprob))

    def ended(self, index: int, completion: Completion) -> None:
        self.batch[index].tell(completion)
        self.batch[index].gone = True  # it has all it waits for

    def gone(self) -> Collection[int]:
        return {index for index, ticket in enumerate(self.batch) if ticket.gone}
