"""What a run needs to know of a remote environment, from its server or from whet, with the settings beside its address.

It is asked before anything starts, so that a silent address or an unknown name is refused in one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from whet.config.environment_data import RemoteEnvironment
from whet.envs.formats import PARSERS
from whet.envs.plugin import check_numbers, check_splits, check_texts
from whet.envs.protocol import EnvError, EnvironmentInfo
from whet.envs.remote import agentgym, openenv, v1
from whet.envs.remote.address import read_address
from whet.envs.remote.errors import BadAnswer
from whet.envs.remote.transport import Limits, Server
from whet.envs.wire import MAX_SEED, items_of_json
from whet.types import in_brief

OVERRIDES = ("max_turns", "rules", "parser", "rewards", "success_above")
"""Settings that stand for what a server or whet says of an environment."""
MAX_RULES_CHARS = 100_000


def remote_info(name: str, remote: RemoteEnvironment, settings: Mapping[str, Any] | None = None) -> EnvironmentInfo:
    """An environment behind an address.

    Args:
        name: of the environment on its server.
        settings: of the environment, which the server takes.
    Returns: its info. `make` gives environments that speak to the server. There is no scripted expert.
    Raises: EnvError where the server is silent, lacks the environment, or says something that cannot be.
    """
    address = read_address(remote.url)
    server = Server(address.url, Limits.of(remote))
    if settings and address.wire != "whet":
        raise EnvError(f"{name} is on a server whose wire takes no settings: leave data.settings.{name} out")
    splits = {split: range(*ends) for split, ends in remote.splits.items()}
    if address.wire == "agentgym":
        info = agentgym.info_of(server, name, splits)
    elif address.wire == "openenv":
        info = openenv.info_of(server, name, splits)
    else:
        info = _described(server, name, settings or {})
    if splits:
        info = replace(info, splits=partial(dict, splits))
    given = {key: value for key in OVERRIDES if (value := getattr(remote, key)) is not None}
    if "success_above" in given:
        given["kept_above"] = given["success_above"]
    info = replace(info, **given)
    _check(info)
    if address.wire != "whet":  # whose description says that it is there
        _try(info)
    return info


def remote_names(url: str) -> list[str]:
    """The names of the environments at an address.

    Raises: EnvError where the server does not list them: only whet's do.
    """
    address = read_address(url)
    if address.wire != "whet":
        raise EnvError(f"servers at {url.partition('://')[0]}:// do not list their environments: give the name of one")
    data = v1.ask(Server(address.url), "/info", is_get=True)
    names = data.get("environments") if isinstance(data, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise BadAnswer(f"{address.url} does not list its environments: {in_brief(data)}")
    return names


class _Description(BaseModel):
    """The answer of `GET /v1/info/NAME`."""

    model_config = ConfigDict(strict=True)
    splits: dict[str, list[Any]]
    groups: dict[str, list[Any]] | None = None
    rules: str = Field(max_length=MAX_RULES_CHARS)
    max_turns: int
    rewards: list[float] = Field(min_length=2, max_length=2)
    success_above: float
    kept_above: float
    scale: float
    item_ids: dict[str, str] = {}
    parser: str


def _described(server: Server, name: str, settings: Mapping[str, Any]) -> EnvironmentInfo:
    """Raises: RemoteError."""
    params = {"settings": v1.settings_text(settings)} if settings else None
    data = v1.ask(server, f"/info/{v1.quoted(name)}", params=params, is_get=True)
    try:
        said = _Description.model_validate(data)
        splits = {split: items_of_json(ranges) for split, ranges in said.splits.items()}
        groups = {group: items_of_json(ranges) for group, ranges in (said.groups or {}).items()}
    except (ValidationError, ValueError) as error:
        problem = str(error).partition("For further")[0] if isinstance(error, ValidationError) else str(error)
        raise BadAnswer(f"{server.url} does not describe {name} as it should: {' '.join(problem.split())}") from error
    by_item = {item: group for group, items in groups.items() for item in items}
    return EnvironmentInfo(
        name=name,
        make=partial(_make, server, name),
        splits=partial(dict, splits),
        rules=said.rules,
        max_turns=said.max_turns,
        rewards=(said.rewards[0], said.rewards[1]),
        success_above=said.success_above,
        kept_above=said.kept_above,
        scale=said.scale,
        group=partial(_group, by_item) if groups else None,
        item_ids=said.item_ids,
        parser=said.parser,
    )


def _make(server: Server, name: str, **settings: Any) -> v1.V1Environment:
    return v1.V1Environment(server, name, settings)


def _group(by_item: Mapping[int, str], item: int) -> str:
    return by_item.get(item, "")


def _check(info: EnvironmentInfo) -> None:
    """Raises: EnvError where an info contradicts itself."""
    splits: Mapping[str, Sequence[int]] = info.splits()
    try:
        check_splits(info.name, splits)
        if any(item >= MAX_SEED for items in splits.values() for item in (items[0], items[-1])):
            raise ValueError(f"an item of {info.name} is {MAX_SEED} or more")
        check_numbers(info.name, info.max_turns, info.rewards, info.success_above, info.scale)
        check_texts(info.name, "", info.rules)
        if info.parser not in PARSERS:
            raise ValueError(
                f"{info.name} reads replies by {info.parser[:40]!r}, which is not there: set parser beside its address "
                f"({', '.join(PARSERS.names())}), or add it with plugins"
            )
    except ValueError as error:
        raise EnvError(f"{error} (data.env.{info.name})") from error


def _try(info: EnvironmentInfo) -> None:
    """Begins one item: these wires have no other way to ask whether the environment is there.

    Raises: EnvError.
    """
    env = info.make()
    try:
        env.reset(next(iter(chain.from_iterable(info.splits().values()))))
    finally:
        env.close()
