"""Metrics of agents: success with its interval, reward, turns and invalid actions.

Traces of episodes of many turns, for the report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from whet.evaluation.critique import Metrics, pass_at_k
from whet.evaluation.intervals import interval
from whet.evaluation.scaling import powers
from whet.rollout.agent import FULL, HORIZON, PROPOSED
from whet.types import FAULTS, Episode, Segment


def turns_of(episode: Episode) -> list[Segment]:
    """The agent's segments, in order."""
    return [segment for segment in episode.segments if segment.role != OBSERVATION]


def reward_of(episode: Episode) -> float:
    """The sum of the environment's rewards."""
    return math.fsum(turn.parsed.get("reward", 0.0) for turn in turns_of(episode))


def agent_metrics(groups: Sequence[Sequence[Episode]], is_success: Mapping[str, float]) -> Metrics:
    """Metrics of k episodes of each item. Failed episodes are counted and left out, with items that have no others.

    Args:
        is_success: by environment, the reward that a success exceeds.
    Returns: `success` has a 95 % interval over items (`success_low`, `success_high`). `reward` and `turns` are means
        over episodes. `invalid` is a share of turns, and `truncated` of episodes. `pass` is pass@k, None for one
        episode per item. `length` is in tokens per turn. `n` counts items, `k` is 0 for one episode per item, and
        `faults` counts failures.
    """
    whole = [[episode for episode in group if episode.outcome not in FAULTS] for group in groups]
    faults = sum(len(group) for group in groups) - sum(map(len, whole))
    nonempty = [group for group in whole if group]
    every = [episode for group in nonempty for episode in group]
    most = max((len(group) for group in groups), default=0)
    k = most if most > 1 else 0
    if not every:
        return dict.fromkeys(NUMBERS) | {"n": 0.0, "k": float(k), "faults": float(faults)}
    wins = [[succeeded(episode, is_success) for episode in group] for group in nonempty]
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
        "n": float(len(nonempty)),
        "k": float(k),
        "faults": float(faults),
    }


NUMBERS = (
    "success", "success_low", "success_high", "reward", "turns", "invalid", "truncated", "pass", "length",
)  # fmt: skip


def succeeded(episode: Episode, above: Mapping[str, float]) -> bool:
    return reward_of(episode) > above[str(episode.task.info["environment"])]


def shares_of(groups: Sequence[Sequence[Episode]], above: Mapping[str, float]) -> list[float | None]:
    """Each item's share of successes, without episodes that failed by a fault. None: all of them failed."""
    whole = [[succeeded(episode, above) for episode in group if episode.outcome not in FAULTS] for group in groups]
    return [fmean(wins) if wins else None for wins in whole]


def cut_shares(reasons: Sequence[str]) -> dict[str, float]:
    """Shares of episodes cut by any limit (the environment's included), by the horizon, and by the limit of tokens.

    Args:
        reasons: of at least one episode. Empty: it was not cut.
    """
    return {
        "episodes/cut": fmean(map(bool, reasons)),
        "episodes/cut_by_horizon": fmean(reason == HORIZON for reason in reasons),
        "episodes/cut_by_context": fmean(reason == FULL for reason in reasons),
    }


def broken_share(episodes: Iterable[Episode]) -> float | None:
    """The share of a policy's later turns that do not continue the ids of the turn before.

    Each of these begins a new row: see `credit.views.Joined.num_broken`. None: no episode has a second turn.
    """
    later_turns = [[turn for turn in turns_of(episode) if turn.tokens][1:] for episode in episodes]
    later = [turn.prefix is None for turns in later_turns for turn in turns]
    return fmean(later) if later else None


def by_turn(episodes: Sequence[Episode], above: Mapping[str, float], most: int) -> list[float]:
    """The share of episodes that have succeeded within 1, 2, ... `most` turns.

    It estimates the success under a shorter limit, if the agent acts alike under it.
    """
    needed = [len(turns_of(episode)) for episode in episodes if succeeded(episode, above)]
    return [sum(count <= limit for count in needed) / len(episodes) for limit in range(1, most + 1)] if episodes else []


def by_samples(groups: Sequence[Sequence[Episode]], above: Mapping[str, float]) -> Metrics:
    """`pass@k` for k = 1, 2, 4, ..., and all episodes: the chance that at least one of k is a success.

    It is the unbiased estimate of arXiv:2107.03374, eq. 1. Failed episodes are left out, so that the largest k may be
    smaller.
    Returns: nothing if items have one episode each.
    """
    if max(map(len, groups), default=0) < 2:
        return {}
    whole = [[succeeded(episode, above) for episode in group if episode.outcome not in FAULTS] for group in groups]
    wins = [row for row in whole if row]
    return {f"pass@{k}": pass_at_k(wins, k) for k in powers(min(map(len, wins), default=0))}


# --- turns ------------------------------------------------------------------------------------------------------------


OBSERVATION = "observation"
"""The role of segments that no policy wrote."""
PROPOSAL = "proposal"
"""In a trace, the role of a turn that was sent back before its action was taken. It is not counted."""


def turns_trace(
    episode: Episode,
    *,
    score: float | None,
    phase: str,
    step: int,
    split: str,
    label: str,
    credit: Mapping[int, float] | None = None,
) -> dict[str, Any]:
    """An episode as a trace, with a turn for each segment, in order. Without a prompt, the first observation is the
    problem.

    Args:
        score: of the episode, in [0, 1]. None: it failed.
        label: a row of the final table, or `training`.
        credit: mean credit per token, by the segment's seed.
    """
    segments, question = list(episode.segments), episode.task.prompt
    if not question and segments and segments[0].role == OBSERVATION:  # what the episode is about
        question = segments.pop(0).text
    turns = []
    for segment in segments:
        role = PROPOSAL if PROPOSED in segment.parsed else segment.role
        turn: dict[str, Any] = {"role": role, "text": segment.text}
        if segment.role != OBSERVATION:
            turn["stop"] = segment.stop_reason
        if "total" in segment.rewards:
            turn["reward"] = segment.rewards["total"]
        if credit is not None and segment.tokens and segment.seed in credit:
            turn["credit"] = credit[segment.seed]
        if note := segment.parsed.get("note"):
            turn["note"] = str(note)
        turns.append(turn)
    scored = [turn["reward"] for turn in turns if "reward" in turn]
    return {
        "phase": phase, "step": step, "split": split, "policy": label, "task": episode.task.id,
        "question": question, "reference": episode.task.answer, "answer": "",
        "answer_score": None if episode.outcome in FAULTS else score, "reward": sum(scored) if scored else None,
        "turns": turns, "outcome": episode.outcome, "reason": episode.reason,
    }  # fmt: skip
