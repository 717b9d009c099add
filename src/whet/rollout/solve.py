"""The simplest rollout function: a policy answers a task, a grader grades the answer.

The grader's grade of a reply.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from whet.rollout.driver import GRADER, Ask
from whet.rollout.roles import PolicyRole
from whet.seeds import seed_of
from whet.tasks.prompts import Prompts
from whet.types import MUST_END, Completion, Episode, Grade, Segment, StopReason, Task


@dataclass(frozen=True)
class Solve:
    """A rollout function: a call with a task returns a rollout. All seeds derive from `key`."""

    prompts: Prompts
    solver: PolicyRole
    key: tuple[object, ...]
    """Run seed, phase, step: the seeds' first part."""

    async def __call__(self, task: Task, *, sample: int = 0) -> Episode:
        """Args: sample: the number among the task's replies, for the seed."""
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
        """The episode of a finished reply, which is graded here."""
        grade = await grade_of(segment, task)
        failed = grade.score is None
        return Episode(
            task=task,
            segments=(replace(segment, grade=grade),),
            outcome="grader_error" if failed else "truncated" if segment.stop_reason == "length" else "ok",
            reason=grade.reason if failed else "",
        )


# --- the grade of a reply ---------------------------------------------------------------------------------------------


async def grade_of(segment: Segment, task: Task) -> Grade:
    """The grade of a reply. The grader is asked only if it has to read the reply."""
    if (unread := grade_unread(segment.stop_reason, task)) is not None:
        return unread
    grade: Grade = await Ask(GRADER, (segment.text, task))
    return grade


def grade_unread(stop_reason: StopReason, task: Task) -> Grade | None:
    """A reply that was cut off is wrong unread, where its task says that replies must end. None: it has to be read."""
    if stop_reason == "length" and task.info.get(MUST_END):
        return Grade(score=0.0, reason="it was cut off at the token limit")
    return None
