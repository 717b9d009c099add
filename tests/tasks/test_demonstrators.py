"""Who shows how texts look: a file's rows but those that are measured, the tiny world's authors, worked solutions."""

import json
import random
from pathlib import Path

import pytest

from support.files import write_jsonl, write_parquet
from whet.config.parts import ChainData, FileData
from whet.grading.verdicts import parse_verdict
from whet.run.data import load_grader, load_tasks
from whet.tasks.chains import misconception
from whet.tasks.demonstrations import TEXTBOOK, read_demonstrations
from whet.tasks.demonstrators import Examples, FileOf, Solutions, TinyWorld, demonstrator
from whet.tasks.files import DataError
from whet.tasks.prompts import CHAINS, ENGLISH
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
    assert found.warning == (
        f"2 of the 5 rows of {file} ask what is measured (questions for validation or the test), and were dropped"
    )
    rng = random.Random(0)
    for kind in ("solve", "critique"):
        shown = {found.show(kind, rng).question for _ in range(100)}
        assert shown == {"What is 1 + 2?", "What is 3 + 2?", "What is 3 - 3?"}


def test_a_file_that_asks_nothing_measured_is_taken_whole_and_without_a_word(tmp_path):
    found = FileOf(file_of(tmp_path / "rows.jsonl", "What is 1 + 2?", "What is 9 + 9?"), TASKS, ENGLISH)
    assert not found.warning
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
    assert isinstance(demonstrator(Examples(file), ChainData(), TASKS, CHAINS), FileOf)
    assert isinstance(demonstrator(Examples(), ChainData(), TASKS, CHAINS), TinyWorld)
    solutions = demonstrator(Examples(), FileData(path="x"), TASKS, ENGLISH)
    assert isinstance(solutions, Solutions)
    [source] = solutions.sources(["solve", "critique"])
    assert source.where == "task a"
    assert [each.kind for each in source.make()] == ["solve", "critique"]


def test_an_author_who_rambles_writes_long_where_it_is_wrong():
    def replies(ramble):
        tasks = [Task(id=text, prompt=text, answer="", info={}) for text in ("7 + 5 * 3 - 8", "2 * 7 - 9 + 6 * 3")]
        author = demonstrator(Examples(), ChainData(), {"train": tasks}, CHAINS, ramble=ramble)
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
        demonstrator(Examples(str(path), COLUMNS), FileData(path="x"), measured, ENGLISH)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({}, r"line 1: no question among ctx, id.*: say which column .* warm_start\.columns\.prompt=NAME, or leave"),
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


# --- the tiny world's dials -------------------------------------------------------------------------------------------


def chains_of(count: int) -> dict[str, list[Task]]:
    return {"train": list(load_tasks(ChainData(num_train=count, num_validation=1, num_test=1)).tasks["train"])}


def answer_of(text: str) -> str:
    return text.rpartition(" ")[2]


@pytest.mark.parametrize("kind", ["solve", "refine"])
def test_every_gold_text_is_right_by_the_grader_and_the_authors_are_not(kind):
    tasks, rng, grader = chains_of(400), random.Random(0), load_grader(ChainData())
    env = demonstrator(Examples(), ChainData(), tasks, CHAINS)
    by_question = {task.prompt: task for task in tasks["train"]}
    questions = sorted(by_question, key=len, reverse=True)  # a chain may begin with another one

    def scores(show) -> list[float]:
        made = [show(kind, rng) for _ in range(200)]
        asked = [next(q for q in questions if q in each.messages[0]["content"]) for each in made]
        grades = grader.grade([(each.text, by_question[q]) for q, each in zip(asked, made, strict=True)])
        return [float(grade.score) for grade in grades]

    assert set(scores(env.show_gold)) == {1.0}
    assert 0.2 < sum(scores(env.show)) / 200 < 0.8


def test_gold_refinements_follow_critiques_without_a_mistake():
    """An answer with a wrong end is called wrong, and a right one right."""
    env, rng = TinyWorld(chains_of(200)["train"], CHAINS, ChainData()), random.Random(0)
    verdicts = set()
    for _ in range(200):
        shown = env.show_gold("refine", rng)
        answer, critique = shown.messages[-2]["content"], shown.messages[-1]["content"]
        is_right = answer_of(answer) == answer_of(shown.text)
        assert parse_verdict(critique, **CHAINS.labels) == ("correct" if is_right else "wrong")
        verdicts.add(is_right)
    assert verdicts == {True, False}


def test_who_has_no_careless_author_shows_the_same_as_gold(tmp_path):
    for given in (Examples(), Examples(file_of(tmp_path / "rows.jsonl", "What is 1 + 2?", "What is 9 + 9?"))):
        shown = demonstrator(given, FileData(path="x"), TASKS, ENGLISH)
        assert shown.show("solve", random.Random(5)) == shown.show_gold("solve", random.Random(5))


@pytest.mark.parametrize(("low", "high"), [(0.35, 0.75), (0.9, 0.98), (1.0, 1.0)])
def test_misconceptions_are_written_as_often_as_the_data_say(low, high):
    """Counted in shown answers, over the misconceived facts: their shares are spread evenly between both ends."""
    data = ChainData(misconceptions=(low, high))
    env, rng = TinyWorld(chains_of(400)["train"], CHAINS, data), random.Random(1)
    written = [0, 0]
    for _ in range(2000):
        for line in env.show("solve", rng).text.splitlines()[:-1]:
            _, _, a, op, b, _, value = line.split()
            rank, _, wrong = misconception(int(a), (op, int(b)), "textbook")
            if rank < TEXTBOOK.share:
                written[int(value) == wrong] += 1
    assert sum(written) > 1500
    assert written[1] / sum(written) == pytest.approx((low + high) / 2, abs=0.05)


def test_the_colleagues_critiques_do_not_depend_on_the_textbook():
    tasks = chains_of(50)["train"]
    landed, stubborn = (TinyWorld(tasks, CHAINS, ChainData(misconceptions=dial)) for dial in (None, (0.9, 0.98)))
    for seed in range(20):
        shows = [env.show("critique", random.Random(seed)) for env in (landed, stubborn)]
        assert shows[0] == shows[1]
