"""From a data config to tasks by split and the service that grades them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from whet.config.environment_data import EnvironmentData
from whet.config.parts import BasicsData, ChainData, FileData, GymData
from whet.config.runs import RunConfig
from whet.grading import Grader, make_grader
from whet.methods.environment_tasks import load_environment_tasks
from whet.rollout.roles import written
from whet.run_folder.folder import RunFolder
from whet.tasks.basics import make_basics
from whet.tasks.chains import Chain, Split, sample_chains
from whet.tasks.files import DataError, parse_json, read_text
from whet.tasks.gym import make_tasks
from whet.tasks.sources import load_files, load_measured, pinned
from whet.tasks.splits import Problems
from whet.types import Grade, Segment, Task

C = TypeVar("C", bound=RunConfig)
AnyData = ChainData | FileData | GymData | BasicsData | EnvironmentData
ANSWERS = "answers.jsonl"
"""In the run folder."""
SPLIT_SEED = 20251028
"""Of problems, not of runs: every run on one data config sees the same train, validation and test problems."""


def load_tasks(data: AnyData) -> Problems:
    """All problems, to train with.

    Raises: DataError.
    """
    if isinstance(data, FileData):
        return load_files(data, SPLIT_SEED)
    if isinstance(data, EnvironmentData):
        return load_environment_tasks(data)
    counts: dict[Split, int] = {"train": data.num_train, "validation": data.num_validation, "test": data.num_test}
    if isinstance(data, GymData):
        return Problems(*make_tasks(data.dataset, data.params, seed=data.seed, counts=counts))
    if isinstance(data, BasicsData):
        return Problems(*make_basics(data, counts))
    if data.min_steps > data.max_steps:
        raise DataError(f"data.min_steps = {data.min_steps} is more than data.max_steps = {data.max_steps}")
    tasks: dict[str, tuple[Task, ...]] = {}
    for split, count in counts.items():
        if count > _room(split, data):
            raise DataError(
                f"there are only about {_room(split, data)} {split} problems of {data.min_steps} to {data.max_steps} "
                f"steps, not {count}: lower data.num_{split}, or raise data.max_steps"
            )
        stream = sample_chains(split, SPLIT_SEED, min_steps=data.min_steps, max_steps=data.max_steps)
        tasks[split] = tuple(chain_task(chain) for chain in islice(stream, count))
    return Problems(tasks, f"chains of {data.min_steps} to {data.max_steps} operations on last digits")


def measured_problems(data: AnyData, split: str, changed: Collection[str] | None) -> Problems:
    """What `whet eval` measures; of files no more than that is read.

    Args:
        changed: dotted keys of the settings that are not the run's own. None: there is no run.
    Raises: DataError.
    """
    return load_measured(data, split, SPLIT_SEED, changed) if isinstance(data, FileData) else load_tasks(data)


def with_commit(config: C, before: RunConfig | None = None) -> C:
    """The settings with the commit in place of a revision of a hub's set: what a run keeps, and goes on with.

    Args:
        before: those of the run that is there. It goes on with its commit, whatever came after that.
    Raises: DataError where the hub and its cache know none.
    """
    data, known = (each.__dict__["data"] if each is not None else None for each in (config, before))
    if not isinstance(data, FileData):
        return config
    given = data.__dict__
    if isinstance(known, FileData) and given["revision"] is None and known.__dict__["hub"] == given["hub"]:
        found = data.model_copy(update={"revision": known.__dict__["revision"]})
    else:
        found = pinned(data)
    return config.model_copy(update={"data": found})


def chain_task(chain: Chain) -> Task:
    text = chain.text
    return Task(id=text, prompt=text, answer=str(chain.values[-1]), info={"kind": "chains"})


def _room(split: Split, data: ChainData) -> int:
    """Problems of a split that a stream finds without searching long for new ones."""
    share = {"train": 0.8, "validation": 0.1, "test": 0.1}[split]
    return int(10 * 21**data.min_steps * share / 2)


def load_grader(data: AnyData) -> Grader:
    if isinstance(data, FileData):
        return make_grader(data.grader, timeout_s=data.timeout_s)
    if isinstance(data, GymData):
        return make_grader("reasoning_gym", timeout_s=data.timeout_s)
    if isinstance(data, EnvironmentData):
        return NoGrader()
    return make_grader(data.kind)


class NoGrader:
    """Of episodes whose world says what they are worth."""

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        raise AssertionError("an environment's episodes are not graded")

    def close(self) -> None: ...


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
