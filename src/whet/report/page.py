"""`report.html`: one file that opens from disk, without a network and without anything beside it."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from whet.report.curves import curves
from whet.report.exchanges import browser
from whet.report.health import health_notes
from whet.report.read import Run, number, read_run
from whet.report.table import (
    COLUMNS,
    best_refine,
    count_in_words,
    denominators_in_words,
    percent,
    summary_rows,
    title_of,
)

logger = logging.getLogger(__name__)
HERE = Path(__file__).parent
Row = Mapping[str, float | None]
FACTS = ("command", "seed", "device", "platform", "num_threads", "commit", "whet", "python", "torch", "transformers")
TRACES_BEHIND: dict[str, dict[str, str]] = {
    "acc": {},
    "acc_refine": {"change": "c2c,i2c"},
    "delta": {"change": "c2i,i2c"},
    "c2i": {"change": "c2i"},
    "i2c": {"change": "i2c"},
    "acc_dis": {"verdict": "wrong,unparsed"},
    "acc_dis_correct": {"verdict": "wrong,unparsed", "change": "c2c,c2i"},
    "acc_dis_incorrect": {"verdict": "wrong,unparsed", "change": "i2c,i2i"},
    "unparsed": {"verdict": "unparsed"},
}
"""Which exchanges a number of the table leads to: the facets and options that the trace browser opens with."""


def write_report(run_folder: Path | str, *, max_exchanges: int = 300) -> Path:
    """Read a run folder and write its `report.html`, aside first and then renamed, so that it is whole or absent.

    Args:
        max_exchanges: how many exchanges of each critic and split the page carries at most, newest steps first.
    Raises: ReportError where the folder holds no run.
    """
    run = read_run(run_folder)
    target = run.folder / "report.html"
    aside = run.folder / "report.html.partial"
    # A lone half of a surrogate pair (models write those) is no UTF-8; it is shown as "?".
    aside.write_bytes(render(run, max_exchanges=max_exchanges).encode("utf-8", errors="replace"))
    os.replace(aside, target)
    logger.info("wrote %s (%.1f MB)", target, target.stat().st_size / 1e6)
    return target


def render(run: Run, *, max_exchanges: int = 300) -> str:
    """The page of a run."""
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    traces = browser(run.exchanges, max_exchanges)
    rows = summary_rows(run.summary or {})
    drawn = curves(run)
    script = (HERE / "page.js").read_text(encoding="utf-8")
    return environment.get_template("template.html.j2").render(
        name=run.folder.resolve().name,
        facts=_facts(run),
        config=run.config,
        finished=run.summary is not None,
        tiles=_tiles(rows),
        columns=COLUMNS,
        rows=_table(rows, {exchange.critic for exchange in run.exchanges if exchange.split == "test"}),
        denominators=f"{count_in_words(rows)} {denominators_in_words()}",
        precision=_precision(rows),
        notes=health_notes(run),
        num_panels=len(drawn["panels"]),
        traces=traces,
        data=script_json({"curves": drawn, "traces": traces}),
        style=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        # The browser runs these two scripts and no others, whatever stands in the page.
        script_hashes=Markup(f"{_source_hash(script)} {_source_hash(get_plotlyjs())}"),
        plotly=plotly_packed(),
    )


def script_json(value: object) -> Markup:
    """JSON that can stand in a script element: no `<`, so that no text of a model can end or open an element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


@lru_cache(maxsize=1)
def plotly_packed() -> str:
    """The plotly bundle, gzipped and in base64: 4.8 MB of script become less than 2 (there is no smaller bundle in the
    package). The page unpacks it with the browser's own DecompressionStream."""
    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), mtime=0)).decode()


def _source_hash(script: str) -> str:
    """A script's name in a content security policy."""
    return f"'sha256-{base64.b64encode(sha256(script.encode()).digest()).decode()}'"


def _facts(run: Run) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if run.events:
        facts.append(("started", run.events[0].time))
    seconds = number((run.summary or {}).get("seconds"))
    if seconds is not None:
        facts.append(("took", str(timedelta(seconds=round(seconds)))))
    facts += [(key.replace("num_", ""), str(run.env[key])) for key in FACTS if run.env.get(key) not in (None, "")]
    steps = [f"{title_of(phase.name)} {max(phase.steps):,}" for phase in run.phases]
    return [*facts, ("steps", ", ".join(steps))] if steps else facts


def _table(rows: Mapping[str, Row], with_traces: set[str]) -> list[dict[str, Any]]:
    """Rows for the page. A number links to the exchanges behind it, where the page carries some."""
    best = best_refine(rows)
    table = []
    for name, row in rows.items():
        cells = []
        for column in COLUMNS:
            behind = TRACES_BEHIND.get(column.key)
            linked = behind is not None and name in with_traces and row[column.key] is not None
            query = urlencode({"critic": name, "split": "test", **(behind or {})}, safe=",")
            cells.append(
                {
                    "text": percent(row[column.key], signed=column.signed),
                    "link": f"#{query}" if linked else "",
                    "best": column.key == "acc_refine" and name in best,
                }
            )
        table.append({"title": title_of(name), "cells": cells})
    return table


def _tiles(rows: Mapping[str, Row]) -> list[dict[str, str]]:
    """The run in three numbers: those of the last critic, beside what they are to be compared with."""
    critics = [name for name, row in rows.items() if row["acc_refine"] is not None and name != "no_critic"]
    if not critics:
        return []
    first, last = rows[critics[0]], rows[critics[-1]]
    who = title_of(critics[-1])
    tiles = [
        {
            "label": f"Right after {who}'s critique",
            "value": f"{percent(last['acc_refine'])} %",
            "beside": f"{percent(last['acc'])} % before: {percent(last['delta'], signed=True)} points",
        },
        {
            "label": f"{who}'s verdicts that are right",
            "value": f"{percent(last['acc_dis'])} %",
            "beside": f"{title_of(critics[0])}: {percent(first['acc_dis'])} %" if len(critics) > 1 else "",
        },
        {
            "label": "Wrong answers made right, i→c",
            "value": f"{percent(last['i2c'])} %",
            "beside": f"right made wrong, c→i: {percent(last['c2i'])} %",
        },
    ]
    return [tile for tile in tiles if not tile["value"].startswith("–")]


def _precision(rows: Mapping[str, Row]) -> str:
    """How far a share can be trusted, from the number of tasks alone."""
    counts = [n for row in rows.values() if (n := row["n"])]
    if not counts:
        return ""
    half = 1.96 * (0.25 / min(counts)) ** 0.5
    return f"Sampling of tasks alone leaves a share near one half uncertain by ±{percent(half)} points (95 %)."
