"""Batches the requests of many clients: a queue, and one thread that takes from it and runs the engine.

A request joins its policy's running batch at the next token, and gets its tokens as they come. A client that leaves
frees its place: in the queue at once, in the running batch at the next token. One thread serves all policies, as those
with LoRA share a base.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from whet.config.parts import EngineConfig
from whet.engines.building import engine_of
from whet.engines.protocol import Engine, Wrote
from whet.errors import ConstraintError
from whet.models.policy import Policy
from whet.serve.schemas import ApiError
from whet.types import Completion, Failure, Request, Token

logger = logging.getLogger(__name__)

MAX_WAITING = 1024
"""Requests that may wait; more are refused."""

Event = Token | Completion
"""The last event is the completion."""


class Overloaded(ApiError):
    """The queue is full, or the server is closing."""

    def __init__(self) -> None:
        super().__init__(429, "too many requests wait already; try again in a moment", code="overloaded")


@dataclass(eq=False)
class Ticket:
    """A request in the queue or in work."""

    policy: str
    request: Request
    wants_tokens: bool
    gone: bool = False
    """The client has left. Written by the loop's thread, read by the worker."""
    has_begun: bool = False
    """Tokens of it were sent."""
    written: list[Token] = field(default_factory=list)
    """Tokens that are not sent yet."""
    queue: asyncio.Queue[Event | Exception] = field(default_factory=asyncio.Queue)

    @property
    def wrote(self) -> Wrote | None:
        """Callback for tokens as they come. None: they are not wanted."""
        return self.written.append if self.wants_tokens else None


class Scheduler:
    """See the module's docstring.

    Args:
        policies: by name.
        settings: of the engines. At most as many requests are in work at a time as each has the capacity for.
    """

    def __init__(self, policies: Mapping[str, Policy], settings: EngineConfig) -> None:
        self._engines = {name: engine_of(policy, settings) for name, policy in policies.items()}
        self.max_rows = min((engine.capacity for engine in self._engines.values()), default=settings.max_rows)
        self._waiting: deque[Ticket] = deque()
        """A client waits for each. One that leaves takes its ticket out."""
        self._going: dict[str, dict[int, Ticket]] = {name: {} for name in policies}
        """In work, by policy and number."""
        self._running = 0
        self._died: Exception | None = None
        """The error that ended the worker early."""
        self._changed = threading.Condition()
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    @property
    def num_waiting(self) -> int:
        """Raises: ApiError where the worker is dead, so that an empty queue does not look healthy."""
        self._check()
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests in work."""
        return self._running

    def _check(self) -> None:
        if self._died is not None:
            raise ApiError(503, f"the engine has died, so restart the server: {self._died}"[:500], code="engine_died")

    async def start(self) -> None:
        """Start the worker for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def close(self) -> None:
        """Refuse new requests, finish the others, and return when the worker is done."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    async def events(self, policy: str, request: Request, *, tokens: bool) -> AsyncIterator[Event]:
        """Tokens as they come if they are wanted, then the completion. A caller that stops iterating frees its place.

        Raises: Overloaded, ApiError where the worker is dead, and what the engine raises.
        """
        ticket = Ticket(policy, request, tokens)
        with self._changed:
            self._check()
            if self._closing or len(self._waiting) >= MAX_WAITING:
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
            with self._changed:
                ticket.gone = True
                if ticket in self._waiting:
                    self._waiting.remove(ticket)

    def _work(self) -> None:
        try:
            self._until_closed()
        except Exception as error:  # nobody may wait for a dead worker
            logger.exception("the engine has died")
            with self._changed:
                self._died = error
                lost = [*self._waiting, *(ticket for tickets in self._going.values() for ticket in tickets.values())]
                self._waiting.clear()
            self._tell([(ticket, error) for ticket in lost])

    def _until_closed(self) -> None:
        number = 0
        while True:
            taken = dict(enumerate(self._new(wait=not any(self._going.values())), number))
            number += len(taken)
            for index, ticket in taken.items():
                self._going[ticket.policy][index] = ticket
            for index, ticket in taken.items():
                self._engines[ticket.policy].submit(index, ticket.request, ticket.wrote)
            if not any(self._going.values()):
                return
            for policy, tickets in self._going.items():
                if tickets:
                    self._step(self._engines[policy], tickets)
            self._running = sum(map(len, self._going.values()))

    def _step(self, engine: Engine, tickets: dict[int, Ticket]) -> None:
        """One step of an engine. Its tokens are sent together, so that the loop is woken once a step."""
        engine.cancel([number for number, ticket in tickets.items() if ticket.gone])
        try:
            ended = engine.advance()
        except Exception as error:  # one of the requests caused it, but which is unknown
            self._alone(engine, tickets, error)
            return
        news: list[tuple[Ticket, Event | Exception]] = []
        for ticket in tickets.values():
            news += [(ticket, token) for token in ticket.written]
            ticket.written.clear()
        for number, answer in ended:
            ticket = tickets.pop(number)
            news.append((ticket, _event(ticket.request, answer)))
        self._tell(news)

    def _alone(self, engine: Engine, tickets: dict[int, Ticket], error: Exception) -> None:
        """Run the requests of a failed batch one by one. Only those that fail again get the error, and those whose
        tokens were sent already."""
        going = list(tickets.values())
        tickets.clear()
        engine.restart()
        for ticket in going:
            result: Event | Exception = error
            if len(going) > 1 and not ticket.has_begun:
                try:
                    [result] = engine.generate([ticket.request])
                except ConstraintError as own_error:
                    result = _off_schema(str(own_error))
                except Exception as own_error:
                    result = own_error
            self._tell([(ticket, result)])

    def _tell(self, news: Sequence[tuple[Ticket, Event | Exception]]) -> None:
        """Pass events from the worker's thread to the waiting clients."""
        assert self._loop is not None
        for ticket, _ in news:
            ticket.has_begun = True
        if news:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(_hand_out, news)

    def _new(self, *, wait: bool) -> list[Ticket]:
        """Waiting requests, as many as there is room for. None after waiting: the server closes."""
        with self._changed:
            while wait and not self._waiting and not self._closing:
                self._changed.wait()
            room = min(self.max_rows - self._running, len(self._waiting))
            taken = [self._waiting.popleft() for _ in range(room)]
            self._running += len(taken)
            return taken


def _event(request: Request, answer: Completion | Failure) -> Completion | ApiError:
    """A request's end, for who waits. Its schema may fail it, or an engine of another machine."""
    if isinstance(answer, Completion):
        return answer
    if request.constraint is not None:
        return _off_schema(answer.reason)
    return ApiError(503, f"the engine failed: {answer.reason}"[:500], code="engine_failed")


def _off_schema(reason: str) -> ApiError:
    """Also of schemas that were compiled: some cost too much only in the middle of a reply."""
    message = f"response_format: the reply cannot go on by this schema ({reason}): write a simpler one"
    return ApiError(400, message, param="response_format", code="invalid_schema")


def _hand_out(news: Sequence[tuple[Ticket, Event | Exception]]) -> None:
    for ticket, event in news:
        ticket.queue.put_nowait(event)
