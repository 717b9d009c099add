"""Training answers that are made once and critiqued again and again: of a file, or of the run's folder."""

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
    """Training answers that are made once, and then critiqued again and again: of a file, or kept in the run folder.

    Args:
        tasks: the training problems.
        file: JSON lines with question and answer. None: the run folder's own, once they are made.
    """

    def __init__(self, folder: RunFolder, tasks: Sequence[Task], file: Path | None) -> None:
        self.folder, self.tasks = folder, tasks
        self.by_task: dict[str, list[Segment]] = {}
        self.is_given = file is not None
        if file is not None:
            self.by_task = read_answers(file, tasks)
            self.tasks = [task for task in tasks if task.id in self.by_task]

    @property
    def known(self) -> bool:
        """Whether there are any now: those that the run made before it was resumed are read when first asked for."""
        place = self.folder.path / ANSWERS
        if not self.by_task and place.exists():
            self.by_task = read_answers(place, self.tasks)
        return bool(self.by_task)

    def keep(self, sampled: Mapping[str, Sequence[Segment]]) -> None:
        """Write them into the run folder, and read them back, as a resumed run will."""
        self.folder.logs.put(ANSWERS, write_answers(sampled, self.tasks))
        self.by_task = read_answers(self.folder.path / ANSWERS, self.tasks)

    def of(self, tasks: Sequence[Task], before: int) -> dict[str, Segment]:
        """Each task's answers in turn.

        Args:
            before: problems that came before these, in rounds of the set.
        """
        found = {}
        for number, task in enumerate(tasks, before):
            answers = self.by_task[task.id]
            found[task.id] = answers[number // len(self.tasks) % len(answers)]
        return found

    def texts(self) -> list[tuple[str, str]]:
        """Questions with their answers."""
        return [(task.prompt, segment.text) for task in self.tasks for segment in self.by_task.get(task.id, ())]


def read_answers(path: Path, tasks: Sequence[Task]) -> dict[str, list[Segment]]:
    """Cached answers: JSON lines with `question` and `answer`, matched to the tasks by the question's text.

    Raises: DataError naming the line; or where no question is among the tasks.
    """
    by_prompt = {task.prompt.strip(): task for task in tasks}
    found: dict[str, list[Segment]] = {}
    lines = read_text(path, "answers_file").rstrip("\n").split("\n")
    for number, line in enumerate(lines, 1):
        row = parse_json(line, f"{path}, line {number}")
        question, answer = (row.get(name) if isinstance(row, dict) else None for name in ("question", "answer"))
        if not isinstance(question, str) or not isinstance(answer, str | int | float):
            raise DataError(f"{path}, line {number}: expected an object with question and answer, both text")
        task = by_prompt.get(question.strip())
        if task is not None:
            found.setdefault(task.id, []).append(written("actor", str(answer), policy="cached"))
    if not found:
        raise DataError(f"none of the {len(lines)} questions in {path} is among the {len(tasks)} training problems")
    return found


def write_answers(answers: Mapping[str, Sequence[Segment]], tasks: Sequence[Task]) -> str:
    """The same format, as text."""
    rows = [{"question": t.prompt, "answer": s.text} for t in tasks for s in answers.get(t.id, ())]
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
