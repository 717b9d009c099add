"""Training answers that are made once and critiqued many times, from a file or from the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from whet.rollout.roles import written
from whet.run_folder.folder import RunFolder
from whet.tasks.files import DataError, parse_json, read_text
from whet.types import Segment, Task

ANSWERS = "answers.jsonl"
"""In the run folder."""


class Answers:
    """Training answers that are made once and critiqued many times.

    Args:
        tasks: the training problems.
        file: JSON lines with question and answer. None: the run folder's answers, once they are made.
    """

    def __init__(self, folder: RunFolder, tasks: Sequence[Task], file: Path | None) -> None:
        self.folder, self.tasks = folder, tasks
        self.by_task: dict[str, list[Segment]] = {}
        self.is_given = file is not None
        if file is not None:
            self.by_task = read_answers(file, tasks)
            self.tasks = [task for task in tasks if task.id in self.by_task]

    @property
    def is_ready(self) -> bool:
        """Whether there are answers. Reads those that the run made before it was resumed."""
        place = self.folder.path / ANSWERS
        if not self.by_task and place.exists():
            self.by_task = read_answers(place, self.tasks)
        return bool(self.by_task)

    def keep(self, sampled: Mapping[str, Sequence[Segment]]) -> None:
        """Writes answers into the run folder and reads them back, as a resumed run will."""
        self.folder.logs.put(ANSWERS, write_answers(sampled, self.tasks))
        self.by_task = read_answers(self.folder.path / ANSWERS, self.tasks)

    def of(self, tasks: Sequence[Task], before: int) -> dict[str, Segment]:
        """One answer to each task; the rounds of the set go through a task's answers in turn.

        Args:
            before: number of problems before these, over all rounds of the set.
        """
        chosen = {}
        for number, task in enumerate(tasks, before):
            answers = self.by_task[task.id]
            chosen[task.id] = answers[number // len(self.tasks) % len(answers)]
        return chosen

    def texts(self) -> list[tuple[str, str]]:
        """Questions with their answers."""
        return [(task.prompt, segment.text) for task in self.tasks for segment in self.by_task.get(task.id, ())]


def read_answers(path: Path, tasks: Sequence[Task]) -> dict[str, list[Segment]]:
    """Reads cached answers, JSON lines with `question` and `answer`, and matches them to tasks by the question's text.

    Raises: DataError, with the line's number, or if no question is among the tasks.
    """
    by_prompt = {task.prompt.strip(): task for task in tasks}
    answers_by_task: dict[str, list[Segment]] = {}
    lines = read_text(path, "answers_file").rstrip("\n").split("\n")
    for number, line in enumerate(lines, 1):
        row = parse_json(line, f"{path}, line {number}")
        question, answer = (row.get(name) if isinstance(row, dict) else None for name in ("question", "answer"))
        if not isinstance(question, str) or not isinstance(answer, str | int | float):
            raise DataError(f"{path}, line {number}: expected an object with question and answer, both text")
        task = by_prompt.get(question.strip())
        if task is not None:
            answers_by_task.setdefault(task.id, []).append(written("actor", str(answer), policy="cached"))
    if not answers_by_task:
        raise DataError(f"none of the {len(lines)} questions in {path} is among the {len(tasks)} training problems")
    return answers_by_task


def write_answers(answers: Mapping[str, Sequence[Segment]], tasks: Sequence[Task]) -> str:
    """Answers as text, in the format of `read_answers`."""
    rows = [{"question": t.prompt, "answer": s.text} for t in tasks for s in answers.get(t.id, ())]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
