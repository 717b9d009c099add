"""What of AgentEval can run on this machine, and on which items: published ones where their numbers mean upstream's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

from whet.config.environments import PoolConfig
from whet.distribution import has_extra
from whet.envs import ENVIRONMENTS, EnvironmentInfo
from whet.envs.registry import HELD
from whet.envs.retries import Attempts, beginnings
from whet.errors import text_of
from whet.evaluation.agenteval import COUNTS, Cause, NotRun, Table, count_of
from whet.methods.environment_tasks import evenly
from whet.trajectories.published import read_published

AGENTEVAL_LIST, WHETS_CHOICE, USERS_LIST = "AgentEval's list", "whet's choice of upstream's items", "the list given"
GENERATED = "whet's own items"


@dataclass(frozen=True, slots=True)
class Part:
    """One line to measure: an environment, and its items of one kind."""

    info: EnvironmentInfo
    table: Table
    items: tuple[int, ...]
    choice: str
    settings: Mapping[str, Any]
    """Of the environment."""

    @property
    def name(self) -> str:
        return self.info.name


def agentgym_names() -> list[str]:
    """whet's own environments by name, and those of AgentEval that it lacks. Plug-ins' are no part of AgentEval."""
    own = [entry.name for entry in ENVIRONMENTS if entry.origin == "whet"]
    return [*own, *(name for name in [*COUNTS, *HELD] if name not in own)]


def parts_of(
    settings: Mapping[str, Mapping[str, Any]], lists: Sequence[str], num_items: int | None, pool: PoolConfig
) -> tuple[list[Part], list[NotRun]]:
    """The parts of AgentEval that can run, and what cannot. Each environment that runs has begun an item.

    Args:
        settings: of the environments, by name.
        lists: files of published item ids, such as AgentEval's.
        num_items: of each part at most. None: the published counts.
    Raises: DataError where a list cannot be read.
    """
    listed: dict[str, dict[int, None]] = {}
    for file in lists:
        for name, number in read_published(file):
            listed.setdefault(name, {})[number] = None
    parts, not_run = [], []
    for name in dict.fromkeys([*agentgym_names(), *HELD]):
        if name not in ENVIRONMENTS or ENVIRONMENTS.entry(name).origin != "whet":
            not_run.append(_lacking(name))
            continue
        needs = ""
        try:
            info = ENVIRONMENTS.get(name)
            needs = info.needs
            of_name, problems = _parts_of(info, settings.get(name, {}), list(listed.get(name, ())), num_items)
            for part in of_name:
                _begin(part, pool)
        except Exception as error:  # an environment may raise anything
            not_run.append(NotRun(environment=name, cause=_cause(error, needs), why=_why(error)))
            continue
        parts += of_name
        not_run += problems
    return parts, not_run


def _lacking(name: str) -> NotRun:
    if name in HELD:
        return NotRun(environment=name, cause="held", why=f"held for later: {HELD[name]}")
    return NotRun(environment=name, cause="absent", why="this whet has no such environment")


def _parts_of(
    info: EnvironmentInfo, settings: Mapping[str, Any], listed: Sequence[int], num_items: int | None
) -> tuple[list[Part], list[NotRun]]:
    """An environment's parts, and why one of them is missing."""
    name, info = info.name, info.settled(settings)
    count = count_of(name) if num_items is None else num_items
    published, problems, parts = info.published, [], list[Part]()
    lacking = [] if published is None else published.missing(settings)
    if published is not None and not lacking:
        items = listed or info.splits()[published.split]
        choice = USERS_LIST if listed else AGENTEVAL_LIST if published.is_list else WHETS_CHOICE
        parts.append(Part(info, "published", tuple(evenly(items, count)), choice, settings))
    elif lacking or listed:
        needed = " and ".join(f"data.settings.{name}.{key}" for key in lacking)
        why = f"published items need {needed}" if lacking else "its item numbers are not upstream's"
        why += "; generated ones were measured"
        problems.append(NotRun(environment=name, cause="published", why=why))
    if not parts or (published is not None and not published.are_all):
        parts.append(Part(info, "generated", tuple(evenly(info.splits()["test"], count)), GENERATED, settings))
    return parts, problems


def _begin(part: Part, pool: PoolConfig) -> None:
    """Begins the first item. Raises: whatever the environment raises."""
    make = partial(part.info.make, **part.settings)
    with closing(Attempts(make, timeout_s=pool.timeout_s)) as attempts:
        beginnings(attempts, part.items[:1])


def _cause(error: BaseException, needs: str) -> Cause:
    """A package where an import failed behind the error, or the extra is not there; else something that it names.

    Args:
        needs: as `EnvironmentInfo.needs`.
    """
    if needs and not has_extra(needs):
        return "package"
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, ImportError):
            return "package"
        behind = behind.__cause__
    return "requirement"


def _why(error: BaseException) -> str:
    text = text_of(error)
    return text if hasattr(error, "exit_code") else f"{type(error).__name__}: {text}"
