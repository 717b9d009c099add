"""The engine of a trained policy whose weights are on vLLM servers: token ids go there, and token ids come back.

It saves new weights to a folder, has all servers load them, and proves by a probe that each did. One in so many replies
is scored again by the trainer's weights. What does not fit ends the run before anything is trained on it.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future
from concurrent.futures import wait as wait_for
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whet.config.base import ConfigError
from whet.config.parts import EngineConfig
from whet.engines.agreement import REPEATED, apart
from whet.engines.protocol import Weights, Wrote
from whet.engines.vllm_replies import unfit
from whet.engines.vllm_server import Server, ServerError
from whet.engines.vllm_servers import Held, NoServer, Servers
from whet.errors import RunError
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.types import Completion, Failure, Request, Row, tail_row

RESCORED = 16
"""Of a server's replies, the first after each update and then one in so many are scored again."""
BUDGET = 4096
"""Tokens of one pass over them."""

Answer = tuple[Server, Completion]


class VllmEngine:
    """An `Engine` (`whet.engines.protocol`) on servers of vLLM.

    Args:
        policy: whose copy in this process says what the servers' weights have to give.
    Raises: ConfigError where `httpx` is not installed, or the policy is an adapter.
    """

    is_stepped = False
    queued: Collection[int] = ()

    def __init__(self, policy: Policy, settings: EngineConfig) -> None:
        check_whole(policy)
        self.policy, self.max_rows = policy, settings.max_rows
        self.servers = servers_of(settings, str(policy.dtype).removeprefix("torch."))
        self.num_tokens = 0
        self._held: Held | None = None
        self._num_sent = 0
        self._open: dict[int, tuple[Request, Wrote | None, Future[Answer]]] = {}
        self._gone: set[int] = set()
        self.goes_on = False
        """Whether open requests go on by new weights, in asynchronous training. False: none may be open then."""
        self._replies: Counter[str] = Counter()
        """Since the last update, by server."""

    @property
    def capacity(self) -> int:
        return self.max_rows

    @property
    def num_open(self) -> int:
        return len(self._open)

    # --- sampling -----------------------------------------------------------------------------------------------------

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        held = self._ready(requests)
        futures = [self.servers.later(self.servers.reply(request, held)) for request in requests]
        answers: list[Answer] = []
        try:
            for i, request in enumerate(requests):
                while isinstance(futures[i].exception(), NoServer):
                    self.servers.hold(held)  # waits until one is back
                    futures[i] = self.servers.later(self.servers.reply(request, held))
                answers.append(futures[i].result())
        except BaseException:
            for future in futures:
                future.cancel()
            raise
        self._check(list(zip(requests, answers, strict=True)))
        return [self._count(request, done) for request, (_, done) in zip(requests, answers, strict=True)]

    def submit(self, ticket: int, payload: Request, wrote: Wrote | None = None) -> None:
        held = self._ready([payload])
        self._open[ticket] = payload, wrote, self.servers.later(self.servers.reply(payload, held))
        self.servers.num_open += 1

    def advance(self, *, wait: bool = False) -> list[tuple[int, Completion | Failure]]:
        """Raises: RunError where a server fails: it is never a reward."""
        if wait and self._open and not self._gone:
            wait_for([future for _, _, future in self._open.values()], return_when=FIRST_COMPLETED)
        # One look at all of them: one that ends after it is for the next call.
        ended = [ticket for ticket, (_, _, future) in self._open.items() if future.done() or ticket in self._gone]
        for ticket in [ticket for ticket in ended if self._has_no_server(ticket)]:
            request, wrote, _ = self._open[ticket]
            held = self._ready([request])  # waits until one is back
            self._open[ticket] = request, wrote, self.servers.later(self.servers.reply(request, held))
            ended.remove(ticket)
        taken = {ticket: self._take(ticket) for ticket in ended}
        self._check([(request, answer) for request, answer in taken.values() if answer is not None])
        return [(ticket, self._answer(*taken[ticket])) for ticket in ended]

    def _has_no_server(self, ticket: int) -> bool:
        future = self._open[ticket][2]
        return ticket not in self._gone and not future.cancelled() and isinstance(future.exception(), NoServer)

    def _take(self, ticket: int) -> tuple[Request, Answer | None]:
        """A request that has ended, and its answer. None: it was cancelled."""
        request, wrote, future = self._open.pop(ticket)
        self.servers.num_open -= 1
        if ticket in self._gone:
            self._gone.discard(ticket)
            return request, None
        with suppress(CancelledError):
            server, done = future.result()
            try:
                for token in done.sampled if wrote is not None else ():
                    assert wrote is not None
                    wrote(token)
            except Exception:  # whoever asked wants no more of it
                return request, None
            return request, (server, done)
        return request, None

    def _answer(self, request: Request, answer: Answer | None) -> Completion:
        if answer is None:
            return Completion(tokens=(), logprobs=(), stop_reason="cancelled", version=self._version_now)
        return self._count(request, answer[1])

    def _count(self, request: Request, done: Completion) -> Completion:
        self.num_tokens += len(request.context) + len(done.tokens)
        return done

    def cancel(self, tickets: Collection[int]) -> None:
        for ticket in self._open.keys() & set(tickets):
            self._open[ticket][2].cancel()  # vLLM ends a request whose connection is closed
            self._gone.add(ticket)

    def restart(self) -> None:
        self.cancel(list(self._open))
        self.servers.num_open -= len(self._open)
        self._open.clear()
        self._gone.clear()

    def remembered(self, payload: Request) -> Request | None:
        """Nothing, for `done`."""
        return None

    def done(self, payloads: Sequence[Request]) -> None: ...

    def rest(self) -> None:
        """Nothing: the servers keep what they have."""

    def _ready(self, requests: Sequence[Request]) -> Held:
        """The weights that these are to be sampled from, once the servers hold them. Raises: RunError."""
        if problem := next(filter(None, map(unfit, requests)), None):
            raise RunError(f"engine.kind = vllm: {problem}")
        assert self._held is not None, "no weights were given"
        if self.servers.held is not self._held:
            self._replies.clear()
        self.servers.hold(self._held)
        return self._held

    # --- checks of what came ------------------------------------------------------------------------------------------

    def _check(self, answers: Sequence[tuple[Request, Answer]]) -> None:
        """Score some of the replies again. Raises: ServerError where a server's logprobs are others."""
        chosen: list[tuple[Server, Completion, Row]] = []
        for request, (server, done) in answers:
            if any(version != self.policy.version for version, _ in done.runs):
                continue  # older weights wrote it, in part or wholly, which nobody holds any more
            if self._replies[server.url] % RESCORED == 0:
                temperature = request.sampling.temperature or 1.0
                row = tail_row(self.policy.name, request.context, done.tokens, 0.0, temperature=temperature)
                chosen.append((server, done, row))
            self._replies[server.url] += 1
        expected = score(self.policy, [row for _, _, row in chosen], token_budget=BUDGET) if chosen else []
        for (server, done, row), logprobs in zip(chosen, expected, strict=True):
            which, allowed = REPEATED[self.policy.dtype]
            difference = apart([torch.tensor(done.logprobs)], [logprobs], which)
            allowed /= min(1.0, row.temperature)  # rounding of the logits counts more at a low one
            if not difference <= allowed:  # NaN is refused too
                raise ServerError(
                    f"a reply of the server {server.url} has other logprobs than its tokens have in "
                    f"{self.policy.title} at temperature {row.temperature:g}: the {which} difference is "
                    f"{difference:.2g} nats (allowed {allowed:.0e}). It is another request's reply, or was written by "
                    "other weights. Restart the server and resume the run: its last checkpoint is whole"
                )

    # --- weights ------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int | None:
        return self._held.version if self._held is not None else None

    @property
    def _version_now(self) -> int:
        return self._held.version if self._held is not None else 0

    def score(self, rows: Sequence[Row], *, token_budget: int = 16384) -> list[Tensor]:
        """[N] for each row. The servers score at temperature 1. At others this process does, by the same weights."""
        held = self._ready(())
        there = [i for i, row in enumerate(rows) if row.temperature == 1]
        here = [i for i, row in enumerate(rows) if row.temperature != 1]
        scores: dict[int, Tensor] = {}
        found = self.servers.scores([rows[i].tokens.tolist() for i in there], held)
        for i, logprobs in zip(there, found, strict=True):
            scores[i] = torch.tensor(logprobs)[torch.from_numpy(rows[i].trains.copy()).long() - 1]
        if here:
            if self.policy.version != held.version:
                raise RunError(f"{self.policy.title} has changed since its servers were given weights")
            local = score(self.policy, [rows[i] for i in here], token_budget=token_budget)
            scores |= dict(zip(here, local, strict=True))
        return [scores[i] for i in range(len(rows))]

    def shares_memory(self, source: Weights) -> bool:
        """Never: the weights are in another process."""
        return False

    def update_weights(self, version: int, source: Weights) -> None:
        """Save the weights, have all servers load them, and prove it by a probe.

        Raises: RuntimeError where requests are open. RunError where a server does not hold them.
        """
        if self._open and not self.goes_on:
            raise RuntimeError(f"weights of {self.policy.name} were to change while {len(self._open)} requests ran")
        self._num_sent += 1
        label = f"{self.policy.name}:{version}:{self.servers.nonce}{self._num_sent}"
        folder = self.servers.folder / f"{self.policy.name.replace('/', '_')}-{self.servers.nonce}{self._num_sent}"
        save_weights(self.policy, source, folder)
        former, self._held = self._held, Held(self.policy, version, label, folder)
        self._replies.clear()
        self.servers.hold(self._held, goes_on=self.goes_on)
        if former is not None:
            shutil.rmtree(former.folder, ignore_errors=True)


def check_whole(policy: Policy) -> None:
    """Raises: ConfigError where a policy trains an adapter."""
    if policy.adapter is not None:
        raise ConfigError(
            f"{policy.title} trains an adapter (lora), and engine.kind = vllm sends whole weights: set "
            "engine.kind=local, or train without lora"
        )


def save_weights(policy: Policy, source: Weights, folder: Path) -> None:
    """Write a folder that servers load. Raises: RunError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        policy.causal_lm.save_pretrained(str(folder), state_dict=dict(source.state()))
        policy.tokenizer.save_pretrained(str(folder))
    except OSError as error:
        raise RunError(
            f"weights of {policy.title} cannot be saved for the servers in {folder} ({error}): give room, or another "
            "folder (engine.sync_folder)"
        ) from error


_SERVERS: weakref.WeakValueDictionary[tuple[Any, ...], Servers] = weakref.WeakValueDictionary()
"""By their settings, as long as an engine has them: servers hold one model, whoever asks."""


def servers_of(settings: EngineConfig, dtype: str) -> Servers:
    """The servers that the settings name, shared by all engines of this process.

    Raises: ConfigError where `engine.sync_folder` is no folder.
    """
    key = (settings.urls, settings.limit_s, settings.sync_folder, settings.sync, settings.placement, dtype)
    servers = _SERVERS.get(key)
    if servers is None:
        # A folder of this process, below the one that was given: other runs may use it too.
        try:
            folder = Path(tempfile.mkdtemp(prefix="whet-sync-", dir=settings.sync_folder)).absolute()
        except OSError as error:
            raise ConfigError(f"engine.sync_folder: {settings.sync_folder} cannot be written ({error})") from error
        servers = _SERVERS[key] = Servers(settings.urls, settings.limit_s, folder, dtype)
        weakref.finalize(servers, shutil.rmtree, folder, ignore_errors=True)
    return servers
