"""Drafts by prompt lookup: several tokens of a row in one pass, where the row repeats what was written before.

The last tokens of a row are looked up in its own context and reply, and in replies that ended before. What followed
there is the draft (prompt lookup decoding, Saxena, 2023). One pass computes all of it. The engine has a uniform number
for each position, so each position's token is drawn as it would be without drafts. A drafted token counts where the
drawn one equals it, and the first one that differs is the reply's next token. Replies are thus the same tokens.
Logprobs differ by rounding, as they do between batches of other sizes. So where a draw lies within rounding of the
border between two tokens, the reply may go on with the other one.

Rows guess in every pass, drafted or not. So how often guesses are right is known without a wasted pass. By that and by
what positions of a pass cost, the number of drafted tokens is chosen: by counts alone, never by a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from whet.engines.memory import SlotMemory
from whet.engines.runners import Runner
from whet.engines.running import Running
from whet.models.fused import WIDEST
from whet.types import Request

NGRAMS = (4, 3, 2)
"""Lengths of the last tokens that are looked up, the longest first."""
IN_BOOK = (4, 3)
"""Those that are looked up in other replies too."""
POSITIONS = 64
"""Positions of a pass with drafts, at most. So only so few rows guess, and full batches pay nothing."""
BOOK_TOKENS = 1 << 18
"""Tokens of ended replies that are remembered. When there are more, all are forgotten."""
FADING = 0.9
"""What an earlier guess still counts after a newer one of its row."""
PRIOR = 2.0
"""Guesses of its own after which a row's share of right ones counts half, and the share of all rows half."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What a pass of N positions takes, relative to one of a single position, as measured once on an Xeon with AMX."""

    few: float
    """What each position up to 8 adds."""
    many: float
    """What each further one adds."""
    drafted: float
    """What a pass adds that has several positions in a row."""

    def of(self, positions: int, *, is_drafted: bool = False) -> float:
        few = min(positions, 8)
        return 1 + self.few * (few - 1) + self.many * (positions - few) + self.drafted * is_drafted


SMALL = Costs(few=0.05, many=0.05, drafted=0.2)
"""Of models up to `WIDEST`: calls take the time."""
LARGE = {
    "float32": Costs(few=0.15, many=0.025, drafted=0.0),
    "bfloat16": Costs(few=0.03, many=0.02, drafted=0.0),
    "int8": Costs(few=0.14, many=0.13, drafted=0.0),
}
"""Of wider ones, by the engine's products: weights and products take the time."""


@dataclass(slots=True)
class _Share:
    """How often guesses of a kind were right. It starts with one right of two."""

    right: float = 1.0
    tried: float = 2.0

    def add(self, is_right: bool, fading: float) -> None:
        self.right, self.tried = fading * self.right + is_right, fading * self.tried + 1


def costs_of(width: int, products: str) -> Costs:
    """What passes of a model with this hidden size cost, in these products."""
    return SMALL if width <= WIDEST else LARGE[products]


Places = dict[tuple[int, ...], tuple[list[int], int]]
"""The last few tokens, to a text and the place in it of the token that followed them last."""


@dataclass(slots=True)
class _Row:
    """What is known of a request."""

    tokens: list[int]
    """Its context, and what it has written."""
    num_context: int
    ids: np.ndarray
    """The same as numbers, [tokens that it may have]."""
    source: tuple[list[int], int] | None = None
    """The text and the place of the token that is guessed next. None: there is no guess."""
    kind: int = 0
    """Of the guess: how many tokens were looked up. 0: the guess before it was right, and this one follows it."""
    shares: dict[int, _Share] = field(default_factory=dict)

    @property
    def num_written(self) -> int:
        return len(self.tokens) - self.num_context

    @classmethod
    def of(cls, request: Request) -> _Row:
        context = request.context
        ids = np.empty(len(context) + request.sampling.max_new_tokens, dtype=np.int64)
        ids[: len(context)] = context
        return cls(list(context), len(context), ids)

    def add(self, written: Sequence[int]) -> None:
        """Take over what it has written since the last call."""
        self.ids[len(self.tokens) : len(self.tokens) + len(written)] = written
        self.tokens += written

    def repeated(self) -> tuple[int, int] | None:
        """The place after the longest and newest text that equals the row's last tokens, and how many do."""
        length = len(self.tokens)
        shortest, longest = NGRAMS[-1], NGRAMS[0]
        if length <= shortest:
            return None
        ids = self.ids[:length]
        ends = (ids[shortest - 1 : -1] == ids[-1]).nonzero()[0] + shortest - 1  # of a text, by its last token
        found = None
        for count in range(2, longest + 1):
            ends = ends[ends >= count - 1]
            ends = ends[ids[ends - count + 1] == ids[length - count]] if count <= length else ends[:0]
            if not len(ends):
                break
            found = int(ends[-1]) + 1, count
        return found

    def guessed(self, count: int) -> list[int]:
        """The next tokens, as guessed. Where what is repeated reaches the row's own end, it goes round."""
        if self.source is None:
            return []
        text, start = self.source
        if text is not self.tokens:
            return text[start : start + count]
        period = len(text) - start
        return [text[start + i % period] for i in range(count)]


class Drafts:
    """The drafts of an engine's running requests, and the book of those that ended.

    Args:
        most: tokens of a draft at most. 0: there are none.
        costs: of the model's passes.
    """

    def __init__(self, most: int, costs: Costs = SMALL) -> None:
        self.most, self.costs = most, costs
        self.num_passes = self.num_drafted = self.num_right = 0
        """Passes with drafts; their drafted tokens; those that were right."""
        self._rows: dict[int, _Row] = {}
        """By number among the running requests."""
        self._shares = {kind: _Share() for kind in (0, *NGRAMS)}
        self._book: Places = {}
        self._book_tokens = 0

    def emptied(self) -> Drafts:
        """New ones of the same kind, which know nothing."""
        return Drafts(self.most, self.costs)

    def begin(self) -> None:
        """A batch begins, whose numbers are other requests than before. One that raised left its own behind."""
        self._rows.clear()

    def propose(self, running: Running) -> list[list[int]] | None:
        """A draft for each row, which may be empty. None: the next pass goes without.

        Rows with a constraint have none: what they may write depends on each token before it.
        """
        most = min(self.most, POSITIONS // max(1, running.count) - 1)
        if most < 1:
            return None
        guesses: list[list[int]] = []
        chances: list[tuple[float, float]] = []
        for row, num_written in enumerate(running.written_R[: running.count].tolist()):
            known = self._followed(running, row, num_written)
            left = running.requests[running.indices[row]].sampling.max_new_tokens - num_written - 1
            guesses.append(known.guessed(min(most, left)) if running.is_free(row) else [])
            chances.append((self._chance(known, known.kind), self._chance(known, 0)))
        width = best_width([len(guess) for guess in guesses], chances, self.costs)
        return [guess[:width] for guess in guesses] if width else None

    def _chance(self, row: _Row, kind: int) -> float:
        """That a guess of this kind is right."""
        own, all_rows = row.shares.get(kind), self._shares[kind]
        right, tried = (own.right, own.tried) if own is not None else (0.0, 0.0)
        return (right + PRIOR * all_rows.right / all_rows.tried) / (tried + PRIOR)

    def _followed(self, running: Running, row: int, num_written: int) -> _Row:
        """What is known of a row's request, with all that it has written."""
        index = running.indices[row]
        known = self._rows.get(index)
        if known is None:
            known = self._rows[index] = _Row.of(running.requests[index])
        written = running.tokens_RT[row, known.num_written : num_written].tolist()
        if written and known.source is not None:
            self._compare(known, written)
        known.add(written)
        if known.source is None:
            self._look_up(known)
        return known

    def _compare(self, row: _Row, written: Sequence[int]) -> None:
        """Count a row's guesses against what it has written since."""
        assert row.source is not None
        text, start = row.source
        for guess, token in zip(row.guessed(len(written)), written, strict=False):
            row.shares.setdefault(row.kind, _Share(0.0, 0.0)).add(guess == token, FADING)
            self._shares[row.kind].add(guess == token, 1.0)
            row.kind = 0
            if guess != token:
                row.source = None
                return
        start += len(written)
        row.source = (text, start) if text is row.tokens or start < len(text) else None

    def _look_up(self, row: _Row) -> None:
        """Set the source of a row's next guess: its own text, or where more tokens agree, one of the book."""
        own = row.repeated()
        if own is not None:
            row.source, row.kind = (row.tokens, own[0]), own[1]
        for length in IN_BOOK:
            if own is not None and own[1] >= length:
                return
            if (source := self._book.get(tuple(row.tokens[-length:]))) is not None:
                row.source, row.kind = source, length
                return

    def ended(self, request: Sequence[int], index: int, reply: Sequence[int]) -> None:
        """A request has ended: what it has written goes into the book.

        Args:
            request: its context.
            index: its number among the running ones.
        """
        self._rows.pop(index, None)
        if not self.most:
            return
        before = request[-IN_BOOK[0] :]
        tokens = [*before, *reply]
        self._book_tokens += len(reply)
        if self._book_tokens > BOOK_TOKENS:
            self._book, self._book_tokens = {}, len(reply)
        for place in range(len(before), len(tokens)):
            for length in IN_BOOK:
                if place >= length:
                    self._book[tuple(tokens[place - length : place])] = tokens, place

    def count(self, drafts: Sequence[Sequence[int]], written: Sequence[int]) -> None:
        """Count a pass with drafts.

        Args:
            written: tokens that each row has written in it; one of them was no draft.
        """
        self.num_passes += 1
        self.num_drafted += sum(map(len, drafts))
        self.num_right += sum(written) - len(written)


def best_width(most: Sequence[int], chances: Sequence[tuple[float, float]], costs: Costs) -> int:
    """How many tokens to draft for each row, so that a pass writes the most for what it costs. 0: none.

    Args:
        most: tokens that can be drafted for each row.
        chances: of each row, that its first guess is right, and that one after a right one is.
    """
    count = len(most)
    before = costs.of(count)
    best, width, tokens = 1.0, 0, float(count)
    reached = [first for first, _ in chances]
    for drafted in range(1, max(most) + 1):
        tokens += sum(chance for chance, own_most in zip(reached, most, strict=True) if drafted <= own_most)
        reached = [chance * after for chance, (_, after) in zip(reached, chances, strict=True)]
        gain = tokens / count * before / costs.of(count * (drafted + 1), is_drafted=True)
        if gain > best:
            best, width = gain, drafted
    return width


def next_tokens(runner: Runner, running: Running, memory: SlotMemory, drafts: Drafts) -> None:
    """Write the next token of each running row, or several where its draft was right. One pass."""
    count, device = running.count, running.last_R.device
    proposed = drafts.propose(running)
    if proposed is None:
        memory.point_at(running.positions_R[:count])
        running.sample(runner.head(runner.decode(running.last_R[:count], memory)), first=0)
        return
    width = max(map(len, proposed))
    padded = torch.tensor([[*draft, *[0] * (width - len(draft))] for draft in proposed], device=device)
    tokens_BS = torch.cat((running.last_R[:count, None], padded), dim=1)
    span = memory.span(0, running.positions_R[:count].tolist(), width + 1)
    memory.positions_R = running.positions_R[:0]
    hidden_BSH, _ = runner.extend(tokens_BS, span, running.last_R[:0], memory)
    rows_N = torch.tensor([row for row, draft in enumerate(proposed) for _ in range(len(draft) + 1)], device=device)
    places_N = torch.tensor([place for draft in proposed for place in range(len(draft) + 1)], device=device)
    written = running.verify(runner.head(hidden_BSH[rows_N, places_N]), rows_N, places_N, proposed)
    drafts.count(proposed, written)
