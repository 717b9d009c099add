"""The served models: policies of a run with the pipeline of an actor and a critic, or the model of a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from whet.config import ConfigError
from whet.config.parts import EngineConfig, ModelConfig, SamplingConfig
from whet.engines.products import Products
from whet.methods.base import Skill
from whet.models.lean import steady_positions
from whet.models.policy import Policy, load_policies
from whet.run.load import LoadedRun
from whet.tasks.prompts import Prompts, find_prompts

MODEL_TOKENS = 512
"""A reply's limit where neither a request nor a run gives one."""


@dataclass(frozen=True)
class Stage:
    """A policy's part in the pipeline."""

    name: Skill
    policy: str
    limits: SamplingConfig


@dataclass(frozen=True)
class ServedPolicies:
    """The served policies of one run with its prompts and limits, or the model of one folder."""

    policies: Mapping[str, Policy]
    limits: Mapping[str, SamplingConfig]
    """Each policy's defaults for requests."""
    words: Prompts
    reading: Callable[[str, Prompts], Mapping[str, Any]]
    """The fields of a critique, as the run's method reads them."""
    engine: EngineConfig
    pipeline: tuple[Stage, ...]
    """Answer, critique, refinement. Empty: the run has no policy for one of them."""
    created: int
    """Seconds since 1970 at which the weights were saved."""

    @property
    def pipeline_name(self) -> str:
        return f"{self.pipeline[0].policy}+{self.pipeline[1].policy}" if self.pipeline else ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the models, the best policy first."""
        return (*self.policies, *([self.pipeline_name] if self.pipeline else []))

    def positions(self, policy: str) -> int | None:
        """Tokens that fit into its context. None: any number."""
        return steady_positions(self.policies[policy].causal_lm)

    def num_ids(self, policy: str) -> int:
        """Token ids that its embedding has a row for: from 0 up to this number."""
        return int(self.policies[policy].causal_lm.get_input_embeddings().weight.shape[0])


def served_policies(trained: LoadedRun, chosen: Sequence[str] = (), *, device: str = "auto") -> ServedPolicies:
    """The chosen policies. None chosen: the best one, and those that the pipeline needs.

    Raises: ConfigError where one is none of the run's, or has no skill to serve.
    """
    pipeline = _pipeline(trained)
    names = tuple(dict.fromkeys(chosen or (trained.best, *(stage.policy for stage in reversed(pipeline)))))
    trained.check(names)
    for name in names:
        if not trained.skills(name):
            usable = [other for other in trained.names if trained.skills(other)]
            raise ConfigError(f"policy {name!r} can be asked for nothing; choose of: {', '.join(usable) or 'none'}")
    return ServedPolicies(
        policies=trained.load(names, device=device),
        limits={name: max(trained.skills(name).values(), key=attrgetter("max_new_tokens")) for name in names},
        words=trained.words(),
        reading=trained.spec.reading,
        engine=trained.engine_settings,
        pipeline=pipeline if {stage.policy for stage in pipeline} <= set(names) else (),
        created=int((trained.checkpoint / "state.json").stat().st_mtime),
    )


def is_model_folder(folder: Path) -> bool:
    """Whether a folder holds a model and no run."""
    names = ("config.json", "adapter_config.json")
    return not (folder / "config.yaml").exists() and any((folder / name).is_file() for name in names)


def served_folder(
    folder: Path,
    chosen: Sequence[str] = (),
    *,
    device: str = "auto",
    dtype: Literal["float32", "bfloat16"] = "float32",
    products: Products = "float32",
    draft: int = 0,
) -> ServedPolicies:
    """The model in a Hugging Face folder, under the folder's name. There is no pipeline.

    Args:
        chosen: that name, or nothing.
        products: what its engine multiplies in.
        draft: tokens that its engine drafts for a reply at most.
    Raises: ConfigError where there is no such model, or its folder cannot be loaded.
    """
    name = folder.resolve().name or "model"
    if unknown := [other for other in chosen if other != name]:
        raise ConfigError(f"{folder} is a model's folder and has no policy {unknown[0]!r}: leave --policy out")
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{folder} holds an adapter alone: serve the run that it was trained in, or the folder that "
            "`whet export RUN DIR --merge` writes"
        )
    policies = load_policies({name: ModelConfig(path=str(folder), device=device, dtype=dtype)})
    positions = steady_positions(policies[name].causal_lm)
    limit = MODEL_TOKENS if positions is None else max(1, min(MODEL_TOKENS, positions // 2))
    return ServedPolicies(
        policies=policies,
        limits={name: SamplingConfig(max_new_tokens=limit)},
        words=find_prompts("english"),  # of a pipeline, which it has not
        reading=lambda critique, words: {},
        engine=EngineConfig(products=products, draft=draft),
        pipeline=(),
        created=int((folder / "config.json").stat().st_mtime),
    )


def _pipeline(trained: LoadedRun) -> tuple[Stage, ...]:
    order: tuple[Skill, ...] = ("answer", "critique", "refine")
    policies = {skill: trained.who(skill) for skill in order}
    stages = [(skill, name) for skill, name in policies.items() if name is not None]
    if len(stages) < len(order) or policies["answer"] != policies["refine"]:
        return ()
    return tuple(Stage(skill, name, trained.skills(name)[skill]) for skill, name in stages)
