"""Requests that join and leave a running batch at any step.

A step is one pass of the model. Running rows get their next token. Joining ones get their context and first token, in
the same pass where that is cheap. Which requests share a pass depends on their order alone. `Prefixes` holds the keys
and values of replies that a later request may continue.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.engines.drafts import Drafts, next_tokens
from whet.engines.memory import SlotMemory
from whet.engines.protocol import Wrote
from whet.engines.runners import Runner
from whet.engines.running import Running
from whet.models.policy import Policy
from whet.types import Completion, Failure, Request

logger = logging.getLogger(__name__)

ROOM = 256
"""Positions by which the memory's limit grows at least."""
PADDING = 256
"""Tokens of padding that a pass may hold beside as many as it has real ones."""


@dataclass(slots=True)
class Counts:
    """What the engine did, in steps and tokens."""

    steps: int = 0
    """Passes."""
    row_steps: int = 0
    """Rows in work, summed over the passes."""
    prefilled: int = 0
    """Context tokens that were computed."""
    context: int = 0
    """Context tokens of all requests, whoever computed them."""
    written: int = 0


class Stream:
    """See the module's docstring.

    Args:
        max_rows: requests in work at one time; the others wait their turn.
        prefill_tokens: context tokens of one pass, padding included; one request at least.
        prefix_bytes: for keys and values of replies that may be gone on from.
        drafts: without anything in it. Passes in which requests join have no drafts.
    """

    def __init__(
        self,
        policy: Policy,
        runner: Runner,
        num_layers: int,
        *,
        max_rows: int,
        prefill_tokens: int,
        prefix_bytes: int,
        drafts: Drafts,
    ) -> None:
        self.policy, self.runner, self.max_rows, self.prefill_tokens = policy, runner, max_rows, prefill_tokens
        self.prefixes = Prefixes(prefix_bytes)
        self.counts, self.drafts = Counts(), drafts
        self._memory = SlotMemory(max_rows, 0, num_layers)
        self._requests: dict[int, Request] = {}
        self._waiting: deque[int] = deque()
        self._running = Running(self._requests, max_rows, 0, policy)
        self._wrote: dict[int, Wrote] = {}
        self._gone: set[int] = set()
        self._version: int | None = None

    @property
    def num_open(self) -> int:
        """Requests that wait or are in work."""
        return len(self._requests)

    @property
    def num_running(self) -> int:
        return self._running.count

    def submit(self, ticket: int, request: Request, wrote: Wrote | None = None) -> None:
        """Ask for a completion, by a number that no open request has."""
        self._requests[ticket] = request
        self._waiting.append(ticket)
        if wrote is not None:
            self._wrote[ticket] = wrote

    def cancel(self, tickets: Collection[int]) -> None:
        """Nobody waits for these any more: they end at the next step, as `cancelled`."""
        self._gone |= self._requests.keys() & set(tickets)

    @torch.no_grad()
    def step(self) -> list[tuple[int, Completion | Failure]]:
        """One pass, if there is anything to do.

        Returns: the requests that have ended, in the order of their rows. A Failure's constraint cannot be followed.
        """
        ended: list[tuple[int, Completion | Failure]] = [*self._cancelled()]
        joining = self._joining()
        if not joining and not self._running.count:
            return ended
        with self.policy.active():
            self._begin(joining)
            self._pass(joining)
        self.counts.steps += 1
        self.counts.row_steps += self._running.count
        self._send_newest()
        reasons = self._running.ending(self._gone)
        cuts = {row: self._cut(row) for row, reason in reasons.items() if reason != "cancelled"}
        cut_of = {self._running.indices[row]: cut for row, cut in cuts.items() if cut is not None}
        for ticket, completion in self._running.collect(self._memory, reasons):
            if ticket in cut_of:
                request = self._requests[ticket]
                tokens = (*request.context, *completion.tokens[:-1])
                self.prefixes.put(request.seed, Prefix(tokens, cut_of[ticket]))
            self._close(ticket, completion)
            reason = self._running.constraints.failed.pop(ticket, None)
            ended.append((ticket, completion if reason is None else Failure(kind="endpoint_error", reason=reason)))
        return ended

    def _cut(self, row: int) -> list[Tensor] | None:
        """Keys and values of a row that has ended, where a later request may follow it."""
        request = self._requests[self._running.indices[row]]
        return self._memory.cut(row, int(self._running.positions_R[row])) if request.keep else None

    def _close(self, ticket: int, completion: Completion) -> None:
        request = self._requests.pop(ticket)
        self.counts.context += len(request.context)
        self.counts.written += len(completion.tokens)
        self._wrote.pop(ticket, None)
        self._gone.discard(ticket)
        self.drafts.ended(request.context, ticket, completion.tokens)

    def _cancelled(self) -> list[tuple[int, Completion]]:
        """Those that wait and are gone; of those in work a step sees it."""
        nothing = Completion(tokens=(), logprobs=(), stop_reason="cancelled", version=self.policy.version)
        dropped = [ticket for ticket in self._waiting if ticket in self._gone] if self._gone else []
        for ticket in dropped:
            self._waiting.remove(ticket)
            self._close(ticket, nothing)
        return [(ticket, nothing) for ticket in dropped]

    def _joining(self) -> dict[tuple[int, ...], list[int]]:
        """The requests that join now, first come, first served, by their contexts: equal ones are computed once."""
        joining: dict[tuple[int, ...], list[int]] = {}
        free, width, real = self.max_rows - self._running.count, 0, 0
        while self._waiting and free:
            request = self._requests[self._waiting[0]]
            if request.context not in joining:
                prefix = self.prefixes.of(request.follows, request.context)
                num_new = len(request.context) - (len(prefix.tokens) if prefix is not None else 0)
                width, real = max(width, num_new), real + num_new
                padded = width * (len(joining) + 1)
                if joining and (padded > self.prefill_tokens or padded > 2 * real + PADDING):
                    break
            joining.setdefault(request.context, []).append(self._waiting.popleft())
            free -= 1
        return joining

    def _begin(self, joining: dict[tuple[int, ...], list[int]]) -> None:
        """Room for those that join; and, where weights are new, nothing of the old ones."""
        tickets = [ticket for group in joining.values() for ticket in group]
        requests = [self._requests[ticket] for ticket in tickets]
        longest = max((len(r.context) + r.sampling.max_new_tokens for r in requests), default=0)
        if self._version != self.policy.version:
            if self._running.count:
                raise RuntimeError(f"weights of {self.policy.name} changed while {self._running.count} requests ran")
            self.prefixes.forget(list(self.prefixes))
        if self._version != self.policy.version or longest > self._memory.limit:
            self._memory.limit = max(self._memory.limit, longest + ROOM if self._memory.limit else longest)
            self.runner.begin(self._memory.limit)
            self._version = self.policy.version
        if not self._memory.layers:
            self._memory.shape_like(self.runner.prefill([requests[0].context[:1]])[1])
        self._running.widen(max((r.sampling.max_new_tokens for r in requests), default=0))

    def _pass(self, joining: dict[tuple[int, ...], list[int]]) -> None:
        running, memory, first = self._running, self._memory, self._running.count
        if not joining:
            next_tokens(self.runner, running, memory, self.drafts)
            return
        if first:
            memory.point_at(running.positions_R[:first])
        else:
            memory.positions_R = running.positions_R[:0]
        contexts = list(joining)
        prefixes = [self.prefixes.of(self._requests[joining[context][0]].follows, context) for context in contexts]
        starts = [len(prefix.tokens) if prefix is not None else 0 for prefix in prefixes]
        news = [context[start:] for context, start in zip(contexts, starts, strict=True)]
        self.counts.prefilled += sum(map(len, news))
        width = max(map(len, news))
        ids_BS = torch.tensor([[*new, *[0] * (width - len(new))] for new in news], device=self.policy.device)
        count = sum(map(len, joining.values()))
        memory.reserve(first, first + count, max(map(len, contexts)))
        for row, prefix in enumerate(prefixes, first):
            if prefix is not None:
                memory.load(row, prefix.layers)
        span = memory.span(first, starts, width)
        new_BSH, old_RH = self.runner.extend(ids_BS, span, running.last_R[:first], memory)
        last_BH = new_BSH[torch.arange(len(news)), torch.tensor([len(new) - 1 for new in news])]
        # A context's first request has the row that was computed, and the others a copy of it.
        others = [place for place, context in enumerate(contexts) for _ in joining[context][1:]]
        if others:
            copies = list(range(first + len(contexts), first + count))
            memory.move([first + place for place in others], copies, [len(contexts[place]) for place in others])
        firsts = [joining[context][0] for context in contexts]
        running.admit([*firsts, *(ticket for context in contexts for ticket in joining[context][1:])])
        hidden = torch.cat((old_RH, last_BH, last_BH[others]))
        running.sample(self.runner.head(hidden), first=0)

    def _send_newest(self) -> None:
        """Sends new tokens to the requests' receivers. A receiver that raises ends its own request alone."""
        for row, ticket in enumerate(self._running.indices if self._wrote else ()):
            if ticket not in self._wrote or ticket in self._running.constraints.failed:
                continue
            try:
                for token in self._running.newest(row):
                    self._wrote[ticket](token)
            except Exception:
                logger.exception("a request is cancelled: who was told of its tokens raised")
                self._gone.add(ticket)


# --- prefixes that later requests continue ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prefix:
    """What an engine holds of a reply."""

    tokens: tuple[int, ...]
    """Its context and what was written, but for the last token, which the model has not read."""
    layers: Sequence[Tensor]
    """[2, kv heads, T, head size] each."""

    @property
    def num_bytes(self) -> int:
        return sum(layer.numel() * layer.element_size() for layer in self.layers)


class Prefixes:
    """Prefixes by the reply's seed. Without room the oldest go, and are computed again where they are needed.

    Which ones go depends on the requests alone.

    Args:
        budget: bytes.
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.used, self.num_dropped = budget, 0, 0
        self._kept: dict[int, Prefix] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[int]:
        return iter(self._kept)

    def put(self, seed: int, prefix: Prefix) -> None:
        self.forget([seed])
        self._kept[seed] = prefix
        self.used += prefix.num_bytes
        while self.used > self.budget:
            self.forget([next(iter(self._kept))])
            self.num_dropped += 1

    def of(self, seed: int | None, context: tuple[int, ...]) -> Prefix | None:
        """The reply with that seed, where it is kept and its ids begin the context."""
        prefix = self._kept.get(seed) if seed is not None else None
        if prefix is None or len(prefix.tokens) >= len(context) or context[: len(prefix.tokens)] != prefix.tokens:
            return None
        return prefix

    def forget(self, seeds: Collection[int]) -> None:
        for seed in seeds:
            if (gone := self._kept.pop(seed, None)) is not None:
                self.used -= gone.num_bytes
