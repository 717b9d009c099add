"""Task files: every layout, the real files, and a sentence for everything that can be wrong with a file."""

import json
import os
from pathlib import Path

import pytest

from mathgrade.boxes import last_boxed
from whet.tasks.files import DataError, read_tasks
from whet.tasks.splits import split_tasks
from whet.types import Task

DATA = Path(os.environ.get("WHET_DATA") or Path(__file__).parents[3] / "shared" / "data")


def real_file(name):
    """A file of the data folder, which lies beside the repository or where WHET_DATA says."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"no {name} under {DATA}; set WHET_DATA to the folder that has it")
    return path


def write(tmp_path, *rows, text=None):
    path = tmp_path / "tasks.jsonl"
    path.write_text(text if text is not None else "\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("row", "kind", "prompt", "answer"),
    [
        ({"question": "2+2?", "answer": "It is 4.\n#### 1,004"}, "gsm8k", "2+2?", "1,004"),
        ({"problem": "P?", "solution": r"so \boxed{\frac{1}{2}}."}, "math", "P?", r"\frac{1}{2}"),
        ({"problem": "P?", "solution": r"so \boxed{5}.", "answer": "6"}, "math", "P?", "6"),
        ({"question": "Q?", "answer": 27.0}, "plain", "Q?", "27"),
        ({"prompt": [{"role": "user", "content": "Q?"}], "answer": "x"}, "plain", "Q?", "x"),
        ({"question": "Q?", "gt": "C", "gt_cot": "None", "answer": "long"}, "realcritic", "Q?", "C"),
        (
            {"prompt": [{"role": "user", "content": "Q?"}], "reward_model": {"style": "rule", "ground_truth": "34"}},
            "verl",
            "Q?",
            "34",
        ),
        ({"Body": "Ann has 2.", "Question": "How many?", "Answer": 2.0}, "svamp", "Ann has 2. How many?", "2"),
        ({"body": "Ann has 2.", "question": "How many?", "answer": "2 (pens)"}, "asdiv", "Ann has 2. How many?", "2"),
        (
            {"question": "Q?", "options": ["A)1", "B)2"], "rationale": "r", "correct": "B"},
            "aqua",
            "Q?\nAnswer Choices: (A) 1 (B) 2",
            "B",
        ),
    ],
)
def test_layouts(tmp_path, row, kind, prompt, answer):
    (task,) = read_tasks(write(tmp_path, row)).tasks
    assert (task.info["kind"], task.prompt, task.answer) == (kind, prompt, answer)


@pytest.mark.parametrize(
    ("name", "sentence", "count", "first"),
    [
        ("gsm8k/train.jsonl", "7473 GSM8K rows (question, answer after ####)", 7473, "72"),
        ("gsm8k/test.jsonl", "1319 GSM8K rows (question, answer after ####)", 1319, "18"),
        (
            "math500/test.jsonl",
            r"500 MATH rows (problem, solution with \boxed)",
            500,
            r"\left( 3, \frac{\pi}{2} \right)",
        ),
        ("svamp/test.jsonl", "1000 SVAMP rows (Body, Question, Answer)", 1000, "145"),
        ("aqua/test.jsonl", "254 AQuA rows (question, options, correct)", 254, "A"),
        ("amc23/test.jsonl", "40 plain rows (question, answer)", 40, "27"),
        ("realcritic/math/test.jsonl", "268 RealCritic rows (question, gt)", 268, r"\frac{7}{2}"),
        (
            "asdiv/test.jsonl",
            "2215 ASDiv rows (body, question, answer), 1 dropped as repeated questions (line 677 repeats line 676)",
            2214,
            "9",
        ),
    ],
)
def test_real_files(name, sentence, count, first):
    found = read_tasks(real_file(name))
    assert (found.recognised, len(found.tasks), found.tasks[0].answer) == (sentence, count, first)
    assert len({task.id for task in found.tasks}) == count
    assert all(task.prompt and task.answer for task in found.tasks)


def test_math_answers_are_the_boxes_of_their_solutions():
    for task in read_tasks(real_file("math500/test.jsonl")).tasks[:200]:
        assert last_boxed(task.info["solution"])[1].replace(" ", "") == task.answer.replace(" ", "")


def test_ids_are_the_files_own_or_a_hash(tmp_path):
    rows = [{"id": "a", "question": "1?", "answer": "1"}, {"id": "b", "question": "2?", "answer": "2"}]
    assert [task.id for task in read_tasks(write(tmp_path, *rows)).tasks] == ["a", "b"]
    same = [{**row, "id": "a"} for row in rows]
    first = read_tasks(write(tmp_path, *same)).tasks
    second = read_tasks(write(tmp_path, *reversed(same))).tasks
    assert {task.prompt: task.id for task in first} == {task.prompt: task.id for task in second}
    assert first[0].id != first[1].id


def test_repeated_questions_are_dropped_and_counted(tmp_path):
    rows = [{"question": q, "answer": a} for q, a in [("1?", "1"), ("1?\n", "1"), (" 1?", "5"), ("2?", "2")]]
    found = read_tasks(write(tmp_path, *rows))
    assert [task.answer for task in found.tasks] == ["1", "2"]
    dropped = "(line 2 repeats line 1, line 3 repeats line 1; 1 of them with another answer than the first)"
    assert f"2 dropped as repeated questions {dropped}" in found.recognised
    many = read_tasks(write(tmp_path, *([rows[-1]] * 6))).recognised
    assert many.endswith("line 4 repeats line 1, and 2 more)")


def test_json_lists_blank_lines_and_byte_order_marks(tmp_path):
    rows = [{"question": "1?", "answer": "1"}, {"question": "2?\u2028", "answer": "2"}]
    lines = "\ufeff\n" + "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    assert read_tasks(write(tmp_path, text=lines)).tasks == read_tasks(write(tmp_path, text=json.dumps(rows))).tasks


GOOD = {"question": "1?", "answer": "1"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("[]", "is an empty list"),
        (json.dumps(GOOD) + "\n{oops", "line 2: not JSON"),
        ('[\n{"question": 1},\n{]', "line 3: not JSON"),
        (
            json.dumps(GOOD) + '\n{"question": "1?", "answer": 1, "answer": 2}',
            "line 2: the field 'answer' stands twice",
        ),
        (json.dumps(GOOD) + "\n5", "line 2: expected an object .* found int"),
        ('{"input": "1?", "target": 1}', "line 1: no question field among input, target"),
        ('{"question": "1?"}', "none of the 1 rows has a reference answer .line 1 has question.; .*NAME"),
        ('{"question": "", "answer": "1"}', "line 1: the question is empty"),
        (
            json.dumps(GOOD) + '\n\n{"question": "2?", "answer": ""}',
            r"line 3: no reference answer, as in 1 of 2 rows .line 3 has answer, question.; .*data\.columns\.answer=",
        ),
        (json.dumps(GOOD) + '\n{"question": "2?", "answer": "#### 2"}', "line 2: read as GSM8K rows .*one layout"),
        ('{"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "answer": 1}', "one user"),
        ('{"question": "1?", "answer": {"value": 1}}', "line 1: expected text or a number where a dict"),
    ],
)
def test_errors_say_where_and_what(tmp_path, text, message):
    path = write(tmp_path, text=text)
    with pytest.raises(DataError, match=message) as caught:
        read_tasks(path)
    assert str(path) in str(caught.value)


def test_missing_files_and_bytes(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_tasks(tmp_path / "none.jsonl")
    (tmp_path / "x.parquet").write_bytes(b"PAR1\xff\xfe")
    with pytest.raises(DataError, match=r"x\.parquet cannot be read as Parquet"):
        read_tasks(tmp_path / "x.parquet")
    (tmp_path / "x.jsonl").write_bytes(b"PAR1\xff\xfe")
    with pytest.raises(DataError, match=r"not UTF-8 text \(byte 4\); save it as UTF-8"):
        read_tasks(tmp_path / "x.jsonl")


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, text=json.dumps(GOOD)).rename(tmp_path / "mine.jsonl")
    assert len(read_tasks("~/mine.jsonl").tasks) == 1
    with pytest.raises(DataError, match=r"there is no such file; give data\.path"):
        read_tasks("~nobody-of-this-name/mine.jsonl")


def tasks(count):
    return [Task(id=str(n), prompt=f"What is {n} + {n}?", answer=str(2 * n)) for n in range(count)]


def ids(members):
    return {task.id for task in members}


def test_splits_are_disjoint_and_stable():
    splits = split_tasks(tasks(500), validation=0.1, test=0.2, seed=1)
    assert sorted(int(task.id) for members in splits.values() for task in members) == list(range(500))
    assert 70 <= len(splits["test"]) <= 130
    assert 30 <= len(splits["validation"]) <= 70
    fewer = split_tasks(tasks(400), validation=0.1, test=0.2, seed=1)
    assert ids(fewer["test"]) <= ids(splits["test"])
    other = split_tasks(tasks(500), validation=0.1, test=0.2, seed=2)
    assert len(ids(other["test"]) & ids(splits["test"])) < 50


def test_near_duplicates_do_not_straddle():
    twins = [Task(id=f"{n}", prompt=f"  what IS {n}+{n}", answer="") for n in range(500)]
    places = {
        task.prompt.split()[-1].split("+")[0].rstrip("?"): name
        for name, members in split_tasks(twins, validation=0.2, test=0.2, seed=0).items()
        for task in members
    }
    for name, members in split_tasks(tasks(500), validation=0.2, test=0.2, seed=0).items():
        assert all(places[task.id] == name for task in members)


def test_empty_splits_are_refused():
    with pytest.raises(DataError, match="the test split of 3 tasks is empty"):
        split_tasks(tasks(3), validation=0.0, test=1e-6, seed=0)
    with pytest.raises(DataError, match="leave some for training"):
        split_tasks(tasks(3), validation=0.5, test=0.5, seed=0)
    assert split_tasks(tasks(3), validation=0, test=0, seed=0)["test"] == ()
