"""The running requests as tensors, a row each.

The uniform number that a token is drawn with is a hash of the request's seed and the token's position. So there is no
generator state to save, and no request depends on those beside it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from whet.engines.constraints import Constraints
from whet.engines.memory import SlotMemory
from whet.engines.sampling import log_distribution, sample, uniforms
from whet.errors import WhetError
from whet.models.policy import Policy
from whet.types import Completion, Request, StopReason, Token

SMALLEST = torch.finfo(torch.float32).tiny
"""The least top-p: some token is always kept."""


class Running:
    """Tensors with a row a request; the first `count` rows are in use.

    Args:
        requests: by index. A request is there before it is admitted.
        num_rows: rows in use at one time, at most.
        width: tokens that a request may write, at most.
    """

    def __init__(
        self, requests: Sequence[Request] | Mapping[int, Request], num_rows: int, width: int, policy: Policy
    ) -> None:
        self.requests, self.policy = requests, policy
        device = policy.device
        self.has_stops = False
        self.indices: list[int] = []
        """Of the request in each row."""
        self.stop_ids = torch.tensor(sorted(policy.stop_ids), dtype=torch.long, device=device)
        self.last_R = torch.zeros(num_rows, dtype=torch.long, device=device)
        """The newest token, which is not in the memory yet."""
        self.positions_R = torch.zeros(num_rows, dtype=torch.long, device=device)
        """The newest token's position."""
        self.written_R = torch.zeros(num_rows, dtype=torch.long, device=device)
        self.limit_R = torch.zeros(num_rows, dtype=torch.long, device=device)
        self.temperature_R = torch.zeros(num_rows, device=device)
        self.top_p_R = torch.ones(num_rows, device=device)
        self.uniforms_RT = torch.zeros((num_rows, width), dtype=torch.float64, device=device)
        """The numbers that the tokens are drawn with, in (0, 1)."""
        self.tokens_RT = torch.zeros((num_rows, width), dtype=torch.long, device=device)
        self.logprobs_RT = torch.zeros((num_rows, width), device=device)
        self.fresh: list[int] = []
        """Tokens that each row has written in the newest pass."""
        self.constraints = Constraints()
        self.tops: dict[int, list[tuple[tuple[int, float], ...]]] = {}
        """`Token.top` of requests that want them, by index."""

    @property
    def count(self) -> int:
        return len(self.indices)

    def widen(self, width: int) -> None:
        """Room for requests that may write so many tokens."""
        more = width - self.tokens_RT.shape[1]
        if more > 0:
            for name in ("uniforms_RT", "tokens_RT", "logprobs_RT"):
                setattr(self, name, torch.nn.functional.pad(getattr(self, name), (0, more)))

    def admit(self, indices: Sequence[int]) -> None:
        """Put these requests, prefilled, into the next rows."""
        rows = slice(self.count, self.count + len(indices))
        requests = [self.requests[index] for index in indices]
        settings = [request.sampling for request in requests]
        self.has_stops = self.has_stops or any(sampling.stop or sampling.stop_ids for sampling in settings)
        device = self.policy.device
        self.positions_R[rows] = torch.tensor([len(r.context) - 1 for r in requests], device=device)
        self.written_R[rows] = 0
        self.limit_R[rows] = torch.tensor([s.max_new_tokens for s in settings], device=device)
        seeds = torch.tensor([_signed(r.seed) for r in requests], device=device)
        drawn = torch.tensor([r.num_drawn for r in requests], device=device)
        places = drawn[:, None] + torch.arange(self.uniforms_RT.shape[1], device=device)
        self.uniforms_RT[rows] = uniforms(seeds[:, None], places)
        self.temperature_R[rows] = torch.tensor([s.temperature for s in settings], device=device)
        # Float32 rounds a smaller one to 0, which would keep no token.
        self.top_p_R[rows] = torch.tensor([s.top_p for s in settings], device=device).clamp(min=SMALLEST)
        self.indices += indices
        for index, request in zip(indices, requests, strict=True):
            self.constraints.begin(index, request.constraint)
            if request.num_top:
                self.tops[index] = []

    def sample(self, logits_BV: Tensor, *, first: int) -> None:
        """The next token of the rows from `first` on."""
        rows = slice(first, self.count)
        indices = self.indices[rows]
        settings = [self.requests[index].sampling for index in indices]
        at = self.written_R[rows, None]
        logits_BV = self.constraints.applied(logits_BV, indices)
        temperature_B = self.temperature_R[rows] if any(s.temperature != 1 for s in settings) else None
        tokens, logprobs = sample(
            logits_BV,
            temperature_B,
            self.top_p_R[rows] if any(s.top_p < 1 for s in settings) else None,
            self.uniforms_RT[rows].gather(1, at).squeeze(1),
        )
        self.fresh = [1] * self.count
        self.last_R[rows] = tokens
        self.tokens_RT[rows].scatter_(1, at, tokens[:, None])
        self.logprobs_RT[rows].scatter_(1, at, logprobs[:, None])
        self.written_R[rows] += 1
        self.positions_R[rows] += 1
        self.constraints.accept(tokens, indices)
        if self.tops:
            self._note_likeliest(log_distribution(logits_BV, temperature_B), indices)

    def _note_likeliest(self, logprobs_BV: Tensor, indices: Sequence[int]) -> None:
        for row, index in enumerate(indices):
            if index in self.tops:
                self.tops[index].append(likeliest(logprobs_BV[row], self.requests[index].num_top))

    def is_free(self, row: int) -> bool:
        """Whether no constraint says what a row may write."""
        return not self.constraints.follows(self.indices[row])

    def verify(self, logits_NV: Tensor, rows_N: Tensor, places_N: Tensor, drafts: Sequence[Sequence[int]]) -> list[int]:
        """The next tokens of all rows: each is drawn, and where it is the drafted one, the one after it is too.

        A row ends at the first token that ends its request, drafted or not.

        Args:
            logits_NV: of each row's newest token and of its draft's tokens, row after row.
            rows_N: their rows.
            places_N: 0 of a row's newest token, then 1, 2, ...
            drafts: of each row; some are empty. That of a row with a constraint is.
        Returns: the number of tokens that each row has written.
        """
        settings = [self.requests[index].sampling for index in self.indices]
        firsts = (places_N == 0).nonzero().flatten()
        if not all(map(self.is_free, range(self.count))):
            logits_NV = logits_NV.index_put((firsts,), self.constraints.applied(logits_NV[firsts], self.indices))
        temperature_N = self.temperature_R[rows_N] if any(s.temperature != 1 for s in settings) else None
        top_p_N = self.top_p_R[rows_N] if any(s.top_p < 1 for s in settings) else None
        uniform_N = self.uniforms_RT[rows_N, self.written_R[rows_N] + places_N]
        tokens_N, logprobs_N = sample(logits_NV, temperature_N, top_p_N, uniform_N)
        tops_NV = log_distribution(logits_NV, temperature_N) if self.tops else None
        drawn = tokens_N.tolist()
        self.fresh = []
        for row, (draft, first) in enumerate(zip(drafts, firsts.tolist(), strict=True)):
            count = self._accept(row, drawn[first : first + len(draft) + 1], draft)
            written = int(self.written_R[row])
            self.logprobs_RT[row, written : written + count] = logprobs_N[first : first + count]
            if tops_NV is not None:
                for place in range(first, first + count):
                    self._note_likeliest(tops_NV[place, None], [self.indices[row]])
            self.last_R[row] = drawn[first + count - 1]
            self.fresh.append(count)
        counts_R = torch.tensor(self.fresh, device=self.written_R.device)
        self.written_R[: self.count] += counts_R
        self.positions_R[: self.count] += counts_R
        self.constraints.accept(tokens_N[firsts], self.indices)
        return self.fresh

    def _accept(self, row: int, drawn: Sequence[int], draft: Sequence[int]) -> int:
        """Write a row's drawn tokens, and return how many of them count."""
        written, sampling = int(self.written_R[row]), self.requests[self.indices[row]].sampling
        self.tokens_RT[row, written : written + len(drawn)] = torch.tensor(drawn, device=self.tokens_RT.device)
        ends = self.policy.stop_ids | set(sampling.stop_ids)
        for count, (token, guess) in enumerate(zip(drawn, draft, strict=False), 1):
            if token != guess or token in ends or (sampling.stop and self._wrote_stop(row, written + count)):
                return count
        return len(drawn)

    def newest(self, row: int) -> list[Token]:
        """A row's tokens of the newest pass."""
        count, written = self.fresh[row], int(self.written_R[row])
        places = slice(written - count, written)
        tokens, logprobs = self.tokens_RT[row, places].tolist(), self.logprobs_RT[row, places].tolist()
        tops = self.tops[self.indices[row]][-count:] if self.indices[row] in self.tops else [()] * count
        return [Token(*parts) for parts in zip(tokens, logprobs, tops, strict=True)]

    def ending(self, gone: Collection[int] = ()) -> dict[int, StopReason]:
        """The rows whose requests are finished, and why.

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
            sampling = self.requests[index].sampling
            if sampling.stop_ids and int(self.last_R[row]) in sampling.stop_ids:
                reasons[row] = "eos"
            elif sampling.stop and reasons.get(row) != "eos" and self._wrote_stop(row, int(self.written_R[row])):
                reasons[row] = "stop"
        for row, index in enumerate(self.indices if self.constraints.complete else ()):
            if index in self.constraints.complete and reasons.get(row) != "eos":
                reasons[row] = "stop"
        gone = {*gone, *self.constraints.failed}
        reasons |= {row: "cancelled" for row, index in enumerate(self.indices) if index in gone}
        return reasons

    def collect(self, memory: SlotMemory, reasons: Mapping[int, StopReason]) -> list[tuple[int, Completion]]:
        """Take the finished requests out, with their index, and close the gaps with the last rows.

        Args:
            reasons: the finished rows, from `ending`.
        """
        count = self.count
        completions = [(self.indices[row], self._completion(row, reasons[row])) for row in sorted(reasons)]
        left = count - len(reasons)
        gaps = [row for row in sorted(reasons) if row < left]
        movers = [row for row in range(left, count) if row not in reasons]
        if gaps:
            memory.move(movers, gaps, self.positions_R[movers].tolist())
            row_tensors = (
                *(self.last_R, self.positions_R, self.written_R, self.limit_R, self.temperature_R, self.top_p_R),
                *(self.uniforms_RT, self.tokens_RT, self.logprobs_RT),
            )
            for tensor in row_tensors:
                tensor[gaps] = tensor[movers]
            for gap, mover in zip(gaps, movers, strict=True):
                self.indices[gap] = self.indices[mover]
        del self.indices[left:]
        return completions

    def _wrote_stop(self, row: int, written: int) -> bool:
        """Whether a stop string ends within a row's first `written` tokens, the last of them being new."""
        stop = self.requests[self.indices[row]].sampling.stop
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
        index = self.indices[row]
        self.constraints.forget(index)
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
            tops=tuple(self.tops.pop(index, ())),
        )


def likeliest(logprobs_V: Tensor, number: int) -> tuple[tuple[int, float], ...]:
    """The ids with the highest logprobs, the highest first; only those that have any probability."""
    values, ids = logprobs_V.topk(min(number, len(logprobs_V)))
    return tuple(
        (token, value) for token, value in zip(ids.tolist(), values.tolist(), strict=True) if value > -math.inf
    )


def _signed(seed: int) -> int:
    """A 64-bit seed as torch's int64 takes it."""
    return seed - (1 << 64) if seed >= 1 << 63 else seed
