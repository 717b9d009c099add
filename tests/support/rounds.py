"""A critique round between random models, and one task of the tiny world with a right and a wrong answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from whet.engines.local import LocalEngine
from whet.grading import make_grader
from whet.models.policy import Policy
from whet.rollout.critique import CritiqueRound
from whet.rollout.driver import GRADER, roll_out
from whet.rollout.roles import PolicyRole
from whet.rollout.services import BatchFunction
from whet.tasks.prompts import CHAINS
from whet.types import Episode, Grade, Sampling, Segment, Task

TASK = Task(id="t", prompt="7 + 5 * 3", answer="6")
RIGHT, WRONG = (
    "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 6\nThe answer is 6",
    "Step 1: 7 + 5 = 3\nStep 2: 3 * 3 = 9\nThe answer is 9",
)


def round_of(policy: Policy) -> tuple[CritiqueRound, Mapping[str, BatchFunction]]:
    """A round in which one policy sits in every seat, and the services it needs."""
    sampling = Sampling(temperature=1.0, max_new_tokens=24)

    def role(name: str) -> PolicyRole:
        return PolicyRole(name, "policy", policy.tokenizer, sampling)

    services = {"policy": LocalEngine(policy).generate, GRADER: make_grader("chains").grade}
    return CritiqueRound(CHAINS, role("actor"), role("critic"), role("actor"), key=(0, "test")), services


def graded(segment: Segment, right: bool) -> Segment:
    return replace(segment, grade=Grade(score=float(right)))


def play_rounds(
    rounds: CritiqueRound,
    tasks: Sequence[Task],
    services: Mapping[str, BatchFunction],
    *,
    answers: Mapping[str, Segment] | None = None,
    num_samples: int = 1,
) -> list[list[Episode]]:
    """`num_samples` episodes of each task, with the cached answers where there are any."""
    rollouts = [
        rounds(task, answer=(answers or {}).get(task.id), sample=sample)
        for task in tasks
        for sample in range(num_samples)
    ]
    episodes = roll_out(rollouts, services)
    return [episodes[at : at + num_samples] for at in range(0, len(episodes), num_samples)]
