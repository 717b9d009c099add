"""Views: how the segments of an episode become rows.

*Plain* (`types.as_row`): a segment as it was sampled, its context before it. *Retargeted* (`types.as_row` with a
context): the same tokens under another context. *Joined*, here: a chain of turns as one row. Tokens that the policy did
not write (the prompt, observations) are read and never train.
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
"""One number for each token of a segment, or one for all."""


@dataclass(frozen=True)
class Joined:
    """The rows of an episode."""

    rows: list[Row]
    num_broken: int
    """Turns whose context does not begin with the ids of the turn before. Each of them begins a row.

    The template may have rewritten the history, for example without earlier reasoning. The turn before may have a
    control token in its middle, which is not shown again. Or the tokenizer merged tokens across the border."""


def joined(segments: Sequence[Segment], credit: Credits, **fields: Any) -> Joined:
    """A row for each chain of turns. A broken chain gives a row for each of its parts.

    All episodes have the same weight: each row has the `share` of its episode's trained tokens, which the loss uses. A
    turn that several others follow trains in the first of these rows only.

    Args:
        segments: of one policy in one episode, in the order of writing. Each has its own seed, and `prefix` is the
            segment that it continues. Segments without tokens (a rule's) are left out.
        credit: of each segment.
        fields: other fields of the rows.
    Raises: ValueError where the segments are of two policies or of two temperatures.
    """
    turns = [segment for segment in segments if segment.tokens]
    if not turns:
        return Joined([], 0)
    if len({(segment.policy, segment.temperature) for segment in turns}) > 1:
        raise ValueError("the turns of a row are of one policy and one temperature: join those of each apart")
    # By seed: copies of a turn with other `parsed` or `rewards` are the same turn.
    by_seed = {segment.seed: segment for segment in turns}
    follows = {segment.prefix.seed for segment in turns if segment.prefix is not None}
    taken: set[int] = set()
    rows = []
    for last in (segment for segment in turns if segment.seed not in follows):
        chain = _chain(last, by_seed)
        chain_seeds = by_seed.keys() & {turn.seed for turn in chain}
        rows.append(_row(chain, chain_seeds - taken, credit, fields))
        taken |= chain_seeds
    total = sum(row.num_trained for row in rows)
    if len(rows) > 1:  # in one update, where their shares add up to one episode
        bundle = fields.get("bundle") or f"turns of {turns[0].seed}"
        rows = [replace(row, share=row.num_trained / total, bundle=bundle) for row in rows]
    num_broken = sum(segment.prefix is None for segment in turns[1:])
    if num_broken:
        _say_broken(turns[0].policy)
    return Joined(rows, num_broken)


@lru_cache
def _say_broken(policy: str) -> None:
    """Warns once for each policy."""
    logger.warning(
        "%s: the ids of a turn do not begin with those of the turn before it (the chat template writes the history "
        "anew, or the model wrote a control token, which is not shown again); such an episode trains as several rows, "
        "which weigh as much as one; turns/broken says how many turns are such, and a few in a thousand do no harm",
        policy,
    )


def _chain(last: Segment, by_seed: Mapping[int, Segment]) -> list[Segment]:
    """A segment and those that it continues, the first one first, as in the episode."""
    chain = [last]
    while (prefix := chain[-1].prefix) is not None:
        chain.append(by_seed.get(prefix.seed, prefix))
    return chain[::-1]


def _row(chain: Sequence[Segment], trained: Collection[int], credit: Credits, fields: dict[str, Any]) -> Row:
    """A row of a chain.

    Args:
        trained: seeds of the turns that train.
    """
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
    defaults: dict[str, Any] = {"temperature": chain[-1].temperature or 1.0, "versions": tuple(versions)}
    return Row(
        policy=chain[-1].policy,
        tokens=np.asarray(ids, np.int32),
        trains=np.concatenate(places),
        credit=np.concatenate(credits),
        logprobs=np.concatenate(logprobs),
        **(defaults | fields),
    )
