"""A value model beside a policy that trains (PPO): how it is made, how it learns, and when the policy may learn too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.config.losses import VALUE_MODEL, ValueConfig
from whet.models.policy import Policy
from whet.models.value import load_value_model, value_model_of
from whet.trainer.losses import value_term
from whet.trainer.terms import Update
from whet.types import Row


def ensure_value_model(policies: dict[str, Policy], settings: ValueConfig, of: str) -> None:
    """Add a value model to a run's policies, unless there is one.

    Args:
        of: the policy that it serves. Without `settings.path` it starts with that policy's weights.
    Raises: ConfigError where the family has no such model, or the path holds none.
    """
    if VALUE_MODEL in policies:
        return
    base = policies[of]
    if settings.path is None:
        policies[VALUE_MODEL] = value_model_of(base, VALUE_MODEL)
    else:
        policies[VALUE_MODEL] = load_value_model(str(settings.path), base, VALUE_MODEL)


def update_of(settings: ValueConfig, num_rows: int, num_steps: int) -> Update:
    """The value model's update.

    Args:
        num_rows: of a step.
        num_steps: of the phase.
    """
    return Update(
        (value_term(settings.clip),), settings.learning, num_steps * settings.learning.updates_a_step(num_rows)
    )


def steps_after_warmup(settings: ValueConfig, num_rows: int, num_steps: int) -> int:
    """The number of steps in which the policy learns too, at least 1."""
    warmup_steps = -(-settings.warmup_updates // settings.learning.updates_a_step(num_rows))
    return max(1, num_steps - warmup_steps)


def rows_to_train(settings: ValueConfig, policies: Mapping[str, Policy], rows: Sequence[Row]) -> list[Row]:
    """The rows that train now: while the value model warms up, its rows alone."""
    is_warming = policies[VALUE_MODEL].version < settings.warmup_updates
    return [row for row in rows if row.policy == VALUE_MODEL or not is_warming]
