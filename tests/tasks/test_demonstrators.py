"""Who shows how texts look: a file's rows but those that are measured, the tiny world's authors, worked solutions."""

import json
import random
from pathlib import Path

import pytest

from support.files import write_jsonl, write_parquet
from whet.tasks.demonstrations import read_demonstrations
from whet.tasks.demonstrators import Examples, FileOf, Solutions, TinyWorld, demonstrator
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
    assert isinstance(demonstrator(Examples(file), "chains", TASKS, CHAINS), FileOf)
    assert isinstance(demonstrator(Examples(), "chains", TASKS, CHAINS), TinyWorld)
    solutions = demonstrator(Examples(), "file", TASKS, ENGLISH)
    assert isinstance(solutions, Solutions)
    [source] = solutions.sources(["solve", "critique"])
    assert source.where == "task a"
    assert [each.kind for each in source.make()] == ["solve", "critique"]


def test_an_author_who_rambles_writes_long_where_it_is_wrong():
    def replies(ramble):
        tasks = [Task(id=text, prompt=text, answer="", info={}) for text in ("7 + 5 * 3 - 8", "2 * 7 - 9 + 6 * 3")]
        author = demonstrator(Examples(), "chains", {"train": tasks}, CHAINS, ramble=ramble)
        return [author.show("solve", random.Random(seed)).text for seed in range(60)]

    plain, rambling = replies(0), replies(3)
    grown = [long.count("\n") - short.count("\n") for short, long in zip(plain, rambling, strict=True)]
    assert {count % 3 for count in grown} == {0}
    assert 0 < grown.count(0) < 60
    assert all(short.split("\n")[-1] == long.split("\n")[-1] for short, long in zip(plain, rambling, strict=True))


OWN = [
    {
        "ctx": "Ann has 2.",
        "q": "How many?",
        "reply": "It is 3.",
        "review": "Step 1 is wrong.",
        "ok": True,
        "id": 1,
        "n": 2,
    },
    {"ctx": "Bob has 3.", "q": "How many?", "reply": "It is 5.", "review": None, "ok": False, "n": 3},
]
COLUMNS = {"question": "{ctx}\n{q}", "answer": "reply", "critique": "review", "correct": "ok"}


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
def test_examples_with_columns_of_the_users_own(tmp_path, write):
    path = write(tmp_path / f"x.{write.__name__.removeprefix('write_')}", OWN)
    found = read_demonstrations(path, ENGLISH, COLUMNS)
    assert [(each.kind, each.question, each.text.removeprefix(each.prefill).strip()) for each in found] == [
        ("solve", "Ann has 2.\nHow many?", "It is 3."),
        ("critique", "Ann has 2.\nHow many?", "Step 1 is wrong."),
    ]
    measured = {**TASKS, "test": [Task(id="t", prompt="ann has 2 how many")]}
    with pytest.raises(DataError, match=r"1 of the 1 rows of .* ask what is measured"):  # as the question is joined
        demonstrator(Examples(str(path), COLUMNS), "file", measured, ENGLISH)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({}, r"line 1: no question; .*: say which column .* warm_start\.columns\.prompt=NAME, or leave"),
        ({**COLUMNS, "answer": "repl"}, r"line 1: there is no column 'repl' .warm_start\.columns\.answer."),
        ({**COLUMNS, "question": "{cx}"}, r"line 1: there is no column 'cx' .warm_start\.columns\.prompt."),
        ({**COLUMNS, "correct": "n"}, r"line 1: correct must be true or false, not 2; write one of the two"),
        ({**COLUMNS, "answer": "n"}, r"line 1: answer must be text, not 2; put it into quotes"),
    ],
)  # fmt: skip
def test_examples_whose_columns_do_not_fit(tmp_path, columns, says):
    with pytest.raises(DataError, match=says):
        read_demonstrations(write_jsonl(tmp_path / "x.jsonl", OWN), ENGLISH, columns)
    with pytest.raises(DataError, match=says.replace("warm_start\\.", "")):
        read_demonstrations(write_jsonl(tmp_path / "x.jsonl", OWN), ENGLISH, columns, "")
