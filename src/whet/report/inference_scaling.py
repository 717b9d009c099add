"""A run's results of inference scaling, as tables for the terminal and as charts for the page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from whet.report.records import Record, number
from whet.report.table import percent

COLOURS = ("grey", "blue", "orange", "violet")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
"""Lines differ in both, in this order."""
Point = Mapping[str, Any]


def scaling_table(record: Record) -> Table:
    """A line for each strategy and budget, for 100 columns. At each budget the best without the reference is bold."""
    n, lost = record["n"], f", {record['lost']} lost to failures" if record.get("lost") else ""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title=f"{record['critic']}, {record['split']}",
        title_justify="left",
        caption=f"Accuracy in percent of n = {n:,} questions{lost}, with its 95 % interval (Wilson's); gain: over "
        "majority at the same budget, in points (bootstrap over questions). Tokens, answers, critiques and "
        f"refinements: means of what was really spent on a question. {record['rule']} A ceiling knows the reference. "
        f"Answers are equal in a vote {record['votes']}.",
        caption_justify="left",
    )
    for title in ("strategy", "budget", "tokens", "ans.", "crit.", "ref.", "acc.", "95 %", "gain", "95 %"):
        table.add_column(title, justify="left" if title == "strategy" else "right", no_wrap=True)
    best, num_shown = _best(record), dict.fromkeys(record["strategies"], 0)
    for label, (*cells, accuracy, interval, gain, of_gain) in scaling_rows(record):
        is_best = not record["strategies"][label]["ceiling"] and accuracy == percent(best.get(cells[0]))
        name = _name_at(label, num_shown[label], len(record["strategies"][label]["points"]))
        table.add_row(Text(name), *cells, Text(accuracy, "bold" if is_best else ""), interval, gain, of_gain)
        num_shown[label] += 1
    return table


def _name_at(label: str, row: int, num_rows: int) -> str:
    """A strategy's name and its options, one a row while rows last, so that the column is narrow."""
    parts = label.replace(":", "\n :").split("\n")
    shown = [*parts[: num_rows - 1], "".join(parts[num_rows - 1 :])]
    return shown[row] if row < len(shown) else ""


def scaling_rows(record: Record) -> Iterator[tuple[str, list[str]]]:
    """A strategy's label with the texts of one budget: budget, tokens, answers, critiques, refinements, accuracy, its
    interval, the gain, and its interval."""
    for label, strategy in record["strategies"].items():
        for point in strategy["points"]:
            counts = (f"{point[kind]:.1f}" for kind in ("answers", "critiques", "refinements"))
            gain = of_gain = ""
            if "gain" in point:
                gain = percent(point["gain"], signed=True)
                of_gain = _ends(point["gain_low"], point["gain_high"], signed=True)
            shown = (percent(point["accuracy"]), _ends(point["low"], point["high"]), gain, of_gain)
            yield label, [f"{point['budget']:,}", f"{point['tokens']:,.0f}", *counts, *shown]


def _ends(low: float, high: float, *, signed: bool = False) -> str:
    return f"[{percent(low, signed=signed)}, {percent(high, signed=signed)}]"


def level_table(record: Record) -> Table | None:
    """Accuracy by level at the largest budget; None where no level has enough questions."""
    last = {label: strategy["points"][-1] for label, strategy in record["strategies"].items()}
    levels = sorted({level for point in last.values() for level in point["levels"]})
    if not levels:
        return None
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title="By difficulty, at the largest budget",
        title_justify="left",
        caption=f"Accuracy in percent. Level 1: more than 80 % of {record['level_samples']} other answers were right; "
        "level 5: at most 20 %.",
        caption_justify="left",
    )
    table.add_column("strategy")
    sizes = {level: next(p["levels"][level]["n"] for p in last.values() if level in p["levels"]) for level in levels}
    for level in levels:
        table.add_column(f"{level} (n = {sizes[level]})", justify="right")
    for label, point in last.items():
        cells = [point["levels"].get(level) for level in levels]
        table.add_row(Text(label), *(percent(cell["accuracy"]) if cell else "–" for cell in cells))
    return table


def _best(record: Record) -> dict[str, float]:
    """The highest accuracy at each budget, of strategies without the reference."""
    best: dict[str, float] = {}
    for strategy in record["strategies"].values():
        for point in () if strategy["ceiling"] else strategy["points"]:
            budget = f"{point['budget']:,}"
            best[budget] = max(best.get(budget, 0.0), point["accuracy"])
    return best


# --- for the page ----------------------------------------------------------------------------------------------------


def read_scaling_records(folder: Path) -> Iterator[tuple[str, Record]]:
    """A run's records of inference scaling, by critic, split and changed settings. Unreadable ones are left out."""
    for path in sorted((folder / "eval").glob("strategies-*.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            name = ", ".join([record["critic"], record["split"], *record.get("changed", ())])
            drawn, rows = scaling_charts([(name, record)]), list(scaling_rows(record))
            is_whole = isinstance(record["rule"], str) and number(record["n"]) is not None
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            continue
        if drawn and rows and is_whole:
            yield name, record


def scaling_charts(records: Sequence[tuple[str, Record]]) -> list[dict[str, Any]]:
    """A chart of accuracy over tokens for each record, and one over levels where there are several."""
    charts = []
    for name, record in records:
        lines = [(label, strategy["points"]) for label, strategy in record["strategies"].items()]
        series = [_styled(i, label, _line(points)) for i, (label, points) in enumerate(lines)]
        charts.append(_chart(f"Accuracy by tokens, {name}", "generated for a question, on average", "tokens", series))
        by_level = [_styled(i, label, _levels(points[-1])) for i, (label, points) in enumerate(lines)]
        if max((len(line["x"]) for line in by_level), default=0) > 1:
            budget = max(points[-1]["budget"] for _, points in lines)
            note = f"at the largest budget, {budget:,}"
            sizes = {int(level): result["n"] for _, points in lines for level, result in points[-1]["levels"].items()}
            ticks = {"at": sorted(sizes), "text": [f"{level} (n = {sizes[level]})" for level in sorted(sizes)]}
            charts.append(_chart(f"Accuracy by difficulty, {name}", note, "level", by_level) | {"ticks": ticks})
    return charts


def _line(points: Sequence[Point]) -> dict[str, list[float]]:
    """Accuracies over the tokens that were really spent, one point for equal tokens."""
    by_tokens = {round(float(point["tokens"]), 1): point for point in points}
    return {
        "x": list(by_tokens),
        "y": [_number(point["accuracy"]) for point in by_tokens.values()],
        "low": [_number(point["low"]) for point in by_tokens.values()],
        "high": [_number(point["high"]) for point in by_tokens.values()],
    }


def _number(value: object) -> float:
    share = number(value)
    if share is None:
        raise ValueError(f"{value!r} is no share")
    return share


def _levels(point: Point) -> dict[str, list[float]]:
    pairs = sorted((int(level), result["accuracy"]) for level, result in point["levels"].items())
    return {"x": [x for x, _ in pairs], "y": [y for _, y in pairs]}


def _styled(index: int, name: str, line: Mapping[str, Any]) -> dict[str, Any]:
    dash = DASHES[index // len(COLOURS) % len(DASHES)]
    return {"name": name, "colour": COLOURS[index % len(COLOURS)], "dash": dash, "kind": "strategy", **line}


def _chart(title: str, note: str, axis: str, series: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "title": title,
        "note": note,
        "unit": "percent",
        "from_zero": False,
        "staged": False,
        "axis": axis,
        "series": list(series),
    }
