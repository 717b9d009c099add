"""Metrics of agents: success with its interval, reward, turns and invalid actions. And the traces of their episodes."""

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

OBSERVATION = "observation"
"""The role of segments that no policy wrote."""
PROPOSAL = "proposal"
"""In a trace, the role of a turn that was sent back before its action was taken. It is not counted."""
NUMBERS = ("success", "success_low", "success_high", "reward", "turns", "invalid", "truncated", "pass", "length")
"""The metrics that are None if every episode failed."""


def turns_of(episode: Episode) -> list[Segment]:
    """The agent's segments, in order."""
    return [segment for segment in episode.segments if segment.role != OBSERVATION]


def reward_of(episode: Episode) -> float:
    """The sum of the environment's rewards."""
    return math.fsum(turn.parsed.get("reward", 0.0) for turn in turns_of(episode))


def agent_metrics(groups: Sequence[Sequence[Episode]], above: Mapping[str, float]) -> Metrics:
    """Metrics of k episodes of each item. Failed episodes are counted and left out, with items that have no others.

    Args:
        above: by environment, the reward that a success exceeds.
    Returns: `success` has a 95 % interval over items (`success_low`, `success_high`). `reward` and `turns` are means
        over episodes. `invalid` is a share of turns, and `truncated` of episodes. `pass` is pass@k, None for one
        episode per item. `length` is in tokens per turn. `n` counts items, `k` is 0 for one episode per item, and
        `faults` counts failures.
    """
    episodes = [episode for group in groups for episode in group if episode.outcome not in FAULTS]
    wins = _wins(groups, above)
    most = max(map(len, groups), default=0)
    k = most if most > 1 else 0
    counts = {"n": float(len(wins)), "k": float(k), "faults": float(sum(map(len, groups)) - len(episodes))}
    if not episodes:
        return dict.fromkeys(NUMBERS) | counts
    shares = [fmean(successes) for successes in wins]
    low, high = interval(shares)
    turns = [turn for episode in episodes for turn in turns_of(episode)]
    return {
        "success": fmean(shares),
        "success_low": low,
        "success_high": high,
        "reward": fmean(map(reward_of, episodes)),
        "turns": fmean(len(turns_of(episode)) for episode in episodes),
        "invalid": fmean("note" in turn.parsed for turn in turns) if turns else None,
        "truncated": fmean(episode.outcome == "truncated" for episode in episodes),
        "pass": pass_at_k(wins) if k and all(len(successes) == k for successes in wins) else None,
        "length": fmean(len(turn.tokens) for turn in turns) if turns else None,
        **counts,
    }


def _wins(groups: Sequence[Sequence[Episode]], above: Mapping[str, float]) -> list[list[bool]]:
    """Whether each episode succeeded, without failed episodes and items that have no others."""
    wins = [[succeeded(episode, above) for episode in group if episode.outcome not in FAULTS] for group in groups]
    return [successes for successes in wins if successes]


def succeeded(episode: Episode, above: Mapping[str, float]) -> bool:
    """Whether the episode's reward exceeds that of its environment."""
    return reward_of(episode) > above[str(episode.task.info["environment"])]


def shares_of(groups: Sequence[Sequence[Episode]], above: Mapping[str, float]) -> list[float | None]:
    """Each item's share of successes, without episodes that failed by a fault. None: all of them failed."""
    wins = [_wins([group], above) for group in groups]
    return [fmean(successes[0]) if successes else None for successes in wins]


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
    later_turns = [turn for episode in episodes for turn in [turn for turn in turns_of(episode) if turn.tokens][1:]]
    return fmean(turn.prefix is None for turn in later_turns) if later_turns else None


def by_turn(episodes: Sequence[Episode], above: Mapping[str, float], most: int) -> list[float]:
    """The share of episodes that have succeeded within 1, 2, ... `most` turns.

    It estimates the success under a shorter limit, if the agent acts alike under it.
    """
    if not episodes:
        return []
    counts = [len(turns_of(episode)) for episode in episodes if succeeded(episode, above)]
    return [sum(count <= limit for count in counts) / len(episodes) for limit in range(1, most + 1)]


def by_samples(groups: Sequence[Sequence[Episode]], above: Mapping[str, float]) -> Metrics:
    """`pass@k` for k = 1, 2, 4, ..., and all episodes: the chance that at least one of k is a success.

    It is the unbiased estimate of arXiv:2107.03374, eq. 1. Failed episodes are left out, so that the largest k may be
    smaller.
    Returns: nothing if items have one episode each.
    """
    if max(map(len, groups), default=0) < 2:
        return {}
    wins = _wins(groups, above)
    return {f"pass@{k}": pass_at_k(wins, k) for k in powers(min(map(len, wins), default=0))}


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
