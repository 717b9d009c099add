"""The summary as a table: what its columns are, how their values are written, and the table for the terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from whet.evals.critique import DENOMINATORS
from whet.report.read import Record, number


@dataclass(frozen=True, slots=True)
class Column:
    """One number of a row of the summary."""

    key: str
    title: str
    what: str
    """What is counted; what it is divided by stands in `whet.evals.critique.DENOMINATORS`."""
    signed: bool = False

    @property
    def meaning(self) -> str:
        return f"{self.what} Divided by: {DENOMINATORS[self.key]}."


COLUMNS = (
    Column("acc", "Acc", "First answers that are right."),
    Column("acc_refine", "Acc@Refine", "Refinements, written after the critique, that are right."),
    Column("delta", "Delta", "Acc@Refine minus Acc, which is i→c minus c→i, in points.", signed=True),
    Column("c2i", "c→i", "Right answers whose refinement is wrong."),
    Column("i2c", "i→c", "Wrong answers whose refinement is right."),
    Column("acc_dis", "Acc@Dis", "Discriminability: verdicts of the critic that agree with the verifier."),
    Column("acc_dis_correct", "on right answers", "Right answers that the critic calls right."),
    Column("acc_dis_incorrect", "on wrong answers", "Wrong answers that the critic calls wrong."),
    Column("unparsed", "unparsed", "Critiques without a readable verdict."),
)
SEVERAL = (
    "Here a question counts once for each of its samples, and what is said of verdicts counts the critiques of all "
    "rounds, each on the answer that it judged. "
)
ROW_ORDER = ("no_critic", "sft_critic", "stage1", "stage2")
ROMAN = ("0", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")


def summary_table(summary: Record, *, several: bool = False) -> Table:
    """The content of `summary.json` as a table of at most 100 columns; the best Acc@Refine is bold.

    Args:
        several: answers have gone through several rounds, samples, or fewer than one critique each.
    """
    rows = summary_rows(summary)
    best = best_refine(rows)
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption=f"In percent. {count_in_words(rows)} {denominators_in_words()} "
        f"{SEVERAL if several else ''}Bold: the best Acc@Refine.",
        caption_justify="left",
    )
    table.add_column("critic", no_wrap=True, max_width=22, overflow="ellipsis", vertical="bottom")
    for column in COLUMNS:  # a narrow terminal breaks the titles, never the numbers
        width = 8 if " " in column.title else None
        table.add_column(column.title, justify="right", min_width=5, max_width=width, vertical="bottom")
    for name, row in rows.items():
        cells = [
            Text(percent(row[column.key], signed=column.signed), style=_style(column, name in best))
            for column in COLUMNS
        ]
        table.add_row(Text(title_of(name)), *cells)
    return table


def summary_rows(summary: Record) -> dict[str, dict[str, float | None]]:
    """The rows in the order in which they are shown; every column and `n` is there, None where it has no value."""
    rows = summary.get("rows")
    if not isinstance(rows, Mapping):
        return {}
    names = [name for name in ROW_ORDER if name in rows] + [name for name in rows if name not in ROW_ORDER]
    keys = [*(column.key for column in COLUMNS), "n"]
    return {str(name): {k: number(rows[name].get(k)) for k in keys} for name in names if isinstance(rows[name], dict)}


def best_refine(rows: Mapping[str, Mapping[str, float | None]]) -> set[str]:
    """The row, or the tied rows, with the highest Acc@Refine."""
    values = {name: value for name, row in rows.items() if (value := row["acc_refine"]) is not None}
    return {name for name, value in values.items() if value == max(values.values())}


def percent(value: float | None, *, signed: bool = False) -> str:
    """A fraction in percent with one decimal, without the sign `%`; a dash where there is none."""
    if value is None:
        return "–"
    rounded = round(100 * value, 1) + 0.0  # + 0.0 turns -0.0 into 0.0
    return f"{rounded:+.1f}" if signed and rounded else f"{rounded:.1f}"


def denominators_in_words() -> str:
    """What the columns are divided by, those with the same denominator together, and the remarks on it."""
    shared: dict[str, list[str]] = {}
    remarks: dict[str, list[str]] = {}
    for column in COLUMNS:
        title = f"'{column.title}'" if " " in column.title else column.title
        denominator, _, remark = DENOMINATORS[column.key].partition("; ")
        shared.setdefault(denominator, []).append(title)
        if remark:
            remarks.setdefault(remark, []).append(title)
    divided = "; ".join(f"{', '.join(titles)} by {denominator}" for denominator, titles in shared.items())
    return " ".join([f"Divided: {divided}.", *(f"In {', '.join(t)} {remark}." for remark, t in remarks.items())])


def count_in_words(rows: Mapping[str, Mapping[str, float | None]]) -> str:
    """How many tasks the rows were measured on."""
    counts = sorted({int(n) for row in rows.values() if (n := row["n"]) is not None})
    if not counts:
        return "The number of questions, n, was not recorded."
    if len(counts) > 1:
        return f"n = {counts[0]:,} to {counts[-1]:,} questions, which differs from row to row."
    return f"n = {counts[0]:,} questions in every row."


def title_of(name: str) -> str:
    """A row's, phase's or critic's name as people write it: `stage2` is Stage II, `sft_critic` is SFT critic."""
    if match := re.fullmatch(r"stage_?(\d)", name):
        return f"Stage {ROMAN[int(match[1])]}"
    words = [word.upper() if word in ("sft", "rl", "dpo", "grpo", "bapo") else word for word in name.split("_")]
    title = " ".join(words)
    return title[:1].upper() + title[1:]


def _style(column: Column, best: bool) -> str:
    return "bold" if best and column.key == "acc_refine" else ""
