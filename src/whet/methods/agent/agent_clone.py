"""Behavioural cloning (AgentGym, arXiv:2406.04151, section 4.1): a policy learns an agent's turns from trajectories.

They are those of files (`whet.trajectories.files`), or of the environments' scripted experts. Only what the agent
said trains, as RL and preferences have it; a message whose `loss` is False does not.

`clone_presets` has three presets of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from whet.methods.agent.agent_clone_config import AgentCloneConfig
from whet.methods.agent.base import BY_SUCCESS_OR_LATER, AgentAlgorithm, agent_spec
from whet.methods.agent.cloning import clone_rows, demonstrated, learnt_and_tested, read_files
from whet.methods.agent.evolution import shown_items
from whet.methods.agent.openings import Given
from whet.methods.base import RunContext
from whet.methods.names import POLICY
from whet.methods.report_specs import load_report
from whet.methods.warm_start import imitation_phase
from whet.seeds import seed_of
from whet.trainer.loop import Phase
from whet.types import Row


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
            run.warnings.extend(learnt_and_tested(shown_items(trajectories, self.rollouts.infos), run.tasks))
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
