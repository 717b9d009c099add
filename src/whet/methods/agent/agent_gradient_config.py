"""The settings of multi-turn RL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from whet.config import Config, LearningConfig, PerStep, possible
from whet.config.acts import ActsUnless, ActsWhen, Inside
from whet.config.environments import SCRIPTED_AGENTS, AgentRunConfig
from whet.config.losses import VALUE_MODEL
from whet.config.parts import ModelConfig, SamplingConfig
from whet.methods.agent.names import ROWS
from whet.methods.gradient_config import GradientConfig
from whet.methods.names import BEST, POLICY

CLONED = "cloned"
"""The role of a model to compare with."""


ROW = "^[a-z][a-z0-9_]{0,40}$"


TAKEN = frozenset({*ROWS, CLONED, POLICY, BEST, VALUE_MODEL, "training", *SCRIPTED_AGENTS})
"""Names that no model of `beside` may have."""


class TurnCreditConfig(Config):
    """How much of an episode's reward each turn gets as credit."""

    per: Literal["episode", "turn", "gigpo"] = "episode"
    """episode: every turn has the credit of the whole. turn: the rewards from the turn on, compared with the group's
    turns of the same number. These were in other states, which makes a noisier baseline; a turn that no other episode
    reached has no credit. gigpo (2505.10978): the episode's credit, and the turn's compared with the group's turns that
    began in the same state. It assumes that these have equally many turns left, and needs an advantage that compares in
    groups. With gae, turn gives each turn's reward at its last token."""
    gamma: Annotated[float, ActsWhen("per", "turn", "gigpo")] = Field(1.0, gt=0, le=1)
    """Discount a turn. GiGPO's paper takes 0.95. With gae it is value.gamma, a token."""
    weight: Annotated[float, ActsWhen("per", "gigpo")] = Field(1.0, gt=0)
    """Weight of gigpo's turns beside its episodes."""


class AgentGradientConfig(AgentRunConfig, GradientConfig):
    """Multi-turn RL: a policy attempts each item several times in its environment, and the rewards are compared."""

    method: Literal["agent_gradient"] = "agent_gradient"
    policy: ModelConfig = ModelConfig(path="tiny_agent_early")
    """The model that is trained."""
    sampling: PerStep[SamplingConfig] = SamplingConfig(max_new_tokens=128)
    """Of one turn."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-4, minibatch_rows=128)
    """minibatch_rows: episodes."""
    max_env_steps: int | None = Field(None, ge=1)
    """Steps in environments that training may take: the step that reaches so many is its last one. Validation and tests
    do not count. Schedules and learning rates still go by num_steps. None: training makes all of num_steps."""
    credit: Annotated[TurnCreditConfig, Inside("gamma", ActsUnless("advantage", "gae"))] = TurnCreditConfig()
    cloned: ModelConfig | None = None
    """Another model that is measured after training in a row of its own, such as the fully cloned agent: what more
    cloning would have reached. None: none."""
    beside: dict[Annotated[str, Field(pattern=ROW)], ModelConfig] = Field({})
    """More models that are measured after training, by the names of their rows: {more_cloning: {path: FOLDER}}."""

    unit: ClassVar[str] = "episodes"

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        for problem in (*_problems(self), *self.problems()):
            raise ValueError(problem)
        return self


def _problems(config: AgentGradientConfig) -> Iterator[str]:
    """What does not go together."""
    per, num_episodes = config.credit.per, config.prompts_per_step * min(possible(config, "group_size"))
    if config.max_env_steps is not None and config.max_env_steps <= num_episodes:
        yield (
            f"max_env_steps = {config.max_env_steps} ends training with its first step, which rolls out {num_episodes} "
            "episodes of a turn or more: raise it, or take null for all of num_steps"
        )
    if taken := sorted(TAKEN & config.beside.keys()):
        yield f"beside.{taken[0]} has a name that a run needs for itself: give its row another one"
    if config.sampling.temperature == 0:
        yield "sampling.temperature = 0 makes all episodes of an item equal; use 0.6 to 1.0"
    if config.off_policy.kind == "partial":
        yield "off_policy.kind = partial is of single replies; episodes go with none or replay"
    if per == "gigpo" and config.advantage == "gae":
        yield "credit.per = gigpo compares turns of a group, and gae takes a value model: use grpo or rloo with it"
    if per != "episode" and config.advantage != "gae" and config.kl.where == "reward" and config.kl.coef:
        yield f"credit.per = {per} goes with kl.where = loss: turns are paid by the world alone"
