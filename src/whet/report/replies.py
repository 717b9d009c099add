"""What the trace browser is told of lone answers: right or wrong, and where each stands in its group."""

from __future__ import annotations

from typing import Any

from whet.report.records import TraceRecord

OUTCOMES = {"right": "right", "wrong": "wrong"}
TROUBLES = {"truncated": "truncated", "ungraded": "not graded", "failed": "failed"}
FACETS = {"outcome": ("Outcome", OUTCOMES), "trouble": ("Trouble", TROUBLES)}


def reply_tags(reply: TraceRecord) -> dict[str, list[str]]:
    """Under which options of each facet of its own a reply is found."""
    right = is_right(reply)
    troubles = {
        "truncated": "length" in reply.stop.values() or reply.outcome == "truncated",
        "ungraded": right is None,
        "failed": reply.outcome not in ("ok", "truncated"),
    }
    return {
        "outcome": [] if right is None else ["right" if right else "wrong"],
        "trouble": [name for name, there in troubles.items() if there],
    }


def reply_row(reply: TraceRecord, at: int, size: int) -> dict[str, Any]:
    """What only a reply has.

    Args:
        at: which of the replies to its task in its step it is, from 1.
        size: how many those are.
    """
    own = {"answer_right": is_right(reply), "score": reply.answer_score, "at": at, "size": size}
    return own if reply.split != "test" else own | {"step": 0}  # its steps only count the rows of the summary


def is_right(reply: TraceRecord) -> bool | None:
    """As everywhere where a policy answers alone: the whole score, nothing less. None: not graded."""
    return None if reply.answer_score is None else reply.answer_score == 1
