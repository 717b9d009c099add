"""The traces for the trace browser: which ones the page carries, and what they can be filtered by.

What is said of one trace comes from its view: `exchanges` (answer, critique, refinement), `replies` (lone answers) or
`dialogues` (episodes of many turns).
Everything that models wrote stays text here; the page shows it as text and as nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

from whet.report.dialogues import FACETS as DIALOGUE_FACETS
from whet.report.dialogues import dialogue_row, dialogue_tags
from whet.report.exchanges import FACETS as EXCHANGE_FACETS
from whet.report.exchanges import exchange_row, exchange_tags
from whet.report.picking import attempts, chosen, group_of, group_order, split_order, writer_order
from whet.report.records import TraceRecord
from whet.report.replies import FACETS as REPLY_FACETS
from whet.report.replies import reply_row, reply_tags
from whet.report.rows import row_title
from whet.report.spec import ReportSpec
from whet.report.texts import short_name, shown_text

MAX_BYTES = 4_000_000
"""Of exchanges in a page. Long texts get fewer exchanges rather than a page that no browser wants to open."""
MAX_TASK = 200
"""Characters of a task's name; longer ones are cut, and told apart by a hash."""

Tags = dict[str, list[str]]
Facets = Mapping[str, tuple[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Shown:
    """How the traces of one view are shown."""

    tags: Callable[[TraceRecord], Tags]
    """Under which options of its own facets a trace is found."""
    row: Callable[[TraceRecord, int, int], dict[str, Any]]
    """What the page gets of it beside what all traces have: which of the attempts at its task it is (from 1), and of
    how many."""
    facets: Facets
    are_compared: bool
    """The attempts at one task are read beside each other, so all are on the page or none."""


VIEWS = {
    "exchange": Shown(
        exchange_tags, lambda exchange, at, size: exchange_row(exchange), EXCHANGE_FACETS, are_compared=False
    ),
    "reply": Shown(reply_tags, reply_row, REPLY_FACETS, are_compared=True),
    "dialogue": Shown(dialogue_tags, dialogue_row, DIALOGUE_FACETS, are_compared=True),
}


def browser(
    exchanges: Sequence[TraceRecord], per_group: int, report_spec: ReportSpec, *, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """What the trace browser shows: facets with their options, the exchanges, and how many of how many they are.

    `whole`: the browser opens with all of them, and not with one writer's.
    `recorded` counts all exchanges, also those that are not on the page, by the options that they are found under.
    """
    view = VIEWS[report_spec.view]
    tagged = [tags(exchange, report_spec) for exchange in exchanges]
    picked = chosen(exchanges, tagged, per_group, order=report_spec.order, whole=view.are_compared)
    rows = _rows(picked, report_spec)
    while per_group > 1 and len(json.dumps(rows, ensure_ascii=False).encode(errors="replace")) > max_bytes:
        per_group //= 2
        picked = chosen(exchanges, tagged, per_group, order=report_spec.order, whole=view.are_compared)
        rows = _rows(picked, report_spec)
    recorded = Counter(json.dumps(each, ensure_ascii=False) for each in tagged)
    return {
        "facets": _facets(exchanges, report_spec),
        "whole": bool(report_spec.makes),
        "exchanges": rows,
        "shown": _shown(exchanges, picked, report_spec),
        "recorded": [{"tags": json.loads(each), "count": count} for each, count in recorded.items()],
    }


def tags(exchange: TraceRecord, report_spec: ReportSpec) -> Tags:
    """Under which options of each facet a trace is found."""
    fate = {"fate": [exchange.fate]} if exchange.fate else {}
    return {
        report_spec.who: [exchange.writer],
        "split": [exchange.split],
        **fate,
        **VIEWS[report_spec.view].tags(exchange),
    }


def _rows(picked: Sequence[TraceRecord], report_spec: ReportSpec) -> list[dict[str, Any]]:
    """What the page gets of each trace: its name in links, what is common to all views, and its view's own."""
    rows = []
    seen: Counter[str] = Counter()
    sizes = Counter(map(attempts, picked))
    for whole in picked:
        place = attempts(whole)
        seen[place] += 1
        exchange, gaps = _cut(whole)
        own = VIEWS[report_spec.view].row(exchange, seen[place], sizes[place])
        rows.append(
            {
                "id": sha256(f"{place}/{seen[place] - 1}".encode(errors="replace")).hexdigest()[:12],
                "task": exchange.task,
                "step": exchange.step,
                "phase": exchange.phase,
                "tags": tags(exchange, report_spec),
                "question": exchange.question,
                "reference": exchange.reference,
                "answer": exchange.answer,
                "gaps": gaps,
                "reward": exchange.reward,
                "credit": exchange.credit,
                "stop": dict(exchange.stop),
                "outcome": exchange.outcome,
                "reason": exchange.reason,
                **own,
            }
        )
    return rows


def _cut(exchange: TraceRecord) -> tuple[TraceRecord, dict[str, dict[str, int]]]:
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


def _facets(exchanges: Iterable[TraceRecord], report_spec: ReportSpec) -> list[dict[str, Any]]:
    """The writer and the split, then what the view can be asked."""
    writers = sorted(
        {exchange.writer for exchange in exchanges}, key=lambda name: writer_order(name, report_spec.order)
    )
    splits = sorted({exchange.split for exchange in exchanges}, key=split_order)
    fates = dict.fromkeys(each.fate for each in exchanges if each.fate)
    kept_or_not: Facets = {"fate": ("Filter", {name: row_title(report_spec, name) for name in fates})} if fates else {}
    facets: Facets = {
        report_spec.who: (report_spec.who.capitalize(), {name: row_title(report_spec, name) for name in writers}),
        "split": ("Split", {name: short_name(name) for name in splits}),
        **kept_or_not,
        **VIEWS[report_spec.view].facets,
    }
    return [
        {"key": key, "title": title, "options": [{"value": v, "label": label} for v, label in found.items()]}
        for key, (title, found) in facets.items()
    ]


def _shown(
    exchanges: Sequence[TraceRecord], picked: Sequence[TraceRecord], report_spec: ReportSpec
) -> list[dict[str, Any]]:
    total, here = Counter(map(group_of, exchanges)), Counter(map(group_of, picked))
    return [
        {
            "name": f"{row_title(report_spec, group[0])}, {short_name(group[1])}",
            "shown": here[group],
            "of": total[group],
        }
        for group in sorted(total, key=lambda group: group_order(group, report_spec.order))
    ]
