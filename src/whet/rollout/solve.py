"""The simplest rollout function: a policy answers a task, and a grader grades the answer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from whet.rollout.driver import GRADER, Ask
from whet.rollout.roles import PolicyRole
from whet.seeds import seed_of
from whet.tasks.prompts import Prompts
from whet.types import MUST_END, Completion, Episode, Grade, Outcome, Segment, StopReason, Task


@dataclass(frozen=True)
class Solve:
    """A rollout function: a call with a task returns a rollout. All seeds derive from `key` and the task."""

    prompts: Prompts
    solver: PolicyRole
    key: tuple[object, ...]
    """Run seed, phase, step: the seeds' first part."""

    async def __call__(self, task: Task, *, sample: int = 0) -> Episode:
        """The graded episode of one reply.

        Args:
            sample: the reply's number among the task's, for the seed.
        """
        empty = self.begin(task, sample)
        completion: Completion = await Ask(self.solver.policy, self.solver.request(empty))
        return await self.graded(task, self.extended(empty, completion))

    def begin(self, task: Task, sample: int) -> Segment:
        """The reply before its first token."""
        return self.solver.begin(
            self.prompts.solve_messages(task.prompt),
            prefill=self.prompts.solve_prefill,
            seed=seed_of(*self.key, "answer", task.id, sample),
            group={"task": task.id},
        )

    def extended(self, segment: Segment, completion: Completion) -> Segment:
        """The reply with the engine's new tokens."""
        return self.solver.extended(segment, completion, prefill=self.prompts.solve_prefill)

    async def graded(self, task: Task, segment: Segment) -> Episode:
        """Grades a finished reply.

        Returns: its episode, with outcome `ok`, `truncated` at the token limit, or `grader_error`.
        """
        grade = await grade_of(segment, task)
        segments = (replace(segment, grade=grade),)
        if grade.score is None:
            return Episode(task=task, segments=segments, outcome="grader_error", reason=grade.reason)
        outcome: Outcome = "truncated" if segment.stop_reason == "length" else "ok"
        return Episode(task=task, segments=segments, outcome=outcome)


async def grade_of(segment: Segment, task: Task) -> Grade:
    """The grade of a reply. The grader is asked only if `grade_unread` gives none."""
    if (unread := grade_unread(segment.stop_reason, task)) is not None:
        return unread
    grade: Grade = await Ask(GRADER, (segment.text, task))
    return grade


def grade_unread(stop_reason: StopReason, task: Task) -> Grade | None:
    """The grade of a reply that needs no reading: 0 where it was cut off and its task says that replies must end.

    Returns: None where the grader has to read it.
    """
    if stop_reason == "length" and task.info.get(MUST_END):
        return Grade(score=0.0, reason="it was cut off at the token limit")
    return None
