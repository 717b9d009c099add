"""Episodes as flows play them, made by hand: segments with tokens, grades, verdicts and prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.types import Episode, Grade, Segment, Task


def segment_of(
    role: str = "solver", *, tokens: Sequence[int] = (8, 9), score: float | None = None, **more: Any
) -> Segment:
    """A segment that a policy sampled.

    Args:
        score: of its grade. None: it has none (give `grade` for one that failed).
        more: other fields.
    """
    given: dict[str, Any] = {
        "policy": "p", "added": (5, 6, 7), "tokens": tuple(tokens), "logprobs": (-0.5,) * len(tokens), "text": "said",
        "versions": ((0, len(tokens)),), "stop_reason": "eos", "temperature": 1.0, "seed": 1, "parent": None,
        "grade": None if score is None else Grade(score=score, extracted="4"),
    }  # fmt: skip
    return Segment(role=role, **(given | more))


def reply(score: float | None, *, task: str = "t", seed: int = 0, **more: Any) -> Episode:
    """One graded reply to a task; a score of None: grading failed."""
    grade = Grade(score=score, reason="" if score is not None else "the grader broke")
    segment = segment_of(grade=grade, seed=seed, group={"task": task}, **more)
    outcome = "ok" if score is not None else "grader_error"
    return Episode(task=Task(id=task, prompt="q", answer="4"), segments=(segment,), outcome=outcome)


def exchange(
    answer: float | None, critiques: Sequence[tuple[str | None, Sequence[float | None]]], *, task: str = "t"
) -> Episode:
    """An answer and critiques of it, each a verdict and the scores of the refinements that it led to."""
    first = segment_of("actor", policy="actor", grade=Grade(score=answer), tokens=(8, 9), group={"task": task}, seed=1)
    segments = [first]
    for verdict, scores in critiques:
        at = len(segments)
        group = {"task": task, "answer": f"{task}/0"}
        segments.append(segment_of("critic", policy="critic", parent=0, parsed={"verdict": verdict}, group=group,
                                   tokens=(4,) * (at + 1), seed=100 + at))  # fmt: skip
        for number, score in enumerate(scores):
            grade, seed = Grade(score=score), 200 + 10 * at + number
            segments.append(segment_of("actor", policy="actor", parent=at, grade=grade, prefix=first, seed=seed,
                                       added=(20 + at,), tokens=(8, 30 + number)))  # fmt: skip
    return Episode(task=Task(id=task, prompt="q", answer="4"), segments=tuple(segments))
