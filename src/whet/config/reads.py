"""Which of the keys that the user set did nothing: a setting without effect is a mistake, so it stops the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from whet.config.base import Config, ConfigError, Key, dotted
from whet.config.tree import class_defaults, is_tag


def check_all_read(config: Config) -> None:
    """Call it when a run is prepared and everything that it uses has been read.

    Raises: ConfigError naming the keys of `unread`, or one that another setting replaces.
    """
    for key in config._given:
        if (other := config._replaced_by(key)) and not _is_default(config, key):
            raise ConfigError(
                f"{dotted(key)} would have no effect: {other} says what it is at each step; take it out, or set "
                f"{other}=null"
            )
    keys = unread(config)
    if why := {key: reason for key in keys if (reason := config.why_idle(key.removeprefix("schedule.")))}:
        reasons = [each for each in dict.fromkeys(why.values()) if not _is_begun(each, why.values())]
        if others := [key for key in keys if key not in why]:
            reasons.append(f"nothing reads {', '.join(others)} with the settings chosen")
        raise ConfigError(f"{', '.join(keys)} would have no effect: {'; '.join(reasons)}; take {_them(keys)} out")
    if keys:
        names, them = ", ".join(keys), _them(keys)
        raise ConfigError(
            f"{names} would have no effect: nothing in this run reads {them} with the settings chosen; "
            f"take {them} out, or choose the settings that use {them}"
        )


def _them(keys: Collection[str]) -> str:
    return "it" if len(keys) == 1 else "them"


def _is_begun(reason: str, others: Collection[str]) -> bool:
    """Whether another one says it too, and goes on."""
    return any(other != reason and other.startswith(reason) for other in others)


def unread(config: Config) -> list[str]:
    """Dotted keys that the user set and that nothing has read since `load` returned this config.

    A key that was set to its default is not among them: a whole config printed, edited at one place and read back is
    full of those, and they promise nothing.

    A tag (`data.kind`) counts as read with the config that it chose. Keys inside a plain dict or list count as read
    with the field that holds it.
    """
    changed = (config._acts_through(key) for key in config._given if not _is_default(config, key))
    return list(dict.fromkeys(dotted(setting) for setting, reader in changed if not _was_read(config, reader)))


def read_all(value: Any, idle: Collection[str] = (), key: str = "") -> None:
    """Count every setting below as read: what runs later reads it then.

    Args:
        idle: dotted keys, or beginnings of some, that nothing will read.
        key: where `value` lies.
    """
    if isinstance(value, Config):
        for name in type(value).model_fields:
            place = f"{key}.{name}".lstrip(".")
            if place not in idle:
                read_all(getattr(value, name), idle, place)
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            read_all(inner)


def forget_reads(value: Any) -> None:
    """Mark every field in the tree as not read: validators read too."""
    if isinstance(value, Config):
        value._read.clear()
        value = value.__dict__
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            forget_reads(inner)


def share_reads(view: Any, config: Any) -> None:
    """Let reads of one count as reads of the other, wherever both have the same kind of config in the same place."""
    if isinstance(view, Config) and type(view) is type(config):
        view._read = config._read
        view, config = view.__dict__, config.__dict__
    if isinstance(view, Mapping) and isinstance(config, Mapping):
        for name in view.keys() & config.keys():
            share_reads(view[name], config[name])
    elif isinstance(view, list | tuple) and isinstance(config, list | tuple):
        for inner, other in zip(view, config, strict=False):
            share_reads(inner, other)


def _was_read(config: Config, key: Key) -> bool:
    node: Any = config
    read = True  # the root is in the reader's hands
    for part in key:
        if isinstance(node, Config):
            name = str(part)
            if not is_tag(type(node), name):
                read = name in node._read
            node = node.__dict__[name]
        else:
            node = _item(node, part)
    return read


def _is_default(config: Config, key: Key) -> bool:
    try:
        default: Any = type(config)()
    except ValidationError:  # some keys have none
        return False
    value: Any = config
    for part in key:
        if isinstance(value, Config) and type(default) is not type(value) and not is_tag(type(value), str(part)):
            default = class_defaults(type(value))  # of the kind that was chosen
        default, value = (_item(vars(n) if isinstance(n, Config) else n, part) for n in (default, value))
    return bool(default == value)


def _item(node: Any, part: str | int) -> Any:
    """What lies at `part`, or None: a dict's keys may have changed type in validation."""
    try:
        return node[part]
    except (LookupError, TypeError):
        return None
