"""The final table in terminals of several widths: no figure is cut, and rows stay apart by their names."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from whet.methods.report_specs import load_columns, load_report
from whet.report.table import summary_tables


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_figure_and_no_name_is_cut(width):
    """Of a run that measures models with long names beside its own; the columns of an agent are one group."""
    names = [f"cloning_of_the_same_careless_play_no_{i:02d}" for i in range(2)]
    report_spec, leads = load_report("agent_rl"), load_columns("agent_leads")
    columns = (*report_spec.columns, *leads)
    report_spec = replace(report_spec, columns=columns, order=("before", *names))
    numbers = {column.key: -0.987654 if column.signed else 0.123456 for column in columns} | {"n": 3.0, "k": 2.0}
    out = io.StringIO()
    console = Console(file=out, width=width)
    tables = summary_tables({"rows": dict.fromkeys(("before", *names), numbers)}, report_spec, width=width)
    for table in tables:
        console.print(table)
    text = out.getvalue()
    assert "…" not in text
    assert text.count("-98.8") == 3 * len(leads)
    for name in names:
        assert sum(name[-2:] in line.split() for line in text.splitlines()) >= len(tables)
