"""Success in parts, for under the table: by environment and published subgroup, and within fewer turns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from whet.report.records import number

TITLE = "Success in percent (95 % interval), of (items)"
TURNS = (1, 2, 3, 5, 10, 15, 20, 30)
"""Limits that are shown, beside the greatest one."""
Rows = Sequence[Mapping[str, object]]


def success_parts(rows: Rows) -> list[tuple[str, list[str]]]:
    """
    Args:
        rows: metrics of the table's rows.
    Returns: the title of each line, and a cell for each row. Empty for methods whose metrics have no parts.
    """
    keys = list(dict.fromkeys(key for row in rows for key in row))
    parts = [match[1] for key in keys if (match := re.fullmatch(r"success\[(.*)\]", key, re.DOTALL))]
    turns = sorted(int(match[1]) for key in keys if (match := re.fullmatch(r"success@([0-9]{1,9})", key)))
    lines = []
    for part in parts:
        count = max(number(row.get(f"n[{part}]")) or 0 for row in rows)
        lines.append((f"{part} ({count:.0f})", [_share(row, part) for row in rows]))
    for turn in (turn for turn in turns if turn in (*TURNS, turns[-1])):
        values = [number(row.get(f"success@{turn}")) for row in rows]
        shown = ["–" if value is None else f"{100 * value:.1f}" for value in values]
        lines.append((f"within {turn} turn{'s' if turn > 1 else ''}", shown))
    return lines


def _share(metrics: Mapping[str, object], part: str) -> str:
    low, value, high = (
        number(metrics.get(f"{prefix}[{part}]")) for prefix in ("success_low", "success", "success_high")
    )
    if low is None or value is None or high is None:
        return "–"
    return f"{100 * value:.0f} ({100 * low:.0f}–{100 * high:.0f})"  # in 80 columns there is no room for words
