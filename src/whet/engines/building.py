"""The one place that makes engines from settings."""

from __future__ import annotations

from whet.config.base import ConfigError
from whet.config.parts import EngineConfig
from whet.engines.local import LocalEngine
from whet.engines.products import chosen, shape_of
from whet.engines.protocol import Engine
from whet.engines.vllm import VllmEngine
from whet.models.policy import Policy


def engine_of(policy: Policy, settings: EngineConfig) -> Engine:
    """The engine that a policy is sampled through, with the weights that the policy has now."""
    engine = new_engine(policy, settings)
    engine.update_weights(policy.version, policy)
    return engine


def new_engine(policy: Policy, settings: EngineConfig) -> Engine:
    """An engine of the kind that the settings name. It may hold no weights yet: `engine_of` gives it the policy's.

    Another kind of engine is chosen here, and nowhere else."""
    check_engine_settings(settings)
    if settings.kind == "vllm":
        return VllmEngine(policy, settings)
    prefix_bytes = round(settings.prefix_gib * 2**30) if settings.rollout == "free" else 0
    return LocalEngine(
        policy,
        max_rows=settings.max_rows,
        prefill_tokens=settings.prefill_tokens,
        prefix_bytes=prefix_bytes,
        products=chosen([shape_of(policy)]) if settings.products == "auto" else settings.products,
        draft=settings.draft,
        graphs=settings.graphs,
    )


def check_engine_settings(settings: EngineConfig) -> None:
    """Refuse settings that name no engine, before models are loaded. Raises: ConfigError."""
    if settings.kind == "vllm" and not settings.urls:
        raise ConfigError(
            "engine.kind = vllm needs servers that run: engine.urls=[http://127.0.0.1:8000]; or cluster.servers=1, by "
            "which Ray starts them"
        )
