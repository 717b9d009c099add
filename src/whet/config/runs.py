"""Settings of every run, of runs with a critic, and of runs with one policy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from whet.config.acts import ActsIf, ActsUnless, ActsWhen, AllOf, AnyOf, Inside, NoEffect
from whet.config.base import Config, NameOf, PerStep
from whet.config.critics import ActorRule, CriticEvaluation, RolesConfig, WarmStartConfig
from whet.config.environment_data import EnvironmentData
from whet.config.inputs import InputFile
from whet.config.parts import (
    BasicsData,
    CallbacksConfig,
    ChainData,
    ClusterConfig,
    EndpointConfig,
    EngineConfig,
    FaultsConfig,
    FileData,
    GymData,
    LearningConfig,
    ModelConfig,
    PolicyEvaluation,
    SamplingConfig,
    WatchConfig,
    products_of_updates,
)
from whet.config.scheduled import Scheduled

FrozenRole = Annotated[ModelConfig | EndpointConfig, Field(discriminator="kind")]
"""A role that is not trained."""
Weighting = Literal["binary", "reward", "self_normalised"]
"""What an explored episode weighs (AgentEvol)."""
Keep = Literal["first", "best", "all"]
"""Which samples of a round are kept."""
Merge = Literal["base", "previous", "cumulative", "none"]
"""What a round learns beside its own accepted episodes: demonstrations, those of the round before, both with all
earlier rounds, or nothing."""


TrackerName = Literal["tensorboard", "trackio", "wandb", "mlflow"]
"""Trackers that follow a run."""


NO_TEXTBOOK = Inside("misconceptions", NoEffect("nothing in this run reads what the textbook's author writes"))
"""For `data`, in methods that imitate none of the tiny world's texts."""


def _has_narrow_products(settings: Mapping[str, Any]) -> bool:
    """Whether the engine or an update multiplies in another type than float32."""
    return bool(vars(settings["engine"])["products"] != "float32" or products_of_updates(settings) != "float32")


RunEngine = Annotated[
    EngineConfig,
    Inside(
        "correct",
        ActsIf(
            _has_narrow_products,
            when="engine.products or an update's learning.products is not float32",
            fact="engine.products and all learning.products are float32",
        ),
    ),
]
"""The engine of a run that trains."""


class RunConfig(Scheduled):
    """Base of the methods' configs."""

    method: str
    """The method whose settings these are."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Of everything that is random in the run."""
    num_threads: int | None = Field(None, ge=1, le=1024)
    """CPU threads. Same bits need the same number. None: torch's choice."""
    plugins: tuple[InputFile, ...] = ()
    """Your Python files that register graders, reward terms, advantages, prompts or methods."""
    data: Annotated[
        ChainData | FileData | GymData | BasicsData | EnvironmentData, Field(discriminator="kind"), NO_TEXTBOOK
    ] = ChainData()
    """The problems."""
    prompts: Annotated[InputFile, NameOf("prompts")] = "chains"
    """Wording of the prompts: chains (the tiny world's), english (for real models), short and steps (for small ones),
    or a YAML file of templates. Small: less than a billion weights."""
    engine: RunEngine = EngineConfig()
    cluster: ClusterConfig = ClusterConfig()
    faults: FaultsConfig = FaultsConfig()
    rewards: Annotated[PerStep[dict[str, float]], NameOf("reward term")] = Field({})
    """Registered reward terms that are added to the method's reward, by name, each with its weight."""
    watch: WatchConfig = WatchConfig()
    track: tuple[TrackerName, ...] = ()
    """Trackers that follow the run, each in a process of its own: tensorboard, trackio, wandb, mlflow. They change
    nothing in the run, and a resume may change them. `whet track` is the same by hand."""
    callbacks: CallbacksConfig = CallbacksConfig()
    checkpoint_every: int = Field(20, ge=0)
    """Steps between checkpoints. 0: at the end of each phase only."""
    traces_per_step: int = Field(4, ge=0)
    """Training problems a step whose texts are kept for the report."""
    max_trace_bytes: int = Field(1_000_000, ge=10_000)
    """Bytes of one episode in the traces. A longer one loses the middle of its longest texts there; training sees the
    whole."""

    @model_validator(mode="after")
    def check_samplers(self) -> Self:
        settings = self.__dict__  # a look-up here counts as no read
        if settings["engine"].__dict__["kind"] == "vllm" and settings["cluster"].__dict__["workers"]:
            raise ValueError(
                "engine.kind = vllm samples on servers, which workers would give different weights: leave "
                "cluster.workers at 0, and ask for more cluster.servers, or name more engine.urls"
            )
        return self

    @field_validator("plugins")
    @classmethod
    def from_anywhere(cls, plugins: tuple[str, ...]) -> tuple[str, ...]:
        """Makes paths absolute: a run may be resumed, measured and exported from another folder."""
        return tuple(os.path.abspath(os.path.expanduser(path)) for path in plugins)


ROLES_OF_A_RULE = Inside(
    tuple(f"{role}.{key}" for role in ("answer", "refinement") for key in ("temperature", "top_p", "stop")),
    ActsUnless("actor.kind", "rule", because="actor.kind is rule, and the rule draws by its own chances"),
)
"""For `roles`, where a rule may answer and refine."""


class CriticRunConfig(RunConfig):
    """Base of methods in which an actor answers, a critic critiques and the actor refines."""

    data: Annotated[
        ChainData | FileData | BasicsData,
        Field(discriminator="kind"),
        Inside(
            "misconceptions",
            AnyOf(
                AllOf(ActsWhen("actor.kind", "rule"), ActsUnless("actor.misconceptions")),
                AllOf(ActsWhen("warm_start.actor_steps"), ActsUnless("warm_start.file")),
            ),
        ),
    ] = ChainData()
    """The problems."""
    actor: Annotated[ModelConfig | EndpointConfig | ActorRule, Field(discriminator="kind")] = ModelConfig()
    """Answers and refines; frozen after its warm start. With kind=endpoint it is a model behind a server, which has
    none. With kind=rule it is a rule of the tiny world, whose reaction to a verdict is set."""
    critic: ModelConfig = ModelConfig()
    """The model that is trained to critique."""
    roles: Annotated[RolesConfig, ROLES_OF_A_RULE] = RolesConfig()
    warm_start: Annotated[
        WarmStartConfig,
        Inside("actor_steps", ActsWhen("actor.kind", "model")),
        Inside("refine_share", ActsWhen("warm_start.actor_steps")),
        Inside("file", AnyOf(ActsWhen("warm_start.actor_steps"), ActsWhen("warm_start.critic_steps"))),
    ] = WarmStartConfig()
    evaluation: CriticEvaluation = CriticEvaluation()

    @model_validator(mode="after")
    def check_rule(self) -> Self:
        if isinstance(self.__dict__["actor"], ActorRule) and self.__dict__["data"].kind != "chains":
            raise ValueError("actor.kind = rule knows the tiny world only: leave data.kind at chains, or take a model")
        return self


class PolicyRunConfig(RunConfig):
    """Base of methods that train one policy which answers alone."""

    data: Annotated[ChainData | FileData | GymData | BasicsData, Field(discriminator="kind"), NO_TEXTBOOK] = ChainData()
    """The problems."""
    policy: ModelConfig = ModelConfig()
    """The model that is trained."""
    sampling: PerStep[SamplingConfig] = SamplingConfig(max_new_tokens=96)
    """Of training replies, and of the samples measured."""
    evaluation: PolicyEvaluation = PolicyEvaluation()
    traces_per_step: int = Field(2, ge=0)
    """Training problems a step whose replies are kept for the report."""


class TrainingConfig(Config):
    """Settings of a method with one phase of training, whose steps are all of one kind."""

    num_steps: int = Field(60, ge=1, le=10**9)
    """Steps: sample, grade, update."""
    prompts_per_step: int = Field(16, ge=1)
    """Problems in a step."""
    group_size: int = Field(8, ge=2)
    """Samples of each problem, which are compared."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4, minibatch_rows=128)
    validate_every: int = Field(10, ge=1)
    """Steps between validations; the best validated weights are kept."""

    compared: ClassVar[str] = "sampling"
    """The sampling whose draws make a group."""

    @model_validator(mode="after")
    def check_draws(self) -> Self:
        if attrgetter(f"{self.compared}.temperature")(self) == 0:
            raise ValueError(
                f"{self.compared}.temperature = 0 makes a whole group equal, so none is better than "
                "another and nothing is learnt; use 0.6 to 1.0"
            )
        return self

    def num_updates(self, rows_per_step: int) -> int:
        """Optimiser updates of the whole training.

        Args:
            rows_per_step: the most that a step may give.
        """
        return self.num_steps * self.learning.updates_a_step(rows_per_step)
