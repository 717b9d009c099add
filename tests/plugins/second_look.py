"""A method whose second phase is as long as what the first one found: problems that it got wrong are played again."""

from typing import Literal

from pydantic import Field

from whet.kit import (
    ADVANTAGES,
    BY_BEST,
    Batch,
    LearningConfig,
    PerStep,
    Phase,
    PolicyAlgorithm,
    PolicyRunConfig,
    ReinforceLoss,
    Update,
    as_row,
    assign_credit,
    groups_of,
    method,
    nll_term,
    outcome,
    policy_term,
    rewarded,
    solve_rollout,
    solver_spec,
)

TERMS = (nll_term(kinds={"right"}), policy_term(ReinforceLoss(), "token_mean", kinds={"again"}))


class SecondLookConfig(PolicyRunConfig):
    """Look at some problems; imitate what was right, and play again what was wrong."""

    method: Literal["second_look"] = "second_look"
    num_looks: int = Field(3, ge=1)
    group_size: PerStep[int] = Field(4, ge=2)
    learning: LearningConfig = LearningConfig(minibatch_rows=8)


@method("second_look", says="a method of these tests")
class SecondLook(PolicyAlgorithm[SecondLookConfig]):
    spec = solver_spec(SecondLookConfig, is_lazy=True)

    def phases(self):
        yield self.evaluator.before()
        yield Phase("look", self.config.num_looks, self._look, end=lambda: {"hard": list(self._hard().batches)})
        count = len(self.run.loop.found["look"]["hard"])
        updates = lambda step: {"policy": Update(TERMS, self.at(step).learning, 2 * count)}  # noqa: E731
        yield Phase(
            "drill", count, self._drill, updates, validate=self.evaluator.validate, validate_every=2, select=BY_BEST
        )
        yield self.evaluator.after()

    def _hard(self):
        return self.run.loop.store.tasks("hard")

    def _episodes(self, step, tasks):
        rollout = solve_rollout(self, "policy", "play", step, sampling=self.at(step).sampling)
        groups = self.run.runtime.by_task(rollout, tasks, num_samples=self.at(step).group_size)
        return [rewarded(group, "solver", {"outcome": outcome()}) for group in groups]

    def _look(self, step):
        right = []
        for group in self._episodes(step, self.run.next_tasks(step, 4)):
            task = group[0].task
            right += [
                as_row(e.segments[0], 1.0, kind="right", group=task.id) for e in group if e.segments[0].grade.score
            ]
            if not all(e.segments[0].grade.score for e in group):
                self._hard().put(task.id, [task])
                self.run.loop.store.episodes("hard").put(task.id, group)
        self.run.loop.store.rows("right").put(str(step), right)
        return Batch(metrics={"look/hard": float(len(self._hard()))})

    def _drill(self, step):
        """A problem's earlier replies beside new ones, and the right replies of a look, as long as there are any."""
        [task] = self._hard().take()
        earlier, [again] = self.run.loop.store.episodes("hard").take(task.id), self._episodes(step, [task])
        assigned = assign_credit(groups_of([*earlier, *again], "solver", "task"), ADVANTAGES.get("grpo"), kind="again")
        looks = self.run.loop.store.rows("right")
        return Batch([*(looks.take() if len(looks) else []), *assigned.rows], {"drill/rows": float(len(assigned.rows))})
