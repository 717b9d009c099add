"""The tree of keys that a config class allows, by its annotations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from whet.config.base import Config, PerStepMark, Registered

SIGNS = {Gt: ("gt", ">"), Ge: ("ge", ">="), Lt: ("lt", "<"), Le: ("le", "<=")}
NOUNS: dict[Any, str] = {str: "text", bool: "true or false", NoneType: "null", Path: "a path", Any: "anything"}
MAX_DEPTH = 8
"""Keys deeper than this are in no list of names; a config class that holds itself would go on for ever."""


def annotation_of(field: FieldInfo) -> Any:
    """The field's annotation with its bounds, which pydantic keeps apart."""
    return Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation


def members(annotation: Any) -> tuple[Any, ...]:
    """The types that a value may have: `Annotated`, unions and families of registered kinds opened."""
    if get_origin(annotation) is Annotated:
        return members(get_args(annotation)[0])
    if is_config(annotation) and issubclass(annotation, Registered) and "kinds" in annotation.__dict__:
        return tuple(entry.make() for entry in annotation.kinds)
    if get_origin(annotation) in (Union, UnionType):
        return tuple(member for argument in get_args(annotation) for member in members(argument))
    return (annotation,)


def per_step(annotation: Any) -> bool:
    """Is it marked as read anew at each step?"""
    metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    return any(isinstance(mark, PerStepMark) for mark in metadata)


def is_config(annotation: Any) -> TypeGuard[type[Config]]:
    return isinstance(annotation, type) and issubclass(annotation, Config)


def config_classes(annotation: Any) -> list[type[Config]]:
    return [member for member in members(annotation) if is_config(member)]


def class_defaults(config_class: type[Config]) -> dict[str, Any]:
    """The defaults of the fields that have one."""
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in config_class.model_fields.items()
        if _has_own_default(field)
    }


def _has_own_default(field: FieldInfo) -> bool:
    return not field.is_required() and not field.default_factory_takes_validated_data


def has_keys(annotation: Any) -> bool:
    """May such a value be a mapping or a config?"""
    origins = (get_origin(member) for member in members(annotation))
    return bool(config_classes(annotation)) or any(isinstance(o, type) and issubclass(o, Mapping) for o in origins)


def inside(annotation: Any, part: str | int) -> Any:
    """The annotation of the value at `part` (a field, a dict's key, a position). None: nothing can lie there."""
    for member in members(annotation):
        origin, arguments = get_origin(member), get_args(member)
        if is_config(member) and part in member.model_fields:
            return annotation_of(member.model_fields[str(part)])
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return arguments[1]
        if isinstance(origin, type) and issubclass(origin, Sequence) and isinstance(part, int) and arguments:
            fixed = origin is tuple and Ellipsis not in arguments
            return arguments[part] if fixed and part < len(arguments) else arguments[0]
    return None


def choices(annotation: Any) -> list[Any]:
    """The values of its Literals."""
    return [value for member in members(annotation) if get_origin(member) is Literal for value in get_args(member)]


def tags(kinds: Sequence[type[Config]]) -> list[str]:
    """The fields that tell the classes of a union apart: every class has them, each as a Literal."""
    if len(kinds) < 2:
        return []
    shared = set.intersection(*(set(kind.model_fields) for kind in kinds))
    return [name for name in kinds[0].model_fields if name in shared and all(_literal(kind, name) for kind in kinds)]


def is_tag(kind: type[Config], name: str) -> bool:
    """Is the field a Literal with one value? It says which class this is, and nothing else."""
    return len(_literal(kind, name)) == 1


def _literal(kind: type[Config], name: str) -> tuple[Any, ...]:
    annotation = kind.model_fields[name].annotation
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def names(config_class: type[Config], prefix: str = "") -> Iterator[str]:
    """Every dotted key that some config of the class may have; NAME stands for the keys of a dict."""
    for name, field in config_class.model_fields.items():
        yield prefix + name
        yield from _names_inside(field.annotation, f"{prefix}{name}.")


def _names_inside(annotation: Any, prefix: str) -> Iterator[str]:
    if prefix.count(".") > MAX_DEPTH:
        return
    for member in members(annotation):
        if is_config(member):
            yield from names(member, prefix)
        elif get_args(member) and get_origin(member) is not Literal:
            yield from _names_inside(inside(member, 0), prefix + "NAME.")


def spelled(annotation: Any, bounds: str = "") -> str:
    """The allowed values in words: "a whole number >= 1 or null"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return spelled(arguments[0], _bounds(arguments[1:]) or bounds)
    if origin in (Union, UnionType):
        kinds = [kind for kind in arguments if kind is not int or float not in arguments]  # "a number" says both
        return " or ".join(dict.fromkeys(spelled(kind, bounds) for kind in kinds))
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if is_config(annotation) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return "a mapping"
    if origin is tuple and Ellipsis not in arguments:
        return f"a list of {len(arguments)}: [{', '.join(map(spelled, arguments))}]"
    if isinstance(origin, type) and arguments:
        return f"a list, each {spelled(arguments[0])}"
    if annotation in (int, float):
        return ("a whole number" if annotation is int else "a number") + bounds
    return NOUNS.get(annotation, f"a {getattr(annotation, '__name__', annotation)}")


def _bounds(metadata: Sequence[Any]) -> str:
    named = [(bound, *SIGNS[type(bound)]) for bound in metadata if type(bound) in SIGNS]
    return " and".join(f" {sign} {getattr(bound, name)}" for bound, name, sign in named)
