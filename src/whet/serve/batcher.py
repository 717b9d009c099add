"""Requests of many clients, in batches: a queue, and one thread that takes from it and works the engine.

A request joins the next batch of its policy and gets its tokens as they come. Who no longer waits frees its place: in
the queue at once, in the running batch at the next token. One thread for all policies, as those with LoRA share a base.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
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
    """A request on its way."""

    policy: str
    request: Request
    wants_tokens: bool
    gone: bool = False
    """Nobody waits any more. Written by the loop's thread, read by the worker."""
    has_begun: bool = False
    """Tokens of it were handed out."""
    has_ended: bool = False
    queue: asyncio.Queue[Event | Exception] = field(default_factory=asyncio.Queue)


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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    @property
    def num_waiting(self) -> int:
        return sum(not ticket.gone for ticket in self._waiting)

    @property
    def num_running(self) -> int:
        """Requests in the batch that is written now and still has somebody waiting for it."""
        return sum(not ticket.gone for ticket in self._running)

    async def start(self) -> None:
        """Work for those who wait in the event loop that runs now."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self) -> None:
        """Refuse what comes now, finish what is there, and return when the worker is done."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    async def events(self, policy: str, request: Request, *, tokens: bool) -> AsyncIterator[Event]:
        """Tokens as they come if they are wanted, then the completion. Who stops iterating gives up the place.

        Raises: Overloaded, and what the engine raises.
        """
        ticket = Ticket(policy, request, tokens)
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
            onlooker = _Onlooker(batch, self._tell)
            try:
                self._engines[batch[0].policy].generate([ticket.request for ticket in batch], onlooker)
                onlooker.flush()
            except Exception as error:  # of one of them, nobody knows which
                onlooker.flush()
                self._alone([ticket for ticket in batch if not ticket.has_ended], error)
            self._running = ()

    def _alone(self, batch: Sequence[Ticket], error: Exception) -> None:
        """The requests of a batch that failed, one by one: only whose own fault it is hears of it, and who has tokens
        already that cannot be taken back."""
        for ticket in batch:
            onlooker, lost = _Onlooker([ticket], self._tell), error
            if len(batch) > 1 and not ticket.has_begun:
                try:
                    self._engines[ticket.policy].generate([ticket.request], onlooker)
                    onlooker.flush()
                    continue
                except Exception as own:
                    lost = own
            self._tell([(ticket, lost)])

    def _tell(self, news: Sequence[tuple[Ticket, Event | Exception]]) -> None:
        """From the worker's thread to those who wait."""
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(_hand_out, news)

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


def _hand_out(news: Sequence[tuple[Ticket, Event | Exception]]) -> None:
    for ticket, event in news:
        ticket.queue.put_nowait(event)


@dataclass
class _Onlooker:
    """Gathers a batch's news, and tells those of one step together: the loop is woken once a step and not once a
    token."""

    batch: Sequence[Ticket]
    tell: Callable[[Sequence[tuple[Ticket, Event]]], None]
    news: list[tuple[Ticket, Event]] = field(default_factory=list)

    def wrote(self, index: int, token: int, logprob: float) -> None:
        if self.batch[index].wants_tokens:
            self.batch[index].has_begun = True
            self.news.append((self.batch[index], (token, logprob)))

    def ended(self, index: int, completion: Completion) -> None:
        self.batch[index].has_ended = True
        self.news.append((self.batch[index], completion))

    def gone(self) -> Collection[int]:
        self.flush()
        return {index for index, ticket in enumerate(self.batch) if ticket.gone}

    def flush(self) -> None:
        if self.news:
            self.tell(self.news)
            self.news = []
