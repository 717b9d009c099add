"""The traces for the trace browser: which ones the page carries, what they can be filtered by, what is marked.

Here with what is said of exchanges (answer, critique, refinement); `replies` has what is said of lone answers.

Everything that models wrote stays text here; the page shows it as text and as nothing else.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from typing import Any

from whet.report.kinds import CRITIQUE, SOLVE, Kind
from whet.report.read import Exchange
from whet.report.replies import FACETS, reply_row, reply_tags
from whet.report.table import row_title, title_of

MAX_BYTES = 4_000_000
"""Of exchanges in a page. Long texts get fewer exchanges rather than a page that no browser wants to open."""
WRONG = re.compile(r":\W*Wrong(?:\W*|, so write \d)$")
"""A line with this verdict; the tiny world's may close with a correction."""
STEP_SENTENCE = "Step sentence"
FINAL_VERDICT = "Correctness of the final answer"

CHANGES = {"c2i": "right → wrong", "i2c": "wrong → right", "c2c": "right → right", "i2i": "wrong → wrong"}
VERDICTS = {"wrong": "wrong verdict", "right": "right verdict", "unparsed": "unparsed"}
TROUBLES = {"truncated": "truncated", "ungraded": "not graded", "failed": "failed"}
SPLITS = ("test", "validation", "train")


def chosen(exchanges: Sequence[Exchange], per_group: int, kind: Kind = CRITIQUE) -> list[Exchange]:
    """At most `per_group` exchanges of each critic and split: the newest steps, and within a step the tasks whose
    hash is lowest, so that test traces show the same tasks under each critic. The attempts at a task stay together;
    of replies, which are compared with each other, all attempts are there or none."""
    groups: dict[tuple[str, str], list[Exchange]] = {}
    for exchange in exchanges:
        groups.setdefault(_group(exchange), []).append(exchange)
    picked: list[Exchange] = []
    for group in sorted(groups, key=lambda group: _group_order(group, kind)):
        ordered = sorted(groups[group], key=lambda e: (-e.step, sha256(e.task.encode(errors="replace")).digest()))
        end = min(per_group, len(ordered))
        while kind is SOLVE and 0 < end < len(ordered) and _attempts(ordered[end - 1]) == _attempts(ordered[end]):
            end -= 1
        picked += ordered[:end]
    return picked


def browser(
    exchanges: Sequence[Exchange], per_group: int, *, max_bytes: int = MAX_BYTES, kind: Kind = CRITIQUE
) -> dict[str, Any]:
    """What the trace browser shows: facets with their options, the exchanges, and how many of how many they are."""
    picked = chosen(exchanges, per_group, kind)
    rows = _rows(picked, kind)
    while per_group > 1 and len(json.dumps(rows, ensure_ascii=False).encode(errors="replace")) > max_bytes:
        per_group //= 2
        picked = chosen(exchanges, per_group, kind)
        rows = _rows(picked, kind)
    return {"facets": _facets(exchanges, kind), "exchanges": rows, "shown": _shown(exchanges, picked, kind)}


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


def flagged_lines(critique: str) -> list[int]:
    """The lines of a critique that call a step wrong, and the `Step sentence` that such a line is about."""
    lines = critique.split("\n")
    flagged: set[int] = set()
    for index, line in enumerate(lines):
        if not WRONG.search(line.rstrip()) or line.lstrip().startswith(FINAL_VERDICT):
            continue
        flagged.add(index)
        if line.lstrip().startswith("Correctness of the step"):
            before = [i for i in range(index) if lines[i].lstrip().startswith(STEP_SENTENCE)]
            flagged.update(before[-1:])
    return sorted(flagged)


def changed_lines(answer: str, refinement: str) -> tuple[list[list[int]], list[int]]:
    """How the refinement differs from the answer, by lines.

    Returns: pairs (line of the refinement, line of the answer that it replaces, or -1 for an added one), and the lines
    of the answer that the refinement changed or dropped.
    """
    old, new = ([line.strip() for line in text.split("\n")] for text in (answer, refinement))
    changed: list[list[int]] = []
    gone: list[int] = []
    for kind, a, a_end, b, b_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        gone += range(a, a_end)
        changed += [[line, a + line - b if a + line - b < a_end else -1] for line in range(b, b_end)]
    return changed, gone


def _rows(picked: Sequence[Exchange], kind: Kind) -> list[dict[str, Any]]:
    """What the page gets of each trace: its name in links, what is common to all kinds, and its kind's own."""
    rows = []
    seen: Counter[str] = Counter()
    sizes = Counter(map(_attempts, picked))
    for exchange in picked:
        place = _attempts(exchange)
        seen[place] += 1
        own = exchange_row(exchange) if kind is CRITIQUE else reply_row(exchange, seen[place], sizes[place])
        rows.append(
            {
                "id": sha256(f"{place}/{seen[place] - 1}".encode(errors="replace")).hexdigest()[:12],
                "task": exchange.task,
                "step": exchange.step,
                "phase": exchange.phase,
                "tags": tags(exchange) if kind is CRITIQUE else reply_tags(exchange),
                "question": exchange.question,
                "reference": exchange.reference,
                "answer": exchange.answer,
                "reward": exchange.reward,
                "credit": exchange.credit,
                "stop": dict(exchange.stop),
                "outcome": exchange.outcome,
                **own,
            }
        )
    return rows


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
            {name: row_title(kind, name) for name in sorted(writers, key=lambda name: _writer_order(name, kind))},
        ),
        "split": ("Split", {name: name for name in sorted(splits, key=_split_order)}),
        **own,
    }
    return [
        {"key": key, "title": title, "options": [{"value": v, "label": label} for v, label in found.items()]}
        for key, (title, found) in facets.items()
    ]


def _shown(exchanges: Sequence[Exchange], picked: Sequence[Exchange], kind: Kind) -> list[dict[str, Any]]:
    total, here = Counter(map(_group, exchanges)), Counter(map(_group, picked))
    return [
        {"name": f"{title_of(group[0])}, {group[1]}", "shown": here[group], "of": total[group]}
        for group in sorted(total, key=lambda group: _group_order(group, kind))
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


def _attempts(exchange: Exchange) -> str:
    """What the attempts at one task in one step share."""
    return f"{exchange.phase}/{exchange.critic}/{exchange.split}/{exchange.step}/{exchange.task}"


def _group(exchange: Exchange) -> tuple[str, str]:
    return exchange.critic, exchange.split


def _group_order(group: tuple[str, str], kind: Kind) -> tuple[object, ...]:
    return (*_writer_order(group[0], kind), *_split_order(group[1]))


def _writer_order(name: str, kind: Kind) -> tuple[int, str]:
    return (kind.order.index(name), "") if name in kind.order else (len(kind.order), name)


def _split_order(name: str) -> tuple[int, str]:
    return (SPLITS.index(name), "") if name in SPLITS else (len(SPLITS), name)
