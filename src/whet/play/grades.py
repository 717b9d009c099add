"""What the verifier makes of a reply."""

from __future__ import annotations

from whet.play.driver import GRADER, Ask
from whet.types import MUST_END, Grade, Segment, Task


async def grade_of(segment: Segment, task: Task) -> Grade:
    """The verifier's grade. A reply that was cut off is wrong unread, where its task says that replies must end."""
    if segment.stop_reason == "length" and task.info.get(MUST_END):
        return Grade(score=0.0, reason="it was cut off at the token limit")
    grade: Grade = await Ask(GRADER, (segment.text, task))
    return grade
