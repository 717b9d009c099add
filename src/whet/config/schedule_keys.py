"""Which keys of a config may be scheduled, how a user writes them, and messages about the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from whet.config.base import Config, dotted
from whet.config.problems import UnknownKey, shown, unknown_problem
from whet.config.schedule import Linear, Schedule
from whet.config.tree import MAX_DEPTH, config_classes, has_keys, inside, members, per_step, spelled


def flat(annotation: Any, tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The user's values under `schedule`, by dotted key: `{stage2: {weight: S}}` and `{stage2.weight: S}` both give
    `stage2.weight`. S may be a part of a schedule (`{end: 1}` over a preset's) or None: the class says where it begins.
    """
    for name, value in tree.items():
        key, inner = f"{prefix}{name}", _annotation(annotation, str(name))
        if isinstance(value, Mapping) and value and key.count(".") < MAX_DEPTH and _goes_on(inner, value):
            yield from flat(inner, value, f"{key}.")
        else:
            yield key, value


def _goes_on(annotation: Any, value: Mapping[str, Any]) -> bool:
    """Does the mapping hold schedules by name? False: it is one, or a part of one."""
    if not isinstance(value.get("kind", value), Mapping):
        return False
    if annotation is None or (has_keys(annotation) and per_step(annotation)):  # an unknown key, or one of two levels
        return all(inner is None or isinstance(inner, Mapping) for inner in value.values())
    return has_keys(annotation)


def is_per_step(annotation: Any, key: str) -> bool:
    """Is the key, or what holds it, marked in a config class?"""
    parts = key.split(".")
    return any(per_step(_annotation(annotation, ".".join(parts[: i + 1]))) for i in range(len(parts)))


def _annotation(annotation: Any, key: str) -> Any:
    for part in key.split("."):
        annotation = inside(annotation, part)
    return annotation


def schedulable(config: Config) -> list[str]:
    """The dotted keys of this config that may be scheduled."""
    return list(_marked(type(config), config, "", False))


def _marked(annotation: Any, value: Any, key: str, above: bool) -> Iterator[str]:
    above = above or per_step(annotation)
    if above:
        yield key
    inner = value.__dict__ if isinstance(value, Config) else value
    for name, child in inner.items() if isinstance(inner, Mapping) and key != "schedule" else ():
        kind = type(value) if isinstance(value, Config) else annotation
        yield from _marked(inside(kind, name), child, f"{key}.{name}".lstrip("."), above)


def check_place(config: Config, key: str, schedule: Schedule) -> None:
    """Raises: ValueError where the key is none of this config's, is fixed for the run, or wants another schedule."""
    if key.partition(".")[0] == "schedule":
        raise ValueError(f"schedule.{key}: a schedule is fixed for the run and cannot be scheduled: take it out")
    annotation, marked = place(config, key)
    if not marked:
        raise ValueError(f"schedule.{key}: {key} is fixed for the run; {_alternatives(config, key)}")
    if isinstance(schedule, Linear) and not {int, float} & set(members(annotation)):
        raise ValueError(
            f"schedule.{key}: a linear schedule needs a number, and {key} must be {spelled(annotation)}: "
            "use kind = steps or gated"
        )
    for other in config.__dict__["schedule"]:
        if other.startswith(f"{key}."):
            raise ValueError(f"schedule.{other} lies in what schedule.{key} replaces: take one of them out")


def place(config: Config, key: str) -> tuple[Any, bool]:
    """The annotation of the value at a key, and whether it, or what holds it, is read anew at each step."""
    annotation: Any = type(config)
    node: Any = config
    marked, parts = False, key.split(".")
    for i, part in enumerate(parts):
        above, kinds = dotted(tuple(parts[:i])), config_classes(annotation)
        if node is None:
            raise ValueError(f"schedule.{key}: {above} is null, so nothing in it can be scheduled: set it first")
        inner = node.__dict__ if isinstance(node, Config) else node
        if not isinstance(inner, Mapping) or part not in inner:
            if not isinstance(node, Config):
                raise ValueError(f"schedule.{key}: {above} holds no {part}, it is {shown(node)}")
            unknown = UnknownKey(tuple(parts[: i + 1]), nested(parts[i + 1 :], None), type(node), kinds)
            raise ValueError(f"schedule: {unknown_problem(type(config), [unknown])}")
        annotation = inside(type(node) if isinstance(node, Config) else annotation, part)
        node, marked = inner[part], marked or per_step(annotation)
    return annotation, marked


def _alternatives(config: Config, key: str) -> str:
    """The keys that may be scheduled: those below the key, else those beside it, else all."""
    all_keys, parent = schedulable(config), key.rpartition(".")[0]
    below = [name for name in all_keys if name.startswith(f"{key}.")]
    beside = [name for name in all_keys if name.rpartition(".")[0] == parent]
    keys = below or beside or all_keys
    return f"what may be scheduled{' there' if below or beside else ''}: {', '.join(keys) or 'nothing'}"


def nested(parts: list[str], value: Any) -> Any:
    """The value at these keys, as a tree. No keys: itself."""
    for part in reversed(parts):
        value = {part: value}
    return value
