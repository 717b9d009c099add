"""Makes a config of a YAML file and the command line's overrides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from whet.config.base import Config, ConfigError, Key, dotted, plain
from whet.config.problems import UnknownKey, shown, unknown_problem, validation_problem
from whet.config.reads import forget_reads
from whet.config.tree import choices, class_defaults, config_classes, inside, members, spelled, tags
from whet.config.yaml_text import NotYaml, parse_value, read_file

C = TypeVar("C", bound=Config)
MAX_VALUES = 100_000


def load(config_class: type[C], file: Path | None = None, overrides: Sequence[str] = (), *, base: C | None = None) -> C:
    """The config that a file and overrides describe.

    A key that is not given keeps its default, at every depth. Where a field's default is a config, `that.key=value`
    changes the one key and leaves its others as they are. Overrides win over the file, and later ones over earlier
    ones. Lists are replaced whole.

    Args:
        overrides: `key.sub=value`; see `parse_value` for values.
        base: the values where nothing is given (a preset). None: the class's defaults.
    Raises: ConfigError, naming the dotted key and what is allowed there.
    """
    settings: Mapping[str, Any] = canonical(config_class, read_file(file)) if file is not None else {}
    named = settings.get("method")
    for override in overrides:
        settings = merged(settings, canonical(config_class, parse_override(override)))
    try:
        return of_tree(config_class, settings, base=base)
    except ConfigError as error:
        field = config_class.model_fields.get("method")
        if field is None or named is None or named == field.default:
            raise
        # The first problem is enough: the other method has most keys that this one lacks.
        first = str(error).partition("; ")[0]
        raise ConfigError(
            f"{file} is for the method {shown(named)}, and was read as settings of {field.default}: {first}"
        ) from error


def of_tree(config_class: type[C], settings: Mapping[str, Any], *, base: C | None = None) -> C:
    """The config with these values, and the defaults (or those of `base`) where none is given.

    Raises: ConfigError, naming the dotted key and what is allowed there.
    """
    unknown: list[UnknownKey] = []
    settings = canonical(config_class, settings)
    whole = complete(config_class, base, settings, (), unknown)
    if unknown:
        raise ConfigError(unknown_problem(config_class, unknown))
    try:
        config = config_class.model_validate(whole)
    except ValidationError as error:
        raise ConfigError(validation_problem(config_class, error)) from error
    forget_reads(config)
    config._given = tuple(leaves(settings))
    return config


def canonical(config_class: type[Config], settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of one source, in the form in which sources are merged.

    Raises: ConfigError where it has no end, or gives one thing twice.
    """
    if num_values(settings, {}) > MAX_VALUES:
        raise ConfigError("the settings refer to themselves without end: take out the anchors (&) and aliases (*)")
    return config_class.canonical(settings)


def parse_override(override: str) -> dict[str, Any]:
    """`key.sub=value` as a tree.

    Raises: ConfigError where it has another form.
    """
    name, equals, text = override.partition("=")
    key, text = name.strip(), text.strip()
    if not equals or not all(part and part == part.strip() for part in key.split(".")):
        raise ConfigError(f"cannot read the override {override!r}: write key=value, or key.sub=value for nested keys")
    if key.startswith("-"):
        raise ConfigError(f"cannot read the override {override!r}: without its dashes it is {override.lstrip('-')}")
    if not text:
        raise ConfigError(f"{override!r} gives no value: write {key}=null for none, {key}='\"\"' for empty text")
    try:
        tree = parse_value(text)
    except (NotYaml, RecursionError) as error:
        advice = "that many digits are no number" if "digits" in str(error) else "close its brackets and quotes"
        if text.startswith("{"):
            advice = f"close its brackets, or, where it is text, give it quotes of its own: '{key}=\"{{...}}\"'"
        raise ConfigError(f"{key}: {shown(text)} is not valid YAML: {advice}") from error
    for part in reversed(key.split(".")):
        tree = {part: tree}
    return dict(tree)


def num_values(tree: Any, sizes: dict[int, float]) -> float:
    """Number of values in a tree, those that YAML's aliases share counted each time; infinite where it holds itself."""
    inner = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ()
    if inner and id(tree) not in sizes:
        sizes[id(tree)] = math.inf
        sizes[id(tree)] = 1 + sum(num_values(value, sizes) for value in inner)
    return sizes[id(tree)] if inner else 1


def merged(base: Any, changes: Any) -> Any:
    """`changes` over `base`: mappings key by key, else replaced. Changes neither (YAML anchors share parts)."""
    if not (isinstance(base, Mapping) and isinstance(changes, Mapping)):
        return changes
    return {**base, **{name: merged(base.get(name), value) for name, value in changes.items()}}


def complete(annotation: Any, default: Any, settings: Any, key: Key, unknown: list[UnknownKey]) -> Any:
    """The settings, filled up with defaults at every depth, and with the tags that choose among kinds.

    Args:
        default: the value at `key` where nothing is given.
        unknown: gets the keys that no field has.
    Raises: ConfigError for a switch where a number belongs: pydantic would take true for 1.
    """
    if isinstance(settings, bool) and {int, float} & set(members(annotation)) and bool not in members(annotation):
        raise ConfigError(f"{dotted(key)} must be {spelled(annotation)}, got {str(settings).lower()}")
    if isinstance(settings, list):
        return [complete(inside(annotation, i), None, value, (*key, i), unknown) for i, value in enumerate(settings)]
    if not isinstance(settings, Mapping):
        return settings
    kinds = config_classes(annotation)
    chosen = choose(kinds, settings, default)
    if chosen is None and kinds:
        return settings  # pydantic says what it cannot tell apart
    before: Mapping[str, Any] = default if isinstance(default, Mapping) else {}
    if chosen is not None:
        before = default.__dict__ if type(default) is chosen else class_defaults(chosen)
        annotation, fields = chosen, chosen.model_fields
        unknown += [UnknownKey((*key, name), settings[name], chosen, kinds) for name in settings if name not in fields]
    filled: dict[str, Any] = plain(before)
    for name, value in settings.items():
        filled[name] = complete(inside(annotation, name), before.get(name), value, (*key, name), unknown)
    return filled


def choose(kinds: Sequence[type[Config]], settings: Mapping[str, Any], default: Any) -> type[Config] | None:
    """The class among a union's that the given keys describe: by its tag, else the default's. None: not decided."""
    names = [name for name in tags(kinds) if name in settings]
    fitting = [kind for kind in kinds if all(settings[n] in choices(kind.model_fields[n].annotation) for n in names)]
    if type(default) in fitting:
        return type(default)
    return fitting[0] if len(fitting) == 1 else None


def leaves(tree: Any, key: Key = ()) -> Iterator[Key]:
    """The keys of everything that is no mapping with content; lists are looked into where they hold mappings."""
    if isinstance(tree, Mapping) and tree:
        for name, value in tree.items():
            yield from leaves(value, (*key, name))
    elif isinstance(tree, list) and any(isinstance(item, Mapping) for item in tree):
        for i, value in enumerate(tree):
            yield from leaves(value, (*key, i))
    elif key:
        yield key
