"""Writes `report.html`: one file that opens from disk, without a network and without other files."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from whet.report.browser import browser
from whet.report.comparison_rows import other_metrics
from whet.report.curves import curves
from whet.report.health import health_notes
from whet.report.html import WEB, page_template, plotly_hash, plotly_packed, script_json, source_hash, write_page
from whet.report.inference_scaling import read_scaling_records, scaling_charts, scaling_rows
from whet.report.notes import Note, accounts
from whet.report.off_policy import setting_in_words
from whet.report.parts import TITLE, success_parts
from whet.report.read import read_run, trace_of
from whet.report.records import Record, RunRecord, number
from whet.report.rows import Rows, best_rows, columns_of, row_title, summary_rows
from whet.report.spec import Column, ReportSpec, View
from whet.report.stats import stats
from whet.report.table import count_in_words, denominators_in_words, intervals_in_words, intervals_of, shown

logger = logging.getLogger(__name__)
MAX_EXCHANGES = 300
"""The most traces of each writer and split on the page. Newest steps come first."""
MAX_TROUBLES = 5
"""Notes at the top of the page, the worst first. The section Health has all."""
FACTS = ("seed", "device", "platform", "num_threads", "commit", "whet", "python", "torch", "transformers")
SCRIPTS: dict[View, tuple[str, ...]] = {
    "exchange": ("base.js", "charts.js", "exchange.js", "traces.js", "start.js"),
    "reply": ("base.js", "charts.js", "reply.js", "groups.js", "traces.js", "start.js"),
    "dialogue": ("base.js", "charts.js", "dialogue.js", "groups.js", "traces.js", "start.js"),
}
"""The files of the page's script, by the view of traces."""


def write_report(run_folder: Path | str) -> Path:
    """Writes the `report.html` of a run folder, whole or not at all.

    Returns: the page's path.
    Raises: ReportError where the folder holds no run, RunError where the page cannot be written.
    """
    run = read_run(run_folder)
    path = run.folder / "report.html"
    write_page(path, render(run))
    logger.info("wrote %s (%.1f MB)", path, path.stat().st_size / 1e6)
    return path


def write_episodes(path: Path, rows: Sequence[Record], report_spec: ReportSpec) -> Path:
    """Writes a page of episodes without a run, such as those of a file. It has only the browser of traces.

    Args:
        path: of the page, written whole or not at all. Its name is the title.
        rows: traces, as in a run's `traces/`.
        report_spec: how they are shown.
    Returns: the page's path.
    Raises: RunError where the page cannot be written.
    """
    run = RunRecord(
        folder=path.parent / path.stem,
        report_spec=report_spec,
        config="",
        settings={},
        env={},
        phases=(),
        events=(),
        exchanges=tuple(trace_of(row, report_spec.who) for row in rows),
        summary=None,
    )
    write_page(path, render(run, only_traces=True), of_run=False)
    return path


def render(run: RunRecord, *, only_traces: bool = False) -> str:
    """The page of a run, as HTML.

    Args:
        only_traces: leave out all sections on the run itself.
    """
    report_spec = run.report_spec
    traces = browser(run.exchanges, MAX_EXCHANGES, report_spec)
    rows = summary_rows(run.summary, report_spec)
    strategies = [] if only_traces else list(read_scaling_records(run.folder))
    charts = curves(run) | {"strategies": scaling_charts(strategies)}
    script = "\n".join((WEB / name).read_text(encoding="utf-8") for name in SCRIPTS[report_spec.view])
    return page_template("template.html.j2").render(
        **_table_fields(run, rows),
        **_note_fields([] if only_traces else health_notes(run)),
        name=run.folder.resolve().name,
        method=str(run.setting("method") or ""),
        command=_command(run),
        info=_facts(run),
        config=run.config,
        finished=run.summary is not None,
        only_traces=only_traces,
        report_spec=report_spec,
        stats=stats(run, rows),
        parts=_parts(run, rows),
        accounts=accounts(run),
        others=other_metrics(run),
        num_charts=len(charts["panels"]),
        num_off_policy=len(charts["off_policy"]),
        strategies=strategies,
        scaling_rows=scaling_rows,
        setting=setting_in_words(run),
        traces=traces,
        data=script_json({"curves": charts, "traces": traces}),
        style=Markup((WEB / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        # The browser runs these two scripts and no others, whatever the page contains.
        script_hashes=Markup(f"{source_hash(script)} {plotly_hash()}"),
        plotly=plotly_packed(),
    )


def _table_fields(run: RunRecord, rows: Rows) -> dict[str, Any]:
    """The template's fields for the summary's table."""
    report_spec = run.report_spec
    columns = columns_of(report_spec, rows)
    intervals = intervals_of(report_spec, rows)
    with_traces = {exchange.writer for exchange in run.exchanges if exchange.split == "test"}
    table = _table(report_spec, columns, rows, intervals, with_traces)
    sentences = [
        count_in_words(report_spec, rows),
        intervals_in_words(report_spec, intervals),
        denominators_in_words(columns),
    ]
    return {
        "columns": _heads(columns),
        "groups": [(group, len(list(members))) for group, members in groupby(column.group for column in columns)],
        "rows": table,
        "linked": any(cell["link"] for row in table for cell in row["cells"]),
        "best_title": next((column.title for column in columns if column.key == report_spec.best), ""),
        "denominators": " ".join(filter(None, sentences)),
    }


def _note_fields(notes: Sequence[Note]) -> dict[str, Any]:
    """The template's fields for health notes."""
    troubles = [note for note in notes if note.level != "good"]
    return {"notes": notes, "troubles": troubles[:MAX_TROUBLES], "num_troubles": len(troubles)}


def _facts(run: RunRecord) -> list[tuple[str, str]]:
    """What the page says about the run itself: names and values."""
    info: list[tuple[str, str]] = []
    if run.events:
        info.append(("started", run.events[0].time))
    seconds = number((run.summary or {}).get("seconds"))
    if seconds is not None:
        info.append(("took", str(timedelta(seconds=round(seconds)))))
    info += [(key.replace("num_", ""), str(run.env[key])) for key in FACTS if run.env.get(key) not in (None, "")]
    if resumed := [event for event in run.events if event.event == "resumed"]:
        last = resumed[-1]
        times = f"{len(resumed)} times, last " if len(resumed) > 1 else ""
        info.append(("resumed", f"{times}{last.time}"))
        begun = str(run.env.get("command") or "")
        info += [("begun by", begun)] if begun and begun != _command(run) else []
    # Phases with tests are left out: their steps are the table's rows.
    phases = [phase for phase in run.phases if not any(key.startswith("test/") for key in phase.metrics)]
    steps = [f"{run.report_spec.title(phase.name)} {max(phase.steps):,}" for phase in phases]
    return [*info, ("steps", ", ".join(steps))] if steps else info


def _command(run: RunRecord) -> str:
    """The command that the run goes on by: the last one that resumed it, or else the first. Empty: not recorded."""
    resumed = [event.command for event in run.events if event.event == "resumed" and event.command]
    return resumed[-1] if resumed else str(run.env.get("command") or "")


def _heads(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """The columns' heads. `edge`: a new group of columns starts."""
    heads = []
    for column, previous in zip(columns, [None, *columns[:-1]], strict=True):
        edge = previous is not None and previous.group != column.group
        heads.append({"key": column.key, "title": column.title, "meaning": column.meaning, "edge": edge})
    return heads


def _table(
    report_spec: ReportSpec, columns: Sequence[Column], rows: Rows, intervals: Mapping[str, str], with_traces: set[str]
) -> list[dict[str, Any]]:
    """The table's rows. A number links to the traces behind it, where the page has any.

    Args:
        with_traces: rows with traces of the test.
    """
    best = best_rows(report_spec, rows)
    table = []
    for name, row in rows.items():
        cells = []
        for column, head in zip(columns, _heads(columns), strict=True):
            behind = report_spec.behind.get(column.key)
            is_linked = behind is not None and name in with_traces and row[column.key] is not None
            facets = {report_spec.who: quote(name, safe="", errors="replace"), "split": "test", **(behind or {})}
            query = "&".join(f"{key}={values}" for key, values in facets.items())
            cells.append(
                {
                    "text": shown(column, row[column.key]),
                    "link": f"#{query}" if is_linked else "",
                    "interval": intervals.get(name, "") if column.key == report_spec.best else "",
                    "best": column.key == report_spec.best and name in best,
                    "edge": head["edge"],
                }
            )
        table.append({"title": row_title(report_spec, name), "cells": cells})
    return table


def _parts(run: RunRecord, rows: Rows) -> dict[str, Any] | None:
    """Success in parts, where the method measures it."""
    raw: Any = (run.summary or {}).get("rows")
    lines = success_parts([raw[name] for name in rows])
    heads = [row_title(run.report_spec, name) for name in rows]
    return {"title": TITLE, "heads": heads, "lines": lines} if lines else None
