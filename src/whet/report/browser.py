"""The data of the trace browser: the traces that the page carries, and their filters.

A trace's view gives its fields: `exchanges` (answer, critique, refinement), `replies` (lone answers) or `dialogues`
(episodes of many turns). Everything that models wrote stays text here, and the page shows it only as text.
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
"""Size of a page's exchanges. With long texts it carries fewer of them, so that browsers can open it."""
MAX_TASK = 200
"""Characters of a task's name. Longer ones are cut, and a hash keeps them distinct."""

Tags = dict[str, list[str]]
Facets = Mapping[str, tuple[str, Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Shown:
    """How the traces of one view are shown."""

    tags: Callable[[TraceRecord], Tags]
    """A trace's options in the view's facets."""
    row: Callable[[TraceRecord, int, int], dict[str, Any]]
    """(trace, number of the attempt at its task from 1, number of attempts) to the fields that only this view has."""
    facets: Facets
    are_compared: bool
    """The attempts at one task are compared, so all are on the page or none."""


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
    """The trace browser's data: facets with their options, the exchanges, and their numbers on the page and in all.

    `whole`: the browser opens with all of them, and not with one writer's.
    `recorded` counts all exchanges by their options, also those that are not on the page.
    """
    view = VIEWS[report_spec.view]
    tagged = [tags(exchange, report_spec) for exchange in exchanges]
    picked = chosen(exchanges, tagged, per_group, order=report_spec.order, whole=view.are_compared)
    rows = _rows(picked, report_spec)
    while per_group > 1 and len(json.dumps(rows, ensure_ascii=False).encode(errors="replace")) > max_bytes:
        per_group //= 2
        picked = chosen(exchanges, tagged, per_group, order=report_spec.order, whole=view.are_compared)
        rows = _rows(picked, report_spec)
    recorded = Counter(json.dumps(found_under, ensure_ascii=False) for found_under in tagged)
    return {
        "facets": _facets(exchanges, report_spec),
        "whole": bool(report_spec.makes),
        "exchanges": rows,
        "shown": _shown(exchanges, picked, report_spec),
        "recorded": [{"tags": json.loads(encoded), "count": count} for encoded, count in recorded.items()],
    }


def tags(exchange: TraceRecord, report_spec: ReportSpec) -> Tags:
    """A trace's options in each facet."""
    fate = {"fate": [exchange.fate]} if exchange.fate else {}
    return {
        report_spec.who: [exchange.writer],
        "split": [exchange.split],
        **fate,
        **VIEWS[report_spec.view].tags(exchange),
    }


def _rows(picked: Sequence[TraceRecord], report_spec: ReportSpec) -> list[dict[str, Any]]:
    """The page's fields of each trace: its name in links, those common to all views, and its view's."""
    rows = []
    seen: Counter[str] = Counter()
    sizes = Counter(map(attempts, picked))
    for whole in picked:
        place = attempts(whole)
        seen[place] += 1
        exchange, gaps = _cut(whole)
        view_fields = VIEWS[report_spec.view].row(exchange, seen[place], sizes[place])
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
                **view_fields,
            }
        )
    return rows


def _cut(exchange: TraceRecord) -> tuple[TraceRecord, dict[str, dict[str, int]]]:
    """The exchange with its texts as the page shows them, and the gaps in them by name."""
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
    """The facets: writer, split, filter, then those of the view."""
    writers = sorted(
        {exchange.writer for exchange in exchanges}, key=lambda name: writer_order(name, report_spec.order)
    )
    splits = sorted({exchange.split for exchange in exchanges}, key=split_order)
    fates = dict.fromkeys(exchange.fate for exchange in exchanges if exchange.fate)
    kept_or_not: Facets = {"fate": ("Filter", {name: row_title(report_spec, name) for name in fates})} if fates else {}
    facets: Facets = {
        report_spec.who: (report_spec.who.capitalize(), {name: row_title(report_spec, name) for name in writers}),
        "split": ("Split", {name: short_name(name) for name in splits}),
        **kept_or_not,
        **VIEWS[report_spec.view].facets,
    }
    return [
        {"key": key, "title": title, "options": [{"value": v, "label": label} for v, label in options.items()]}
        for key, (title, options) in facets.items()
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
