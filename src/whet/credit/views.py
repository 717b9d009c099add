"""Views: how the segments of an episode become rows.

*Plain* (`types.as_row`): a segment as it was sampled, its context before it. *Retargeted* (`types.as_row` with a
context): the same tokens under another context. *Joined*, here: a chain of turns as one row, in which everything that
the policy did not write (the prompt, what an environment said) is read and never trains.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from whet.types import Floats, Row, Segment

logger = logging.getLogger(__name__)
Credits = Callable[[Segment], Sequence[float] | Floats | float]
"""One number a token of a segment, or one for all."""


@dataclass(frozen=True)
class Joined:
    """The rows of an episode."""

    rows: list[Row]
    num_broken: int
    """Turns whose context does not begin with the ids of the turn before them: the chat template wrote the history
    anew (it drops earlier reasoning, say), that turn has a control token in its middle, which is not shown again, or
    the tokenizer joined what lay between. Each of them begins a row."""


def joined(segments: Sequence[Segment], credit: Credits, **more: Any) -> Joined:
    """A row a chain of turns; where a chain is broken, a row each for its parts.

    An episode weighs as much as any other, whatever became of it: each of its rows has the `share` of its tokens that
    it trains, which the loss takes into account. Of turns that several others go on from, the first of these has them
    as its own, and in the other rows they are read only.

    Args:
        segments: of one policy in one episode, each with a seed of its own, in the order in which they were written;
            `prefix` says what each goes on from. Those without tokens (a rule's) are no part of a row.
        credit: of each.
        more: other fields of the rows.
    Raises: ValueError where the segments are of two policies or of two temperatures.
    """
    own = [segment for segment in segments if segment.tokens]
    if not own:
        return Joined([], 0)
    if len({(segment.policy, segment.temperature) for segment in own}) > 1:
        raise ValueError("the turns of a row are of one policy and one temperature: join those of each apart")
    # By their seeds: what is read of a turn or paid for it makes another record of it, not another turn.
    by_seed = {segment.seed: segment for segment in own}
    follows = {segment.prefix.seed for segment in own if segment.prefix is not None}
    taken: set[int] = set()
    rows = []
    for last in (segment for segment in own if segment.seed not in follows):
        chain = _chain(last, by_seed)
        given = by_seed.keys() & {turn.seed for turn in chain}
        rows.append(_row(chain, given - taken, credit, more))
        taken |= given
    total = sum(row.num_trained for row in rows)
    if len(rows) > 1:  # in one update, where their shares add up to one episode
        bundle = more.get("bundle") or f"turns of {own[0].seed}"
        rows = [replace(row, share=row.num_trained / total, bundle=bundle) for row in rows]
    num_broken = sum(segment.prefix is None for segment in own[1:])
    if num_broken:
        _say_broken(own[0].policy)
    return Joined(rows, num_broken)


@lru_cache
def _say_broken(policy: str) -> None:
    """Once a policy."""
    logger.warning(
        "%s: the ids of a turn do not begin with those of the turn before it (the chat template writes the history "
        "anew, or the model wrote a control token, which is not shown again); such an episode trains as several rows, "
        "which weigh as much as one; turns/broken says how many turns are such, and a few in a thousand do no harm",
        policy,
    )


def _chain(last: Segment, by_seed: Mapping[int, Segment]) -> list[Segment]:
    """A segment and those that it goes on from, the first one first, as the episode has them."""
    chain = [last]
    while (prefix := chain[-1].prefix) is not None:
        chain.append(by_seed.get(prefix.seed, prefix))
    return chain[::-1]


def _row(chain: Sequence[Segment], trained: Collection[int], credit: Credits, more: dict[str, Any]) -> Row:
    """Args: trained: seeds of the turns that train."""
    ids: list[int] = []
    places: list[np.ndarray] = []
    credits, logprobs = [], []
    versions: list[tuple[int, int]] = []
    for turn in chain:
        ids += turn.added
        if turn.seed in trained:
            places.append(np.arange(len(ids), len(ids) + len(turn.tokens), dtype=np.int32))
            credits.append(np.broadcast_to(np.asarray(credit(turn), np.float32), (len(turn.tokens),)))
            logprobs.append(np.asarray(turn.logprobs, np.float32))
            versions += turn.versions
        ids += turn.tokens
    own: dict[str, Any] = {"temperature": chain[-1].temperature or 1.0, "versions": tuple(versions)}
    return Row(
        policy=chain[-1].policy,
        tokens=np.asarray(ids, np.int32),
        trains=np.concatenate(places),
        credit=np.concatenate(credits),
        logprobs=np.concatenate(logprobs),
        **(own | more),
    )
