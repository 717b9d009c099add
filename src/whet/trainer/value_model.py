"""A value model beside a policy that is trained (PPO): how it comes to its seat, learns, and lets the policy wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from whet.config.losses import ValueConfig
from whet.models.policy import Policy
from whet.models.value import load_value_model, value_model_of
from whet.trainer.losses import value_term
from whet.trainer.terms import Update
from whet.types import Row

VALUE_MODEL = "value_model"


def ensure_value_model(policies: dict[str, Policy], settings: ValueConfig, of: str) -> None:
    """Put a value model among a run's policies, unless there is one.

    Args:
        of: the policy that it is for; without a path of its own it begins with that one's weights.
    Raises: ConfigError where the family has no such model, or the path holds none.
    """
    if VALUE_MODEL in policies:
        return
    base = policies[of]
    made = settings.path is None
    policies[VALUE_MODEL] = (
        value_model_of(base, VALUE_MODEL) if made else load_value_model(str(settings.path), base, VALUE_MODEL)
    )


def update_of(settings: ValueConfig, num_rows: int, num_steps: int) -> Update:
    """How the value model learns."""
    return Update(
        (value_term(settings.clip),), settings.learning, num_steps * settings.learning.updates_a_step(num_rows)
    )


def steps_after_warmup(settings: ValueConfig, num_rows: int, num_steps: int) -> int:
    """Steps in which the policy learns too, one at least."""
    return max(1, num_steps - settings.warmup_updates // settings.learning.updates_a_step(num_rows))


def due(settings: ValueConfig, policies: Mapping[str, Policy], rows: Sequence[Row]) -> list[Row]:
    """What is trained on now: while the value model warms up, its own rows alone."""
    is_warming = policies[VALUE_MODEL].version < settings.warmup_updates
    return [row for row in rows if row.policy == VALUE_MODEL or not is_warming]


def warmup_problem(settings: ValueConfig, num_rows: int, num_steps: int) -> str | None:
    """Why the policy would never learn; None: it does."""
    made = num_steps * settings.learning.updates_a_step(num_rows)
    if settings.warmup_updates < made:
        return None
    return (
        f"value.warmup_updates = {settings.warmup_updates} has to be less than the {made} updates that num_steps = "
        f"{num_steps} make of the value model, or the policy never learns"
    )
