"""What an OpenEnv server says of its environment: its items by the Task API, and the form of its actions.

A server older than the Task API has no splits, and drops the item that a reset asks for. That is looked at before
anything starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from whet.envs.protocol import EnvError, EnvironmentInfo
from whet.envs.remote.errors import BadAnswer, Refused
from whet.envs.remote.openenv_session import Interface, OpenEnvSession, Part
from whet.envs.remote.transport import Server
from whet.envs.remote.v1 import quoted
from whet.envs.user_environment import UserEnvironment
from whet.types import in_brief

logger = logging.getLogger(__name__)
TYPES = ("train", "validation", "test")
"""Types of splits that are splits of a run."""
MAX_ITEMS = 2**31
NUM_COMPARED = 3
"""Items whose first observations are compared."""


def info_of(server: Server, name: str, given: Mapping[str, Sequence[int]]) -> EnvironmentInfo:
    """What the server says of an environment.

    Args:
        given: splits as settings say. They number the items of all the server's splits one after the other.
    Raises: EnvError where the server has no such environment, or nobody says its splits.
    """
    fields, text_field = _action_fields(server)
    splits, parts = _splits(server, name)
    if not parts:
        parts = (Part(None, range(MAX_ITEMS)),)
        splits = {}
    splits = dict(given) or splits
    if missing := [split for split in ("train", "test") if split not in splits]:
        raise EnvError(
            f"{server.url} names no split {missing[0]!r} of {name}: give data.env.{name}.splits, such as "
            "{train: [0, 80], test: [80, 100]}"
        )
    interface = Interface(parts, fields, text_field)
    _look_at_items(server, name, interface, splits)
    get_splits: Callable[[], dict[str, Sequence[int]]] = partial(dict, splits)
    return EnvironmentInfo(
        name=name,
        make=partial(_make, server, name, interface, get_splits),
        splits=get_splits,
        rules="",
        max_turns=20,
    )


def _make(server: Server, name: str, interface: Interface, get_splits: Any) -> UserEnvironment:
    return UserEnvironment(partial(OpenEnvSession, server, name, interface), name=name, splits=get_splits)


def _action_fields(server: Server) -> tuple[tuple[str, ...], str | None]:
    """The fields of an action, and the one that its text is put into: the only text that it needs.

    Raises: RemoteError.
    """
    reply = server.ask("/schema", is_get=True, repeats=True)
    if reply.status != 200:
        raise Refused(f"{server.url}/schema answers {reply.status}: is it an OpenEnv server?")
    try:
        schema = reply.data["action"]
        fields = {key: value for key, value in schema["properties"].items() if key != "metadata"}
        needed = [key for key in schema.get("required", ()) if key in fields] or list(fields)
        is_text = len(needed) == 1 and fields[needed[0]].get("type") == "string"
    except (LookupError, TypeError, AttributeError) as error:
        raise BadAnswer(f"{server.url}/schema says nothing of an action's fields: {in_brief(reply.data)}") from error
    return tuple(fields), needed[0] if is_text else None


def _splits(server: Server, name: str) -> tuple[dict[str, Sequence[int]], tuple[Part, ...]]:
    """The splits by the Task API, whose items are numbered one after the other. Without that API: none.

    Raises: EnvError where the server has other environments alone.
    """
    api = _task_api(server, name)
    if api is None:
        return {}, ()
    tasks, remote_name = api
    listed = tasks.ask(f"/{quoted(remote_name)}/splits", is_get=True, repeats=True)
    if listed.status != 200:  # 501: its environment does not say
        return {}, ()
    splits: dict[str, Sequence[int]] = {}
    parts: list[Part] = []
    for entry in listed.data if isinstance(listed.data, list) else ():
        split, kind = (entry.get("name"), entry.get("type")) if isinstance(entry, dict) else (entry, None)
        if not isinstance(split, str):
            raise BadAnswer(f"{tasks.url} has a split without a name: {in_brief(entry)}")
        reply = tasks.ask(f"/{quoted(remote_name)}/num_tasks", {"split": split}, repeats=True)
        count = reply.data.get("num_tasks") if reply.status == 200 and isinstance(reply.data, dict) else None
        if type(count) is not int or not 0 <= count < MAX_ITEMS:
            raise BadAnswer(f"{tasks.url} does not say how many tasks the split {split!r} has: {in_brief(reply.data)}")
        if count:
            first = parts[-1].items.stop if parts else 0
            parts.append(Part(split, range(first, first + count)))
            splits[kind if kind in TYPES and kind not in splits else split] = parts[-1].items
    return splits, tuple(parts)


def _task_api(server: Server, name: str) -> tuple[Server, str] | None:
    """Where the Task API is, and the environment's name there. None: the server has none.

    Raises: Refused where several environments are there, and none of this name.
    """
    above = server.url.rpartition("/")[0]  # a server of several has an address each, and one API above them
    for url in (server.url, above) if above.count("/") > 2 else (server.url,):
        tasks = Server(url, server.limits)
        try:
            reply = tasks.ask("/list_environments", is_get=True, repeats=True)
        except BadAnswer:  # another site's page
            continue
        if reply.status == 200 and isinstance(reply.data, list) and all(isinstance(n, str) for n in reply.data):
            if name in reply.data:
                return tasks, name
            if len(reply.data) == 1:
                return tasks, reply.data[0]
            raise Refused(f"{server.url} has no environment {name!r}; it has {', '.join(reply.data)[:300]}")
    return None


def _look_at_items(server: Server, name: str, interface: Interface, splits: Mapping[str, Sequence[int]]) -> None:
    """Whether the server begins the item that it is asked for. Warns where that cannot be known.

    Raises: RemoteError where it begins another one, and says so.
    """
    session = OpenEnvSession(server, name, interface)
    try:
        seen = set()
        items = list(islice(chain.from_iterable(splits.values()), NUM_COMPARED))
        for item in items:
            seen.add(session.reset(item, seed=0)[0])
    finally:
        session.close()
    if len(seen) == 1 < len(items) and not session.tells_item:
        logger.warning(
            "%s begins the items %s of %s alike, and does not say which item it begins: an old OpenEnv server drops "
            "the index, so look whether all episodes are of one item",
            server.url,
            ", ".join(map(str, items)),
            name,
        )
