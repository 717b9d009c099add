"""A plug-in: graders of one's own."""

from whet.kit import Grade, grader


@grader("mine")
def exact(completion: str, answer: str) -> float:
    """Right where the last word is the answer."""
    words = completion.split()
    return float(bool(words) and words[-1] == answer)


@grader("mine:graded")
async def graded(completion: str, answer: str, task_id: str, **info: object) -> Grade:
    """Says what it saw of a task."""
    return Grade(score=0.5, reason=f"{task_id}: {answer}, {sorted(info)}", extracted=completion[-1:])
