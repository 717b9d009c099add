"""The traces for the trace browser: which ones the page carries, what they can be filtered by, what is marked.

Here with what is said of exchanges (answer, critique, refinement); `replies` has what is said of lone answers.

Everything that models wrote stays text here; the page shows it as text and as nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

from whet.report.kinds import CRITIQUE, Kind
from whet.report.picking import attempts, chosen, group_of, group_order, split_order, writer_order
from whet.report.read import Exchange
from whet.report.replies import FACETS, reply_row, reply_tags
from whet.report.table import row_title
from whet.report.texts import changed_lines, flagged_lines, short_name, shown_text

MAX_BYTES = 4_000_000
"""Of exchanges in a page. Long texts get fewer exchanges rather than a page that no browser wants to open."""
MAX_TASK = 200
"""Characters of a task's name; longer ones are cut, and told apart by a hash."""

CHANGES = {"c2i": "right → wrong", "i2c": "wrong → right", "c2c": "right → right", "i2i": "wrong → wrong"}
VERDICTS = {"wrong": "wrong verdict", "right": "right verdict", "unparsed": "unparsed"}
TROUBLES = {"truncated": "truncated", "ungraded": "not graded", "failed": "failed"}


def browser(
    exchanges: Sequence[Exchange], per_group: int, *, max_bytes: int = MAX_BYTES, kind: Kind = CRITIQUE
) -> dict[str, Any]:
    """What the trace browser shows: facets with their options, the exchanges, and how many of how many they are.

    `recorded` counts all exchanges, also those that are not on the page, by the options that they are found under.
    """
    tags_of = _tags_of(kind)
    tagged = [tags_of(exchange) for exchange in exchanges]
    picked = chosen(exchanges, tagged, per_group, kind)
    rows = _rows(picked, kind)
    while per_group > 1 and len(json.dumps(rows, ensure_ascii=False).encode(errors="replace")) > max_bytes:
        per_group //= 2
        picked = chosen(exchanges, tagged, per_group, kind)
        rows = _rows(picked, kind)
    recorded = Counter(json.dumps(each, ensure_ascii=False) for each in tagged)
    return {
        "facets": _facets(exchanges, kind),
        "exchanges": rows,
        "shown": _shown(exchanges, picked, kind),
        "recorded": [{"tags": json.loads(each), "count": count} for each, count in recorded.items()],
    }


def _tags_of(kind: Kind) -> Callable[[Exchange], dict[str, list[str]]]:
    return tags if kind is CRITIQUE else reply_tags


def tags(exchange: Exchange) -> dict[str, list[str]]:
    """Under which options of each facet an exchange is found."""
    troubles = []
    if "length" in exchange.stop.values() or exchange.outcome == "truncated":
        troubles.append("truncated")
    if exchange.answer_score is None or (exchange.refinement is not None and exchange.refinement_score is None):
        troubles.append("ungraded")
    if exchange.outcome not in ("ok", "truncated"):
        troubles.append("failed")
    return {
        "critic": [exchange.critic],
        "split": [exchange.split],
        "change": _change(exchange),
        "verdict": _verdict(exchange),
        "trouble": troubles,
    }


def _rows(picked: Sequence[Exchange], kind: Kind) -> list[dict[str, Any]]:
    """What the page gets of each trace: its name in links, what is common to all kinds, and its kind's own."""
    rows = []
    seen: Counter[str] = Counter()
    sizes = Counter(map(attempts, picked))
    for whole in picked:
        place = attempts(whole)
        seen[place] += 1
        exchange, gaps = _cut(whole)
        own = exchange_row(exchange) if kind is CRITIQUE else reply_row(exchange, seen[place], sizes[place])
        rows.append(
            {
                "id": sha256(f"{place}/{seen[place] - 1}".encode(errors="replace")).hexdigest()[:12],
                "task": exchange.task,
                "step": exchange.step,
                "phase": exchange.phase,
                "tags": _tags_of(kind)(exchange),
                "question": exchange.question,
                "reference": exchange.reference,
                "answer": exchange.answer,
                "gaps": gaps,
                "reward": exchange.reward,
                "credit": exchange.credit,
                "stop": dict(exchange.stop),
                "outcome": exchange.outcome,
                **own,
            }
        )
    return rows


def _cut(exchange: Exchange) -> tuple[Exchange, dict[str, dict[str, int]]]:
    """The exchange with its texts as the page shows them, and by their names what was left out of each."""
    texts: dict[str, Any] = {}
    gaps: dict[str, dict[str, int]] = {}
    for name in ("question", "reference", "answer", "critique", "refinement"):
        if (text := getattr(exchange, name)) is None:
            continue
        texts[name], gap = shown_text(text)
        if gap is not None:
            gaps[name] = asdict(gap)
    task = exchange.task
    if len(task) > MAX_TASK:  # still one name a task
        task = f"{task[:MAX_TASK]}… {sha256(task.encode(errors='replace')).hexdigest()[:8]}"
    return replace(exchange, task=task, **texts), gaps


def exchange_row(exchange: Exchange) -> dict[str, Any]:
    """What only an exchange has."""
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


def _facets(exchanges: Iterable[Exchange], kind: Kind) -> list[dict[str, Any]]:
    """The writer and the split, then what the kind can be asked."""
    writers = {exchange.critic for exchange in exchanges}
    splits = {exchange.split for exchange in exchanges}
    own = (
        {"change": ("Outcome", CHANGES), "verdict": ("Critique", VERDICTS), "trouble": ("Trouble", TROUBLES)}
        if kind is CRITIQUE
        else FACETS
    )
    facets = {
        kind.who: (
            kind.who.capitalize(),
            {name: row_title(kind, name) for name in sorted(writers, key=lambda name: writer_order(name, kind))},
        ),
        "split": ("Split", {name: short_name(name) for name in sorted(splits, key=split_order)}),
        **own,
    }
    return [
        {"key": key, "title": title, "options": [{"value": v, "label": label} for v, label in found.items()]}
        for key, (title, found) in facets.items()
    ]


def _shown(exchanges: Sequence[Exchange], picked: Sequence[Exchange], kind: Kind) -> list[dict[str, Any]]:
    total, here = Counter(map(group_of, exchanges)), Counter(map(group_of, picked))
    return [
        {"name": f"{row_title(kind, group[0])}, {short_name(group[1])}", "shown": here[group], "of": total[group]}
        for group in sorted(total, key=lambda group: group_order(group, kind))
    ]


def _change(exchange: Exchange) -> list[str]:
    before, after = _right(exchange.answer_score), _right(exchange.refinement_score)
    if exchange.refinement is None or before is None or after is None:
        return []
    return [f"{'c' if before else 'i'}2{'c' if after else 'i'}"]


def _verdict(exchange: Exchange) -> list[str]:
    right = _right(exchange.answer_score)
    if exchange.critique is None:
        return []
    if exchange.verdict is None:
        return ["unparsed"]
    return [] if right is None else ["right" if (exchange.verdict == "correct") == right else "wrong"]


def _right(score: float | None) -> bool | None:
    return None if score is None else score > 0.5
