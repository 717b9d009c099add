"""Traces of episodes of many turns, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.rollout.agent import PROPOSED
from whet.types import FAULTS, Episode

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
