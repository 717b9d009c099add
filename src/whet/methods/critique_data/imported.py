"""Imports answers and episodes written elsewhere, so that they can be critiqued, with the tasks that they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from whet.methods.critique_data.formats import CritiqueRecord, read_given
from whet.tasks.row_formats import DataError
from whet.tasks.splits import question_key
from whet.tasks.steps import StepsBy, judged_steps
from whet.trajectories.files import read_trajectories
from whet.trajectories.records import Trajectory, score_of
from whet.types import Task


@dataclass
class ImportedAnswers:
    """The imported records."""

    records: list[CritiqueRecord] = field(default_factory=list)
    ungraded: set[str] = field(default_factory=set)
    """Of them, those that the grader has to label, by id."""
    labelled: dict[str, bool] = field(default_factory=dict)
    """Labels of other final answers, which the grader could check too."""
    tasks: dict[str, Task] = field(default_factory=dict)
    """By the record's id, where its question is no training problem."""
    warnings: list[str] = field(default_factory=list)


def import_answers(
    given: str | None, trajectories: Sequence[str], tasks: Mapping[str, Sequence[Task]], by: StepsBy = "lines"
) -> ImportedAnswers:
    """Reads files. An answer to a question that is measured is dropped.

    Args:
        tasks: the run's, by split.
        by: what a step of an answer is.
    Raises: DataError.
    """
    answers = ImportedAnswers()
    by_key = {question_key(task.prompt): task for task in tasks["train"]}
    measured = {question_key(task.prompt) for name in ("validation", "test") for task in tasks[name]}
    rows = read_given(Path(given)) if given is not None else []
    usable = [row for row in rows if question_key(row["question"]) not in measured]
    labels: dict[tuple[str, str], tuple[str, bool]] = {}
    for row in usable:
        _check_given(row, labels, by)
        _add_given(answers, row, by_key.get(question_key(row["question"])), str(given), tasks["train"][0])
    if len(usable) < len(rows):
        answers.warnings.append(
            f"{len(rows) - len(usable)} of the {len(rows)} answers of {given} are to questions that are measured, and "
            "were dropped"
        )
    for file in trajectories:
        for number, trajectory in enumerate(read_trajectories(file), 1):
            _add_trajectory(answers, trajectory, f"{file}, record {number}", number)
    ids = [record.id for record in answers.records]
    if twice := next((name for name in ids if ids.count(name) > 1), None) if len(set(ids)) < len(ids) else None:
        raise DataError(f"two answers have the id {twice.partition('/')[2]!r}: give each its own, or leave ids out")
    return answers


def _check_given(row: Mapping[str, Any], labels: dict[tuple[str, str], tuple[str, bool]], by: StepsBy) -> None:
    """Raises: DataError where a row contradicts itself, or one before it (`labels`, which it is added to)."""
    step, count = row.get("error_step"), len(judged_steps(row["answer"], by))
    if step is not None and step >= count:
        raise DataError(
            f"answer {row['id']}: error_step = {step}, and it has {count} steps, numbered from 0 (a last "
            "line that only states the answer is none)"
        )
    if row.get("correct") is not None:
        name, correct = labels.setdefault((row["question"], row["answer"]), (row["id"], row["correct"]))
        if correct != row["correct"]:
            raise DataError(
                f"answers {name} and {row['id']} are the same to the same question, and one is called "
                "correct and the other not: mend one of them"
            )


def _add_given(answers: ImportedAnswers, row: Mapping[str, Any], task: Task | None, file: str, first: Task) -> None:
    name = f"given/{row['id']}"
    gold = task.answer if task is not None else row.get("reference")
    # A step that is wrong says that the answer is not to be imitated, not that its last line is wrong.
    if row.get("correct") is None:
        if gold is None:
            raise DataError(
                f"{file}, answer {row['id']}: nothing says whether it is right; give correct or reference, or ask a "
                "training question"
            )
        answers.ungraded.add(name)
    elif gold is not None and (row["correct"] or row.get("error_step") is None):
        answers.labelled[name] = row["correct"]
    if task is None:
        info = {"kind": first.info.get("kind")}
        answers.tasks[name] = Task(id=name, prompt=row["question"], answer=gold, info=info)
    answers.records.append(
        CritiqueRecord(
            id=name,
            qid=task.id if task is not None else name,
            dataset=Path(file).name,
            question=row["question"],
            gold=gold,
            response=row["answer"],
            right=bool(row.get("correct")),
            source="given",
            error_step=row.get("error_step"),
            mistake=row.get("mistake"),
            located="given" if row.get("error_step") is not None else "",
        )
    )


def _add_trajectory(answers: ImportedAnswers, trajectory: Trajectory, place: str, number: int) -> None:
    """The question is the first observation; the answer is the agent's turns, a line each with the observation after
    it."""
    observations, replies = trajectory.observations(), trajectory.replies()
    if not observations or not replies:
        raise DataError(f"{place}: an episode without a turn has nothing to critique; leave it out")
    if trajectory.success is None and trajectory.reward is None:
        raise DataError(f"{place}: neither success nor reward says how it ended; give files of finished episodes")
    after = [*observations[1:], *[""] * len(replies)]
    lines = [
        f"Turn {n}: {reply}" + (f" -> {observation}" if observation else "")
        for n, (reply, observation) in enumerate(zip(replies, after, strict=False), 1)
    ]
    name = f"trajectory/{trajectory.item_id}/{number}"
    answers.tasks[name] = Task(id=name, prompt=observations[0])
    answers.records.append(
        CritiqueRecord(
            id=name,
            qid=trajectory.item_id,
            dataset=trajectory.environment,
            question=observations[0],
            gold=None,
            response="\n".join(" ".join(line.split()) for line in lines),
            right=bool(score_of(trajectory.reward, trajectory.success)),
            source="trajectory",
            policies={},
        )
    )
