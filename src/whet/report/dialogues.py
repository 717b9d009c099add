"""What the trace browser is told of episodes of many turns: what was done, what came back, what each turn was paid."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from whet.report.records import TraceRecord
from whet.report.replies import FACETS, is_right, reply_tags
from whet.report.texts import shown_text

__all__ = ["FACETS", "dialogue_row", "dialogue_tags"]


def dialogue_tags(episode: TraceRecord) -> dict[str, list[str]]:
    """Under which options of each facet of its own an episode is found."""
    tags = reply_tags(episode)
    is_cut = any(turn.stop == "length" for turn in episode.turns) and "truncated" not in tags["trouble"]
    return tags | {"trouble": ["truncated", *tags["trouble"]]} if is_cut else tags


def dialogue_row(episode: TraceRecord, at: int, size: int) -> dict[str, Any]:
    """What only an episode has.

    Args:
        at: which of the episodes of its task in its step it is, from 1.
        size: how many those are.
    """
    turns = []
    for turn in episode.turns:
        text, gap = shown_text(turn.text)
        turns.append({**asdict(turn), "text": text, "gap": None if gap is None else asdict(gap)})
    own: dict[str, Any] = {
        "answer_right": is_right(episode), "score": episode.answer_score, "at": at, "size": size,
        "turns": turns, "rewards": dict(episode.rewards),
    }  # fmt: skip
    return own if episode.split != "test" else own | {"step": 0}  # its steps only count the rows of the summary
