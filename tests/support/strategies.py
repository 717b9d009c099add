"""Strategies at work on a run's questions, on samples of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.evaluation.inference_scaling import BudgetedSamples, Strategy
from whet.rollout.samples import Samples, cached_round


def samples_of(method: Any, task: Any, critic: str = "critic", *, temperature: float | None = None, ledger: Any = None,
               of_run: bool = False, compares: bool = False) -> Samples:  # fmt: skip
    """Fresh ones of a question, nothing of them made yet."""
    roles = method.evaluator.scaling_roles(critic, temperature, of_run=of_run, judged=critic != "no_critic")
    rounds = roles.sampled if ledger is None else cached_round(roles.sampled, ledger)
    return Samples(task, rounds, roles.greedy, method.run.runtime.retries(), method.spec.reading, compares)


def spent(method: Any, samples: Samples, strategy: Strategy, budget: int) -> tuple[Any, BudgetedSamples]:
    """What the strategy gives at that budget, and what it paid for."""
    budgeted = BudgetedSamples(samples, budget)

    async def go():
        return await strategy.choose(budgeted)

    [chosen] = method.run.runtime.roll_out([go])
    return chosen, budgeted


def at_each(
    method: Any, samples: Samples, strategy: Strategy, budgets: Sequence[int]
) -> list[tuple[Any, BudgetedSamples]]:
    return [spent(method, samples, strategy, budget) for budget in budgets]
