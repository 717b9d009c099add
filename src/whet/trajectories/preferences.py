"""Preference pairs for DPO: of two runs of one item, the better one is chosen and the worse one rejected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.tasks.files import DataError
from whet.trajectories.files import message_of, message_row, records, write_rows
from whet.trajectories.records import FIRST_REPLY, Message, Trajectory, check_messages
from whet.types import REWARD_ROUNDING

REWARD_GAP = 0.01
"""Published; the authors' script has 0.1."""
EXPERT_THRESHOLD = 0.7
"""Published; the authors' script has 0.9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two continuations of one prompt."""

    item_id: str
    prompt: tuple[Message, ...]
    """Rules, acknowledgement and first observation."""
    chosen: tuple[Message, ...]
    rejected: tuple[Message, ...]

    def runs(self) -> tuple[Trajectory, Trajectory]:
        """The chosen and the rejected run as whole trajectories, for `masks.sft_row`."""
        chosen, rejected = (
            Trajectory(item_id=self.item_id, messages=self.prompt + rest) for rest in (self.chosen, self.rejected)
        )
        return chosen, rejected


def preference_pairs(
    experts: Iterable[Trajectory],
    samples: Iterable[Trajectory],
    *,
    reward_gap: float = REWARD_GAP,
    expert_threshold: float = EXPERT_THRESHOLD,
    scale: float = 1.0,
) -> tuple[Pair, ...]:
    """Every sampled run beside the first expert run of its item, in the samples' order.

    Args:
        reward_gap: the least distance of the two rewards.
        expert_threshold: the least reward of the better one.
        scale: divides the rewards, as an environment's `scale`.
    Raises: DataError where a run has no reward, or two runs of an item begin in different ways.
    """
    first: dict[str, Trajectory] = {}
    for trajectory in experts:
        first.setdefault(trajectory.item_id, trajectory)
    pairs = []
    for sample in samples:
        expert = first.get(sample.item_id)
        if expert is None:
            continue
        ours, theirs = _reward(expert) / scale, _reward(sample) / scale
        if differ(ours, theirs, reward_gap=reward_gap, threshold=expert_threshold):
            pairs.append(_pair(expert, sample) if ours > theirs else _pair(sample, expert))
    return tuple(pairs)


def differ(one: float, two: float, *, reward_gap: float, threshold: float) -> bool:
    """Whether two rewards make a pair: their distance and the better one are large enough."""
    return (
        one != two and abs(one - two) >= reward_gap - REWARD_ROUNDING and max(one, two) >= threshold - REWARD_ROUNDING
    )


def read_pairs(path: str | Path) -> tuple[Pair, ...]:
    """Raises: DataError."""
    return tuple(_read(place, row) for place, row in records(Path(path), "pairs"))


def write_pairs(path: str | Path, pairs: Iterable[Pair]) -> None:
    """A JSON list, or JSON lines where the name ends so."""
    rows = [
        {
            "id": pair.item_id,
            "prompt": [message_row(message) for message in pair.prompt],
            "chosen": [message_row(message) for message in pair.chosen],
            "rejected": [message_row(message) for message in pair.rejected],
        }
        for pair in pairs
    ]
    write_rows(Path(path), rows)


def _reward(trajectory: Trajectory) -> float:
    if trajectory.reward is None:
        raise DataError(f"a run of {trajectory.item_id} has no reward; pairs need one in both runs, so add it")
    return trajectory.reward


def _pair(better: Trajectory, worse: Trajectory) -> Pair:
    begin, other = ([message.text for message in trajectory.messages[:FIRST_REPLY]] for trajectory in (better, worse))
    if begin != other:
        raise DataError(
            f"two runs of {better.item_id} begin in different ways (rules or first observation); pair runs of one kind"
        )
    return Pair(
        item_id=better.item_id,
        prompt=better.messages[:FIRST_REPLY],
        chosen=better.messages[FIRST_REPLY:],
        rejected=worse.messages[FIRST_REPLY:],
    )


def _read(place: str, row: Mapping[str, Any]) -> Pair:
    name = row.get("id")
    if "conversations" in row:
        raise DataError(f"{place}: this is an episode, and not a pair; `whet env record --pairs FILE` writes pairs")
    if not isinstance(name, str):
        raise DataError(f"{place}: a pair has no id; write the item's name, such as 'textcraft_12'")
    parts = []
    for field in ("prompt", "chosen", "rejected"):
        rows = row.get(field)
        if not isinstance(rows, list) or not rows:
            raise DataError(f"{place}: {field} is no list of messages; write one, as AgentTraj has conversations")
        parts.append(tuple(message_of(f"{place}, {field}", number, message) for number, message in enumerate(rows)))
    prompt, chosen, rejected = parts
    if len(prompt) != FIRST_REPLY:
        raise DataError(f"{place}: the prompt has {len(prompt)} messages; write rules, acknowledgement, observation")
    for field, messages, begins_at in (
        ("prompt", prompt, 0),
        ("chosen", chosen, FIRST_REPLY),
        ("rejected", rejected, FIRST_REPLY),
    ):
        check_messages(messages, f"{place}, {field}", begins_at=begins_at)
    return Pair(item_id=name, prompt=prompt, chosen=chosen, rejected=rejected)
