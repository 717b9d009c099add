"""A config as text: whole as YAML, with its documentation, and as the difference to another."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from whet.config.base import Config, Key, NameOf, plain
from whet.config.effects import Scope, conditions_of
from whet.config.tree import annotation_of, choices, config_classes, is_tag, per_step, tags
from whet.config.yaml_text import compact, dump
from whet.registry import Registry

WIDTH = 100
"""Columns of a terminal."""
ABSENT = object()


def to_yaml(config: Config) -> str:
    """Every key with its value; `load` makes an equal config of it."""
    return dump(plain(config))


def describe(config: Config) -> str:
    """`to_yaml` with each key's documentation and allowed values as comments above it. Valid YAML too."""
    header = [*_comment(_first_paragraph(type(config)), 0), ""]
    return "\n".join(header + list(_described(config, (), config, [type(config)]))).strip() + "\n"


def difference(a: Config, b: Config) -> list[str]:
    """A line `key: old -> new` for each value that differs. Equal configs: []."""
    return tree_difference(plain(a), plain(b))


def tree_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The same, of settings as plain data."""
    return list(_differences("", old, new))


def _differences(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys([*old, *new]):
            yield from _differences(f"{key}.{name}".lstrip("."), old.get(name, ABSENT), new.get(name, ABSENT))
    elif old is ABSENT or new is ABSENT or old != new:
        yield f"{key}: {_side(old)} -> {_side(new)}"


def _side(value: Any) -> str:
    return "(absent)" if value is ABSENT else compact(value)


def _described(root: Config, at: Key, config: Config, kinds: Sequence[type[Config]]) -> Iterator[str]:
    """The lines of one config's keys.

    Args:
        at: where it lies in `root`.
        kinds: the classes that may stand in its place.
    """
    after_block, depth, values = False, len(at), config._settings()
    for name, field in type(config).model_fields.items():
        is_block = bool(config_classes(field.annotation)) or _holds_configs(values[name])
        if depth == 0 and (is_block or after_block):
            yield ""
        after_block = is_block
        yield from _comment(_documentation(config, name, kinds) + _condition(root, (*at, name)), depth)
        yield from _entry(root, (*at, name), values[name], config_classes(field.annotation))


def _documentation(config: Config, name: str, kinds: Sequence[type[Config]]) -> str:
    """The field's docstring (the nested config's, where the field has none), and its allowed values."""
    field, value = type(config).model_fields[name], config.__dict__[name]
    text = field.description or (_first_paragraph(type(value)) if isinstance(value, Config) else "")
    if name in tags(kinds):
        allowed = [tag for kind in kinds for tag in choices(kind.model_fields[name].annotation)]
    else:
        allowed = [] if is_tag(type(config), name) else choices(field.annotation)
    if allowed:
        text += f" One of: {', '.join(map(compact, allowed))}."
    if theirs := [name for mark in field.metadata if isinstance(mark, NameOf) for name in _of_plugins(mark.registry)]:
        text += f" Of plug-ins: {', '.join(theirs)}."
    inner = config_classes(field.annotation)
    if inner and value is None:
        keys = dict.fromkeys(key for kind in inner for key in kind.model_fields)
        text += f" Keys, where it is set: {', '.join(keys)}."
    if per_step(annotation_of(field)):
        text += " May go with the step (schedule)."
    return text


def _condition(root: Config, key: Key) -> str:
    """When the setting has an effect. Empty: always."""
    clauses = [condition.clause(Scope(root, at)) for at, condition in conditions_of(root, key)]
    above = [condition.clause(Scope(root, at)) for at, condition in conditions_of(root, key[:-1])]
    added = [text for text in dict.fromkeys(clauses) if text not in above]
    return f" Acts where {', and '.join(added)}." if added else ""


def _of_plugins(kind: str) -> list[str]:
    """Names that plug-ins have registered of a kind."""
    registry = Registry.loaded.get(kind)
    return [entry.name for entry in registry if entry.origin != "whet"] if registry is not None else []


def _entry(root: Config, at: Key, value: Any, kinds: Sequence[type[Config]]) -> Iterator[str]:
    indent, name = "  " * (len(at) - 1), compact(at[-1]) if len(at) > 1 else at[-1]
    if isinstance(value, Config) and type(value).model_fields:
        yield f"{indent}{name}:"
        yield from _described(root, at, value, kinds)
    elif _holds_configs(value):
        yield f"{indent}{name}:"
        for key, inner in value.items():
            yield from _entry(root, (*at, key), inner, [type(inner)])
    else:
        yield f"{indent}{name}: {compact(plain(value))}"


def _holds_configs(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(inner, Config) for inner in value.values())


def _comment(text: str, depth: int) -> list[str]:
    indent = "  " * depth + "# "
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _first_paragraph(config_class: type) -> str:
    return (config_class.__doc__ or "").strip().partition("\n\n")[0]
