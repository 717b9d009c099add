"""Settings of runs whose agents act in environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from whet.config.acts import ActsUnless, ActsWhen, NoEffect
from whet.config.base import Config, NameOf, PerStep
from whet.config.environment_data import EnvironmentData
from whet.config.inputs import InputFile
from whet.config.parts import EndpointConfig, EngineConfig, ModelConfig, SamplingConfig
from whet.config.runs import FrozenRole, RunConfig, RunEngine


def _no_switch(value: object) -> object:
    """Raises: ValueError for true and false, which say less than the names do."""
    if isinstance(value, bool):
        raise ValueError(
            f"{str(value).lower()} is no opening: write rules=own for the environment's rules, rules=none for the "
            "first observation alone, or rules=null for what the model has learnt"
        )
    return value


Rules = Annotated[InputFile, Field(min_length=1)]
"""`own`, `none`, or a file."""
OWN_RULES, NO_RULES = "own", "none"
MAX_OBSERVATION_CHARS = 32_000
"""Characters of one observation that an episode holds, where no settings say."""
ScriptedAgent = Literal["expert", "random", "constant"]
SCRIPTED_AGENTS: tuple[ScriptedAgent, ...] = ("expert", "random", "constant")
"""Baselines of a trained agent (`methods.agent.scripted`)."""


class PoolConfig(Config):
    """How many environments there are, and how long one is waited for."""

    capacity: int = Field(256, ge=1)
    """Environments at one time, of all kinds."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds of one step or reset. After that the environment is thrown away, and the episode is a `timeout`."""
    retries: int = Field(1, ge=0)
    """How often an item is begun again, in a fresh environment, where that fails."""
    max_observation_chars: int = Field(MAX_OBSERVATION_CHARS, ge=16)
    """Characters of one observation that an episode and its trace hold, the first one included. The middle of a longer
    one is left out, marked, and counted as `environment/cut_observations`."""
    close_timeout_s: float = Field(10.0, gt=0)
    """Seconds that all environments together have to close when the run ends. The process ends without those that
    still hang."""


class AgentEvaluation(Config):
    """How an agent is measured."""

    num_samples: int = Field(1, ge=1, le=10_000)
    """Episodes an item: 1 is greedy; more are sampled, with pass@k."""
    validation_samples: int = Field(1, ge=1, le=10_000)
    """Episodes a validation item, by which the best weights are chosen. 1: greedy; more are sampled."""
    max_turns: int | None = Field(None, ge=1)
    """Turns that an episode may take. None: the environment's usual number."""


class ExpertConfig(Config):
    """How the scripted experts act that demonstrate: without mistakes, or as careless as these settings say."""

    num_episodes: int = Field(1, ge=1, le=1000)
    """Episodes of each item. Each has its own words and, where an environment draws its state, its own state."""
    max_turns: int | None = Field(None, ge=1)
    """Turns that an episode may take. None: the environment's usual number."""
    wrong_count: float = Field(0.0, ge=0, le=1)
    """Chance that an action has a number that is one too many or one too few."""
    wrong_action: float = Field(0.0, ge=0, le=1)
    """Chance that the action is another one of those that the environment lists, if it lists any."""
    stuck: float = Field(0.0, ge=0, le=1)
    """Chance that a turn repeats an action that the environment has just refused."""
    wasteful: float = Field(0.0, ge=0, le=1)
    """Chance that a turn repeats an action that the environment has just carried out."""
    keep_failures: bool = False
    """Whether episodes that fail are learnt too. False: successes alone."""


class RuleConfig(Config):
    """A critic by rule, in a model's place: it knows how an attempt ended, and what the scripted expert does."""

    kind: Literal["rule"] = "rule"
    name: Literal["oracle", "judge", "empty", "false"] = "oracle"
    """`oracle` judges without mistakes, and where the attempt failed says what the expert would do. `judge` judges and
    says no more. `empty` says nothing, and the agent tries again. `false` turns the verdict over, and says what the
    expert would do for another item."""


CriticRole = Annotated[ModelConfig | EndpointConfig | RuleConfig, Field(discriminator="kind")]
"""Who critiques attempts. Only a model can be trained."""


MEASURED = "evaluation.max_turns limits the episodes that measure"
"""For runs without training episodes, where `max_turns` has no effect."""


class AgentRunConfig(RunConfig):
    """Base of methods in which a policy acts in environments."""

    data: EnvironmentData = EnvironmentData()
    """The environments and their items."""
    prompts: Annotated[InputFile, NameOf("prompts"), NoEffect("an agent reads its environments' rules")] = "chains"
    policy: FrozenRole = ModelConfig(path="tiny_agent")
    """The agent. Only a model can be trained. kind=endpoint: a model behind a server, to be measured only."""
    sampling: PerStep[SamplingConfig] = SamplingConfig(max_new_tokens=96)
    """Of one turn."""
    max_turns: PerStep[int | None] = Field(None, ge=1)
    """Turns that a training episode may take: the horizon. None: the environment's usual number."""
    max_context: int = Field(4096, ge=16)
    """Tokens that a turn may begin with. An episode with more is truncated."""
    max_observation: int = Field(4000, ge=16)
    """Characters that are shown of an observation; the middle of longer ones is left out."""
    rules: Annotated[Rules | dict[str, Rules | None] | None, BeforeValidator(_no_switch), NameOf("environment")] = None
    """What an episode begins with. own: the environment's rules in whet's words, and a promise to keep them. none: the
    first observation. FILE: the opening in it, which is two turns in YAML (a list of role and content), or those of
    trajectories as AgentGym publishes them. None: that of the trajectories or pairs that the run learns, or else own;
    or none, for a model that has learnt without rules, as the tiny agents have (`"reads_rules": false` in its
    config.json). By environment: {textcraft: FILE, maze: own}."""
    observations: Literal["own", "recorded"] | None = None
    """In which form observations are shown. own: as whet's environments give them. recorded: as a file of trajectories
    has them, such as with an instruction before the first one; the file is that of the trajectories or pairs that the
    run learns, or else that of `rules`. None: recorded where there is such a file, own otherwise."""
    format: Literal["react", "function_calling", "code_as_action", "tools", "plain"] = "react"
    """How the agent writes its actions. ReAct: a thought and an action, in each environment's published form. Function
    calling: a call of one of the environment's functions, as JSON. Code as action: the same call in a block of Python,
    with the thought in comments. Plain: the action alone. The rules say which. Tools: a call of one of the
    environment's tools, which the model's own chat template shows it; observations are the tools' answers."""
    pool: PoolConfig = PoolConfig()
    engine: RunEngine = EngineConfig(rollout="free")
    evaluation: AgentEvaluation = AgentEvaluation()

    @classmethod
    def canonical(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Settings whose environments are by name, as `EnvironmentData.canonical` makes them."""
        settings, data = super().canonical(settings), settings.get("data")
        return {**settings, "data": EnvironmentData.canonical(data)} if isinstance(data, Mapping) else settings

    @model_validator(mode="after")
    def check_observation(self) -> Self:
        if self.max_observation > self.pool.max_observation_chars:
            raise ValueError(
                f"max_observation = {self.max_observation} shows more characters than an episode holds of an "
                f"observation: raise pool.max_observation_chars = {self.pool.max_observation_chars} to it"
            )
        return self


class AgentCriticRunConfig(AgentRunConfig):
    """Base of methods in which an agent acts, a critic critiques its attempt, and the agent tries again."""

    of: Literal["attempt", "action"] = "attempt"
    """What is critiqued. attempt: a finished one, before another. action: each one before it is taken. An action that
    is called wrong is sent back, and the agent proposes again. A critic of actions is not trained."""
    max_reviews: Annotated[int, ActsWhen("of", "action")] = Field(1, ge=1)
    """How often in one turn an action may be sent back."""
    policy: FrozenRole = ModelConfig(path="tiny_agent_early")
    """The agent; frozen after its warm start. kind=endpoint: a model behind a server, which has none."""
    critic: CriticRole = ModelConfig(path="tiny_agent")
    """The critic. Only a model can be trained. kind=endpoint: a model behind a server, kind=rule: a rule."""
    prompts: Annotated[InputFile, NameOf("prompts")] = "acting"
    """How attempts and critiques are worded: acting (the tiny agents' words), acting_english, or a YAML file."""
    critique: Annotated[SamplingConfig, ActsUnless("critic.kind", "rule")] = SamplingConfig(max_new_tokens=128)
    """Of one critique."""
    again: Annotated[Literal["wrong", "always"], ActsWhen("of", "attempt")] = "wrong"
    """Which verdicts are followed by another attempt. wrong: all that do not call the first attempt right. always:
    all."""
    max_attempt: Annotated[int, ActsUnless("critic.kind", "rule")] = Field(2000, ge=16)
    """Characters of an attempt that the critic reads; the middle of longer ones is left out."""
    max_plan: Annotated[int, ActsWhen("of", "attempt")] = Field(10, ge=1)
    """Actions that a critique by rule lists, for an expert that has no words for its plan (TextCraft's has)."""

    @property
    def is_by_rule(self) -> bool:
        """Whether a rule critiques."""
        return isinstance(self.critic, RuleConfig)
