"""A method's report spec: which columns, stats, charts, checks and traces the report shows of its runs.

A run has its spec in its folder (`report_spec.json`), so the report needs no method. Specs are data:
`methods.report_specs` reads them from files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from string import Formatter
from typing import Any, Literal

from pydantic import TypeAdapter

Unit = Literal["percent", "number"]
Colour = Literal["blue", "orange", "violet", "grey"]
Against = Literal["", "target", "bounds", "rule"]
View = Literal["exchange", "reply", "dialogue"]

ROMAN = ("0", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
ACRONYMS = ("sft", "rl", "dpo", "grpo", "bapo", "kl", "ppo")
FACETS = ("split", "fate", "change", "verdict", "outcome", "trouble", "q", "trace")
"""Words that links into the trace browser use already."""
_PLACE = r"(?P<place>[a-z_][a-z0-9_]*(?:\[(?:0|-1)\])?)"
_TERM = re.compile(rf"{_PLACE}(?:\.(?P<key>\S+))?")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the summary's table."""

    key: str
    title: str
    """May hold `{k}`, the number of samples, as `group` and `what` may. Such columns are left out where no samples were
    drawn."""
    group: str
    """The heading above the column and its neighbours."""
    what: str
    """What is counted."""
    denominator: str
    """What the count is divided by. A text such as "a mean over replies", with "a " first, says what the number is
    instead."""
    signed: bool = False
    unit: Literal["percent", "tokens", "points", "count"] = "percent"
    """points: of a score, with two decimals. count: whole numbers."""

    @property
    def meaning(self) -> str:
        if self.denominator.startswith("a "):
            return f"{self.what} It is {self.denominator}."
        return f"{self.what} Divided by: {self.denominator}."

    @property
    def is_sampled(self) -> bool:
        return "{k}" in self.title + self.group + self.what


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chart: a training metric and the validation metric of the same name."""

    key: str
    """The training metric, with its policy's prefix if it has one. Empty: there is validation only."""
    name: str
    colour: Colour
    checked: str = ""
    """The validation metric. Empty: the training metric's name after `validation/`."""
    band: tuple[str, str] | None = None
    """Metrics that bound a band around the line, the lower one first."""
    points: bool = False
    """Draw points, because the metric is missing in many steps and a line would invent values."""
    scaled: bool = False
    """Divide by the largest absolute value, so that lines of different scales can be compared."""

    @property
    def validation_key(self) -> str:
        return self.checked or f"validation/{self.key.removeprefix('critique/')}"

    @property
    def keys(self) -> tuple[str, ...]:
        """All metrics that the line draws."""
        return (*filter(None, (self.key, self.validation_key)), *(self.band or ()))


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines that share two axes. The chart is left out where none of them was measured."""

    title: str
    note: str
    """What it shows, in a few words."""
    unit: Unit
    from_zero: bool
    lines: tuple[Line, ...]
    says: str = ""
    """A sentence under the title: what it shows, and how a healthy run looks."""
    log: bool = False
    """Whether the y axis is logarithmic."""
    unless_zero: bool = False
    """Leave the chart out where all values are 0."""
    against: Against = ""
    """What settings add to the lines: the target of a search for bounds, or fixed bounds. `rule` adds no change, and
    how often the Entropy-Clip Rule was right."""


@dataclass(frozen=True, slots=True)
class Share:
    """A metric in [0, 1] that should stay low, with the values from which it is to watch, or bad."""

    key: str
    title: str
    what: str
    watch: float
    bad: float
    advice: str


@dataclass(frozen=True, slots=True)
class Stat:
    """A number in large print, beside numbers to compare it with.

    The texts hold fields in braces. `{best.acc}` is the row `best`'s `acc`, and `{rows[-1].acc}` the last trained
    row's. `{rows[0].acc}` is the first row's where there are several, and `{rows[-1]}` the last row's title.
    `{steps[-1].entropy}` is a metric's last value in training. ` - ` and ` / ` may stand between two of them.

    A field is in percent. After a colon, `+` adds a sign, and other texts are Python's format of the bare number. A
    stat, or a part of `beside`, that lacks a number is left out.
    """

    label: str
    value: str
    beside: tuple[str, ...] = ()
    """Joined by semicolons."""
    so_far: bool = False
    """Only while the run is unfinished."""

    def __post_init__(self) -> None:
        for text in (self.label, self.value, *self.beside):
            for term in terms(text):
                if term is None:
                    raise ValueError(f"no field of a stat: {text!r} (such as {{best.acc}}, {{steps[-1].entropy:.3f}})")


def fields(text: str) -> Iterator[tuple[str, str, str]]:
    """The parts of a stat's text: the text before a field, the field (empty at the end), its format."""
    for before, name, form, _ in Formatter().parse(text):
        yield before, name or "", form or ""


def terms(text: str) -> Iterator[tuple[str, str] | None]:
    """The `(place, key)` of each number in a stat's text. None: a field that cannot be one."""
    for _, name, _ in fields(text):
        for term in re.split(r" [-/] ", name) if name else ():
            match = _TERM.fullmatch(term)
            yield None if match is None else (match["place"], match["key"] or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSpec:
    """Everything that the report needs to know about a method."""

    who: str
    """The word for whose numbers a row gives and who wrote a trace. It heads the table's first column, and is the
    browser's first facet. One word of a-z and _."""
    order: tuple[str, ...]
    """The order of rows and writers. Others follow."""
    untrained: tuple[str, ...] = ()
    """Rows of no trained policy, which a stat's `rows` leaves out."""
    columns: tuple[Column, ...]
    best: str
    """The column whose highest value is bold."""
    several: str = ""
    """A sentence that the terminal adds to the table where answers had several rounds or samples."""
    problem: str = "problem"
    tested: str = "policy"
    """The word for what the summary measures."""
    stats: tuple[Stat, ...] = ()
    charts: tuple[Chart, ...] = ()
    off_policy: tuple[Chart, ...] = ()
    """Charts of a section of their own, which appears where a `balance/` metric was measured."""
    training: tuple[str, ...] = ("reward/mean",)
    """A phase with one of these metrics lies on the charts' x axis. Others with `loss/nll` are warm starts."""
    is_staged: bool = False
    """Whether phases are stages, which the x axis names even where there is one."""
    policies: tuple[str, ...] = ()
    """Policies whose metrics have their names as prefix (`actor.entropy`). Health checks take them one by one."""
    reused: str = ""
    """What the method trains on though older weights wrote it, such as "games of all rounds". The distance to those
    weights is then no error. Empty: nothing, unless settings say so."""
    is_compared: bool = True
    """Whether rewards are compared within a group, so that a group of equal rewards has no signal."""
    shares: tuple[Share, ...] = ()
    accuracy: str = ""
    """The validation metric in [0, 1] that training should raise. Empty: no health note about it."""
    lowered: Mapping[str, str] = field(default_factory=dict)
    """By phase, why it lowers the accuracy on purpose: a clause for the health note."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Titles of rows, writers and phases, where `title_of` does not give the usual one."""
    phases: Mapping[str, str] = field(default_factory=dict)
    """Titles of phases while they run, where those differ."""
    view: View = "reply"
    """How a trace is shown. exchange: answer, critique, refinement. reply: one of the replies to a problem. dialogue:
    many turns."""
    trace: str = "reply"
    traces: str = "replies"
    kept: str = ""
    """Which traces of the test are stored, a text to follow "opens the traces behind it"."""
    makes: str = ""
    """The file of data that a run makes, if it trains nothing. The browser then opens with all writers, as parts of one
    whole. Empty: the run trains, and the last writer counts."""
    behind: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By column, the facets and options of the traces behind a number. The browser opens with them."""

    def __post_init__(self) -> None:
        keys = [column.key for column in self.columns]
        if not re.fullmatch("[a-z_]+", self.who) or self.who in FACETS:
            raise ValueError(f"who = {self.who!r} stands in links: one word of a-z and _, and none of {FACETS}")
        if len(set(keys)) < len(keys):
            raise ValueError(f"two columns of one key: {keys}")
        named = [self.best, *self.behind]
        texts = [text for stat in self.stats for text in (stat.label, stat.value, *stat.beside)]
        named += [term[1] for text in texts for term in terms(text) if term and not term[0].startswith("steps[")]
        if unknown := sorted(set(named) - {*keys, "", "n", "k"}):
            raise ValueError(f"no columns, and yet asked for: {', '.join(unknown)}; there are {', '.join(keys)}")

    def without(self, *columns: str) -> ReportSpec:
        """The report spec without some columns and their links."""
        remaining = tuple(column for column in self.columns if column.key not in columns)
        behind = {key: traces for key, traces in self.behind.items() if key not in columns}
        return replace(self, columns=remaining, behind=behind)

    def title(self, name: str) -> str:
        """The title of a row, writer or phase."""
        return self.titles.get(name) or title_of(name)


def title_of(name: str) -> str:
    """The title that a name gives by itself: Stage II for `stage2`, SFT critic for `sft_critic`."""
    if match := re.fullmatch(r"stage_?(\d)", name):
        return f"Stage {ROMAN[int(match[1])]}"
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        return name  # not one of ours, so shown as it is
    title = " ".join(word.upper() if word in ACRONYMS else word for word in name.split("_"))
    return title[:1].upper() + title[1:]


_JSON = TypeAdapter(ReportSpec)
_CHART, _COLUMN = TypeAdapter(Chart), TypeAdapter(Column)


def tree_of(part: ReportSpec | Chart) -> dict[str, Any]:
    """A report spec or a chart as plain mappings and sequences."""
    return asdict(part)


def of_tree(tree: Mapping[str, Any]) -> ReportSpec:
    """Raises: ValueError where a field is missing, unknown, or holds something else."""
    return _JSON.validate_python(tree, extra="forbid")


def chart_of(tree: Mapping[str, Any]) -> Chart:
    """Raises: ValueError, as `of_tree`."""
    return _CHART.validate_python(tree, extra="forbid")


def column_of(tree: Mapping[str, Any]) -> Column:
    """Raises: ValueError, as `of_tree`."""
    return _COLUMN.validate_python(tree, extra="forbid")


def to_json(report_spec: ReportSpec) -> str:
    """The report spec as JSON, which `of_json` reads."""
    return _JSON.dump_json(report_spec, indent=1).decode()


def of_json(text: str) -> ReportSpec:
    """The report spec that `to_json` wrote.

    Raises: ValueError where it is none, or has fields that this version does not know.
    """
    return _JSON.validate_json(text, extra="forbid")
