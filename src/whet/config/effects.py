"""Which settings of a run have an effect, by the conditions in their fields (`whet.config.acts`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from whet.config.acts import Condition, Idle, Inside
from whet.config.base import Config, ConfigError, Key, dotted
from whet.config.schedule import values_of
from whet.errors import text_of

_ABSENT = object()


def acts(root: Config, key: str) -> bool:
    """Whether the setting at a dotted key has an effect."""
    return why_idle(root, tuple(key.split("."))) is None


def why_idle(root: Config, key: Key, pending: frozenset[str] = frozenset()) -> Idle | None:
    """Why a setting of a run has no effect with the other settings. None: it has one.

    Args:
        root: the run's settings.
        pending: dotted keys that are being looked up already. They count as having an effect.
    Raises: ConfigError where a condition of the setting cannot be evaluated.
    """
    name = dotted(key)
    if name in pending:
        return None
    for at, condition in conditions_of(root, key):
        try:
            reason = condition.unmet(Scope(root, at, pending | {name}))
        except ConfigError:
            raise
        except Exception as error:  # a user's method may name a setting that is none, or compare text with a number
            raise ConfigError(
                f"when {name} has an effect cannot be told: its {type(condition).__name__} in {type(root).__name__} "
                f"raised {type(error).__name__}: {text_of(error)}; mend that condition"
            ) from error
        if reason:
            return reason
    return None


def conditions_of(root: Config, key: Key) -> Iterator[tuple[Key, Condition]]:
    """The conditions of a setting, those of the parts that hold it first.

    Returns: pairs of the place where the condition's keys begin, and the condition.
    """
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


def _is_below(key: str, place: str) -> bool:
    return key == place or key.startswith(f"{place}.")


@dataclass(frozen=True, slots=True)
class Scope:
    """A config in a run's settings, as its conditions see it. Its look-ups count as no reads."""

    root: Config
    at: Key
    """Where the config that holds the field lies."""
    pending: frozenset[str] = frozenset()
    """Settings whose effect is being looked up: a part may act when something inside it acts."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The values of the config's fields, by name."""
        fields: Mapping[str, Any] = _node_at(self.root, self.at).__dict__
        return fields

    def full_key(self, key: str) -> str:
        """The dotted key from the run's settings on."""
        return dotted((*self.at, key))

    def values(self, key: str) -> tuple[Any, ...] | None:
        """All values that the setting may have during the run. None: a schedule replaces the part that holds it.

        Raises: LookupError where no config of this run has such a setting.
        """
        schedules: Mapping[str, Any] = self.root.__dict__.get("schedule", {})
        full_key = self.full_key(key)
        if full_key in schedules:
            return values_of(schedules[full_key])
        parts = full_key.split(".")
        if any(".".join(parts[:depth]) in schedules for depth in range(1, len(parts))):
            return None
        value = _node_at(self.root, tuple(parts))
        if value is _ABSENT:
            raise LookupError(f"no setting {full_key} in {type(self.root).__name__}")
        return (value,)

    def why_idle(self, key: str) -> Idle | None:
        """Why the setting has no effect. None: it has one."""
        return why_idle(self.root, tuple(self.full_key(key).split(".")), self.pending)


def _node_at(root: Config, key: Key) -> Any:
    node: Any = root
    for part in key:
        node = _inner(node, part)
    return node


def _inner(node: Any, part: str | int) -> Any:
    if isinstance(node, Config):
        return node.__dict__.get(str(part), _ABSENT)
    try:
        return node[part]
    except (LookupError, TypeError):
        return _ABSENT
