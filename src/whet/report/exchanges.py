"""The trace browser's data on exchanges: whether answer and refinement are right, and the lines to mark."""

from __future__ import annotations

from typing import Any

from whet.report.records import TraceRecord
from whet.report.texts import changed_lines, flagged_lines

CHANGES = {"c2i": "right → wrong", "i2c": "wrong → right", "c2c": "right → right", "i2i": "wrong → wrong"}
VERDICTS = {"wrong": "wrong verdict", "right": "right verdict", "unparsed": "unparsed"}
TROUBLES = {"truncated": "truncated", "ungraded": "not graded", "failed": "failed"}
FACETS = {"change": ("Outcome", CHANGES), "verdict": ("Critique", VERDICTS), "trouble": ("Trouble", TROUBLES)}


def exchange_tags(exchange: TraceRecord) -> dict[str, list[str]]:
    """An exchange's options in each facet of its view."""
    troubles = []
    if "length" in exchange.stop.values() or exchange.outcome == "truncated":
        troubles.append("truncated")
    if exchange.answer_score is None or (exchange.refinement is not None and exchange.refinement_score is None):
        troubles.append("ungraded")
    if exchange.outcome not in ("ok", "truncated"):
        troubles.append("failed")
    return {
        "change": _change(exchange),
        "verdict": _verdict(exchange),
        "trouble": troubles,
    }


def exchange_row(exchange: TraceRecord) -> dict[str, Any]:
    """The fields that only an exchange has."""
    changed, gone = changed_lines(exchange.answer, exchange.refinement or "")
    return {
        "answer_right": _right(exchange.answer_score),
        "critique": exchange.critique,
        "says": exchange.verdict,
        "refinement": exchange.refinement,
        "refinement_right": _right(exchange.refinement_score),
        "flagged": flagged_lines(exchange.critique or ""),
        "changed": [] if exchange.refinement is None else changed,
        "gone": [] if exchange.refinement is None else gone,
        "rewards": dict(exchange.rewards),
    }


def _change(exchange: TraceRecord) -> list[str]:
    before, after = _right(exchange.answer_score), _right(exchange.refinement_score)
    if exchange.refinement is None or before is None or after is None:
        return []
    return [f"{'c' if before else 'i'}2{'c' if after else 'i'}"]


def _verdict(exchange: TraceRecord) -> list[str]:
    right = _right(exchange.answer_score)
    if exchange.critique is None:
        return []
    if exchange.verdict is None:
        return ["unparsed"]
    return [] if right is None else ["right" if (exchange.verdict == "correct") == right else "wrong"]


def _right(score: float | None) -> bool | None:
    return None if score is None else score == 1.0
