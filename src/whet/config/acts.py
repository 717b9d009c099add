"""Conditions under which a setting has an effect, declared beside its field. `config.effects` evaluates them.

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
from typing import TYPE_CHECKING, Any, ClassVar

from whet.config.base import Config, plain
from whet.config.yaml_text import compact

if TYPE_CHECKING:
    from whet.config.effects import Scope


@dataclass(frozen=True, slots=True)
class Idle:
    """Why a setting has no effect, and what to do."""

    fact: str
    """A clause: `stage2.discrimination is false`."""
    remedy: str = ""
    """What would give it an effect: `set stage2.discrimination to true`. Empty: nothing would."""
    hint: str = ""
    """A clause on what to set in its place. Empty: nothing."""


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
        """The conditions on one setting that this one is made of."""
        yield from ()


@dataclass(frozen=True, init=False)
class OnKey(Condition):
    """Base of the conditions on one other setting."""

    key: str
    """From the config that holds the field."""
    values: tuple[Any, ...]
    """The values meant. (): any that is not false, 0, null or empty."""
    because: str
    """Why the field has no effect, where the setting's value does not say it."""
    hint: str
    """A clause on what to set in its place."""
    wants: ClassVar[bool]
    """Whether the field acts where the setting has one of the values, or where it has none of them."""

    def __init__(self, key: str, *values: Any, because: str = "", hint: str = "") -> None:
        if not isinstance(key, str) or not key:
            raise TypeError(f"{type(self).__name__} takes the key of a setting, such as 'loss.kind', not {key!r:.60}")
        for value in values:
            if not isinstance(value, str | int | float | None):
                raise TypeError(f"{type(self).__name__}({key!r}) takes values that settings have, not {value!r:.60}")
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
        full_key = scope.full_key(self.key)
        fact = self.because or f"{full_key} is {_in_words(values)}"
        return Idle(fact, self._remedy(full_key, values[0]), self.hint)

    def matches(self, value: Any) -> bool:
        """Whether the other setting's value is one of the condition's."""
        return value in self.values if self.values else bool(value)

    def _remedy(self, full_key: str, value: Any) -> str:
        raise NotImplementedError


class ActsWhen(OnKey):
    """The field has an effect where another setting has one of these values, or is not false, 0, null or empty."""

    wants = True

    def clause(self, scope: Scope) -> str:
        value = " or ".join(map(compact, self.values)) if self.values else _word_for_on(scope, self.key)
        return f"{scope.full_key(self.key)} is {value}"

    def _remedy(self, full_key: str, value: Any) -> str:
        if self.values:
            return f"set {full_key} to {' or '.join(map(compact, self.values))}"
        if isinstance(value, bool):
            return f"set {full_key} to true"
        return f"set {full_key} above 0" if isinstance(value, int | float) else f"give {full_key}"


class ActsUnless(OnKey):
    """The field has no effect where another setting has one of these values, or is not false, 0, null or empty."""

    wants = False

    def clause(self, scope: Scope) -> str:
        off = {"true": "false", "above 0": "0", "given": "not given"}[_word_for_on(scope, self.key)]
        value = f"not {' or '.join(map(compact, self.values))}" if self.values else off
        return f"{scope.full_key(self.key)} is {value}"

    def _remedy(self, full_key: str, value: Any) -> str:
        return f"set {full_key} to another value" if self.values else f"leave {full_key} out"


@dataclass(frozen=True, init=False)
class ActsAbove(OnKey):
    """The field has an effect where another setting is a number above this one."""

    least: float
    wants = True

    def __init__(self, key: str, least: float) -> None:
        super().__init__(key)
        if not isinstance(least, int | float):
            raise TypeError(f"ActsAbove({key!r}) takes a number, not {least!r:.60}")
        object.__setattr__(self, "least", least)

    def clause(self, scope: Scope) -> str:
        return f"{scope.full_key(self.key)} is above {self.least:g}"

    def matches(self, value: Any) -> bool:
        return bool(value > self.least)

    def _remedy(self, full_key: str, value: Any) -> str:
        return f"set {full_key} above {self.least:g}"


@dataclass(frozen=True, init=False)
class AnyOf(Condition):
    """One of several conditions holds."""

    conditions: tuple[Condition, ...]
    hint: str
    """A clause on what to set in the field's place."""

    def __init__(self, *conditions: Condition, hint: str = "") -> None:
        _check_conditions(self, conditions)
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
        _check_conditions(self, conditions)
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
    """Takes the values of the config's fields, by name."""
    when: str
    """The condition, as a clause."""
    fact: str
    """Why the field has no effect where the condition does not hold, as a clause."""

    def unmet(self, scope: Scope) -> Idle | None:
        return None if self.holds(scope.fields) else Idle(self.fact)

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
    """Keys that begin at the part: `learning.num_epochs`."""
    conditions: tuple[Condition, ...]

    def __init__(self, keys: str | tuple[str, ...], *conditions: Condition) -> None:
        _check_conditions(self, conditions)
        object.__setattr__(self, "keys", (keys,) if isinstance(keys, str) else keys)
        object.__setattr__(self, "conditions", conditions)


def _check_conditions(holder: object, conditions: tuple[object, ...]) -> None:
    """Raises: TypeError where there are none, or others than conditions."""
    name = type(holder).__name__
    if not conditions:
        raise TypeError(f"{name} takes one condition or more, such as ActsWhen('loss.kind', 'clip')")
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise TypeError(f"{name} takes conditions, such as ActsWhen('loss.kind', 'clip'), not {condition!r:.60}")


def _word_for_on(scope: Scope, key: str) -> str:
    """The word for a setting that is not false, 0, null or empty."""
    try:
        values = scope.values(key) or ()
    except LookupError:  # the part is of another kind in these settings
        values = ()
    kinds = {type(value) for value in values}
    return "true" if bool in kinds else "above 0" if kinds & {int, float} else "given"


def _in_words(values: tuple[Any, ...]) -> str:
    """The values that a setting has during the run."""
    return " and ".join(
        dict.fromkeys("set" if isinstance(value, Config) else compact(plain(value)) for value in values)
    )
