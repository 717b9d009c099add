"""The servers of a run: which weights they hold, who asks them, and how new weights reach all of them.

Engines of several policies may share them, such as a trained policy's and that of its best weights. Then the servers
load the weights of the one that asks, and are probed, each time that another one asks.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from whet.engines.vllm_probe import Answers, Probe, check_probe, new_probe
from whet.engines.vllm_replies import Aborted, Sent, body_of, read_prompt_logprobs, read_reply
from whet.engines.vllm_server import LostMeanwhile, Server, ServerError, ServerHangs, ServerLost
from whet.errors import RunError
from whet.models.policy import Policy
from whet.types import Completion, Request, Sampling

T = TypeVar("T")
ABORTS = 5
"""Times that a reply may be cut off and is asked for again."""
MOST_LOST = 10
"""Times that a server may be lost in a session."""
LOOK_EVERY_S = 0.5
"""Seconds between two looks whether a lost server is back."""
GONE: dict[str, str] = {}
"""By url, why a server will not come back, where whoever started it says so."""
logger = logging.getLogger(__name__)


class NoServer(RunError):
    """All servers are lost: the request may be sent again once one is back."""


@dataclass(frozen=True)
class Held:
    """Weights that servers were given."""

    policy: Policy
    version: int
    label: str
    folder: Path


@dataclass
class Servers:
    """All servers of one setting, in one event loop of a thread of its own.

    Args:
        urls: as in `EngineConfig`.
        folder: where weights are saved for them.
        dtype: of the trainer's weights, for advice.
    """

    urls: tuple[str, ...]
    limit_s: float
    folder: Path
    dtype: str
    held: Held | None = None
    """What all of them hold. None: nothing of this run."""
    labels: dict[str, int] = field(default_factory=dict)
    """Versions of all weights that were sent, by label, the oldest first."""
    num_open: int = 0
    """Requests under way."""

    def __post_init__(self) -> None:
        self.nonce = secrets.token_hex(4)
        self._rng = random.Random(self.nonce)
        self._num_asked = 0
        self._seen: set[str] = set()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="vllm", daemon=True).start()
        weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)
        self.servers: list[Server] = []
        self.lost: dict[Server, ServerError] = {}
        """Servers that get no requests, and why."""
        self.num_lost = 0
        self._losses: Counter[Server] = Counter()
        """How often each was lost."""

    # --- the thread ---------------------------------------------------------------------------------------------------

    def later(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _each(self, servers: Sequence[Server], ask: Callable[[Server], Awaitable[T]]) -> list[T | ServerError]:
        """The answers of servers that are asked at one time, or their errors. Raises: any other error."""

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(ask(server) for server in servers), return_exceptions=True)

        answers = self.later(all_of_them()).result()
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, ServerError):
                raise answer
        return answers

    # --- weights ------------------------------------------------------------------------------------------------------

    def hold(self, held: Held, *, goes_on: bool = False) -> None:
        """See that all servers hold these weights, and prove it by a probe.

        Args:
            goes_on: whether requests of the same policy that are open go on by the new weights.
        Raises: RunError where one does not, or where other weights have requests open.
        """
        if self.held is held:
            if self.lost:
                self.revive(waits=not self.alive)
            return
        if self.num_open and not (goes_on and self.held is not None and self.held.policy is held.policy):
            raise RunError(
                f"servers of vLLM hold one model at a time, and {self.num_open} requests are open where "
                f"{held.policy.title} is to be sampled: set engine.rollout=lockstep"
            )
        self._connect()
        self._seen.clear()
        self.held = None  # until the probe is over they hold nobody knows what
        self.labels.pop(held.label, None)  # it becomes the newest
        self.labels[held.label] = held.version
        self._give(held, self.alive)
        self.held = held
        if self.lost:
            self.revive(waits=not self.alive)

    def _connect(self) -> None:
        """Look at all servers, before the first request. Raises: ServerError where one is not as it has to be."""
        if not self.servers:
            servers = [Server(url, self.limit_s, self.dtype) for url in self.urls]
            for answer in self._each(servers, lambda server: server.look()):
                if isinstance(answer, ServerError):
                    raise answer
            self.servers = servers

    def _give(self, held: Held, servers: Sequence[Server]) -> None:
        """Have servers load weights, and probe them. Those that cannot be reached are lost.

        Raises: ServerError where one hangs, refuses, or does not hold them.
        """
        probe = new_probe(held.policy, self._rng)

        async def sync(server: Server) -> Answers:
            await server.sync(str(held.folder), held.label, is_writing=self.num_open > 0)
            return await self._answers(server, probe, held)

        for server, answers in zip(servers, self._each(servers, sync), strict=True):
            if isinstance(answers, ServerLost):
                self._lose(server, answers)
            elif isinstance(answers, ServerError):
                raise answers
            else:
                check_probe(held.policy, probe, answers, server.url, held.label)
                self.lost.pop(server, None)

    # --- servers that die ---------------------------------------------------------------------------------------------

    @property
    def alive(self) -> list[Server]:
        return [server for server in self.servers if server not in self.lost]

    def _lose(self, server: Server, error: ServerError) -> None:
        """Note that a server is lost. Raises: ServerError after `MOST_LOST` of them."""
        if server not in self.lost:
            self.lost[server] = error
            self.num_lost += 1
            self._losses[server] += 1
            logger.warning("%s. Others get its requests, and it gets the newest weights once it is back", error)
        if self.num_lost > MOST_LOST:
            raise ServerError(f"servers were lost {self.num_lost} times, the last time as follows: {error}")

    def revive(self, *, waits: bool) -> None:
        """Give the newest weights to lost servers that are back, and probe them before they serve again.

        Args:
            waits: until one is back, where none is left.
        Raises: ServerError where none comes back in time, or one that does is not as it has to be.
        """
        assert self.held is not None
        until = time.monotonic() + self.limit_s
        while True:
            back = list(self.lost)
            looked = self._each(back, lambda server: server.look())
            back = [server for server, answer in zip(back, looked, strict=True) if not isinstance(answer, ServerError)]
            self._give(self.held, back)
            if self.alive or not waits:
                return
            if why := next((GONE[server.url] for server in self.lost if server.url in GONE), ""):
                raise ServerError(why)
            if time.monotonic() > until:
                error = next(iter(self.lost.values()))
                raise ServerError(f"no server came back in {self.limit_s:g} s (engine.limit_s): {error}")
            time.sleep(LOOK_EVERY_S)

    async def _answers(self, server: Server, probe: Probe, held: Held) -> Answers:
        scores = await asyncio.gather(*(self._scores(server, prompt, held) for prompt in probe.prompts))
        replies = await asyncio.gather(*(self._reply(server, request, held) for request in probe.requests))
        return Answers(scores, replies)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _sent(self, request: Request, held: Held) -> Sent:
        self._num_asked += 1
        prefix = f"whet-{self.nonce}-"
        versions: Mapping[str, int] = {held.label: held.version}
        return Sent(request, f"{prefix}{self._num_asked}", prefix, versions)

    def _since(self, held: Held) -> dict[str, int]:
        """Versions of the weights that were sent from these on, by label: newer ones may go on with a reply."""
        labels = list(self.labels)
        return {label: self.labels[label] for label in labels[labels.index(held.label) :]}

    async def reply(self, request: Request, held: Held) -> tuple[Server, Completion]:
        """Ask the server with the fewest requests. Raises: NoServer, ServerError."""

        async def ask(server: Server) -> tuple[Server, Completion]:
            return server, await self._reply(server, request, held)

        return await self._ask(ask)

    async def _ask(self, ask: Callable[[Server], Awaitable[T]]) -> T:
        """An answer of any server; of another one where a server is lost meanwhile. Raises: NoServer, ServerError."""
        while alive := self.alive:
            server = min(alive, key=lambda server: server.num_open)
            try:
                return await ask(server)
            except LostMeanwhile:
                continue
            except (ServerLost, ServerHangs) as error:
                self._lose(server, error)
        raise NoServer("no server is left")

    async def _reply(self, server: Server, request: Request, held: Held) -> Completion:
        for _ in range(ABORTS):
            sent, losses = self._sent(request, held), self._losses[server]
            reply = await server.generate(body_of(request, sent.id, held.policy.stop_ids))
            self._check_new(reply, server)
            try:
                return read_reply(reply, replace(sent, versions=self._since(held)), held.policy, server.url)
            except Aborted:  # a cut is no stop: what came is dropped, and the same seed is asked again
                continue
            except ServerError:
                label = await server.weight_label()
                if self._losses[server] > losses:  # another reply has told of it, and it may have the weights by now
                    raise LostMeanwhile(f"the server {server.url} was lost while it wrote a reply") from None
                if label in self._since(held):
                    raise
                raise ServerLost(
                    f"the server {server.url} was started again: it has weights labelled {label!r}, and was given "
                    f"{held.label!r}"
                ) from None
        raise ServerError(
            f"the server {server.url} cut the same reply off {ABORTS} times: another program pauses it or aborts its "
            "requests, and has to leave it to this run"
        )

    def _check_new(self, reply: Any, server: Server) -> None:
        named = str(reply.get("request_id", "")) if isinstance(reply, Mapping) else ""
        if named in self._seen:
            raise ServerError(
                f"the server {server.url} gave the reply {named} twice: look for a proxy or cache before it, and "
                "resume the run: its last checkpoint is whole"
            )
        if named:
            self._seen.add(named)

    def scores(self, prompts: Sequence[Sequence[int]], held: Held) -> list[list[float]]:
        """[T - 1] logprobs of each prompt's tokens but the first, at temperature 1."""

        async def of_one(prompt: Sequence[int]) -> list[float]:
            return await self._ask(lambda server: self._scores(server, prompt, held))

        async def all_of_them() -> list[list[float]]:
            return await asyncio.gather(*map(of_one, prompts))

        while True:
            try:
                return self.later(all_of_them()).result()
            except NoServer:
                self.revive(waits=True)

    async def _scores(self, server: Server, prompt: Sequence[int], held: Held) -> list[float]:
        request = Request(context=tuple(prompt), sampling=Sampling(max_new_tokens=1), seed=0)
        sent = self._sent(request, held)
        body = body_of(request, sent.id, ())
        body["sampling_params"]["prompt_logprobs"] = 0
        reply = await server.generate(body)
        self._check_new(reply, server)
        return read_prompt_logprobs(reply, sent, server.url)
