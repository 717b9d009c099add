"""Success in parts, under a table: by environment and published subgroup, and within fewer turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from whet.cli.console import out

TURNS = (1, 2, 3, 5, 8, 12, 20, 30)
"""Limits that are shown, and the greatest one."""
Rows = Mapping[str, Mapping[str, Any]]


def print_parts(found: Rows, title: Callable[[str], str] = str) -> None:
    """Of agents: a line a part, a column a row of the table; nothing for methods whose metrics have no parts."""
    keys = list(dict.fromkeys(key for metrics in found.values() for key in metrics))
    parts = [key.removeprefix("success[").removesuffix("]") for key in keys if key.startswith("success[")]
    turns = sorted(int(key.removeprefix("success@")) for key in keys if key.startswith("success@"))
    if not parts and not turns:
        return
    table = Table(
        box=None, pad_edge=False, title="Success in percent (95 % interval), of (items)", title_justify="left"
    )
    table.add_column("")
    for name in found:
        table.add_column(escape(title(name)), justify="right", no_wrap=True)
    for part in parts:
        counts = [metrics.get(f"n[{part}]") or 0 for metrics in found.values()]
        table.add_row(f"{escape(part)} ({max(counts):.0f})", *(_share(each, part) for each in found.values()))
    for turn in (turn for turn in turns if turn in (*TURNS, turns[-1])):
        values = [metrics.get(f"success@{turn}") for metrics in found.values()]
        shown = ["–" if value is None else f"{100 * value:.1f}" for value in values]
        table.add_row(f"within {turn} turn{'s' if turn > 1 else ''}", *shown)
    out.print(table)


def _share(metrics: Mapping[str, Any], part: str) -> str:
    low, value, high = (metrics.get(f"{each}[{part}]") for each in ("success_low", "success", "success_high"))
    if low is None or value is None or high is None:
        return "–"
    return f"{100 * value:.0f} ({100 * low:.0f} to {100 * high:.0f})"
