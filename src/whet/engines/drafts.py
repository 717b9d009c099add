"""Drafts by prompt lookup: several tokens of a row in one pass, where the row repeats what it has read or written.

The last tokens of a row are looked up in its own context and reply, and what followed there is the draft (prompt lookup,
Saxena, 2023). One pass computes all of it. The engine has a uniform number for each position, so each position's token
is drawn as it would be without drafts. A drafted token counts where the drawn one equals it, and the first one that
differs is the reply's next token. Replies are thus the same tokens. Logprobs differ by rounding, as they do between
batches, so a draw within rounding of the border between two tokens may give the other one.

Whether a row drafts depends on counts of tokens alone, never on a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from whet.engines.memory import SlotMemory
from whet.engines.runners import Runner
from whet.engines.running import Running

NGRAMS = (4, 3, 2)
"""Lengths of the last tokens that are looked up, the longest first."""
POSITIONS = 32
"""Positions of a pass with drafts, at most: with more, arithmetic takes the time, and drafts do not pay."""
PATIENCE = 2
"""Drafts in a row without a right token, after which a row pauses."""
LONGEST_PAUSE = 64
"""Tokens that a row pauses at most."""


@dataclass(slots=True)
class _Row:
    """What is known of a request."""

    tokens: list[int]
    """Its context, and what it has written."""
    num_context: int
    width: int
    """Tokens that its next draft may have."""
    num_indexed: int = 0
    places: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Where the newest token stands that followed these ones, the last one of the row left out."""
    misses: int = 0
    """Drafts in a row without a right token."""
    pause_until: int = 0
    """No draft before it has so many tokens."""

    def follow(self, written: Sequence[int]) -> None:
        """Take over what it has written since the last call, and index it."""
        self.tokens += written
        for place in range(max(self.num_indexed, NGRAMS[-1]), len(self.tokens)):
            for length in NGRAMS:
                if place >= length:
                    self.places[tuple(self.tokens[place - length : place])] = place
        self.num_indexed = len(self.tokens)

    def draft(self, most: int) -> list[int]:
        """At most so many tokens that may come next. Where what is repeated reaches the row's end, it goes round."""
        count = min(most, self.width)
        if count <= 0 or len(self.tokens) < self.pause_until:
            return []
        for length in NGRAMS:
            if (start := self.places.get(tuple(self.tokens[-length:]))) is not None:
                period = len(self.tokens) - start
                return [self.tokens[start + i % period] for i in range(count)]
        return []

    def learn(self, num_drafted: int, num_right: int, most: int) -> None:
        """Set the next draft's width by how this one went. After misses the row pauses, each time twice as long."""
        if num_right:
            self.misses = 0
            self.width = min(most, 2 * self.width if num_right == num_drafted else num_right + 1)
            return
        self.misses, self.width = self.misses + 1, max(1, self.width // 2)
        if self.misses >= PATIENCE:
            self.pause_until = len(self.tokens) + min(LONGEST_PAUSE, 2**self.misses)


class Drafts:
    """The drafts of an engine's running requests.

    Args:
        most: tokens of a draft at most. 0: there are none.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.num_passes = self.num_drafted = self.num_right = 0
        """Passes with drafts; their drafted tokens; those that were right."""
        self._rows: dict[int, _Row] = {}

    def propose(self, running: Running) -> list[list[int]] | None:
        """A draft for each row, which may be empty. None: the next pass goes without.

        Rows with a constraint have none: what they may write depends on each token before it.
        """
        most = min(self.most, POSITIONS // max(1, running.count) - 1)
        if most < 1:
            return None
        written = running.written_R[: running.count].tolist()
        drafts = [
            self._draft(running, row, num_written, most) if running.is_free(row) else []
            for row, num_written in enumerate(written)
        ]
        # All rows of a pass are as wide as the widest: half of them at least should use it.
        width = sorted(map(len, drafts), reverse=True)[(len(drafts) - 1) // 2]
        return [draft[:width] for draft in drafts] if width else None

    def _draft(self, running: Running, row: int, num_written: int, most: int) -> list[int]:
        index = running.indices[row]
        request = running.requests[index]
        known = self._rows.get(index)
        if known is None:
            known = self._rows[index] = _Row(list(request.context), len(request.context), self.most)
        num_known = len(known.tokens) - known.num_context
        known.follow(running.tokens_RT[row, num_known:num_written].tolist())
        return known.draft(min(most, request.sampling.max_new_tokens - num_written - 1))

    def learn(self, indices: Sequence[int], drafts: Sequence[Sequence[int]], counts: Sequence[int]) -> None:
        """Note how a pass went.

        Args:
            indices: the requests of the rows.
            counts: tokens that each row has written in the pass; one of them was no draft.
        """
        self.num_passes += 1
        for index, draft, count in zip(indices, drafts, counts, strict=True):
            if draft:
                self.num_drafted, self.num_right = self.num_drafted + len(draft), self.num_right + count - 1
                self._rows[index].learn(len(draft), count - 1, self.most)

    def forget(self, index: int) -> None:
        """The request has ended."""
        self._rows.pop(index, None)


def next_tokens(runner: Runner, running: Running, memory: SlotMemory, drafts: Drafts) -> None:
    """Write the next token of each running row, or several where its draft was right. One pass."""
    count = running.count
    proposed = drafts.propose(running)
    if proposed is None:
        memory.point_at(running.positions_R[:count])
        running.sample(runner.head(runner.decode(running.last_R[:count], memory)), first=0)
        return
    width = max(map(len, proposed))
    device = running.last_R.device
    padded = torch.tensor([[*draft, *[0] * (width - len(draft))] for draft in proposed], device=device)
    tokens_BS = torch.cat((running.last_R[:count, None], padded), dim=1)
    span = memory.span(0, running.positions_R[:count].tolist(), width + 1)
    memory.positions_R = running.positions_R[:0]
    hidden_BSH, _ = runner.extend(tokens_BS, span, running.last_R[:0], memory)
    rows_N = torch.tensor([row for row, draft in enumerate(proposed) for _ in range(len(draft) + 1)], device=device)
    places_N = torch.tensor([place for draft in proposed for place in range(len(draft) + 1)], device=device)
    indices = list(running.indices)
    counts = running.verify(runner.head(hidden_BSH[rows_N, places_N]), rows_N, places_N, proposed)
    drafts.learn(indices, proposed, counts)
