"""A critic in the loop of an agent. The policy attempts an item, the critic critiques the attempt, and the policy makes
another attempt that begins with the critique.

    t ~ policy(u);  c ~ critic(u, t);  t' ~ policy(u, c);  R = [success(t')] behind a right verdict on t

The critic is frozen (a model, an endpoint, a rule), or trained in the stages of Critique-RL (arXiv:2510.24320). Stage I
rewards the verdict on the attempt, stage II the success of the next attempt. The policy does not change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import ceil
from random import Random

from whet.credit import critique_signs, flat_groups, groups_of, reward_metrics, rewarded
from whet.methods.agent.agent_critic_config import AgentCriticConfig
from whet.methods.agent.cloning import demonstrated
from whet.methods.agent.critics import AgentCriticAlgorithm, agent_critic_spec
from whet.methods.agent.names import CRITIC, ORACLE
from whet.methods.agent.revisions import revision_traces
from whet.methods.agent.warm_start import SFTExamples, critic_rows
from whet.methods.base import RunContext
from whet.methods.critics import NO_CRITIC, SFT
from whet.methods.names import POLICY
from whet.methods.report_specs import load_report
from whet.methods.rounds import in_epochs
from whet.methods.stages import STAGES, assign_stage_credit, critic_of, reaches_goal, stage_phase, terms_of
from whet.methods.stages_config import Stage1, Stage2
from whet.methods.warm_start import imitation_phase
from whet.report.spec import ReportSpec
from whet.seeds import seed_of
from whet.trainer.loop import Batch, Phase
from whet.types import FAULTS, Row

ATTEMPTS = "attempts"
"""A queue of the run's store: rows for the critic's warm start."""
AT_A_TIME = 64
"""Attempts for the warm start that a step makes."""


SNAPSHOTS = {critic_of(name): name for name in STAGES}


def report_by(report: ReportSpec, config: AgentCriticConfig) -> ReportSpec:
    """Of attempts, or of actions."""
    if config.of == "attempt":
        return report
    return replace(load_report("agent_actions"), order=report.order, untrained=report.untrained)


class AgentCritic(AgentCriticAlgorithm[AgentCriticConfig]):
    """A critic in the loop of an agent: attempt, critique, another attempt"""

    spec = agent_critic_spec(AgentCriticConfig, SNAPSHOTS, report=load_report("agent_critic"), report_by=report_by)

    def __init__(self, config: AgentCriticConfig, run: RunContext) -> None:
        super().__init__(config, run)
        for key in STAGES if run.trains and config.trains else ():
            if (stage := getattr(config, key)).num_steps:
                self.rollouts.check_shares(f"{key}.prompts_per_step", stage.prompts_per_step)
        self.sft_examples: SFTExamples | None = None
        if run.trains and config.steps_of[CRITIC]:
            assert self.critiques.experts  # said before the run begins, where there is none
        if run.trains and config.steps_of[POLICY]:
            shown, warnings = demonstrated(self.rollouts, self.run.tasks["train"])
            self.run.warnings.extend(warnings)
            self.sft_examples = SFTExamples(shown, self.critiques.experts, config.format, self.run.prompts, config.of)

    # --- phases -------------------------------------------------------------------------------------------------------

    def phases(self) -> Iterator[Phase]:
        yield from self._warm_start()
        reference, tested = SFT, [SFT]
        for key in STAGES if self.config.trains else ():
            yield stage_phase(self, key, reference, partial(self._collect, key, reference))
            if getattr(self.config, key).num_steps:
                reference = critic_of(key)
                tested.append(reference)
        critics = tested if self.config.trains else [CRITIC]
        yield self.evaluator.test([NO_CRITIC, *critics, *self.critiques.oracles], begin=self._freeze_sft)

    def _freeze_sft(self) -> None:
        if self.config.trains:
            self.run.loop.freeze(CRITIC, SFT)

    # --- learning -----------------------------------------------------------------------------------------------------

    def _warm_start(self) -> Iterator[Phase]:
        """Agent first, as the critic learns from what it does."""
        warm = self.config.warm_start
        imitated = partial(imitation_phase, learning=warm.learning, rows_per_step=warm.rows_per_step)
        steps = self.config.steps_of
        yield imitated("sft_policy", POLICY, steps[POLICY], self._sft_example)
        num_batches = ceil(warm.attempts / AT_A_TIME) if steps[CRITIC] else 0
        yield Phase("attempts", num_batches, self._attempts, headline=("critique/acc",))
        yield imitated("sft_critic", CRITIC, steps[CRITIC], self._shown, end=self._forget)

    def _sft_example(self, step: int) -> list[Row]:
        assert self.sft_examples is not None
        warm, policy = self.config.warm_start, self.run.loop.policies[POLICY]
        rng = Random(seed_of(self.run.loop.seed, "sft_policy", step))
        return self.sft_examples.draw(
            warm.rows_per_step,
            warm,
            policy,
            rng,
            shows_rules=partial(self.rollouts.shows_rules, POLICY),
            max_context=self.rollouts.longest(POLICY, 0),
        )

    def _attempts(self, step: int) -> Batch:
        """Collects attempts with the oracle's critiques for the critic. Settings that change with the step are those of
        step 1 of stage I."""
        config = self.at(1)
        left = config.warm_start.attempts - (step - 1) * AT_A_TIME
        rollout = self.critiques.rounds(
            ORACLE, "attempts", step, max_turns=config.max_turns, sampling=config.sampling, retry=False
        )
        episodes = self.critiques.episodes(rollout, self.rollouts.drawn(step, AT_A_TIME)[:left])
        made = critic_rows(episodes, self.run.loop.policies[CRITIC], self.run.prompts, config.max_attempt)
        self.run.loop.store.rows(ATTEMPTS).put(str(step), made)
        return Batch(metrics=self.critiques.step_metrics(episodes, config))

    def _shown(self, step: int) -> list[Row]:
        rows = list(self.run.loop.store.rows(ATTEMPTS))
        return in_epochs(rows, step, self.config.warm_start.rows_per_step, self.run.loop.seed, "sft_critic")

    def _forget(self) -> dict[str, str]:
        self.run.loop.store.rows(ATTEMPTS).clear()
        return {}

    def _collect(self, key: str, reference: str, step: int) -> Batch:
        """One step of a stage: roll out, reward, assign credit."""
        first = self.config.stage1.num_steps if key == "stage2" else 0
        config = self.at(first + step)  # rollouts go on where stage I ended: its items, and its horizon
        stage: Stage1 | Stage2 = getattr(self.at(step), key)
        rollout = self.critiques.rounds(
            CRITIC,
            key,
            step,
            max_turns=config.max_turns,
            sampling=config.sampling,
            num_critiques=stage.group_size,
            retry=isinstance(stage, Stage2),
        )
        rolled_out = self.critiques.episodes(rollout, self.rollouts.drawn(first + step, stage.prompts_per_step))
        terms, total = terms_of(stage)
        episodes = [episode for episode in rolled_out if episode.outcome not in FAULTS]
        episodes = rewarded(episodes, CRITIC, terms, total, added=self.at(step).rewards)
        groups = groups_of(episodes, CRITIC, "answer")
        assigned = assign_stage_credit(stage, groups, self.run.loop.policies[reference])
        critiques = [e.segments[i] for e in episodes for i in e.indices(CRITIC)]
        metrics = {
            **reward_metrics(groups),
            **flat_groups(groups, partial(reaches_goal, stage)),
            **self.critiques.step_metrics(rolled_out, config),
            **assigned.metrics,
        }
        shown = revision_traces(
            episodes[: config.traces_per_step],
            phase=key,
            step=step,
            split="train",
            critic="training",
            credit=assigned.of_segments,
        )
        return Batch(
            assigned.rows, metrics, list(shown), signs=[critique_signs(groups, critiques, partial(reaches_goal, stage))]
        )
