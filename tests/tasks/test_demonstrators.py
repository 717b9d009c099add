"""Who shows how texts look: a file's rows but those that are measured, the tiny world's authors, worked solutions."""

import json
import random
from pathlib import Path

import pytest

from whet.tasks.demonstrators import FileOf, Solutions, TinyWorld, demonstrator
from whet.tasks.dialects import CHAINS, ENGLISH
from whet.tasks.files import DataError
from whet.types import Task

TASKS = {
    "train": [Task(id="a", prompt="What is 1 + 2?", answer="3", info={"solution": "1 + 2 = 3."})],
    "validation": [Task(id="b", prompt="What is 2 + 2?", answer="4", info={})],
    "test": [Task(id="c", prompt="What is 3 - 2?", answer="1", info={})],
}


def file_of(path: Path, *questions: str, **more: object) -> str:
    rows = [{"question": question, "answer": "It is 3.", "correct": True, **more} for question in questions]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_rows_about_measured_questions_are_dropped_and_counted(tmp_path):
    """In whatever case, spacing and punctuation; other numbers and other operators are other questions."""
    questions = ["What is 1 + 2?", "what is  2 + 2", "What is 3 - 2?", "What is 3 + 2?", "What is 3 - 3?"]
    file = file_of(tmp_path / "rows.jsonl", *questions, critique="It holds.")
    found = FileOf(file, TASKS, ENGLISH)
    assert found.remark == (
        f"2 of the 5 rows of {file} ask what is measured (questions for validation or the test), and were dropped"
    )
    rng = random.Random(0)
    for kind in ("solve", "critique"):
        shown = {found.show(kind, rng).question for _ in range(100)}
        assert shown == {"What is 1 + 2?", "What is 3 + 2?", "What is 3 - 3?"}


def test_a_file_that_asks_nothing_measured_is_taken_whole_and_without_a_word(tmp_path):
    found = FileOf(file_of(tmp_path / "rows.jsonl", "What is 1 + 2?", "What is 9 + 9?"), TASKS, ENGLISH)
    assert not found.remark
    assert len(found.sources(["solve"])) == 2


def test_a_file_that_holds_only_what_is_measured_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"1 of the 1 rows of .* the test\), and were dropped: there is nothing left"):
        FileOf(file_of(tmp_path / "rows.jsonl", "What is 3 - 2?"), TASKS, ENGLISH)


def test_a_kind_that_is_not_there_is_named(tmp_path):
    file = file_of(tmp_path / "rows.jsonl", "What is 1 + 2?")
    with pytest.raises(
        DataError, match=r"rows.jsonl has no rows to imitate of kind 'critique': add rows with critique"
    ):
        FileOf(file, TASKS, ENGLISH).sources(["critique"])


def test_where_they_come_from(tmp_path):
    file = file_of(tmp_path / "rows.jsonl", "What is 1 + 2?")
    assert isinstance(demonstrator(file, "chains", TASKS, CHAINS), FileOf)
    assert isinstance(demonstrator(None, "chains", TASKS, CHAINS), TinyWorld)
    solutions = demonstrator(None, "file", TASKS, ENGLISH)
    assert isinstance(solutions, Solutions)
    [source] = solutions.sources(["solve", "critique"])
    assert source.where == "task a"
    assert [each.kind for each in source.make()] == ["solve", "critique"]
