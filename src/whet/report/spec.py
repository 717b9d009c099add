"""A method's report spec: which columns, stats, charts, checks and traces the report shows of its runs.

A run carries its spec in its folder (`report_spec.json`), so the report asks no run for its method. Everything here is
data: `report_specs` reads it from files.
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
"""Words that the links into the trace browser use already."""
_PLACE = r"(?P<place>[a-z_][a-z0-9_]*(?:\[(?:0|-1)\])?)"
_TERM = re.compile(rf"{_PLACE}(?:\.(?P<key>\S+))?")


@dataclass(frozen=True, slots=True)
class Column:
    """One number of a row of the summary."""

    key: str
    title: str
    """May hold `{k}`, the number of samples, as `group` and `what` may; where no samples were drawn, columns that do
    are left out."""
    group: str
    """What stands above it and its neighbours."""
    what: str
    """What is counted."""
    denominator: str
    """What it is divided by; starting with "a ": what it is instead, as in "a mean over replies"."""
    signed: bool = False
    unit: Literal["percent", "tokens", "points", "count"] = "percent"
    """Points: of a score, with two decimals. Count: whole numbers."""

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
    key: str
    """Of the training metric, with its policy's prefix if it has one; empty: there is validation only."""
    name: str
    colour: Colour
    checked: str = ""
    """The validation metric. Empty: the training metric's name after `validation/`."""
    band: tuple[str, str] | None = None
    """Metrics that bound a band around the line, the lower one first."""
    points: bool = False
    """Draw points: the metric is missing in many steps, and a line would make values up."""
    scaled: bool = False
    """Divide by the largest absolute value, so that lines of different scales can be compared."""

    @property
    def validation_key(self) -> str:
        return self.checked or f"validation/{self.key.removeprefix('critique/')}"

    @property
    def keys(self) -> tuple[str, ...]:
        """Every metric that is drawn by it."""
        return (*filter(None, (self.key, self.validation_key)), *(self.band or ()))


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves that share two axes; left out where none of them was measured."""

    title: str
    note: str
    """What one sees in it, in a few words."""
    unit: Unit
    from_zero: bool
    lines: tuple[Line, ...]
    says: str = ""
    """A sentence under the title: what one sees, and what a healthy run shows."""
    log: bool = False
    """The y axis."""
    unless_zero: bool = False
    """Leave the panel out where nothing ever happened."""
    against: Against = ""
    """What the run's settings put beside the lines: the target of a search for bounds, fixed bounds, or, of the
    Entropy-Clip Rule, no change and how often it was right."""


@dataclass(frozen=True, slots=True)
class Share:
    """A metric between 0 and 1 that should stay low, and from where on it is worth a look, or a worry."""

    key: str
    title: str
    what: str
    watch: float
    bad: float
    advice: str


@dataclass(frozen=True, slots=True)
class Stat:
    """A number in large print, beside what it is to be compared with.

    The texts hold fields in braces. `{best.acc}` is the row `best`'s `acc`, `{rows[-1].acc}` the last trained row's,
    `{rows[0].acc}` the first one's where there are several, `{rows[-1]}` that row's title; `{steps[-1].entropy}` is a
    metric's last value in training. ` - ` and ` / ` may stand between two of them. A field is in percent; after a
    colon, `+` gives it a sign, and anything else is Python's format of the bare number. A tile, or a part of `beside`,
    that lacks a number is left out.
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
                    raise ValueError(f"no field of a tile: {text!r} (such as {{best.acc}}, {{steps[-1].entropy:.3f}})")


def fields(text: str) -> Iterator[tuple[str, str, str]]:
    """The parts of a tile's text: what stands before a field, the field (empty at the end), its format."""
    for before, name, form, _ in Formatter().parse(text):
        yield before, name or "", form or ""


def terms(text: str) -> Iterator[tuple[str, str] | None]:
    """The `(place, key)` of every number in a tile's text; None for what cannot be one."""
    for _, name, _ in fields(text):
        for term in re.split(r" [-/] ", name) if name else ():
            match = _TERM.fullmatch(term)
            yield None if match is None else (match["place"], match["key"] or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSpec:
    """What the report needs to know of a run, and asks of nobody else."""

    who: str
    """Whose numbers a row gives, and who wrote a trace: one word, the table's first column and the browser's first
    facet."""
    order: tuple[str, ...]
    """Of rows and writers; others come after them."""
    untrained: tuple[str, ...] = ()
    """Rows that are nobody's work, and that a tile's `rows` leaves out."""
    columns: tuple[Column, ...]
    best: str
    """The column whose highest value is bold."""
    several: str = ""
    """What the terminal says of the table where answers went through several rounds or samples."""
    problem: str = "problem"
    tested: str = "policy"
    """What the summary is about."""
    stats: tuple[Stat, ...] = ()
    charts: tuple[Chart, ...] = ()
    off_policy: tuple[Chart, ...] = ()
    """Of a section of their own, where a `balance/` metric was measured."""
    training: tuple[str, ...] = ("reward/mean",)
    """A phase with one of these metrics lies on the panels' x axis; others with `loss/nll` are warm starts."""
    is_staged: bool = False
    """Phases are stages, which the x axis names even where it has one."""
    policies: tuple[str, ...] = ()
    """Those whose metrics bear their names (`actor.entropy`), to be checked one by one."""
    reused: str = ""
    """What the method trains on though older weights wrote it, such as "games of all rounds": the distance to these is
    then no error. Empty: nothing, unless the run's settings say so."""
    is_compared: bool = True
    """Whether rewards are held against those of their group, so that a group paid alike teaches nothing."""
    shares: tuple[Share, ...] = ()
    accuracy: str = ""
    """The validation metric in [0, 1] that training should raise. Empty: the health notes say nothing of it."""
    titles: Mapping[str, str] = field(default_factory=dict)
    """Of rows, writers and phases, where `title_of` is not what people call them."""
    phases: Mapping[str, str] = field(default_factory=dict)
    """What a phase is called while it runs, where that is not its title."""
    view: View = "reply"
    """How a trace is shown: an exchange (answer, critique, refinement), one of the replies to a problem, or a dialogue
    of many turns."""
    trace: str = "reply"
    traces: str = "replies"
    kept: str = ""
    """Which traces of the test are kept, to follow "opens the traces behind it"."""
    makes: str = ""
    """Of a run that trains nothing: the file of data that it leaves behind. Its writers are parts of one whole then,
    which the browser opens with, and not stages of which the last one counts."""
    behind: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Which traces a number of the table leads to, by column: the facets and options that the browser opens with."""

    def __post_init__(self) -> None:
        keys = [column.key for column in self.columns]
        if not re.fullmatch("[a-z_]+", self.who) or self.who in FACETS:
            raise ValueError(f"who = {self.who!r} stands in links: one word of a-z and _, and none of {FACETS}")
        if len(set(keys)) < len(keys):
            raise ValueError(f"two columns of one key: {keys}")
        asked = [self.best, *self.behind]
        texts = [text for stat in self.stats for text in (stat.label, stat.value, *stat.beside)]
        asked += [term[1] for text in texts for term in terms(text) if term and not term[0].startswith("steps[")]
        if unknown := sorted(set(asked) - {*keys, "", "n", "k"}):
            raise ValueError(f"no columns, and yet asked for: {', '.join(unknown)}; there are {', '.join(keys)}")

    def without(self, *columns: str) -> ReportSpec:
        """The sheet without some columns and what they lead to."""
        kept = tuple(column for column in self.columns if column.key not in columns)
        behind = {key: traces for key, traces in self.behind.items() if key not in columns}
        return replace(self, columns=kept, behind=behind)

    def title(self, name: str) -> str:
        """A row's, writer's or phase's name as people write it."""
        return self.titles.get(name) or title_of(name)


def title_of(name: str) -> str:
    """What a name says by itself: `stage2` is Stage II, `sft_critic` is SFT critic."""
    if match := re.fullmatch(r"stage_?(\d)", name):
        return f"Stage {ROMAN[int(match[1])]}"
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        return name  # somebody else's, and theirs to write
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
    return _JSON.dump_json(report_spec, indent=1).decode()


def of_json(text: str) -> ReportSpec:
    """The sheet that `to_json` wrote.

    Raises: ValueError where it is none, or has what this version does not know.
    """
    return _JSON.validate_json(text, extra="forbid")
