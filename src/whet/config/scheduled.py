"""`Scheduled`: a config some of whose values go with the step, and `config_at`: that config at one step.

class MyConfig(Scheduled):
    kl_coef: PerStep[float] = Field(0.01, ge=0)

config = load(MyConfig, overrides=["schedule.kl_coef={kind: linear, start: 0, end: 0.02, over: 100}"])
config_at(config, 51).kl_coef  # 0.01
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Self, TypeVar

from pydantic import Field, model_validator

from whet.config.base import Config, ConfigError, Key, dotted, plain
from whet.config.loading import merged, of_tree
from whet.config.problems import UnknownKey, shown, unknown_problem
from whet.config.reads import share_reads
from whet.config.schedule import SHUT, Gate, Gated, Gates, Linear, Schedule, turns_of, value_at, values_of
from whet.config.tree import MAX_DEPTH, config_classes, has_keys, inside, members, per_step, spelled

S = TypeVar("S", bound="Scheduled")
MAX_CHECKED = 4096
"""Combinations of scheduled values that are checked when a config is made. They take a second or two."""


class Scheduled(Config):
    """Base of a run's config, where values may go with the step.

    Fields that the run reads anew at each step are marked `PerStep`, and only they can be scheduled.
    """

    schedule: dict[str, Schedule] = Field({})
    """Values that go with the step of their phase, by dotted key, as in
    schedule.KEY={kind: linear, start: 0, end: 1, over: 20}. Kinds: constant, steps, linear, gated (by a metric).
    KEY itself must then not be set. schedule.KEY=null takes one out; an empty mapping takes none out."""

    @classmethod
    def canonical(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Settings whose schedules are by dotted key. The user may write them in nested mappings too."""
        tree = settings.get("schedule")
        if not isinstance(tree, Mapping):
            return settings
        schedules: dict[str, Any] = {}
        for key, schedule in schedules_by_key(cls, tree):
            if key in schedules:
                raise ConfigError(f"schedule.{key} is given twice: take one out")
            schedules[key] = schedule
        return {**settings, "schedule": schedules}

    @model_validator(mode="before")
    @classmethod
    def remove_nulls(cls, settings: Any) -> Any:
        """Removes schedules that are null."""
        if not isinstance(settings, Mapping) or "schedule" not in settings:
            return settings
        settings = cls.canonical(settings)
        schedules = {} if settings["schedule"] is None else settings["schedule"]
        if not isinstance(schedules, Mapping):
            return settings
        for key in (key for key, schedule in schedules.items() if schedule is None):
            if not is_per_step(cls, key):
                raise ValueError(f"schedule.{key}=null takes nothing out: name the one value whose schedule is to go")
        return {**settings, "schedule": {key: schedule for key, schedule in schedules.items() if schedule is not None}}

    @model_validator(mode="after")
    def check_schedule(self) -> Self:
        for key, schedule in self.__dict__["schedule"].items():
            check_key(self, key, schedule)
        check_values(self)
        return self

    def _settings(self) -> dict[str, Any]:
        """With null for a schedule of the class's defaults that was taken out, or `load` would put it back."""
        schedules = self.__dict__["schedule"]
        defaults = type(self).model_fields["schedule"].get_default(call_default_factory=True)
        removed = dict.fromkeys(key for key in defaults if key not in schedules)
        return {**self.__dict__, "schedule": {**schedules, **removed}}

    def _acts_through(self, key: Key) -> tuple[Key, Key]:
        """A schedule has an effect where the setting that it schedules is read."""
        return (key[:2], tuple(str(key[1]).split("."))) if key[0] == "schedule" and len(key) > 1 else (key, key)

    def _replaced_by(self, key: Key) -> str:
        node: Any = self
        for part in key[:-1]:
            node = (node if isinstance(node, Mapping) else getattr(node, "__dict__", {})).get(part)
        # A plain dict's key has to be given for a schedule to find it there.
        is_scheduled = isinstance(node, Config) and dotted(key) in self.__dict__["schedule"]
        return f"schedule.{dotted(key)}" if is_scheduled else ""


# --- the values at a step ---------------------------------------------------------------------------------------------


def config_at(config: S, step: int, gates: Gates | None = None) -> S:
    """The config at a step of a phase: every scheduled value in its place, and no schedule left.

    Validated as if the values had been given. Its reads count as reads of `config`. Without schedules it is `config`
    itself.

    Args:
        step: from 1.
        gates: as `advanced` left them after the step before. None: no gate has moved.
    Raises: ConfigError where validators refuse a value between a linear schedule's ends. All others were checked when
        the config was made.
    """
    schedules: Mapping[str, Schedule] = config.__dict__["schedule"]
    return _with_values(config, _values(config, step, gates or {})) if schedules else config


def possible(config: Scheduled, key: str) -> tuple[Any, ...]:
    """Every value that a key may have in the run; of a linear schedule, its ends. Counts as reading it.

    It serves to prepare what a value needs, such as a reference model where a coefficient may rise above 0.
    """
    value = _value_in(config, key)
    schedules: Mapping[str, Schedule] = config.schedule
    if key in schedules:
        return values_of(schedules[key])
    if any(key.startswith(f"{part}.") for part in schedules):  # each value of the part has one of the key
        return tuple(_value_in(_with_values(config, values), key) for values in _combinations(config))
    return (value,)


def _value_in(config: Config, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def counted(config: Scheduled, key: str, num_steps: int, gates: Gates | None = None) -> list[tuple[Any, int]]:
    """The values of a key in steps 1 to num_steps, each with its number of steps, if no gate moves.

    It serves to plan the updates of a phase. Counts as reading it.
    """
    schedule: Schedule | None = config.__dict__["schedule"].get(key)
    if schedule is None:
        return [(possible(config, key)[0], num_steps)]
    whole, gate = int in members(annotation_at(config, key)[0]), (gates or {}).get(key, SHUT)
    turned = min(num_steps, max(turns_of(schedule), default=0))
    values = [(value_at(schedule, step, gate, whole=whole), 1) for step in range(1, turned + 1)]
    return [*values, (value_at(schedule, num_steps, gate, whole=whole), num_steps - turned)]


def check_values(config: Scheduled) -> None:
    """Raises: ValueError where the schedules can reach a combination of values that validators refuse."""
    for values in _combinations(config):
        try:
            _with_values(config, values)
        except ConfigError as error:
            try:
                _with_values(config, {})
            except ConfigError:
                return  # wrong without schedules too: the validator reports it
            sentence = str(error)
            named = [key for key in values if sentence.startswith((f"{key} ", f"{key}.", f"{key}:"))] or list(values)
            scheduled = " and ".join(f"schedule.{key} = {shown(values[key])}" for key in named)
            raise ValueError(f"{scheduled}: {sentence}") from error


def _combinations(config: Scheduled) -> Iterator[dict[str, Any]]:
    """The scheduled values at every step where one turns, each with all positions of the gates."""
    schedules: Mapping[str, Schedule] = config.__dict__["schedule"]
    steps = sorted({1, *(step for schedule in schedules.values() for step in turns_of(schedule))})
    gated = {key: len(schedule.values) for key, schedule in schedules.items() if isinstance(schedule, Gated)}
    count = len(steps) * math.prod(gated.values())
    if count > MAX_CHECKED:
        raise ValueError(
            f"schedule: its values meet in {count} ways, and {MAX_CHECKED} is the most that is checked: "
            "give fewer values, or gate fewer keys"
        )
    for step, positions in product(steps, product(*map(range, gated.values()))) if schedules else ():
        yield _values(config, step, {key: Gate(position) for key, position in zip(gated, positions, strict=True)})


def _values(config: Scheduled, step: int, gates: Gates) -> dict[str, Any]:
    """The scheduled values at a step, by dotted key."""
    values = {}
    for key, schedule in config.__dict__["schedule"].items():
        types = members(annotation_at(config, key)[0])
        values[key] = value_at(schedule, step, gates.get(key, SHUT), whole=int in types and float not in types)
    return values


def _with_values(config: S, values: Mapping[str, Any]) -> S:
    """The config without schedules and with these values. Its reads count as reads of `config`."""
    tree: dict[str, Any] = {"schedule": None}
    for key, value in values.items():
        tree = merged(tree, nested(key.split("."), plain(value)))
    view = of_tree(type(config), tree, base=config)
    view._given = ()
    share_reads(view, config)
    return view


# --- the keys of a schedule -------------------------------------------------------------------------------------------


def schedules_by_key(annotation: Any, tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The user's values under `schedule`, by dotted key.

    `{stage2: {weight: S}}` and `{stage2.weight: S}` both give `stage2.weight`. S may be None, or a part of a schedule,
    such as `{end: 1}` over a preset's. The annotations tell where S begins.

    Args:
        annotation: of the config, or of a part of it.
        prefix: of the keys in `tree`, with its dot.
    """
    for name, value in tree.items():
        key, inner = f"{prefix}{name}", _annotation(annotation, str(name))
        if isinstance(value, Mapping) and value and key.count(".") < MAX_DEPTH and _holds_schedules(inner, value):
            yield from schedules_by_key(inner, value, f"{key}.")
        else:
            yield key, value


def _holds_schedules(annotation: Any, value: Mapping[str, Any]) -> bool:
    """Whether a mapping holds schedules by name. False: it is a schedule, or a part of one."""
    if not isinstance(value.get("kind", value), Mapping):
        return False
    if annotation is None or (has_keys(annotation) and per_step(annotation)):  # an unknown key, or one of two levels
        return all(inner is None or isinstance(inner, Mapping) for inner in value.values())
    return has_keys(annotation)


def is_per_step(annotation: Any, key: str) -> bool:
    """Whether a key of a config class, or a part that holds it, is marked `PerStep`."""
    parts = key.split(".")
    return any(per_step(_annotation(annotation, ".".join(parts[: i + 1]))) for i in range(len(parts)))


def _annotation(annotation: Any, key: str) -> Any:
    for part in key.split("."):
        annotation = inside(annotation, part)
    return annotation


def schedulable(config: Config) -> list[str]:
    """The dotted keys of this config that may be scheduled."""
    return list(_marked_keys(type(config), config, "", False))


def _marked_keys(annotation: Any, value: Any, key: str, is_marked: bool) -> Iterator[str]:
    """The key, if it or a part that holds it is marked `PerStep`, and those below it."""
    is_marked = is_marked or per_step(annotation)
    if is_marked:
        yield key
    inner = value.__dict__ if isinstance(value, Config) else value
    for name, child in inner.items() if isinstance(inner, Mapping) and key != "schedule" else ():
        kind = type(value) if isinstance(value, Config) else annotation
        yield from _marked_keys(inside(kind, name), child, f"{key}.{name}".lstrip("."), is_marked)


def check_key(config: Config, key: str, schedule: Schedule) -> None:
    """Raises: ValueError where the config has no such key, it is fixed for the run, or needs another schedule."""
    if key.partition(".")[0] == "schedule":
        raise ValueError(f"schedule.{key}: a schedule is fixed for the run and cannot be scheduled: take it out")
    annotation, is_marked = annotation_at(config, key)
    if not is_marked:
        raise ValueError(f"schedule.{key}: {key} is fixed for the run; {_alternatives(config, key)}")
    if isinstance(schedule, Linear) and not {int, float} & set(members(annotation)):
        raise ValueError(
            f"schedule.{key}: a linear schedule needs a number, and {key} must be {spelled(annotation)}: "
            "use kind = steps or gated"
        )
    for other in config.__dict__["schedule"]:
        if other.startswith(f"{key}."):
            raise ValueError(f"schedule.{other} lies in what schedule.{key} replaces: take one of them out")


def annotation_at(config: Config, key: str) -> tuple[Any, bool]:
    """The annotation of the value at a key, and whether it, or a part that holds it, is marked `PerStep`.

    Raises: ValueError where the config has no such key.
    """
    annotation: Any = type(config)
    node: Any = config
    is_marked, parts = False, key.split(".")
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
        node, is_marked = inner[part], is_marked or per_step(annotation)
    return annotation, is_marked


def _alternatives(config: Config, key: str) -> str:
    """A clause with the keys that may be scheduled: those below the key, else those beside it, else all."""
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
