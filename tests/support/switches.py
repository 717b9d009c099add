"""The settings that others' effects depend on, and ways to set them: read off the conditions beside the fields."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from whet.config.acts import ActsAbove, Condition, Inside, OnKey
from whet.config.base import Config, Key, dotted
from whet.config.tree import choices, config_classes, is_tag, members, tags


def leaves(config: Config, at: Key = ()) -> Iterator[Key]:
    """Every setting that is no config itself. Nothing counts as read."""
    for name, value in config.__dict__.items():
        if isinstance(value, Config):
            yield from leaves(value, (*at, name))
        elif not is_tag(type(config), name):
            yield (*at, name)


def marks(kind: type[Config], at: Key = ()) -> Iterator[tuple[Key, str, Condition]]:
    """Every condition in a class of settings and its parts, of whatever kind: where its keys begin, and its field."""
    for name, field in kind.model_fields.items():
        for mark in field.metadata:
            for condition in (mark,) if isinstance(mark, Condition) else getattr(mark, "conditions", ()):
                yield at, name, condition
        for inner in config_classes(field.annotation):
            yield from marks(inner, (*at, name))


def inner_keys(kind: type[Config], at: Key = ()) -> Iterator[str]:
    """The settings of shared parts that have conditions where the part is held."""
    for name, field in kind.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, Inside):
                yield from (dotted((*at, name, key)) for key in mark.keys)
        for inner in config_classes(field.annotation):
            yield from inner_keys(inner, (*at, name))


def switches(kind: type[Config]) -> dict[str, list[Any]]:
    """By dotted key the settings that conditions of this class look at, each with values on both sides."""
    found: dict[str, list[Any]] = {}
    for at, _, condition in marks(kind):
        for atom in condition.atoms():
            values = found.setdefault(dotted((*at, atom.key)), [])
            values += [each for each in _values(kind, (*at, *atom.key.split(".")), atom) if each not in values]
    return found


def _values(kind: type[Config], key: Key, atom: OnKey) -> list[Any]:
    if isinstance(atom, ActsAbove):
        return [int(atom.least), int(atom.least) + 1]
    holders = [kind]
    for part in key[:-1]:
        holders = [inner for each in holders if part in each.model_fields
                   for inner in config_classes(each.model_fields[str(part)].annotation)]  # fmt: skip
    name = str(key[-1])
    fields = [each.model_fields[name] for each in holders if name in each.model_fields]
    assert fields, f"no setting {dotted(key)}"
    types = {member for field in fields for member in members(field.annotation)}
    named = [choice for field in fields for choice in choices(field.annotation)]
    if named and name in tags(holders):
        return [*atom.values, *(choice for choice in named if choice not in atom.values)]
    default = fields[0].get_default(call_default_factory=True)
    if isinstance(default, tuple):
        return [[], ["somewhere"]]
    if any(issubclass(each, Config) for each in types if isinstance(each, type)):
        return [None, {"kind": "model"}]
    values = [*named, *([False, True] if bool in types else [0, 1] if types & {int, float} else [])]
    values = [*dict.fromkeys([*atom.values, *values, *([default] if isinstance(default, str) else [])])]
    return values if len(values) > 1 else [None, "somewhere"]


def directed(kind: type[Config]) -> Iterator[dict[str, Any]]:
    """For each field with conditions, values under which all of them hold, and values under which all fail."""
    fields: dict[str, list[tuple[Key, Condition]]] = {}
    for at, name, condition in marks(kind):
        fields.setdefault(dotted((*at, name)), []).append((at, condition))
    chosen = switches(kind)

    def values(key: str, way: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for at, condition in fields.get(key, ()):
            for atom in condition.atoms():
                other = dotted((*at, atom.key))
                fitting = [each for each in chosen[other] if atom.matches(each) is (atom.wants is way)]
                found |= {other: fitting[0]} if fitting else {}
                if atom.wants and way and other != key:
                    found = values(other, way) | found
        return found

    for key in fields:
        for way in (True, False):
            yield values(key, way)


def other_value(config: Config, key: Key) -> Any:
    """A value that the setting does not have now. None: nobody knows one."""
    for part in key[:-1]:
        config = config.__dict__[part]
    value, field = config.__dict__[key[-1]], type(config).model_fields[str(key[-1])]
    if named := [each for each in choices(field.annotation) if each != value]:
        return named[0]
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else value * 0.75 if isinstance(value, float) and value else None


def whole(config: Config, values: dict[str, Any]) -> dict[str, Any]:
    """The values with what they need: an address, a data set of files, a schedule out of the way."""
    needed: dict[str, Any] = {}
    for key, value in values.items():
        if value == "endpoint":
            place = key.removesuffix("kind")
            needed |= {f"{place}url": "http://127.0.0.1:1/v1", f"{place}model": "any"}
        if key in config.__dict__.get("schedule", {}):
            needed[f"schedule.{key}"] = None
    if files := [key for key in values if key.startswith("data.") and key != "data.kind"]:
        needed["data.kind"] = "file"
        if not any(values[key] and "splits" not in key for key in files):
            needed["data.train_path"] = "somewhere"
    return values | needed


def drawn(kind: type[Config], rng: Random, share: float = 0.5) -> dict[str, Any]:
    """Values of some of the switches."""
    keys = switches(kind)
    if rng.random() < 0.5:  # questions of files have many switches of their own
        keys = {key: values for key, values in keys.items() if key == "data.kind" or not key.startswith("data.")}
    return {key: rng.choice(values) for key, values in keys.items() if rng.random() < share}
