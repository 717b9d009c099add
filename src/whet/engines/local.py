"""The in-process engine: any decoder-only `transformers` model, on the CPU or a GPU.

`generate` answers a batch. `submit` with `advance` lets requests join and leave at any step. Every running request has
a row in the key/value memory. Where one finishes, the last row takes its place, and waiting requests come in behind, so
nothing is computed for finished ones. Requests with equal contexts (a group) are prefilled once, and the result is
copied. Equal greedy requests of a batch are generated once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from whet.engines.drafts import Drafts, costs_of, next_tokens
from whet.engines.graphs import with_graphs
from whet.engines.memory import SlotMemory
from whet.engines.products import Products, packing_of
from whet.engines.protocol import Weights, Wrote
from whet.engines.runners import Runner, runner_of
from whet.engines.running import Running
from whet.engines.stream import Stream
from whet.errors import ConstraintError
from whet.models.policy import Policy
from whet.models.scoring import score_here
from whet.types import Completion, Failure, Request, Row


class LocalEngine:
    """An `Engine` in this process, on the policy's own weights.

    Args:
        max_rows: requests that run at one time.
        prefill_tokens: context tokens of one prefill pass, padding included.
        prefix_bytes: for keys and values of replies that a later request may go on from.
        products: what the model's products are computed in. Another kind than float32 takes a copy of the weights.
        draft: tokens at most that a pass drafts for a row (see `whet.engines.drafts`). 0: no drafts.
        graphs: on a GPU, whether a decode step is recorded once and replayed (see `whet.engines.graphs`).
    Raises: ConfigError where model or machine cannot compute such products.
    """

    is_stepped = True
    queued: Collection[int] = ()

    def __init__(
        self,
        policy: Policy,
        *,
        max_rows: int = 256,
        prefill_tokens: int = 16384,
        prefix_bytes: int = 2**30,
        products: Products = "float32",
        draft: int = 0,
        graphs: bool = True,
    ) -> None:
        self.policy, self.max_rows, self.prefill_tokens = policy, max_rows, prefill_tokens
        self.prefix_bytes, self.graphs = prefix_bytes, graphs
        self._stream: Stream | None = None
        self.packing = packing_of(policy, products)
        self.runner = self._new_runner()
        self.num_tokens = 0
        self.drafts = Drafts(draft, costs_of(policy.causal_lm.config.get_text_config().hidden_size, products))
        """Of replies that are generated together, and of those before them since the weights were new."""
        self.num_layers: int = policy.causal_lm.config.get_text_config().num_hidden_layers

    def _new_runner(self) -> Runner:
        runner = runner_of(self.policy, self.packing)
        return with_graphs(runner) if self.graphs else runner

    @property
    def capacity(self) -> int:
        return self.max_rows

    # --- all at once --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """One completion a request, in order. Deterministic: the schedule depends on the requests alone."""
        places: dict[Request, int] = {}  # greedy requests that are alike but for the seed are one
        which = [places.setdefault(_alike(request), len(places)) for request in requests]
        done = self._generate(list(places))
        self.num_tokens += sum(len(request.context) for request in requests)
        self.num_tokens += sum(len(done[place].tokens) for place in which)
        return [done[place] for place in which]

    def _generate(self, requests: Sequence[Request]) -> list[Completion]:
        done: list[Completion | None] = [None] * len(requests)
        if not requests:
            return []
        waiting = _by_context(requests)
        num_rows = min(self.max_rows, len(requests))
        longest = max(len(r.context) + r.sampling.max_new_tokens for r in requests)
        memory = SlotMemory(num_rows, longest, self.num_layers)
        running = Running(requests, num_rows, max(r.sampling.max_new_tokens for r in requests), self.policy)
        self.drafts.begin()
        with self.policy.active():
            self.runner.begin(longest)
            while waiting or running.count:
                free = num_rows - running.count
                # A prefill pass for a row or two costs as much as a decode step for all: wait until some are free.
                if waiting and (free >= max(1, num_rows // 8) or not running.count):
                    self._admit(waiting[-free:][::-1], running, memory)
                    del waiting[-free:]
                else:
                    next_tokens(self.runner, running, memory, self.drafts)
                ended = running.collect(memory, running.ending())
                for reason in running.constraints.failed.values():
                    raise ConstraintError(reason)
                for index, completion in ended:
                    done[index] = completion
                    self.drafts.ended(requests[index].context, index, completion.tokens)
        return [completion for completion in done if completion is not None]

    def _admit(self, admitted: list[int], running: Running, memory: SlotMemory) -> None:
        """Prefill the admitted requests, each context once, and sample their first tokens."""
        contexts: dict[tuple[int, ...], list[int]] = {}
        for index in admitted:
            contexts.setdefault(running.requests[index].context, []).append(index)
        for batch in _within_budget(list(contexts), self.prefill_tokens):
            hidden, keys_and_values = self.runner.prefill(batch)
            sources = [row for row, context in enumerate(batch) for _ in contexts[context]]
            first = running.count
            sources_R = torch.tensor(sources, device=hidden.device)
            memory.admit(keys_and_values, sources_R, first)
            running.admit([index for context in batch for index in contexts[context]])
            running.sample(self.runner.head(hidden)[sources_R], first=first)

    # --- free-running -------------------------------------------------------------------------------------------------

    @property
    def stream(self) -> Stream:
        """The running batch."""
        if self._stream is None:
            self._stream = Stream(
                self.policy,
                self._new_runner(),
                self.num_layers,
                max_rows=self.max_rows,
                prefill_tokens=self.prefill_tokens,
                prefix_bytes=self.prefix_bytes,
                drafts=self.drafts.emptied(),
            )
        return self._stream

    @property
    def num_open(self) -> int:
        return self.stream.num_open

    def submit(self, ticket: int, payload: Request, wrote: Wrote | None = None) -> None:
        self.stream.submit(ticket, payload, wrote)

    def cancel(self, tickets: Collection[int]) -> None:
        self.stream.cancel(tickets)

    def advance(self, *, wait: bool = False) -> list[tuple[int, Completion | Failure]]:
        """One step. There is nothing to wait for: what is asked is being computed."""
        counts = self.stream.counts
        before = counts.context + counts.written
        ended = self.stream.step()
        self.num_tokens += counts.context + counts.written - before
        return ended

    def restart(self) -> None:
        """Forget all requests, and what drafts are taken from."""
        self._stream, self.drafts = None, self.drafts.emptied()

    def remembered(self, payload: Request) -> Request | None:
        """What `done` needs of a request: not its context. None: nothing."""
        return replace(payload, context=payload.context[:1]) if payload.keep else None

    def done(self, payloads: Sequence[Request]) -> None:
        """Nobody will follow these requests any more."""
        self.stream.prefixes.forget([request.seed for request in payloads if request.keep])

    def rest(self) -> None:
        """Give the memory back that only speed needs."""
        if self.packing is not None:
            self.packing.drop()
            self.runner = self._new_runner()  # the one of before holds the copy
            self._stream = None if self._stream is not None and not self._stream.num_open else self._stream

    # --- weights ------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The policy's own, as its weights are."""
        return self.policy.version

    def score(self, rows: Sequence[Row], *, token_budget: int = 16384) -> list[Tensor]:
        """[N] of each row's trained tokens, as the trainer has them: with the weights and the code of this policy."""
        return score_here(self.policy, rows, token_budget=token_budget)

    def shares_memory(self, source: Weights) -> bool:
        return source is self.policy

    def update_weights(self, version: int, source: Weights) -> None:
        """Take over the source's weights. Those of its own policy are here already, so that nothing is copied."""
        if self._stream is not None and self._stream.num_open:
            raise RuntimeError(
                f"weights of {self.policy.name} were to change while {self._stream.num_open} requests ran"
            )
        if not self.shares_memory(source):
            self.policy.load_state(source.state(), version=version)
        self.policy.version = version
        self._stream, self.drafts = None, self.drafts.emptied()


def _alike(request: Request) -> Request:
    """What a completion depends on."""
    plain = replace(request, follows=None, keep=False)
    return replace(plain, seed=0) if request.sampling.temperature == 0 else plain


def _by_context(requests: Sequence[Request]) -> list[int]:
    """Indices as a stack (last in front), those of one context next to each other, else in the order asked."""
    first: dict[tuple[int, ...], int] = {}
    for index, request in enumerate(requests):
        first.setdefault(request.context, index)
    return sorted(range(len(requests)), key=lambda i: (first[requests[i].context], i), reverse=True)


def _within_budget(contexts: list[tuple[int, ...]], budget: int) -> Iterator[list[tuple[int, ...]]]:
    """Contexts in order, in batches that hold `budget` tokens once padded; one context at least."""
    batch: list[tuple[int, ...]] = []
    longest = 0
    for context in contexts:
        longest = max(longest, len(context))
        if batch and longest * (len(batch) + 1) > budget:
            yield batch
            batch, longest = [], len(context)
        batch.append(context)
    if batch:
        yield batch
