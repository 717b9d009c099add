"""When a setting has an effect: declared in the metadata of its field, so that a reader of the field sees it.

class StageConfig(Config):
    bonus_on: bool = True
    bonus: Annotated[float, ActsWhen("bonus_on")] = 0.2

Keys in a condition are dotted, and begin at the config that holds the field. All conditions of a field must hold. A
condition on another setting holds only where that setting has an effect itself, so that conditions chain. `Inside`
declares conditions of settings that lie in a shared part, beside the field that holds the part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from whet.config.base import Config, Key, dotted, plain
from whet.config.schedule import values_of
from whet.config.yaml_text import compact

ABSENT = object()


@dataclass(frozen=True, slots=True)
class Idle:
    """Why a setting has no effect, and what to do."""

    fact: str
    """A clause: `stage2.discrimination is false`."""
    remedy: str = ""
    """What would give it an effect: `set stage2.discrimination to true`. Empty: nothing would."""
    hint: str = ""
    """A clause on what to set in its place. Empty: nothing."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A config in a run's settings, as its conditions see it. Its look-ups count as no reads."""

    root: Config
    at: Key
    """Where the config that holds the field lies."""
    asking: frozenset[str] = frozenset()
    """Settings whose effect is being looked up: a part may act when something inside it acts."""

    def full(self, key: str) -> str:
        """The key, from the run's settings on."""
        return dotted((*self.at, key))

    def values(self, key: str) -> tuple[Any, ...] | None:
        """All values that the setting may have during the run. None: a schedule replaces the part that holds it.

        Raises: LookupError where no config of this run has such a setting.
        """
        schedules: Mapping[str, Any] = self.root.__dict__.get("schedule", {})
        full = self.full(key)
        if full in schedules:
            return values_of(schedules[full])
        parts = full.split(".")
        if any(".".join(parts[:depth]) in schedules for depth in range(1, len(parts))):
            return None
        return (_value_at(self.root, parts),)

    def why_idle(self, key: str) -> Idle | None:
        """Why the setting has no effect. None: it has one."""
        return _why(self.root, tuple(self.full(key).split(".")), self.asking)


@dataclass(frozen=True, init=False)
class Condition:
    """Base of the conditions in a field's metadata."""

    def unmet(self, scope: Scope) -> Idle | None:
        """Why the field has no effect. None: the condition holds."""
        raise NotImplementedError

    def clause(self, scope: Scope) -> str:
        """The condition as a clause, for a list of settings."""
        raise NotImplementedError

    def atoms(self) -> Iterator[OnKey]:
        """The conditions on one setting that it is made of."""
        yield from ()


@dataclass(frozen=True, init=False)
class OnKey(Condition):
    """On one other setting."""

    key: str
    """From the config that holds the field."""
    values: tuple[Any, ...]
    """(): any that is not false, 0, null or empty."""
    because: str
    """The fact in words, where the setting's value does not say it."""
    hint: str
    """A clause on what to set in its place."""
    wants: ClassVar[bool]

    def __init__(self, key: str, *values: Any, because: str = "", hint: str = "") -> None:
        for name, value in {"key": key, "values": values, "because": because, "hint": hint}.items():
            object.__setattr__(self, name, value)

    def atoms(self) -> Iterator[OnKey]:
        yield self

    def unmet(self, scope: Scope) -> Idle | None:
        if (idle := scope.why_idle(self.key)) is not None:
            return Idle(idle.fact, idle.remedy, self.hint or idle.hint) if self.wants else None
        values = scope.values(self.key)
        if values is None or any(self.matches(value) is self.wants for value in values):
            return None
        full = scope.full(self.key)
        fact = self.because or f"{full} is {_shown(values)}"
        return Idle(fact, self._remedy(full, values[0]), self.hint)

    def matches(self, value: Any) -> bool:
        """Whether the other setting's value is one of the condition's."""
        return value in self.values if self.values else bool(value)

    def _remedy(self, full: str, value: Any) -> str:
        raise NotImplementedError


class ActsWhen(OnKey):
    """The field has an effect where another setting has one of these values, or is not false, 0, null or empty."""

    wants = True

    def clause(self, scope: Scope) -> str:
        value = " or ".join(map(compact, self.values)) if self.values else _on(scope, self.key)
        return f"{scope.full(self.key)} is {value}"

    def _remedy(self, full: str, value: Any) -> str:
        if self.values:
            return f"set {full} to {' or '.join(map(compact, self.values))}"
        if isinstance(value, bool):
            return f"set {full} to true"
        return f"set {full} above 0" if isinstance(value, int | float) else f"give {full}"


class ActsUnless(OnKey):
    """The field has no effect where another setting has one of these values, or is not false, 0, null or empty."""

    wants = False

    def clause(self, scope: Scope) -> str:
        off = {"true": "false", "above 0": "0", "given": "not given"}[_on(scope, self.key)]
        value = f"not {' or '.join(map(compact, self.values))}" if self.values else off
        return f"{scope.full(self.key)} is {value}"

    def _remedy(self, full: str, value: Any) -> str:
        return f"set {full} to another value" if self.values else f"leave {full} out"


@dataclass(frozen=True, init=False)
class ActsAbove(OnKey):
    """The field has an effect where another setting is a number above this one."""

    least: float
    wants = True

    def __init__(self, key: str, least: float) -> None:
        super().__init__(key)
        object.__setattr__(self, "least", least)

    def clause(self, scope: Scope) -> str:
        return f"{scope.full(self.key)} is above {self.least:g}"

    def matches(self, value: Any) -> bool:
        return bool(value > self.least)

    def _remedy(self, full: str, value: Any) -> str:
        return f"set {full} above {self.least:g}"


@dataclass(frozen=True, init=False)
class AnyOf(Condition):
    """One of several conditions holds."""

    conditions: tuple[Condition, ...]
    hint: str
    """A clause on what to set in the field's place."""

    def __init__(self, *conditions: Condition, hint: str = "") -> None:
        object.__setattr__(self, "conditions", conditions)
        object.__setattr__(self, "hint", hint)

    def atoms(self) -> Iterator[OnKey]:
        for condition in self.conditions:
            yield from condition.atoms()

    def unmet(self, scope: Scope) -> Idle | None:
        reasons = [condition.unmet(scope) for condition in self.conditions]
        idle_reasons = [reason for reason in reasons if reason is not None]
        if len(idle_reasons) < len(reasons):
            return None
        facts, remedies, hints = (
            dict.fromkeys(filter(None, texts))
            for texts in zip(*((idle.fact, idle.remedy, idle.hint) for idle in idle_reasons), strict=True)
        )
        return Idle(" and ".join(facts), " or ".join(remedies), self.hint or "; ".join(hints))

    def clause(self, scope: Scope) -> str:
        texts = [(condition.clause(scope), isinstance(condition, AllOf)) for condition in self.conditions]
        return " or ".join(f"({text})" if is_several else text for text, is_several in texts)


@dataclass(frozen=True, init=False)
class AllOf(Condition):
    """Several conditions hold; for use in `AnyOf`, and to name conditions that several fields share."""

    conditions: tuple[Condition, ...]

    def __init__(self, *conditions: Condition) -> None:
        object.__setattr__(self, "conditions", conditions)

    def atoms(self) -> Iterator[OnKey]:
        for condition in self.conditions:
            yield from condition.atoms()

    def unmet(self, scope: Scope) -> Idle | None:
        return next(filter(None, (condition.unmet(scope) for condition in self.conditions)), None)

    def clause(self, scope: Scope) -> str:
        return " and ".join(condition.clause(scope) for condition in self.conditions)


@dataclass(frozen=True)
class ActsIf(Condition):
    """The field has an effect where a function of its config says so: for conditions that no key can state alone."""

    holds: Callable[[Mapping[str, Any]], bool]
    """A function of the values of the config's fields, by name."""
    when: str
    """The condition, as a clause."""
    fact: str
    """The fact where it does not hold, as a clause."""

    def unmet(self, scope: Scope) -> Idle | None:
        return None if self.holds(_node_at(scope.root, scope.at).__dict__) else Idle(self.fact)

    def clause(self, scope: Scope) -> str:
        return self.when


@dataclass(frozen=True)
class NoEffect(Condition):
    """The field has an effect in other methods, and none in this one."""

    fact: str
    """Why, as a clause."""
    hint: str = ""
    """A clause on what to set in its place."""

    def unmet(self, scope: Scope) -> Idle | None:
        return Idle(self.fact, hint=self.hint)

    def clause(self, scope: Scope) -> str:
        return f"never here: {self.fact}"


@dataclass(frozen=True, init=False)
class Inside:
    """Conditions of settings inside the part that the field holds. Their keys begin where the field lies."""

    keys: tuple[str, ...]
    """From the part on: `learning.num_epochs`."""
    conditions: tuple[Condition, ...]

    def __init__(self, keys: str | tuple[str, ...], *conditions: Condition) -> None:
        object.__setattr__(self, "keys", (keys,) if isinstance(keys, str) else keys)
        object.__setattr__(self, "conditions", conditions)


# --- asking -----------------------------------------------------------------------------------------------------------


def conditions_of(root: Config, key: Key) -> Iterator[tuple[Key, Condition]]:
    """The conditions of a setting, each with the place where its keys begin; those of the parts that hold it first."""
    node: Any = root
    for depth, part in enumerate(key):
        if isinstance(node, Config):
            field = type(node).model_fields.get(str(part))
            rest = dotted(key[depth + 1 :])
            for mark in field.metadata if field is not None else ():
                if isinstance(mark, Condition):
                    yield key[:depth], mark
                elif isinstance(mark, Inside) and any(_is_below(rest, place) for place in mark.keys):
                    yield from ((key[:depth], condition) for condition in mark.conditions)
        node = _inner(node, part)


def why_idle(root: Config, key: Key) -> Idle | None:
    """Why a setting of a run has no effect with the other settings. None: it has one."""
    return _why(root, key, frozenset())


def _why(root: Config, key: Key, asking: frozenset[str]) -> Idle | None:
    name = dotted(key)
    if name in asking:
        return None
    for at, condition in conditions_of(root, key):
        if reason := condition.unmet(Scope(root, at, asking | {name})):
            return reason
    return None


def acts(root: Config, key: str) -> bool:
    """Whether the setting at a dotted key has an effect."""
    return why_idle(root, tuple(key.split("."))) is None


def idle_keys(root: Config) -> dict[str, Idle]:
    """By dotted key, the settings without effect. A part in which nothing has an effect is listed alone."""
    return dict(_idle_below(root, root, ()))


def _idle_below(root: Config, node: Config, at: Key) -> Iterator[tuple[str, Idle]]:
    for name, value in node.__dict__.items():
        key = (*at, name)
        if reason := why_idle(root, key):
            yield dotted(key), reason
        elif isinstance(value, Config):
            yield from _idle_below(root, value, key)


def _is_below(key: str, place: str) -> bool:
    return key == place or key.startswith(f"{place}.")


def _inner(node: Any, part: str | int) -> Any:
    if isinstance(node, Config):
        return node.__dict__.get(str(part), ABSENT)
    try:
        return node[part]
    except (LookupError, TypeError):
        return ABSENT


def _node_at(root: Config, key: Key) -> Any:
    node: Any = root
    for part in key:
        node = _inner(node, part)
    return node


def _value_at(root: Config, parts: list[str]) -> Any:
    """Raises: LookupError."""
    value = _node_at(root, tuple(parts))
    if value is ABSENT:
        raise LookupError(f"no setting {'.'.join(parts)} in {type(root).__name__}")
    return value


def _on(scope: Scope, key: str) -> str:
    """The word for a setting that is not false, 0, null or empty."""
    try:
        values = scope.values(key) or ()
    except LookupError:  # of a part that is of another kind in these settings
        values = ()
    kinds = {type(value) for value in values}
    return "true" if bool in kinds else "above 0" if kinds & {int, float} else "given"


def _shown(values: tuple[Any, ...]) -> str:
    return " and ".join(
        dict.fromkeys("set" if isinstance(value, Config) else compact(plain(value)) for value in values)
    )
