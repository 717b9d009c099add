"""Writes `report.html`: one file that opens from disk, without a network and without other files."""

from __future__ import annotations

import base64
import gzip
import json
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from whet.report.browser import browser
from whet.report.comparison_rows import other_metrics
from whet.report.curves import curves
from whet.report.health import health_notes
from whet.report.inference_scaling import read_scaling_records, scaling_charts, scaling_rows
from whet.report.notes import accounts
from whet.report.off_policy import setting_in_words
from whet.report.parts import TITLE, success_parts
from whet.report.read import read_run, trace_of
from whet.report.records import Record, RunRecord, number
from whet.report.rows import Rows, best_rows, columns_of, row_title, summary_rows
from whet.report.spec import Column, ReportSpec, View
from whet.report.stats import stats
from whet.report.table import count_in_words, denominators_in_words, intervals_in_words, intervals_of, shown
from whet.run_folder.files import write_atomic

logger = logging.getLogger(__name__)
WEB = Path(__file__).parent / "web"
MAX_TROUBLES = 5
"""Notes at the top of the page, the worst first; all of them are under Health."""
FACTS = ("command", "seed", "device", "platform", "num_threads", "commit", "whet", "python", "torch", "transformers")
SCRIPTS: dict[View, tuple[str, ...]] = {
    "exchange": ("base.js", "charts.js", "exchange.js", "traces.js", "start.js"),
    "reply": ("base.js", "charts.js", "reply.js", "groups.js", "traces.js", "start.js"),
    "dialogue": ("base.js", "charts.js", "dialogue.js", "groups.js", "traces.js", "start.js"),
}
"""The parts of the page's one script, by the view of traces."""


def write_report(run_folder: Path | str, *, max_exchanges: int = 300) -> Path:
    """Read a run folder and write its `report.html`: first to another name and then renamed, so that it is whole or
    absent.

    Args:
        max_exchanges: traces of each writer and split on the page, at most; newest steps first.
    Raises: ReportError where the folder holds no run, RunError where the page cannot be written.
    """
    run = read_run(run_folder)
    target = run.folder / "report.html"
    # A lone surrogate (models write those) is no UTF-8; it is shown as "?".
    write_atomic(target, render(run, max_exchanges=max_exchanges).encode("utf-8", errors="replace").decode())
    logger.info("wrote %s (%.1f MB)", target, target.stat().st_size / 1e6)
    return target


def write_episodes(path: Path, rows: Sequence[Record], report_spec: ReportSpec, *, max_exchanges: int = 300) -> Path:
    """Write the page of episodes without a run, such as those of a file: only the browser of traces.

    Args:
        path: of the page, written whole or not at all. Its name is the title.
        rows: as in a run's `traces/`.
        report_spec: how they are shown.
    """
    traces = tuple(trace_of(row, report_spec.who) for row in rows)
    run = RunRecord(
        folder=path.parent / path.stem, report_spec=report_spec, config="", settings={}, env={}, phases=(), events=(),
        exchanges=traces, summary=None,
    )  # fmt: skip
    page = render(run, max_exchanges=max_exchanges, only_traces=True)
    write_atomic(path, page.encode("utf-8", errors="replace").decode())
    return path


def render(run: RunRecord, *, max_exchanges: int = 300, only_traces: bool = False) -> str:
    """The page of a run.

    Args:
        only_traces: leave out all sections on the run itself.
    """
    environment = Environment(
        loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    report_spec = run.report_spec
    traces = browser(run.exchanges, max_exchanges, report_spec)
    rows = summary_rows(run.summary, report_spec)
    columns = columns_of(report_spec, rows)
    strategies = [] if only_traces else list(read_scaling_records(run.folder))
    intervals = intervals_of(report_spec, rows)
    words = [
        count_in_words(report_spec, rows),
        intervals_in_words(report_spec, intervals),
        denominators_in_words(columns),
    ]
    table = _table(
        report_spec,
        columns,
        rows,
        intervals,
        {exchange.writer for exchange in run.exchanges if exchange.split == "test"},
    )
    notes = [] if only_traces else health_notes(run)
    drawn = curves(run) | {"strategies": scaling_charts(strategies)}
    script = "\n".join((WEB / name).read_text(encoding="utf-8") for name in SCRIPTS[report_spec.view])
    return environment.get_template("template.html.j2").render(
        name=run.folder.resolve().name,
        info=_facts(run),
        config=run.config,
        finished=run.summary is not None,
        only_traces=only_traces,
        report_spec=report_spec,
        stats=stats(run, rows),
        columns=_heads(columns),
        groups=[(group, len(list(of))) for group, of in groupby(column.group for column in columns)],
        linked=any(cell["link"] for row in table for cell in row["cells"]),
        best_title=next((column.title for column in columns if column.key == report_spec.best), ""),
        rows=table,
        parts=_parts(run, rows),
        denominators=" ".join(filter(None, words)),
        notes=notes,
        troubles=[note for note in notes if note.level != "good"][:MAX_TROUBLES],
        num_troubles=sum(note.level != "good" for note in notes),
        accounts=accounts(run),
        others=other_metrics(run),
        num_charts=len(drawn["panels"]),
        num_off_policy=len(drawn["off_policy"]),
        strategies=strategies,
        scaling_rows=scaling_rows,
        setting=setting_in_words(run),
        traces=traces,
        data=script_json({"curves": drawn, "traces": traces}),
        style=Markup((WEB / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        # The browser runs these two scripts and no others, whatever the page contains.
        script_hashes=Markup(f"{_source_hash(script)} {_source_hash(get_plotlyjs())}"),
        plotly=plotly_packed(),
    )


def script_json(value: object) -> Markup:
    """JSON for a script element: without `<`, so that no text of a model can end or open an element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


@lru_cache(maxsize=1)
def plotly_packed() -> str:
    """The plotly bundle, gzipped and in base64: 4.8 MB of script become less than 2 (the package has no smaller
    bundle). The page unpacks it with the browser's DecompressionStream."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _source_hash(script: str) -> str:
    """A script's hash for a content security policy."""
    return f"'sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}'"


def _facts(run: RunRecord) -> list[tuple[str, str]]:
    method = run.setting("method")
    info: list[tuple[str, str]] = [("method", str(method))] if method else []
    if run.events:
        info.append(("started", run.events[0].time))
    seconds = number((run.summary or {}).get("seconds"))
    if seconds is not None:
        info.append(("took", str(timedelta(seconds=round(seconds)))))
    info += [(key.replace("num_", ""), str(run.env[key])) for key in FACTS if run.env.get(key) not in (None, "")]
    if resumed := [event for event in run.events if event.event == "resumed"]:
        last = resumed[-1]
        often = f"{len(resumed)} times, last " if len(resumed) > 1 else ""
        info.append(("resumed", f"{often}{last.time}: {last.command or last.message}"))
    # Phases with tests are left out: their steps are the table's rows.
    phases = [phase for phase in run.phases if not any(key.startswith("test/") for key in phase.metrics)]
    steps = [f"{run.report_spec.title(phase.name)} {max(phase.steps):,}" for phase in phases]
    return [*info, ("steps", ", ".join(steps))] if steps else info


def _heads(columns: Sequence[Column]) -> list[dict[str, Any]]:
    """Columns for the page. `edge`: a new group of columns begins."""
    before = [None, *columns[:-1]]
    return [
        {"key": c.key, "title": c.title, "meaning": c.meaning, "edge": last is not None and last.group != c.group}
        for c, last in zip(columns, before, strict=True)
    ]


def _table(
    report_spec: ReportSpec, columns: Sequence[Column], rows: Rows, intervals: Mapping[str, str], with_traces: set[str]
) -> list[dict[str, Any]]:
    """Rows for the page. A number links to the traces behind it, where the page has some."""
    best = best_rows(report_spec, rows)
    table = []
    for name, row in rows.items():
        cells = []
        for column, head in zip(columns, _heads(columns), strict=True):
            behind = report_spec.behind.get(column.key)
            linked = behind is not None and name in with_traces and row[column.key] is not None
            picked = {report_spec.who: quote(name, safe="", errors="replace"), "split": "test", **(behind or {})}
            query = "&".join(f"{key}={values}" for key, values in picked.items())
            cells.append(
                {
                    "text": shown(column, row[column.key]),
                    "link": f"#{query}" if linked else "",
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
