"""Grades answers to tasks of reasoning-gym by the generator's own scorer, in killable processes.

A scorer needs the item that it made, whose metadata may be anything; so the worker (`tasks.gym_process`) makes the item
again from what the task says about it, and compares. Some scorers evaluate the answer as Python code or hand it to
SymPy: hence the time limit, the memory limit, and the worker's watch on what such code does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from whet.grading.maths import MAX_EXTRA_CHARS
from whet.grading.workers import Failure, Json, WorkerPool
from whet.tasks.chains import ANSWER_LINE
from whet.tasks.gym import ENVIRONMENT, PROCESS
from whet.types import Grade, Task

_MARKER = re.compile(rf"\b{ANSWER_LINE}\b[ \t]*:?", re.IGNORECASE)
_TAGGED = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.IGNORECASE | re.DOTALL)


class GymGrader:
    """The score, in [0, 1], that a task's generator gives to the answer that `final_text` finds in a reply.

    Scores between 0 and 1 are kept: some generators pay 0.01 for a wrong answer, or 0.5 for the right one in another
    form. A reply without an answer scores 0. No score (`None`, with the reason) is given where the scorer breaks, runs
    out of time or gives something else than a number in [0, 1].

    A context manager. The processes start with the first answer, and end with `close`.

    Args:
        timeout_s: wall-clock limit of one grading, which includes making the item again.
        memory_gib: address space of a worker, where the system can limit it. 0: no limit.
    """

    num_timeouts: int
    """Replies without a score because their grading ran out of time."""

    def __init__(self, *, timeout_s: float = 10.0, num_workers: int = 1, memory_gib: float = 4.0) -> None:
        self.num_timeouts = 0
        self._timeout_s = timeout_s
        command = (sys.executable, "-P", str(PROCESS), "scores", str(memory_gib))
        self._pool = WorkerPool(command, num_workers=num_workers, timeout_s=timeout_s, environment=ENVIRONMENT)

    def __enter__(self) -> GymGrader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.close()

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        """One grade a reply, in order. Equal answers to one task are scored once.

        Raises: WorkerError where the worker cannot be started, as when reasoning-gym is not installed.
        """
        grades: dict[int, Grade] = {}
        hard: dict[tuple[str, str], list[int]] = {}
        requests: list[Json] = []
        for index, (reply, task) in enumerate(items):
            answer = final_text(reply, task.answer or "")
            easy = _grade_easy(answer, task)
            if easy is not None:
                grades[index] = easy
                continue
            assert answer is not None, "no answer is easy to grade"
            if (answer, task.id) not in hard:
                requests.append(self._request(answer, task))
            hard.setdefault((answer, task.id), []).append(index)
        for ((answer, _), indices), outcome in zip(hard.items(), self._pool.map(requests), strict=True):
            for index in indices:
                grades[index] = self._as_grade(answer, outcome)
        return [grades[index] for index in range(len(items))]

    def _request(self, answer: str, task: Task) -> Json:
        what = {name: task.info[name] for name in ("dataset", "settings", "index")}
        own = {"question": task.prompt, "answer": task.answer, "reply": answer, "timeout_s": self._timeout_s}
        return {**what, **own}

    def _as_grade(self, answer: str, outcome: Json | Failure) -> Grade:
        if isinstance(outcome, Failure):
            self.num_timeouts += outcome.kind == "timeout"
            return Grade(score=None, reason=outcome.reason, extracted=answer)
        return Grade(score=outcome["score"], reason=outcome["reason"], extracted=answer)


def final_text(reply: str, reference: str) -> str | None:
    """What follows the last `The answer is`, or stands in the last `<answer>...</answer>`, whichever comes last. It
    may go over several lines, as grids do. None: the reply has neither.

    Args:
        reference: a final period belongs to the answer only where this ends with one too.
    """
    markers, tags = list(_MARKER.finditer(reply)), list(_TAGGED.finditer(reply))
    if tags and (not markers or tags[-1].end() > markers[-1].start()):
        text = _MARKER.split(tags[-1][1])[-1]
    elif markers:
        text = reply[markers[-1].end() :]
    else:
        return None
    text = text.strip().removeprefix("**").removesuffix("**").strip()
    return text if reference.endswith(".") else text.removesuffix(".").rstrip().removesuffix("**")


def _grade_easy(answer: str | None, task: Task) -> Grade | None:
    """The grade of what no scorer need see."""
    if task.info.get("kind") != "reasoning_gym" or task.answer is None:
        return Grade(score=None, reason=f"task {task.id} is none of reasoning-gym's")
    if answer is None:
        return Grade(score=0.0, reason=f"no answer found: nothing follows '{ANSWER_LINE}', and no <answer> is there")
    if not answer:
        return Grade(score=0.0, reason="the answer is empty")
    if len(answer) > len(task.answer) + MAX_EXTRA_CHARS:
        return Grade(score=0.0, reason=f"the answer has {len(answer)} characters", extracted=answer[:100])
    return None
