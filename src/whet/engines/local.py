"""The in-process engine: any decoder-only `transformers` model, on the CPU or a GPU.

Continuous batching: every running request has a row in the key/value memory; where one finishes, the last row takes
its place, so that nothing is computed for finished ones, and waiting requests come in behind. Requests with equal
contexts (a group) are prefilled once and the result is copied; equal greedy ones are written once.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from whet.engines import Watcher
from whet.engines.memory import SlotMemory
from whet.engines.runners import runner_of
from whet.engines.sampling import sample, uniforms
from whet.errors import WhetError
from whet.models.policy import Policy
from whet.models.scoring import head
from whet.types import Completion, Request, StopReason


class LocalEngine:
    """See the module's docstring.

    Args:
        max_rows: requests that run at one time.
        prefill_tokens: context tokens of one prefill pass, padding included.
    """

    def __init__(self, policy: Policy, *, max_rows: int = 256, prefill_tokens: int = 16384) -> None:
        self.policy, self.max_rows, self.prefill_tokens = policy, max_rows, prefill_tokens
        self.runner = runner_of(policy)
        self.num_tokens = 0
        """Read and written so far, by request: also what equal requests share."""
        self.num_layers: int = policy.causal_lm.config.get_text_config().num_hidden_layers

    @torch.no_grad()
    def generate(self, requests: Sequence[Request], watcher: Watcher | None = None) -> list[Completion]:
        """One completion a request, in order. Deterministic: the schedule depends on the requests alone.

        Args:
            watcher: is told of every token and completion as it comes, and may end requests. Equal greedy ones are
                then written each, as one may end before the other.
        """
        if watcher is not None:
            return self._counted(requests, self._generate(requests, watcher))
        places: dict[Request, int] = {}  # greedy requests that are alike but for the seed are one
        which = [
            places.setdefault(replace(r, seed=0) if r.sampling.temperature == 0 else r, len(places)) for r in requests
        ]
        done = self._generate(list(places))
        return self._counted(requests, [done[place] for place in which])

    def _counted(self, requests: Sequence[Request], done: list[Completion]) -> list[Completion]:
        self.num_tokens += sum(len(request.context) for request in requests)
        self.num_tokens += sum(len(completion.tokens) for completion in done)
        return done

    def _generate(self, requests: Sequence[Request], watcher: Watcher | None = None) -> list[Completion]:
        done: list[Completion | None] = [None] * len(requests)
        if not requests:
            return []
        waiting = _by_context(requests)
        num_rows = min(self.max_rows, len(requests))
        longest = max(len(r.context) + r.sampling.max_new_tokens for r in requests)
        memory = SlotMemory(num_rows, longest, self.num_layers)
        running = _Running(requests, num_rows, self.policy, watcher)
        with self.policy.active():
            self.runner.begin(longest)
            while waiting or running.count:
                free = num_rows - running.count
                # A prefill pass for a row or two costs as much as a decode step for all: wait until some are free.
                if waiting and (free >= max(1, num_rows // 8) or not running.count):
                    self._admit(waiting[-free:][::-1], running, memory)
                    del waiting[-free:]
                else:
                    memory.point_at(running.positions_R[: running.count])
                    hidden = self.runner.decode(running.last_R[: running.count], memory)
                    running.sample(head(self.policy, hidden), first=0)
                gone = watcher.gone() if watcher is not None else ()
                for index, completion in (*running.collect(memory, gone), *self._dropped(waiting, gone)):
                    done[index] = completion
                    if watcher is not None:
                        watcher.ended(index, completion)
        return [completion for completion in done if completion is not None]

    def _dropped(self, waiting: list[int], gone: Collection[int]) -> list[tuple[int, Completion]]:
        """Take the requests that are gone out of those that wait."""
        dropped = [index for index in waiting if index in gone] if gone else []
        waiting[:] = [index for index in waiting if index not in gone] if dropped else waiting
        nothing = Completion(tokens=(), logprobs=(), stop_reason="cancelled", version=self.policy.version)
        return [(index, nothing) for index in dropped]

    def _admit(self, admitted: list[int], running: _Running, memory: SlotMemory) -> None:
        """Prefill the admitted requests, each context once, and sample their first tokens."""
        contexts: dict[tuple[int, ...], list[int]] = {}
        for index in admitted:
            contexts.setdefault(running.requests[index].context, []).append(index)
        for batch in _within_budget(list(contexts), self.prefill_tokens):
            hidden, kept = self.runner.prefill(batch)
            sources = [row for row, context in enumerate(batch) for _ in contexts[context]]
            first = running.count
            sources_R = torch.tensor(sources, device=hidden.device)
            memory.admit(kept, sources_R, first)
            running.admit([index for context in batch for index in contexts[context]])
            running.sample(head(self.policy, hidden)[sources_R], first=first)


class _Running:
    """The requests in work, as tensors with a row each; the first `count` rows are in use."""

    def __init__(
        self, requests: Sequence[Request], num_rows: int, policy: Policy, watcher: Watcher | None = None
    ) -> None:
        self.requests, self.policy, self.watcher = requests, policy, watcher
        device = policy.device
        longest = max(request.sampling.max_new_tokens for request in requests)
        self.has_stops = any(request.sampling.stop for request in requests)
        self.indices: list[int] = []
        """Of the request in each row."""
        self.stop_ids = torch.tensor(sorted(policy.stop_ids), dtype=torch.long, device=device)
        self.last_R = torch.zeros(num_rows, dtype=torch.long, device=device)
        """Newest token; not in the memory yet."""
        self.positions_R = torch.zeros(num_rows, dtype=torch.long, device=device)
        """Where it goes."""
        self.written_R = torch.zeros(num_rows, dtype=torch.long, device=device)
        self.limit_R = torch.zeros(num_rows, dtype=torch.long, device=device)
        self.temperature_R = torch.zeros(num_rows, device=device)
        self.top_p_R = torch.ones(num_rows, device=device)
        self.uniforms_RT = torch.zeros((num_rows, longest), dtype=torch.float64, device=device)
        """What the tokens are drawn with."""
        self.tokens_RT = torch.zeros((num_rows, longest), dtype=torch.long, device=device)
        self.logprobs_RT = torch.zeros((num_rows, longest), device=device)

    @property
    def count(self) -> int:
        return len(self.indices)

    def admit(self, indices: Sequence[int]) -> None:
        """Put these requests, prefilled, into the next rows."""
        rows = slice(self.count, self.count + len(indices))
        found = [self.requests[index] for index in indices]
        settings = [request.sampling for request in found]
        device = self.policy.device
        self.positions_R[rows] = torch.tensor([len(r.context) - 1 for r in found], device=device)
        self.written_R[rows] = 0
        self.limit_R[rows] = torch.tensor([s.max_new_tokens for s in settings], device=device)
        seeds = torch.tensor([_signed(r.seed) for r in found], device=device)
        drawn = torch.tensor([r.num_drawn for r in found], device=device)
        places = drawn[:, None] + torch.arange(self.uniforms_RT.shape[1], device=device)
        self.uniforms_RT[rows] = uniforms(seeds[:, None], places)
        self.temperature_R[rows] = torch.tensor([s.temperature for s in settings], device=device)
        self.top_p_R[rows] = torch.tensor([s.top_p for s in settings], device=device)
        self.indices += indices

    def sample(self, logits_BV: Tensor, *, first: int) -> None:
        """The next token of the rows from `first` on."""
        rows = slice(first, self.count)
        settings = [self.requests[index].sampling for index in self.indices[rows]]
        at = self.written_R[rows, None]
        tokens, logprobs = sample(
            logits_BV,
            self.temperature_R[rows] if any(s.temperature != 1 for s in settings) else None,
            self.top_p_R[rows] if any(s.top_p < 1 for s in settings) else None,
            self.uniforms_RT[rows].gather(1, at).squeeze(1),
        )
        self.last_R[rows] = tokens
        self.tokens_RT[rows].scatter_(1, at, tokens[:, None])
        self.logprobs_RT[rows].scatter_(1, at, logprobs[:, None])
        self.written_R[rows] += 1
        self.positions_R[rows] += 1
        if self.watcher is not None:
            for index, token, logprob in zip(self.indices[rows], tokens.tolist(), logprobs.tolist(), strict=True):
                self.watcher.wrote(index, token, logprob)

    def collect(self, memory: SlotMemory, gone: Collection[int] = ()) -> list[tuple[int, Completion]]:
        """Take the finished requests out, with their index, and close the gaps with the last rows.

        Args:
            gone: requests that are finished as they stand.
        """
        count = self.count
        reasons: dict[int, StopReason] = {}
        at_limit_R = self.written_R[:count] >= self.limit_R[:count]
        at_end_R = torch.isin(self.last_R[:count], self.stop_ids)
        for row in (at_limit_R | at_end_R).nonzero().flatten().tolist():
            reasons[row] = "eos" if at_end_R[row] else "length"
        for row, index in enumerate(self.indices if self.has_stops else ()):
            if self.requests[index].sampling.stop and reasons.get(row) != "eos" and self._said_stop(row):
                reasons[row] = "stop"
        reasons |= {row: "cancelled" for row, index in enumerate(self.indices) if index in gone}
        found = [(self.indices[row], self._completion(row, reasons[row])) for row in sorted(reasons)]
        left = count - len(reasons)
        gaps = [row for row in sorted(reasons) if row < left]
        movers = [row for row in range(left, count) if row not in reasons]
        if gaps:
            memory.move(movers, gaps, self.positions_R[movers].tolist())
            for state in (self.last_R, self.positions_R, self.written_R, self.limit_R, self.temperature_R,
                          self.top_p_R, self.uniforms_RT, self.tokens_RT, self.logprobs_RT):  # fmt: skip
                state[gaps] = state[movers]
            for gap, mover in zip(gaps, movers, strict=True):
                self.indices[gap] = self.indices[mover]
        del self.indices[left:]
        return found

    def _said_stop(self, row: int) -> bool:
        stop = self.requests[self.indices[row]].sampling.stop
        written = int(self.written_R[row])
        # A stop string cannot be spread over more tokens than it has bytes, but for tokens without any text.
        width = max(len(s.encode()) for s in stop) + 1
        while True:
            text = self.policy.tokenizer.decode(self.tokens_RT[row, max(0, written - width) : written].tolist())
            if any(s in text for s in stop):
                return True
            if width >= written or len(text) >= width:
                return False
            width *= 2

    def _completion(self, row: int, reason: StopReason) -> Completion:
        written = int(self.written_R[row])
        logprobs = tuple(self.logprobs_RT[row, :written].tolist())
        if not math.isfinite(sum(logprobs)):
            raise WhetError(
                f"policy {self.policy.name!r} gives no probabilities any more (NaN or infinite), after "
                f"{self.policy.version} updates: its weights have diverged, so lower the learning rate; the last "
                "checkpoint is whole"
            )
        return Completion(
            tokens=tuple(self.tokens_RT[row, :written].tolist()),
            logprobs=logprobs,
            stop_reason=reason,
            version=self.policy.version,
        )


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


def _signed(seed: int) -> int:
    """A 64-bit seed as torch's int64 takes it."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed
