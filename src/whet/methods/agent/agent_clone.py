"""Behavioural cloning (AgentGym, arXiv:2406.04151, section 4.1): a policy learns an agent's turns from trajectories.

They are those of files (`whet.trajectories.files`), or of the environments' scripted experts. Only what the agent
said trains, as RL and preferences have it; a message whose `loss` is False does not.

Three presets clone experts in TextCraft with the tiny agent. `CARELESS` pretrains the agent that RL starts from. `MORE`
and `EXPERT` are what RL is compared with.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from whet.config import InputFile, LearningConfig, NameOf, PerStep
from whet.config.acts import ActsUnless, NoEffect
from whet.config.environment_data import EnvironmentData
from whet.config.environments import MEASURED, AgentEvaluation, AgentRunConfig, ExpertConfig
from whet.config.parts import ModelConfig, SamplingConfig
from whet.methods.agent.base import BY_SUCCESS_OR_LATER, AgentAlgorithm, agent_spec
from whet.methods.agent.cloning import clone_rows, demonstrated, learnt_and_tested, read_files
from whet.methods.agent.evolution import shown_items
from whet.methods.agent.openings import Given
from whet.methods.base import RunContext
from whet.methods.registry import Preset
from whet.methods.report_specs import load_report
from whet.methods.solvers import POLICY
from whet.methods.warm_start import imitation_phase
from whet.seeds import seed_of
from whet.trainer.loop import Phase
from whet.types import Row

NO_ROLLOUTS = "what is learnt is given, and no episode is rolled out to learn from"


class AgentCloneConfig(AgentRunConfig):
    """Cloning: a policy learns an agent's turns from trajectories."""

    method: Literal["agent_clone"] = "agent_clone"
    policy: ModelConfig = ModelConfig(path="tiny_agent_early")
    """The model that is trained."""
    trajectories: tuple[InputFile, ...] = ()
    """Files of trajectories, as AgentGym publishes them. (): the environments' scripted experts act on the training
    items, and the policy learns from their successes."""
    expert: Annotated[ExpertConfig, ActsUnless("trajectories")] = ExpertConfig()
    """How the experts act, where no files are given."""
    max_turns: Annotated[PerStep[int | None], NoEffect(NO_ROLLOUTS, MEASURED)] = Field(None, ge=1)
    rewards: Annotated[PerStep[dict[str, float]], NameOf("reward term"), NoEffect(NO_ROLLOUTS)] = Field({})
    traces_per_step: Annotated[int, NoEffect(NO_ROLLOUTS)] = Field(4, ge=0)
    num_steps: int = Field(200, ge=1, le=10**9)
    """Batches."""
    rows_per_step: int = Field(16, ge=1)
    """Trajectories in a batch."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-3)
    validate_every: int = Field(50, ge=1)
    """Steps between validations; the best validated weights are kept."""


class AgentClone(AgentAlgorithm[AgentCloneConfig]):
    """Behavioural cloning from trajectories, and how well the policy acts after it (2406.04151)"""

    spec = agent_spec(AgentCloneConfig, report=load_report("agent_clone"))

    def __init__(self, config: AgentCloneConfig, run: RunContext) -> None:
        super().__init__(config, run)
        if run.trains:
            loop = run.loop
            trajectories, warnings = demonstrated(self.rollouts, run.tasks["train"], config.expert, loop.progress.tell)
            cloned = clone_rows(
                trajectories,
                loop.policies[POLICY],
                shows_rules=partial(self.rollouts.shows_rules, POLICY),
                max_context=config.max_context,
                wants_failures=not config.trajectories and config.expert.keep_failures,
            )
            self.rows = cloned.rows
            run.info.append(cloned.info)
            run.warnings.extend(warnings + cloned.warnings)
            run.warnings.extend(learnt_and_tested(shown_items(trajectories), run.tasks))
            self.say_openings()

    def read_given(self) -> Given:
        return read_files(self.config.trajectories, self.config, self.rollouts.infos)

    def phases(self) -> Iterator[Phase]:
        config = self.config
        yield self.evaluator.before()
        yield imitation_phase(
            "train", POLICY, config.num_steps, self._draw, config.learning, config.rows_per_step,
            validate=self.evaluator.validate, validate_every=config.validate_every, select=BY_SUCCESS_OR_LATER,
        )  # fmt: skip
        yield self.evaluator.after()

    def _draw(self, step: int) -> list[Row]:
        rng = random.Random(seed_of(self.run.loop.seed, "clone", step))
        return rng.choices(self.rows, k=self.config.rows_per_step)


# --- presets of the tiny agent in TextCraft ---------------------------------------------------------------------------

NUM_EXPERT_EPISODES = 8
"""Episodes of each training item. The order of the recipes and the mistakes differ."""
CARELESS_EXPERT = ExpertConfig(
    num_episodes=NUM_EXPERT_EPISODES, max_turns=10, wrong_count=0.3, wrong_action=0.15, stuck=0.8, keep_failures=True
)
"""Wrong counts, wrong actions, and refused actions again and again: two thirds of the episodes succeed."""
FAULTLESS_EXPERT = ExpertConfig(num_episodes=NUM_EXPERT_EPISODES, max_turns=10)
"""Episodes of the same items, without mistakes."""
SHALLOW = EnvironmentData(
    env={"textcraft": 1.0},
    settings={"textcraft": {"max_distractors": 4}},
    groups=("depth 1", "depth 2"),
    num_validation=48,
)
"""Goals within two crafts, 238 to train on, 48 to choose the best weights by and 72 to test on."""
ACTION = SamplingConfig(max_new_tokens=24)
"""An action without a thought has eight tokens."""
SAMPLED = AgentEvaluation(num_samples=8, validation_samples=4, max_turns=10)
"""Several episodes an item: one greedy pass over 72 items is uncertain by ten points."""
ROWS = 8
"""Of a minibatch and of a step."""


def _preset(**settings: Any) -> Preset:
    config = AgentCloneConfig(data=SHALLOW, format="plain", sampling=ACTION, rows_per_step=ROWS, **settings)
    return Preset(AgentClone, config)


CARELESS = _preset(
    policy=ModelConfig(path="tiny_agent", random_weights=0),
    expert=CARELESS_EXPERT,
    num_steps=2000,
    learning=LearningConfig(learning_rate=2e-3, final_share=0.05, warmup_steps=100, minibatch_rows=ROWS),
    validate_every=250,
    evaluation=SAMPLED,
)
"""From random weights until success rises no more; the result is `tiny_agent_careless`. The agent knows the words and
the game, and is often but not always wrong, so RL can still improve it."""
_FROM_CARELESS = {
    "policy": ModelConfig(path="tiny_agent_careless"),
    "learning": LearningConfig(learning_rate=1e-3, final_share=0.05, warmup_steps=20, minibatch_rows=ROWS),
    "validate_every": 100,
    # A greedy episode suffices: the run of RL measures both again, by many episodes an item.
    "evaluation": AgentEvaluation(num_samples=1, validation_samples=4, max_turns=SAMPLED.max_turns),
}
MORE = _preset(expert=CARELESS_EXPERT, num_steps=300, **_FROM_CARELESS)
"""The control of RL: the same episodes for longer, with the best validated weights."""
EXPERT = _preset(expert=FAULTLESS_EXPERT, num_steps=600, **_FROM_CARELESS)
"""The ceiling of RL: episodes without mistakes, of the same items."""
