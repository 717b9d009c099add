"""How well an agent acts: success, reward, turns and invalid actions, with what chance alone would explain of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from whet.evaluation.critique import Metrics, pass_at_k
from whet.evaluation.intervals import interval
from whet.evaluation.scaling import powers
from whet.evaluation.turns import OBSERVATION
from whet.rollout.agent import FULL, HORIZON
from whet.types import FAULTS, Episode, Segment


def turns_of(episode: Episode) -> list[Segment]:
    """What the agent wrote, in order."""
    return [segment for segment in episode.segments if segment.role != OBSERVATION]


def reward_of(episode: Episode) -> float:
    """What the world has paid in all."""
    return math.fsum(turn.parsed.get("reward", 0.0) for turn in turns_of(episode))


def agent_metrics(groups: Sequence[Sequence[Episode]], is_success: Mapping[str, float]) -> Metrics:
    """Of k episodes of each item. Episodes that failed are left out and counted; items without any other are, too.

    Args:
        is_success: by environment, the reward that a success comes to more than.
    Returns: `success` with the ends of its 95 % interval over items (`success_low`, `success_high`), `reward` (mean
        of the episodes' own), `turns`, `invalid` (of all turns), `truncated` (episodes that were cut), `pass` (at k;
        None for one episode an item), `length` (tokens a turn), `n` (items), `k` (0 for one), `faults`.
    """
    whole = [[episode for episode in group if episode.outcome not in FAULTS] for group in groups]
    faults = sum(len(group) for group in groups) - sum(map(len, whole))
    kept = [group for group in whole if group]
    every = [episode for group in kept for episode in group]
    most = max((len(group) for group in groups), default=0)
    k = most if most > 1 else 0
    if not every:
        return dict.fromkeys(NUMBERS) | {"n": 0.0, "k": float(k), "faults": float(faults)}
    wins = [[succeeded(episode, is_success) for episode in group] for group in kept]
    low, high = interval([fmean(row) for row in wins])
    turns = [turn for episode in every for turn in turns_of(episode)]
    return {
        "success": fmean(fmean(row) for row in wins),
        "success_low": low,
        "success_high": high,
        "reward": fmean(map(reward_of, every)),
        "turns": fmean(len(turns_of(episode)) for episode in every),
        "invalid": fmean("note" in turn.parsed for turn in turns) if turns else None,
        "truncated": fmean(episode.outcome == "truncated" for episode in every),
        "pass": pass_at_k(wins) if k and all(len(row) == k for row in wins) else None,
        "length": fmean(len(turn.tokens) for turn in turns) if turns else None,
        "n": float(len(kept)),
        "k": float(k),
        "faults": float(faults),
    }


NUMBERS = (
    "success", "success_low", "success_high", "reward", "turns", "invalid", "truncated", "pass", "length",
)  # fmt: skip


def succeeded(episode: Episode, above: Mapping[str, float]) -> bool:
    return reward_of(episode) > above[str(episode.task.info["environment"])]


def shares_of(groups: Sequence[Sequence[Episode]], above: Mapping[str, float]) -> list[float | None]:
    """Each item's share of episodes that succeeded, those that failed by a fault left out. None: all of them did."""
    whole = [[succeeded(each, above) for each in group if each.outcome not in FAULTS] for group in groups]
    return [fmean(wins) if wins else None for wins in whole]


def cut_shares(reasons: Sequence[str]) -> dict[str, float]:
    """What cut episodes: shares by the horizon alone, by the limit of tokens, and by any limit, the world's own too.

    Args:
        reasons: of the episodes, one at least. Empty: it was not cut.
    """
    return {
        "episodes/cut": fmean(map(bool, reasons)),
        "episodes/cut_by_horizon": fmean(reason == HORIZON for reason in reasons),
        "episodes/cut_by_context": fmean(reason == FULL for reason in reasons),
    }


def broken_share(episodes: Iterable[Episode]) -> float | None:
    """Of a policy's turns after its first, the share that does not go on from the ids of the one before: the chat
    template writes the history anew, or that turn has control tokens, which nobody is shown again. Each begins a row of
    its own. None: no episode has a second turn."""
    said = [[turn for turn in turns_of(episode) if turn.tokens][1:] for episode in episodes]
    later = [turn.prefix is None for turns in said for turn in turns]
    return fmean(later) if later else None


def by_turn(episodes: Sequence[Episode], above: Mapping[str, float], most: int) -> list[float]:
    """The share of episodes that have succeeded within 1, 2, ... `most` turns: what a shorter limit would have come to
    for an agent that plays alike under it."""
    needed = [len(turns_of(episode)) for episode in episodes if succeeded(episode, above)]
    return [sum(count <= limit for count in needed) / len(episodes) for limit in range(1, most + 1)] if episodes else []


def by_samples(groups: Sequence[Sequence[Episode]], above: Mapping[str, float]) -> Metrics:
    """`pass@k` for k = 1, 2, 4, ..., and all: the chance that at least one of k episodes of an item is a success, by
    the unbiased estimate (arXiv:2107.03374, eq. 1). Episodes that failed are left out, which may leave fewer for all.

    Returns: nothing where items have one episode each.
    """
    if max(map(len, groups), default=0) < 2:
        return {}
    whole = [[succeeded(each, above) for each in group if each.outcome not in FAULTS] for group in groups]
    wins = [row for row in whole if row]
    return {f"pass@{k}": pass_at_k(wins, k) for k in powers(min(map(len, wins), default=0))}
