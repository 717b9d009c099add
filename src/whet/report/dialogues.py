"""The trace browser's data on episodes of many turns: actions, observations, and each turn's reward."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from whet.report.records import TraceRecord
from whet.report.replies import FACETS, is_right, reply_tags
from whet.report.texts import shown_text

__all__ = ["FACETS", "dialogue_row", "dialogue_tags"]


def dialogue_tags(episode: TraceRecord) -> dict[str, list[str]]:
    """An episode's options in each facet of its view."""
    tags = reply_tags(episode)
    is_cut = any(turn.stop == "length" for turn in episode.turns) and "truncated" not in tags["trouble"]
    return tags | {"trouble": ["truncated", *tags["trouble"]]} if is_cut else tags


def dialogue_row(episode: TraceRecord, at: int, size: int) -> dict[str, Any]:
    """The fields that only an episode has.

    Args:
        at: its number among the episodes of its task in its step, from 1.
        size: the number of those episodes.
    """
    turns = []
    for turn in episode.turns:
        text, gap = shown_text(turn.text)
        turns.append({**asdict(turn), "text": text, "gap": None if gap is None else asdict(gap)})
    row: dict[str, Any] = {
        "answer_right": is_right(episode),
        "score": episode.answer_score,
        "at": at,
        "size": size,
        "turns": turns,
        "rewards": dict(episode.rewards),
    }
    return row if episode.split != "test" else row | {"step": 0}  # its steps only count the rows of the summary
