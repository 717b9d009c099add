"""The trace browser's data on lone answers: right or wrong, and the place in the group."""

from __future__ import annotations

from typing import Any

from whet.report.records import TraceRecord

OUTCOMES = {"right": "right", "wrong": "wrong"}
TROUBLES = {"truncated": "truncated", "ungraded": "not graded", "failed": "failed"}
FACETS = {"outcome": ("Outcome", OUTCOMES), "trouble": ("Trouble", TROUBLES)}


def reply_tags(reply: TraceRecord) -> dict[str, list[str]]:
    """A reply's options in each facet of its view."""
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
    """The fields that only a reply has.

    Args:
        at: its number among the replies to its task in its step, from 1.
        size: the number of those replies.
    """
    row = {"answer_right": is_right(reply), "score": reply.answer_score, "at": at, "size": size}
    return row if reply.split != "test" else row | {"step": 0}  # its steps only count the rows of the summary


def is_right(reply: TraceRecord) -> bool | None:
    """Whether its score is 1, as wherever a policy answers alone. None: not graded."""
    return None if reply.answer_score is None else reply.answer_score == 1
