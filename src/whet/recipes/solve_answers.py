"""A run's policies that answer alone: their engines and the grader, graded answers, and how good they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.engines.local import LocalEngine
from whet.evals.critique import Metrics
from whet.evals.solve import solve_metrics
from whet.models.policy import Policy
from whet.play.driver import Service, play
from whet.play.roles import Role
from whet.play.solve import GRADER, Solve
from whet.recipes.solve_config import SolveConfig
from whet.tasks.dialects import DIALECTS
from whet.types import Episode, Sampling, Segment, Task

POLICY, BEST = "policy", "policy_best"
"""The policy that is trained, and its weights of the best validation."""


class Solvers:
    """The policies in their seats.

    Args:
        policies: the run's own dict, which may come to hold more of them: each gets its engine when it is asked for.
        grade: the service that grades `(reply, task)` pairs.
    """

    def __init__(self, config: SolveConfig, policies: Mapping[str, Policy], grade: Service) -> None:
        self.config, self.policies, self.grade = config, policies, grade
        self.dialect = DIALECTS[config.dialect]
        self.engines: dict[str, LocalEngine] = {}

    def services(self) -> dict[str, Service]:
        """The policies' engines, and the grader."""
        settings = self.config.engine
        for name in (POLICY, BEST):
            if name in self.policies and name not in self.engines:
                self.engines[name] = LocalEngine(
                    self.policies[name], max_rows=settings.max_rows, prefill_tokens=settings.prefill_tokens
                )
        return {GRADER: self.grade, **{name: engine.generate for name, engine in self.engines.items()}}

    def flow(self, policy: str, *key: object, greedy: bool = False) -> Solve:
        """One of the policies as solver, with its sampling settings or greedy.

        Args:
            key: the first part of the seeds of what is sampled, after the run's own seed.
        """
        settings = self.config.sampling
        sampling = Sampling(
            temperature=0.0 if greedy else settings.temperature,
            top_p=1.0 if greedy else settings.top_p,
            max_new_tokens=settings.max_new_tokens,
            stop=settings.stop,
        )
        role = Role("solver", policy, self.policies[policy].tokenizer, sampling)
        return Solve(self.dialect, role, (self.config.seed, *key))

    def answers(self, flow: Solve, tasks: Sequence[Task], *, num_samples: int = 1) -> list[list[Episode]]:
        """Graded replies, by task."""
        episodes = play([flow(task, sample=i) for task in tasks for i in range(num_samples)], self.services())
        return [episodes[at : at + num_samples] for at in range(0, len(episodes), num_samples)]

    def measured(
        self, tasks: Sequence[Task], policy: str, *, num_samples: int = 0, **labels: Any
    ) -> tuple[Metrics, list[dict[str, Any]]]:
        """`solve_metrics` of a policy: one greedy reply a task, and `num_samples` sampled ones.

        Args:
            labels: for `trace`.
        Returns: the metrics, and a trace of each greedy reply.
        """
        greedy = [group[0] for group in self.answers(self.flow(policy, "evaluation", greedy=True), tasks)]
        sampled = self.answers(self.flow(policy, "evaluation"), tasks, num_samples=num_samples) if num_samples else []
        return solve_metrics(greedy, sampled), [trace(e.task, e.segments[0], **labels) for e in greedy]


def trace(task: Task, segment: Segment, *, phase: str, step: int, split: str, label: str) -> dict[str, Any]:
    """What the report shows of a reply.

    Args:
        label: what wrote it, in the report's words: a row of the final table, or `training`.
    """
    return {
        "phase": phase,
        "step": step,
        "split": split,
        "critic": label,
        "task": task.id,
        "question": task.prompt,
        "reference": task.answer,
        "answer": segment.text,
        "answer_score": segment.grade.score if segment.grade else None,
        "stop": {"answer": segment.stop_reason},
        "outcome": "ok" if segment.grade is None or segment.grade.score is not None else "grader_error",
    }
