"""Success in parts, under the table in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from whet.cli.console import out

Rows = Mapping[str, Mapping[str, Any]]


def print_parts(rows: Rows, title: Callable[[str], str] = str) -> None:
    """Print an agent's success: a line for each part, a column for each row of the table. Other methods print
    nothing."""
    from whet.report.parts import TITLE, success_parts

    lines = success_parts(list(rows.values()))
    if not lines:
        return
    table = Table(box=None, pad_edge=False, title=TITLE, title_justify="left")
    table.add_column("")
    for name in rows:
        table.add_column(escape(title(name)), justify="right", no_wrap=True)
    for part, cells in lines:
        table.add_row(escape(part), *cells)
    out.print(table)
