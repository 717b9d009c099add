"""A method of one's own, in one file: of n replies to each problem the best one is imitated, as far as it is paid."""

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

import whet
from whet.kit import (
    BY_BEST,
    POLICY,
    Batch,
    LearningConfig,
    Phase,
    PolicyAlgorithm,
    PolicyRunConfig,
    ReinforceLoss,
    Update,
    assign_credit,
    groups_of,
    outcome,
    policy_term,
    reply_metrics,
    reply_traces,
    rewarded,
    solve_rollout,
    solver_spec,
)


class BestOfNConfig(PolicyRunConfig):
    """REINFORCE on the best of n replies."""

    method: Literal["best_of_n"] = "best_of_n"
    """Which method these are the settings of."""
    num_steps: int = Field(20, ge=1)
    """Steps: sample, grade, update."""
    prompts_per_step: int = Field(16, ge=1)
    """Problems in a step."""
    n: int = Field(8, ge=1)
    """Replies to each, of which one trains."""
    learning: LearningConfig = LearningConfig(learning_rate=3e-4)


@whet.method("best_of_n")
class BestOfN(PolicyAlgorithm[BestOfNConfig]):
    """REINFORCE on the best of n replies to each problem"""

    spec = solver_spec(BestOfNConfig)

    def phases(self) -> Iterator[Phase]:
        yield self.evaluator.before()
        yield Phase(
            "train", self.config.num_steps, self._collect, updates=self._updates,
            validate=self.evaluator.validate, validate_every=10, select=BY_BEST, headline=("reward/mean",),
        )  # fmt: skip
        yield self.evaluator.after()

    def _collect(self, step: int) -> Batch:
        tasks = self.run.next_tasks(step, self.config.prompts_per_step)
        rollout = solve_rollout(self, POLICY, "train", step)
        episodes = self.run.runtime.by_task(rollout, tasks, num_samples=self.config.n)
        terms, added = {"outcome": outcome()}, self.at(step).rewards
        groups = [groups_of(rewarded(group, "solver", terms, added=added), "solver", "task")[0] for group in episodes]
        best = [[max(group, key=lambda scored: scored.reward)] for group in groups if group]
        assigned = assign_credit(best, whet.ADVANTAGES.get("reward"))
        traces = reply_traces(self.config, step, best, assigned)
        return Batch(assigned.rows, reply_metrics(groups, self.config.sampling), traces)

    def _updates(self, step: int) -> Mapping[str, Update]:
        term = policy_term(ReinforceLoss(), "sequence_mean")
        return {POLICY: Update((term,), self.config.learning, self.config.num_steps)}
