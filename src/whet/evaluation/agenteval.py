"""AgentEval, AgentGym's benchmark of agents (arXiv:2406.04151): its environments, its counts, and the record of one.

A record has two tables, one of published items and one of generated ones. No number is an average over environments or
over both tables: a generated item may be harder or easier than any published one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from whet.evaluation.as_published import AS_PUBLISHED, Protocol

NAME = "agenteval"
COUNTS: Mapping[str, int] = {
    "webshop": 200, "webarena": 20, "maze": 25, "wordle": 25, "alfworld": 200, "sciworld": 200, "babyai": 90,
    "textcraft": 100, "weather": 20, "movie": 20, "academia": 20, "sheet": 20, "todo": 20, "sqlgym": 200,
    "searchqa": 400,
}  # fmt: skip
"""Published items by environment: 1,160 of AgentEval, and SearchQA's of AgentGym-RL (arXiv:2509.08755)."""
COUNT = 100
"""Items of an environment that neither paper has."""
USUAL = "whet's usual settings"
"""The source of settings where no paper has any."""

Table = Literal["published", "generated"]
TABLES: tuple[Table, ...] = ("published", "generated")
Cause = Literal["held", "absent", "package", "requirement", "published", "refused", "failed"]
"""Why something could not run. held: for later. absent: this whet has no such environment. package: a Python package is
missing. requirement: a program or data is. published: published items need settings. refused: the agent or the settings
do not go with it. failed: too many episodes failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """Something that could not run. It is no zero."""

    environment: str
    cause: Cause
    why: str
    """A clause for the reader, with what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One environment's line in one of the two tables."""

    environment: str
    table: Table
    items: tuple[int, ...]
    choice: str
    """Whose choice of items it is, in words."""
    paper: str
    """Whose settings these are. `USUAL`: no paper's."""
    temperature: float
    """0: greedy."""
    max_turns: int
    format: str
    overridden: tuple[str, ...]
    """Settings of the user's own that hold in place of the paper's."""
    rows: Mapping[str, Mapping[str, Any] | None]
    """`agent_row` of `policy`, `expert`, `random` and `constant`, on the same items. None: there is no expert."""
    seconds: float
    """Wall time."""

    @property
    def policy(self) -> Mapping[str, Any]:
        row = self.rows["policy"]
        assert row is not None
        return row


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEval:
    """The whole record."""

    policy: str
    """A model's folder, or `MODEL at URL`."""
    seed: int
    num_items: int | None
    """The limit of items per environment. None: the published counts."""
    version: str
    """Of whet."""
    measured: Sequence[Measured]
    not_run: Sequence[NotRun]
    seconds: float
    """Wall time of all parts, those of earlier sessions included."""
    plan: Mapping[str, Any] = field(default_factory=dict)
    """What was asked for. An evaluation goes on only under an equal one."""

    def table(self, table: Table) -> list[Measured]:
        return [line for line in self.measured if line.table == table]

    def record(self) -> dict[str, Any]:
        """As JSON: each table by environment."""
        whole = {key: value for key, value in asdict(self).items() if key != "measured"}
        tables: dict[str, Any] = {
            table: {line.environment: {**asdict(line), "items": list(line.items)} for line in self.table(table)}
            for table in TABLES
        }
        return {"format": "whet agenteval 1", **whole, **tables}


def count_of(environment: str) -> int:
    """How many items are measured, where the user does not say."""
    return COUNTS.get(environment, COUNT)


def protocol_of(environment: str, max_turns: int) -> Protocol:
    """How AgentGym measures agents in an environment.

    Args:
        max_turns: the environment's usual number, where no paper has one.
    """
    if environment in AS_PUBLISHED:
        return AS_PUBLISHED.get(environment)
    return Protocol(environment, USUAL, max_turns, temperature=0.0)
