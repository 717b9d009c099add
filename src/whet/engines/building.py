"""The one place that makes engines from settings."""

from __future__ import annotations

from whet.config.parts import EngineConfig
from whet.engines.local import LocalEngine
from whet.models.policy import Policy


def engine_of(policy: Policy, settings: EngineConfig) -> LocalEngine:
    """The engine that a policy is sampled through."""
    prefix_bytes = round(settings.prefix_gib * 2**30) if settings.rollout == "free" else 0
    return LocalEngine(
        policy, max_rows=settings.max_rows, prefill_tokens=settings.prefill_tokens, prefix_bytes=prefix_bytes
    )
