"""Says in one sentence what is wrong with a config, with the dotted key: unknown keys, and pydantic's findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from whet.config.base import Config, Key, dotted, plain
from whet.config.tree import choices, config_classes, inside, is_config, members, names, spelled, tags
from whet.config.yaml_text import NotYaml, compact
from whet.near import is_near, likeness

NUM_SUGGESTIONS = 3
SHOWN_LENGTH = 60
TYPED = (
    *("missing", "int_", "float_", "bool_", "string_type", "literal_", "path_", "none_", "greater_", "less_"),
    *("tuple_", "list_", "dict_", "model_", "too_long"),
)
"""Pydantic's error types that say no more than "not what is allowed here"."""
BOUNDS = {"gt": "above", "ge": "of at least", "lt": "below", "le": "of at most"}
"""Of a number, as pydantic names them."""


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key that was given and that no field has."""

    key: Key
    value: Any
    chosen: type[Config]
    """The class of the config that it was given to."""
    kinds: Sequence[type[Config]]
    """The classes that may stand there."""


ALIASES = {"lr": "learning_rate", "bs": "prompts_per_step", "batch_size": "prompts_per_step", "n": "group_size",
           "max_tokens": "max_new_tokens", "max_length": "max_new_tokens", "epochs": "num_epochs",
           "model": "path", "model_path": "path", "max_rounds": "max_turns", "horizon": "max_turns"}  # fmt: skip
"""Keys of other libraries, and our names for them."""
ELSEWHERE = {"preset": "published settings are methods of their own, which `whet methods` lists"}
"""Keys of other libraries that are something else here."""


def unknown_problem(config_class: type[Config], unknown: Sequence[UnknownKey]) -> str:
    """Each unknown key with the nearest key that exists."""
    return "; ".join(_unknown(config_class, key) for key in unknown)


def _unknown(config_class: type[Config], unknown: UnknownKey) -> str:
    last, parent = unknown.key[-1], unknown.key[:-1]
    for kind in unknown.kinds:
        if last in kind.model_fields:
            tag = next(iter(tags(unknown.kinds)), "kind")
            tag_key = dotted((*parent, tag))
            wanted, got = (choices(member.model_fields[tag].annotation)[0] for member in (kind, unknown.chosen))
            return (
                f"{dotted(unknown.key)} is a key of {tag_key}={wanted}, but {tag_key} is {got}: change one of the two"
            )
    key, value = unknown.key, unknown.value
    while isinstance(value, Mapping) and value:  # `optimizer: {learning_rate: 1}` is better known by its last word
        name, value = next(iter(value.items()))
        key = (*key, name)
    full = dotted(key)
    existing, word = list(dict.fromkeys(names(config_class))), str(key[-1])
    is_name = any(name.rpartition(".")[2] == word for name in existing)
    near = nearest((*key[:-1], word if is_name else ALIASES.get(word, word)), existing)
    if near:
        return f"unknown key {full}: did you mean {', '.join(near[:-1])}{' or ' if near[1:] else ''}{near[-1]}?"
    if last in ELSEWHERE:
        return f"unknown key {full}: {ELSEWHERE[last]}"
    beside = ", ".join(unknown.chosen.model_fields)
    if not beside:
        return f"unknown key {full}: there are no keys {f'in {dotted(parent)}' if parent else 'here'}, so leave it out"
    return f"unknown key {full}: the keys {f'of {dotted(parent)}' if parent else 'here'} are {beside}"


def nearest(key: Key, existing: Sequence[str]) -> list[str]:
    """The existing dotted keys that were likely meant: by the last word first, then by the whole path. Where no path
    was given, those with the fewest words come first.

    Returns: one, or a few where the last word alone fits them equally and no path was given. None are near: [].
    """
    full = dotted(key)
    word = full.rpartition(".")[2]
    existing = [_with_names(name, key) for name in existing]
    near = [name for name in existing if is_near(word, name.rpartition(".")[2])]
    scored = [(likeness(word, name.rpartition(".")[2]), likeness(full, name), name) for name in near]
    scored.sort(key=lambda candidate: (-candidate[0], 0 if "." in full else candidate[2].count("."), -candidate[1]))
    best = [name for of_word, _, name in scored if of_word == scored[0][0]]
    return best[:1] if "." in full or word in best else best[:NUM_SUGGESTIONS]


def _with_names(existing: str, key: Key) -> str:
    """The existing key, with the user's names where a dict's keys are free."""
    ours = existing.split(".")
    if len(ours) == len(key):
        ours = [str(b) if a == "NAME" else a for a, b in zip(ours, key, strict=True)]
    return ".".join(ours)


def validation_problem(config_class: type[Config], error: ValidationError) -> str:
    """Pydantic's findings as a sentence: the first key in full, the others by name."""
    findings: dict[str, tuple[Any, list[ErrorDetails]]] = {}
    for details in error.errors(include_url=False):
        key, annotation = locate(config_class, details["loc"])
        if details["type"] == "missing" and key and isinstance(key[-1], int):  # an item: the list is too short
            key, annotation = key[:-1], locate(config_class, details["loc"][:-1])[1]
        findings.setdefault(dotted(key), (annotation, []))[1].append(details)
    (first, (annotation, details_list)), *others = findings.items()
    text = _sentence(first, annotation, details_list[0])
    return f"{text} (also wrong: {', '.join(key or 'the whole' for key, _ in others)})" if others else text


def locate(config_class: type[Config], loc: Sequence[str | int]) -> tuple[Key, Any]:
    """Pydantic's location as our key, and the annotation there. Where a union is, pydantic adds its member's label."""
    key: Key = ()
    annotation: Any = config_class
    for part in loc:
        kinds = [member for member in members(annotation) if member is not NoneType]
        if len(kinds) > 1:
            scalars = [kind for kind in kinds if not is_config(kind)]
            other = scalars[0] if len(scalars) == 1 else annotation
            annotation = next((kind for kind in kinds if is_config(kind) and part in _labels(kind)), other)
        else:
            key, annotation = (*key, part), inside(annotation, part)
    return key, annotation


def _labels(kind: type[Config]) -> list[str]:
    literals = [value for field in kind.model_fields.values() for value in choices(field.annotation)]
    return [kind.__name__, *map(str, literals)]


def _sentence(key: str, annotation: Any, details: ErrorDetails) -> str:
    kind, context = details["type"], details.get("ctx", {})
    got = shown(details["input"])
    if kind == "value_error":  # a validator's own sentence
        return f"{key}: {context['error']}" if key else str(context["error"])
    if kind == "missing" and not isinstance(details["loc"][-1], int):
        return f"{key} has no default and must be given: {key}=VALUE, {spelled(annotation)}"
    if kind.startswith("union_tag"):
        tag = context["discriminator"].strip("'")
        allowed = [
            value for member in config_classes(annotation) for value in choices(member.model_fields[tag].annotation)
        ]
        got = f"got {context['tag']!r}" if "tag" in context else "and was not given"
        return f"{key}.{tag} must be {' or '.join(map(repr, allowed))}, {got}"
    if kind == "extra_forbidden":
        return f"unknown key {key}: take it out"
    if kind == "too_short" and details["input"] is not None and not len(details["input"]):
        return f"{key} must not be empty"
    if not kind.startswith(TYPED):
        return f"{key}: {details['msg'][0].lower()}{details['msg'][1:]}, got {got}"
    number = kind == "string_type" and isinstance(details["input"], int | float)
    expected = spelled(annotation)
    for sign, words in BOUNDS.items():  # of what a dict holds, the annotation says no more than that it is a number
        if sign in context and f"{context[sign]:g}" not in expected:
            expected += f" {words} {context[sign]:g}"
    return f"{key} must be {expected}, got {got}" + (f"; as text it is {key}='\"{got}\"'" if number else "")


def shown(value: Any) -> str:
    """A value on one line, cut where it is long."""
    try:
        text = repr(value) if isinstance(value, str) else compact(plain(value))
    except (NotYaml, RecursionError):  # from Python's side, where a value may be anything
        text = f"one of type {type(value).__name__}"
    return text if len(text) <= SHOWN_LENGTH else text[: SHOWN_LENGTH - 3] + "..."
