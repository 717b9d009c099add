"""Finds keys that the user set and that did nothing: a setting without effect is a mistake, so it stops the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from whet.config.acts import Idle
from whet.config.base import Config, ConfigError, Key, dotted
from whet.config.effects import why_idle
from whet.config.tree import class_defaults, is_tag


def check_all_read(config: Config) -> None:
    """Call it when a run is prepared and everything that it uses has been read.

    Raises: ConfigError naming the keys that have no effect. Either the conditions of their fields say so
        (`whet.config.acts`), or nothing has read them, or another setting replaces them.
    """
    for key in config._given:
        if (other := config._replaced_by(key)) and not _is_default(config, key):
            raise ConfigError(
                f"{dotted(key)} has no effect: {other} says what it is at each step. Leave {dotted(key)} out, or set "
                f"{other}=null."
            )
    _refuse(config, lambda reader: why_idle(config, reader) or (None if _was_read(config, reader) else NOT_READ))


def check_effects(config: Config) -> None:
    """The same before anything is prepared or read: by the conditions of the fields alone.

    Raises: ConfigError.
    """
    _refuse(config, lambda reader: why_idle(config, reader))


def _refuse(config: Config, reason_of: Callable[[Key], Idle | None]) -> None:
    reasons: dict[Idle, list[str]] = {}
    for setting, reader in _changed(config):
        if reason := reason_of(reader):
            reasons.setdefault(reason, []).append(dotted(setting))
    if reasons:
        raise ConfigError(" ".join(_sentence(list(dict.fromkeys(keys)), reason) for reason, keys in reasons.items()))


NOT_READ = Idle("nothing in this run reads {them}", "choose settings that use {them}")


def _sentence(keys: Sequence[str], reason: Idle) -> str:
    """What is wrong with these settings, and what to do."""
    them, verb = ("it", "has") if len(keys) == 1 else ("them", "have")
    out = f"leave {keys[0] if len(keys) == 1 else them} out"
    remedy = f"{reason.remedy}, or {out}" if reason.remedy else out
    hint = f" ({reason.hint})" if reason.hint else ""
    text = f"{', '.join(keys)} {verb} no effect: {reason.fact}. {remedy[0].upper()}{remedy[1:]}{hint}."
    return text.replace("{them}", them)


def _changed(config: Config) -> Iterator[tuple[Key, Key]]:
    """For each key that the user set to another value than its default: the setting, and the key that makes it act."""
    return (config._acts_through(key) for key in config._given if not _is_default(config, key))


def unread(config: Config) -> list[str]:
    """Dotted keys that the user set and that nothing has read since `load` returned this config.

    A key that was set to its default is not among them. A whole config that was printed, edited at one place and read
    back is full of those, and they promise nothing.

    A tag (`data.kind`) counts as read with the config that it chose. Keys inside a plain dict or list count as read
    with the field that holds it.
    """
    unread = (dotted(setting) for setting, reader in _changed(config) if not _was_read(config, reader))
    return list(dict.fromkeys(unread))


def read_all(value: Any) -> None:
    """Counts every setting below as read, for code that reads it later. Settings that have no effect whatever is read
    are known by their conditions."""
    if isinstance(value, Config):
        for name in type(value).model_fields:
            read_all(getattr(value, name))
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            read_all(inner)


def forget_reads(value: Any) -> None:
    """Marks every field in the tree as not read: validators read too."""
    if isinstance(value, Config):
        value._read.clear()
        value = value.__dict__
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            forget_reads(inner)


def share_reads(view: Any, config: Any) -> None:
    """Lets reads of one count as reads of the other, wherever both have the same kind of config in the same place."""
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
    """The value at `part`, or None: a dict's keys may have changed type in validation."""
    try:
        return node[part]
    except (LookupError, TypeError):
        return None
