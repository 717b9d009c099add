"""Turns environments into tasks by split, and gives the rules that an agent reads before it acts."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from whet.config import ConfigError
from whet.config.environment_data import EnvironmentData
from whet.envs import ENVIRONMENTS, EnvError, EnvironmentInfo
from whet.envs.formats import THINK, THOUGHT, react, sql, tags, write
from whet.envs.remote.info import remote_info
from whet.envs.retries import CLOSE_S, close_within
from whet.envs.rules import rules_text
from whet.rollout.agent import ITEM
from whet.tasks.splits import Problems
from whet.trajectories.format_detection import TOOLS, format_named
from whet.trajectories.function_calls import FUNCTIONS, signatures
from whet.trajectories.published import read_published
from whet.trajectories.tools import rules_for_tools
from whet.types import Task

T = TypeVar("T")

ENVIRONMENT = "environment"
"""In a task's `info`: the name of its environment."""


def load_infos(data: EnvironmentData) -> dict[str, EnvironmentInfo]:
    """The environments that settings name, those behind an address too.

    Raises: UnknownName; EnvError where a server is silent, or lacks the environment.
    """
    remotes, settings = data.remotes, data.settings
    return {
        name: remote_info(name, remotes[name], settings.get(name, {}))
        if name in remotes
        else ENVIRONMENTS.get(name).settled(settings.get(name, {}))
        for name in data.shares
    }


def load_environment_tasks(data: EnvironmentData) -> Problems:
    """The items of environments as tasks.

    Raises: UnknownName; ConfigError if an environment has too few items; EnvError if a package is missing.
    """
    tasks: dict[str, list[Task]] = {"train": [], "validation": [], "test": []}
    check_settings(data)
    infos = load_infos(data)
    groups_by_env = _groups_by_env(infos, data.groups)
    named_items = {name: item for info in infos.values() for name, item in info.named_items.items()}
    listed = {"train": _listed(data.train_items, named_items), "test": _listed(data.test_items, named_items)}
    for items_by_env in listed.values():
        if strangers := sorted(items_by_env.keys() - data.shares.keys()):
            raise ConfigError(f"the lists have items of {', '.join(strangers)}, which data.env does not name: add it")
    overlaps = []
    for name in data.shares:
        info = infos[name]
        splits = {split: items_by_env.get(name) or info.splits()[split] for split, items_by_env in listed.items()}
        train, test = (_grouped(info, splits[split], groups_by_env[name]) for split in ("train", "test"))
        _check_items(
            info,
            data.settings.get(name, {}),
            {item for items_by_env in listed.values() for item in items_by_env.get(name, ())},
        )
        if both := len(set(train) & set(test)):
            overlaps.append(f"{both} of {name}'s {len(test)} test items are training items too")
        if len(train) < 2:
            raise ConfigError(
                f"{name} has {len(train)} training items, and one has to be left out of training for validation"
            )
        num_held = min(data.num_validation, max(1, len(train) // 4))
        held = set(Random(f"validation of {name}").sample(train, num_held))
        chosen = {
            "train": [item for item in train if item not in held][: data.num_train],
            "validation": [item for item in train if item in held],
            "test": evenly(test, data.num_test),
        }
        for split, items in chosen.items():
            tasks[split] += [environment_task(info, item) for item in items]
    names = ", ".join(data.shares)
    return Problems(
        {split: tuple(split_tasks) for split, split_tasks in tasks.items()}, f"items of {names}", leaks=tuple(overlaps)
    )


def check_settings(data: EnvironmentData) -> None:
    """Raises: ConfigError if settings are of an environment that data.env does not name, or that it does not take."""
    if strangers := sorted(data.settings.keys() - data.shares.keys()):
        raise ConfigError(f"data.settings.{strangers[0]} is of an environment that data.env does not name: take it out")
    for name, settings in data.settings.items():
        if name in data.remotes:  # its server looks at them
            continue
        try:
            inspect.signature(ENVIRONMENTS.get(name).make).bind(**settings)
        except TypeError as error:
            raise ConfigError(f"data.settings.{name}: {error}; it takes what its class takes") from error


def _check_items(info: EnvironmentInfo, settings: Mapping[str, Any], items: Collection[int]) -> None:
    """Raises: ConfigError if a list has an item that the environment cannot start."""
    strange = sorted(set(items).difference(*info.splits().values()))
    env = info.make(**settings) if strange else None
    for item in strange:
        try:
            begun = env.reset(item) if env is not None else None
        except EnvError as error:
            raise ConfigError(f"the lists of items have {item} of {info.name}, and it has none: {error}") from error
        if isinstance(begun, Coroutine):
            begun.close()
    if env is not None:
        close_within([env.close], CLOSE_S)


def _groups_by_env(infos: Mapping[str, EnvironmentInfo], groups: Sequence[str]) -> dict[str, list[str]]:
    """By environment, those of the subgroups that it has.

    Raises: ConfigError if no environment has a subgroup.
    """
    if not groups:
        return {name: [] for name in infos}
    names = ", ".join(infos)
    if not any(info.group for info in infos.values()):
        raise ConfigError(f"data.groups chooses among published subgroups, and {names} has none: leave it out")
    found = {
        name: {info.group(item) for items in info.splits().values() for item in items} if info.group else set()
        for name, info in infos.items()
    }
    if missing := sorted(set(groups).difference(*found.values())):
        choices = ", ".join(sorted(set().union(*found.values())))
        raise ConfigError(f"data.groups has {missing[0]!r}, and {names} has items of: {choices}")
    return {name: [group for group in groups if group in found[name]] for name in infos}


def _grouped(info: EnvironmentInfo, items: Sequence[int], groups: Sequence[str]) -> list[int]:
    """The items of these subgroups of an environment. No groups: all items.

    Raises: ConfigError if a subgroup has no item.
    """
    if not groups or info.group is None:
        return list(items)
    group_of = {item: info.group(item) for item in items}
    if missing := sorted(set(groups) - set(group_of.values())):
        choices = ", ".join(sorted(set(group_of.values())))
        raise ConfigError(f"data.groups has {missing[0]!r}, and {info.name} has items of: {choices}")
    return [item for item, group in group_of.items() if group in groups]


def _listed(files: Sequence[str], named_items: Mapping[str, int]) -> dict[str, list[int]]:
    """The item numbers in files, by environment, each once.

    Args:
        named_items: as `EnvironmentInfo.named_items`, of all environments.
    Raises: DataError.
    """
    numbers_by_env: dict[str, dict[int, None]] = {}
    for file in files:
        for name, number in read_published(file, named_items):
            numbers_by_env.setdefault(name, {})[number] = None
    return {name: list(numbers) for name, numbers in numbers_by_env.items()}


def environment_task(info: EnvironmentInfo, item: int) -> Task:
    return Task(id=f"{info.name}_{item}", prompt="", info={ENVIRONMENT: info.name, ITEM: item})


def evenly(items: Sequence[T], count: int | None) -> list[T]:
    """`count` of the items, from all parts of the list: environments order items by difficulty. None: all."""
    if count is None or count >= len(items):
        return list(items)
    return [items[i * len(items) // count] for i in range(count)]


@dataclass(frozen=True)
class Rules:
    """The rules of an environment, which stand before the first observation."""

    text: str


def format_of(info: EnvironmentInfo, format: str) -> str:
    """The parser by which the environment reads an action format: a name of `formats.PARSERS`."""
    return format_named(info.name, info.parser, format)


def rules_of(info: EnvironmentInfo, format: str = "react") -> Rules:
    """The environment's rules, from a file of whet or as a plug-in's text.

    They end in an example of a reply, written in the format. For function calls the functions come first. For calls of
    tools there is none: the chat template says how they are called.

    Raises: ConfigError if the environment has no functions.
    """
    text = rules_text(info.rules)
    if format not in ("react", "plain", TOOLS) and info.name not in FUNCTIONS:
        raise ConfigError(f"{info.name} has no functions to call; its actions can be written as react or plain")
    begins = THINK if info.parser == "tags" else THOUGHT
    before, mark, example = text.rpartition(begins)
    if format == "react" or not mark:
        return Rules(text)
    read = {"sql": sql, "tags": tags}.get(info.parser, react)(mark + example)
    if format == "plain":
        return Rules(f"{before}{read.action}")
    if format == TOOLS:
        return Rules(rules_for_tools(text, begins))
    written = write(read.thought, read.action, format_of(info, format))
    calls = "calls in Python" if format == "code_as_action" else "calls"
    return Rules(f"Actions are {calls} of these functions:\n\n{signatures(FUNCTIONS[info.name])}\n\n{before}{written}")


def parts(shares: Mapping[str, float], count: int) -> dict[str, int]:
    """Splits `count` by share, by the largest remainders. If `count` suffices, each part is at least 1."""
    total = sum(shares.values())
    exact = {name: count * share / total for name, share in shares.items()}
    least = 1 if count >= len(shares) else 0
    counts = {name: max(least, int(value)) for name, value in exact.items()}
    while (left := count - sum(counts.values())) > 0:
        counts[min(exact, key=lambda name: counts[name] - exact[name])] += 1
    for _ in range(-left):
        counts[max((name for name in exact if counts[name] > least), key=lambda name: counts[name] - exact[name])] -= 1
    return counts
