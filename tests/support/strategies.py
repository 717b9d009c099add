"""Strategies at work on a run's questions, on samples of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.play.samples import Samples, kept_round
from whet.runs.strategies import Spending, Strategy


def samples_of(method: Any, task: Any, critic: str = "critic", *, temperature: float | None = None, ledger: Any = None,
               of_run: bool = False, compares: bool = False) -> Samples:  # fmt: skip
    """Fresh ones of a question, nothing of them made yet."""
    seats = method.seats_of(critic, temperature, of_run=of_run, judged=critic != "no_critic")
    rounds = seats.sampled if ledger is None else kept_round(seats.sampled, ledger)
    return Samples(task, rounds, seats.greedy, method.desk.refills(), method.reading, compares)


def spent(method: Any, samples: Samples, strategy: Strategy, budget: int) -> tuple[Any, Spending]:
    """What the strategy gives at that budget, and what it paid for."""
    spending = Spending(samples, budget)

    async def go():
        return await strategy.choose(spending)

    [chosen] = method.desk.play([go()])
    return chosen, spending


def at_each(method: Any, samples: Samples, strategy: Strategy, budgets: Sequence[int]) -> list[tuple[Any, Spending]]:
    return [spent(method, samples, strategy, budget) for budget in budgets]
