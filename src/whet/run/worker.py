"""What a worker of a run has: its models, grader, environments and endpoints, made from the run's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whet.config import of_tree
from whet.config.runs import RunConfig
from whet.engines.endpoint import EndpointEngine
from whet.engines.replies import endpoint_cache
from whet.grading import Grader
from whet.methods.base import MethodSpec
from whet.methods.registry import preset_of
from whet.models.policy import Policy, load_policies
from whet.plugins import load_entry_points, load_plugins
from whet.rollout.runtime import Runtime
from whet.run.data import load_grader
from whet.trainer.process import set_determinism


def make_runtime(config: RunConfig, spec: MethodSpec, policies: Mapping[str, Policy], grader: Grader) -> Runtime:
    """The runtime of a run or of one of its workers.

    Raises: ConfigError.
    """
    endpoints = {
        name: EndpointEngine(name, settings, endpoint_cache()) for name, settings in spec.endpoints(config).items()
    }
    return Runtime(policies, grader.grade, config.engine, endpoints, config.faults, spec.environments(config))


def build(settings: Mapping[str, Any]) -> Runtime:
    """A worker's runtime.

    Args:
        settings: of the run, as plain data.
    Raises: ConfigError, PluginError, DataError.
    """
    load_entry_points()
    load_plugins([path for path in settings.get("plugins") or () if isinstance(path, str)])
    preset = preset_of(str(settings["method"]))
    config: RunConfig = of_tree(type(preset.config), {**settings, "cluster": {}})
    set_determinism(config.num_threads)
    spec = preset.algorithm.spec
    return make_runtime(config, spec, load_policies(spec.models(config)), load_grader(config.data))
