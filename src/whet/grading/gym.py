"""Grades answers to tasks of reasoning-gym by the generator's scorer, in the sandbox.

A scorer needs the item that it made, whose metadata may be anything. So the sandbox's parent (`tasks.gym_process`)
makes the item again from the task's `info`, and compares. Some scorers evaluate the answer as Python code or hand it to
SymPy. So each answer is scored in a separate process, of which nothing is left.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mathgrade.grading import MAX_EXTRA_CHARS
from whet.sandbox.client import Forfeit, Request, Sandbox, why_not
from whet.sandbox.limits import Limits
from whet.sandbox.workers import NUM_WORKERS, Failure, Json
from whet.tasks.chains import ANSWER_LINE
from whet.tasks.gym import ENVIRONMENT, PROCESS, unsafe
from whet.types import Grade, Task

_MARKER = re.compile(rf"\b{ANSWER_LINE}\b[ \t]*:?", re.IGNORECASE)
_TAGGED = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.IGNORECASE | re.DOTALL)


class GymGrader:
    """The score, in [0, 1], that a task's generator gives to the answer that `final_text` finds in a reply.

    Scores between 0 and 1 stay: some generators give 0.01 for a wrong answer, or 0.5 for the right one in another form.
    A reply without an answer gets 0, with the reason. So does an answer on which the scorer breaks, gives no number in
    [0, 1], or runs out of time or memory (then `exhausted`). No score (`None`, with the reason) is given only where the
    scorer fails on the item's answer too, or the sandbox fails.

    A context manager. The processes start with the first answer, and end with `close`.

    Args:
        timeout_s: wall-clock limit of one scoring.
        num_workers: scorings at a time.
        memory_gib: address space of one scoring, where the system can limit it. 0: no limit.
    """

    num_timeouts: int
    """Replies without a score because the sandbox did not answer in time."""

    def __init__(self, *, timeout_s: float = 10.0, num_workers: int = NUM_WORKERS, memory_gib: float = 2.0) -> None:
        self.num_timeouts = 0
        limits = Limits(wall_s=timeout_s, memory_gib=memory_gib)
        self._sandbox = Sandbox(
            PROCESS, limits=limits, slots=num_workers, enclosed=why_not() is None, environment=ENVIRONMENT
        )

    def __enter__(self) -> GymGrader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes."""
        self._sandbox.close()

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        """One grade a reply, in order. Equal answers to one task are scored once.

        Raises: WorkerError where the sandbox cannot be started, as when reasoning-gym is not installed.
        """
        grades: dict[int, Grade] = {}
        hard: dict[tuple[str, str], list[int]] = {}
        requests: list[Request] = []
        for index, (reply, task) in enumerate(items):
            answer = final_text(reply, task.answer or "")
            easy = _grade_easy(answer, task)
            if easy is not None:
                grades[index] = easy
                continue
            assert answer is not None, "no answer is easy to grade"
            if (answer, task.id) not in hard:
                requests.append(_request(answer, task))
            hard.setdefault((answer, task.id), []).append(index)
        for ((answer, _), indices), outcome in zip(hard.items(), self._sandbox.map(requests), strict=True):
            for index in indices:
                grades[index] = self._as_grade(answer, outcome)
        return [grades[index] for index in range(len(items))]

    def _as_grade(self, answer: str, outcome: Json | Forfeit | Failure) -> Grade:
        if isinstance(outcome, Failure):
            self.num_timeouts += outcome.kind == "timeout"
            return Grade(score=None, reason=outcome.reason, extracted=answer)
        if isinstance(outcome, Forfeit):
            return Grade(score=0.0, reason=outcome.reason, extracted=answer, exhausted=True)
        score = outcome.get("score")
        if not isinstance(score, float) or not 0 <= score <= 1:  # the child's word, and it may not be the scorer's
            return Grade(score=0.0, reason="its process gave no score", extracted=answer)
        return Grade(score=score, reason=str(outcome.get("reason"))[:300], extracted=answer)


def _request(answer: str, task: Task) -> Request:
    item = {name: task.info[name] for name in ("dataset", "settings", "index")}
    return Request(common={**item, "question": task.prompt, "answer": task.answer}, private={"reply": answer})


def final_text(reply: str, reference: str) -> str | None:
    """The text after the last `The answer is`, or in the last `<answer>...</answer>`, whichever comes last. It may have
    several lines, as grids do. None: the reply has neither.

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
    """The grade of an answer that no scorer need see. None: a scorer has to."""
    if task.info.get("kind") != "reasoning_gym" or task.answer is None:
        return Grade(score=None, reason=f"task {task.id} is none of reasoning-gym's")
    if trouble := unsafe(task.info["dataset"]):
        return Grade(score=None, reason=trouble)
    if answer is None:
        return Grade(score=0.0, reason=f"no answer found: nothing follows '{ANSWER_LINE}', and no <answer> is there")
    if not answer:
        return Grade(score=0.0, reason="the answer is empty")
    if len(answer) > len(task.answer) + MAX_EXTRA_CHARS:
        return Grade(score=0.0, reason=f"the answer has {len(answer)} characters", extracted=answer[:100])
    return None
