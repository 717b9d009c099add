"""The two kinds of run that a report knows, and what it calls things in each: columns, rows, traces.

Critique-RL trains critics, and its traces are exchanges of four texts; `solve` trains one policy that answers alone.
Which kind a run is comes from its config, or else from what its rows and metrics hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from whet.evals.critique import DENOMINATORS
from whet.evals.solve import SOLVE_DENOMINATORS
from whet.report.read import Record, Run, number

Rows = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True, slots=True)
class Column:
    """One number of a row of the summary."""

    key: str
    title: str
    """May hold `{k}`, the number of samples."""
    group: str
    """What stands above it and its neighbours."""
    what: str
    """What is counted."""
    denominator: str
    signed: bool = False
    unit: Literal["percent", "tokens"] = "percent"

    @property
    def meaning(self) -> str:
        if self.denominator.startswith("a "):
            return f"{self.what} It is {self.denominator}."
        return f"{self.what} Divided by: {self.denominator}."


@dataclass(frozen=True, slots=True)
class Kind:
    """What the parts of a report need to know of a kind of run."""

    name: Literal["critique", "solve"]
    who: str
    """Whose numbers a row gives, and who wrote a trace: the first column's title, and the browser's first facet."""
    order: tuple[str, ...]
    """Of rows and writers; others come after them."""
    columns: tuple[Column, ...]
    best: str
    """The column whose highest value is bold."""
    problem: str
    trace: str
    traces: str
    behind: Mapping[str, Mapping[str, str]]
    """Which traces a number of the table leads to: the facets and options that the browser opens with."""


def _critique(key: str, title: str, what: str, *, seen: bool = False, signed: bool = False) -> Column:
    group = "what the critic sees" if seen else "what the actor makes of it"
    return Column(key, title, group, what, DENOMINATORS[key], signed)


def _solve(key: str, title: str, group: str, what: str, unit: Literal["percent", "tokens"] = "percent") -> Column:
    return Column(key, title, group, what, SOLVE_DENOMINATORS[key], unit=unit)


CRITIQUE = Kind(
    name="critique",
    who="critic",
    order=("no_critic", "sft_critic", "stage1", "stage2"),
    columns=(
        _critique("acc", "Acc", "First answers that are right."),
        _critique("acc_refine", "Acc@Refine", "Refinements, written after the critique, that are right."),
        _critique("delta", "Delta", "Acc@Refine minus Acc, which is i→c minus c→i, in points.", signed=True),
        _critique("c2i", "c→i", "Right answers whose refinement is wrong."),
        _critique("i2c", "i→c", "Wrong answers whose refinement is right."),
        _critique(
            "acc_dis", "Acc@Dis", "Discriminability: verdicts of the critic that agree with the verifier.", seen=True
        ),
        _critique("acc_dis_correct", "on right answers", "Right answers that the critic calls right.", seen=True),
        _critique("acc_dis_incorrect", "on wrong answers", "Wrong answers that the critic calls wrong.", seen=True),
        _critique("unparsed", "unparsed", "Critiques without a readable verdict.", seen=True),
    ),
    best="acc_refine",
    problem="question",
    trace="exchange",
    traces="exchanges",
    behind={
        "acc": {},
        "acc_refine": {"change": "c2c,i2c"},
        "delta": {"change": "c2i,i2c"},
        "c2i": {"change": "c2i"},
        "i2c": {"change": "i2c"},
        "acc_dis": {"verdict": "wrong,unparsed"},
        "acc_dis_correct": {"verdict": "wrong,unparsed", "change": "c2c,c2i"},
        "acc_dis_incorrect": {"verdict": "wrong,unparsed", "change": "i2c,i2i"},
        "unparsed": {"verdict": "unparsed"},
    },
)
GREEDY, SAMPLED, EVERY = "greedy, one a problem", "sampled, {k} a problem", "all of these replies"
SOLVE = Kind(
    name="solve",
    who="policy",
    order=("training", "before", "best", "last"),
    columns=(
        _solve("acc", "Acc", GREEDY, "Greedy replies that are right."),
        _solve("average", "mean of {k}", SAMPLED, "Sampled replies that are right."),
        _solve("pass", "pass@{k}", SAMPLED, "Problems that at least one of {k} sampled replies gets right."),
        _solve("majority", "majority of {k}", SAMPLED, "Problems whose most frequent answer in {k} samples is right."),
        _solve("truncated", "truncated", EVERY, "Replies that ran into the token limit."),
        _solve("length", "mean length", EVERY, "How long the replies are.", "tokens"),
    ),
    best="acc",
    problem="problem",
    trace="reply",
    traces="replies",
    behind={"acc": {"outcome": "right"}, "truncated": {"trouble": "truncated"}},
)


def kind_of(run: Run) -> Kind:
    """By the config's recipe; where that says nothing, by the summary's rows, and then by the metrics."""
    recipe = run.settings.get("recipe")
    if recipe in ("solve", "critique_rl"):
        return SOLVE if recipe == "solve" else CRITIQUE
    rows = (run.summary or {}).get("rows")
    if isinstance(rows, Mapping) and rows:
        return kind_of_rows(rows)
    return SOLVE if any(phase.has("reward/correct") for phase in run.phases) else CRITIQUE


def kind_of_rows(rows: Record) -> Kind:
    """By the columns that a row holds: `average` is measured where a policy answers alone."""
    return SOLVE if any(isinstance(row, Mapping) and "average" in row for row in rows.values()) else CRITIQUE


def columns_of(kind: Kind, rows: Rows) -> tuple[Column, ...]:
    """The kind's columns with the number of samples written in; without any samples, those about samples are left
    out."""
    counts = {int(count) for row in rows.values() if (count := row.get("k"))}
    k = str(*counts) if len(counts) == 1 else "k"
    return tuple(
        replace(c, title=c.title.format(k=k), group=c.group.format(k=k), what=c.what.format(k=k))
        for c in kind.columns
        if counts or c.group != SAMPLED
    )


def summary_rows(summary: Record, kind: Kind | None = None) -> dict[str, dict[str, float | None]]:
    """The rows in the order in which they are shown; every column, `n` and `k` are there, None where they have no
    value."""
    rows = summary.get("rows")
    if not isinstance(rows, Mapping):
        return {}
    kind = kind or kind_of_rows(rows)
    names = [name for name in kind.order if name in rows] + [name for name in rows if name not in kind.order]
    keys = [*(column.key for column in kind.columns), "n", "k", "grader_errors"]
    return {
        str(name): {key: number(rows[name].get(key)) for key in keys} for name in names if isinstance(rows[name], dict)
    }


def best_rows(kind: Kind, rows: Rows) -> set[str]:
    """The row, or the tied rows, with the highest value in the column that counts."""
    values = {name: value for name, row in rows.items() if (value := row[kind.best]) is not None}
    return {name for name, value in values.items() if value == max(values.values())}
