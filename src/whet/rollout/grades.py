"""The grader's grade of a reply."""

from __future__ import annotations

from whet.rollout.driver import GRADER, Ask
from whet.types import MUST_END, Grade, Segment, StopReason, Task


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
