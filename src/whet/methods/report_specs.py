"""Reads and checks the report specs, which are data files: `reports/` here, and in the folder of a family of methods.

A file holds the fields of a `ReportSpec`, and may build on another one:

    extends: solve                    # the fields of solve.yaml, where this file has none
    columns_from: critique            # more columns to choose from, by key

    columns: [acc, {like: c2i, title: harmed}]   # by key; with fields that differ; or whole
    added_columns: [...]              # after those of the report that it extends

    charts: [entropy, {like: kl, note: per reply}, {like: norm, policy: critic}]
    added_charts: [...]

A chart is named as in charts.yaml, or by its title in the report that is extended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from whet.config.yaml_text import load
from whet.report.spec import Chart, Column, ReportSpec, chart_of, column_of, of_tree, tree_of

CHARTS, OFF_POLICY = "charts", "off_policy_charts"


@cache
def report_files() -> Mapping[str, Path]:
    """The bundled files by name: those that families share, and each family's own."""
    return {file.stem: file for file in sorted(Path(__file__).parent.rglob("reports/*.yaml"))}


@cache
def load_report(name: str) -> ReportSpec:
    """A bundled report spec, by the name of its file."""
    return read_report(_file(name))


def read_report(file: Path) -> ReportSpec:
    """The report spec in a file.

    Raises: ValueError, with the file, if it is no report spec or names an unknown column or chart.
    """
    try:
        return _report_of(dict(load(file.read_text(encoding="utf-8"))))
    except ValueError as error:
        raise ValueError(f"{file.name} is no report spec: {error}") from error


def load_columns(name: str) -> tuple[Column, ...]:
    """The columns of a bundled file that holds nothing else."""
    return tuple(map(column_of, _load(name)))


@cache
def load_charts() -> Mapping[str, Chart]:
    """The charts that reports name."""
    return {name: chart_of(tree) for name, tree in _load(CHARTS).items()}


def prefixed(chart: Chart, policy: str) -> Chart:
    """A chart of one policy of several: its keys get the policy's name as a prefix. Validation keys stay."""

    def named(key: str) -> str:
        return f"{policy}.{key}" if key else ""

    lines = tuple(
        replace(
            line,
            key=named(line.key),
            band=(named(line.band[0]), named(line.band[1])) if line.band else None,
        )
        for line in chart.lines
    )
    return replace(chart, title=f"{chart.title}, {policy}", lines=lines)


def _load(name: str) -> Any:
    return load(_file(name).read_text(encoding="utf-8"))


def _file(name: str) -> Path:
    files = report_files()
    if name not in files:
        raise ValueError(f"there is no report spec {name!r}; there are {', '.join(files)}")
    return files[name]


def _report_of(tree: dict[str, Any]) -> ReportSpec:
    base = tree_of(load_report(tree.pop("extends"))) if "extends" in tree else {}
    columns, charts = base.get("columns", ()), base.get("charts", ())
    others = tree_of(load_report(tree.pop("columns_from")))["columns"] if "columns_from" in tree else ()
    known_columns = {column["key"]: column for column in (*others, *columns)}
    known_charts = {name: tree_of(chart) for name, chart in load_charts().items()}
    known_charts |= {chart["title"]: chart for chart in charts}
    for key, inherited, choices in (("columns", columns, known_columns), ("charts", charts, known_charts)):
        added = tree.pop(f"added_{key}", ())
        tree[key] = [
            *(_named(entry, choices) for entry in tree.get(key, inherited)),
            *(_named(entry, choices) for entry in added),
        ]
    if tree.get("off_policy") == OFF_POLICY:
        tree["off_policy"] = _load(OFF_POLICY)
    return of_tree({**base, **tree})


def _named(entry: Any, choices: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """A column or chart, whole.

    Args:
        entry: a name, or fields. With a name in `like`, the fields that differ from it. With a `policy`, its chart.
    """
    if isinstance(entry, Mapping) and "like" not in entry:
        return entry
    fields = dict(entry) if isinstance(entry, Mapping) else {"like": entry}
    name, policy = fields.pop("like"), fields.pop("policy", None)
    if name not in choices:
        raise ValueError(f"it names {name!r}, which is not there; there are {', '.join(choices)}")
    whole = {**choices[name], **fields}
    return whole if policy is None else tree_of(prefixed(chart_of(whole), policy))
