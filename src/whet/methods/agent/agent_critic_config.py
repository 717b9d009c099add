"""The settings of a critic in the loop of an agent."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whet.config import LearningConfig, NameOf, PerStep
from whet.config.acts import ActsWhen, AllOf, AnyOf, Inside, NoEffect
from whet.config.environments import MEASURED, AgentCriticRunConfig, AgentEvaluation
from whet.config.parts import ModelConfig
from whet.methods.agent.names import CRITIC
from whet.methods.agent.warm_start_config import AgentWarmStart
from whet.methods.names import POLICY
from whet.methods.stages_config import Stage1, Stage2
from whet.models.shipped import OURS

LEARNING = LearningConfig(learning_rate=3e-4, num_epochs=2, minibatch_rows=32)


TRAINED = AllOf(
    ActsWhen("of", "attempt", because="of is action, and a critic of actions is not trained"),
    ActsWhen("critic.kind", "model"),
)
"""When the critic learns."""


STAGED = (ActsWhen("stage1.num_steps"), ActsWhen("stage2.num_steps"))
"""Either of them makes a stage."""


class AgentCriticConfig(AgentCriticRunConfig):
    """An agent acts, a critic critiques its attempt, the agent tries again; the critic is trained."""

    method: Literal["agent_critic"] = "agent_critic"
    max_turns: Annotated[PerStep[int | None], AnyOf(*STAGED, ActsWhen("warm_start.critic_steps"), hint=MEASURED)] = (
        Field(12, ge=1)
    )
    """Turns that an attempt in training may take. None: each environment's usual number."""
    rewards: Annotated[PerStep[dict[str, float]], NameOf("reward term"), AnyOf(*STAGED)] = Field({})
    traces_per_step: Annotated[int, AnyOf(*STAGED)] = Field(4, ge=0)
    evaluation: Annotated[
        AgentEvaluation, Inside("validation_samples", NoEffect("a validation rolls each item out once, greedily"))
    ] = AgentEvaluation(max_turns=12)
    warm_start: Annotated[
        AgentWarmStart,
        Inside("policy_steps", ActsWhen("policy.kind", "model")),
        Inside("critic_steps", TRAINED),
        Inside("drilled", ActsWhen("of", "attempt")),
    ] = AgentWarmStart()
    stage1: Annotated[Stage1, TRAINED] = Stage1(num_steps=8, prompts_per_step=12, validate_every=5, learning=LEARNING)
    stage2: Annotated[Stage2, TRAINED] = Stage2(num_steps=12, prompts_per_step=12, validate_every=4, learning=LEARNING)

    @model_validator(mode="after")
    def check_critiques(self) -> Self:
        if self.critique.temperature == 0 and self.trains and (self.stage1.num_steps or self.stage2.num_steps):
            raise ValueError(
                "critique.temperature = 0 makes all critiques of an attempt equal, so none is better than "
                "the others and nothing is learnt; use 0.7 or 1.0"
            )
        if self.of == "action" and isinstance(self.critic, ModelConfig) and self.critic.path in OURS:
            raise ValueError(
                f"of = action trains no critic, and {self.critic.path} has learnt no verdicts, so that it "
                "would send nothing back: set critic.kind=rule (the oracle), critic.kind=endpoint, or "
                "critic.path to a model that judges"
            )
        return self

    @property
    def trains(self) -> bool:
        """Whether the critic is one that is trained."""
        return isinstance(self.critic, ModelConfig) and self.of == "attempt"

    @property
    def steps_of(self) -> dict[str, int]:
        """Steps of the warm start, by role."""
        warm = self.warm_start
        return {
            POLICY: warm.policy_steps if isinstance(self.policy, ModelConfig) else 0,
            CRITIC: warm.critic_steps if self.trains else 0,
        }
