"""Loads a run's policies for use: which there are, which is the best, which skills each has, and its weights.

The method's spec says which policy is the best, and which skills it has (`final_policies`, `skills`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from whet.config import ConfigError
from whet.config.parts import EngineConfig, ModelConfig, SamplingConfig
from whet.config.runs import RunConfig
from whet.engines.products import Products
from whet.errors import RunError
from whet.methods.base import Algorithm, MethodSpec, Skill
from whet.methods.registry import preset_of
from whet.models.policy import Policy, load_policies
from whet.models.provenance import source_of
from whet.run.launch import saved_config
from whet.run.provenance import changed_inputs, compute_provenance, first_few
from whet.tasks.prompts import Prompts, find_prompts
from whet.trainer.checkpoint import load_state, newest_whole


@dataclass(frozen=True)
class LoadedRun:
    """A run as of its newest whole checkpoint."""

    folder: Path
    config: RunConfig
    algorithm: type[Algorithm[Any]]
    checkpoint: Path
    versions: Mapping[str, int]
    """Number of updates, by policy."""
    forks: Mapping[str, str]
    """Frozen copies: the name of each, and of the policy that it copies."""
    origin: Mapping[str, Any]
    """The run's provenance: settings, digests of its inputs, versions. See `run.provenance`."""

    @property
    def spec(self) -> MethodSpec:
        return self.algorithm.spec

    products: Products = "float32"
    """What engines beside the run multiply in, whatever the run's did: on any machine, the weights themselves."""

    draft: int = 0
    """Tokens that engines beside the run draft for a reply at most."""

    @property
    def engine_settings(self) -> EngineConfig:
        """Of an engine beside the run."""
        settings: EngineConfig = self.config.engine
        return settings.model_copy(update={"products": self.products, "draft": self.draft})

    @property
    def best(self) -> str:
        return self.spec.best_of(self.versions)

    @property
    def names(self) -> tuple[str, ...]:
        """The policies that are language models, the best one first."""
        models = self.spec.models(self.config)
        return (self.best, *(name for name in self.versions if name != self.best and self.role(name) in models))

    def role(self, name: str) -> str:
        """The policy that a frozen copy is made of. Of any other policy: its name."""
        while name in self.forks:
            name = self.forks[name]
        return name

    def skills(self, name: str) -> dict[Skill, SamplingConfig]:
        """A policy's skills, and how it is sampled for each."""
        settings = self.spec.skills.get(self.role(name), {})
        return {skill: attrgetter(path)(self.config) for skill, path in settings.items()}

    def who(self, skill: Skill) -> str | None:
        """The policy to ask for a skill: the best one, else another trained one, else any. None: no policy has it."""
        order = (*reversed(self.spec.final_policies), *self.spec.roles)
        return next((name for name in order if name in self.versions and skill in self.skills(name)), None)

    def words(self, prompts: str | None = None) -> Prompts:
        """The prompts of the policies.

        Args:
            prompts: a name or file, in place of the run's. None: the run's.
        """
        return self.spec.prompts(find_prompts(prompts or self.config.prompts))

    def place(self, name: str) -> Path:
        """The folder of a policy's weights, in the Hugging Face layout (with LoRA: its adapter, in PEFT's).

        Raises: ConfigError where there is no such policy.
        """
        self.check([name])
        return self.checkpoint / "policies" / name

    def check(self, names: Iterable[str]) -> None:
        """Raises: ConfigError where a name is of no language model of the run."""
        for name in names:
            if name not in self.names:
                raise ConfigError(f"{self.folder} has no policy {name!r}; choose of: {', '.join(self.names)}")

    def model(self, name: str) -> ModelConfig:
        """The settings that a policy was loaded by. `path` names the weights that the run started from."""
        return self.spec.models(self.config)[self.role(name)]

    def source(self, name: str) -> Mapping[str, Any]:
        """A policy's provenance and licence: `models.provenance.Source.record`."""
        return source_of(str(self.place(name))).record

    def _check_base(self, role: str) -> None:
        """Raises: RunError where the base of an adapter is not the one that it was trained over."""
        now = compute_provenance(self.config)
        changes = [change for change in changed_inputs(self.origin, now) if change.startswith(f"{role}.path = ")]
        if changes:
            raise RunError(
                f"the adapters of {self.folder} lie over a base that is not there as it was: {first_few(changes)}; put "
                "it back"
            )

    def load(
        self, names: Iterable[str], *, device: str = "auto", dtype: Literal["float32", "bfloat16"] | None = None
    ) -> dict[str, Policy]:
        """Policies with the weights of the checkpoint, to the bit.

        Args:
            dtype: None: the run's.
        Raises: ConfigError where a name is of no policy; RunError where an adapter's base is gone or replaced.
        """
        models = {}
        for name in names:
            folder, model = self.place(name), self.model(name)
            if model.lora is not None:
                self._check_base(self.role(name))
            changed: dict[str, Any] = {"device": device, "dtype": dtype or model.dtype, "gradient_checkpointing": False}
            if model.lora is None:  # else what is loaded is the base, and the checkpoint's adapter goes over it
                changed |= {"path": str(folder), "random_weights": None}
            models[name] = model.model_copy(update=changed)
        policies = load_policies(models)
        for name, policy in policies.items():
            policy.version = self.versions[name]
            if policy.adapter is not None:
                policy.restore(self.place(name), version=policy.version)
        return policies


def load_run(run: Path | str) -> LoadedRun:
    """Loads a run as of its newest whole checkpoint, also while it trains.

    Raises: RunError where it has no checkpoint, no whole one, or no model; ConfigError where it is no run.
    """
    run = Path(run)
    config = saved_config(run)
    saved, _ = newest_whole(run)
    if saved is None:
        raise RunError(f"{run} has no checkpoint yet; `whet resume {shlex.quote(str(run))}` goes on with it")
    state = load_state(saved)
    if not state["versions"]:
        raise RunError(f"{run} holds no model: endpoints and rules had all of its roles")
    algorithm = preset_of(config.method).algorithm
    return LoadedRun(run, config, algorithm, saved, state["versions"], state["forks"], state["origin"])
