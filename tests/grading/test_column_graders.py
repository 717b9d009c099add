"""Columns of a user's rows reach the user's grader, in its process, by name; one that is missing is a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.files import write_jsonl, write_parquet
from whet.grading import UserGrader, from_verl, make_grader
from whet.plugins import load_plugins
from whet.tasks.files import DataError, read_tasks

PLUGIN = Path(__file__).parents[1] / "plugins" / "column_readers.py"
ROWS = [{"question": "2 + 2?", "answer": "4", "level": "hard"}, {"question": "1 + 1?", "answer": "2", "level": "easy"}]
VERL = [
    {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"{n} + {n}?"}],
        "reward_model": {"style": "rule", "ground_truth": str(2 * n)},
        "extra_info": {"split": "train", "index": n},
    }
    for n in range(3)
]


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    load_plugins([PLUGIN])


def graded(name, tasks, replies):
    made = make_grader(name, timeout_s=20, num_workers=1)
    try:
        made.check(tasks)
        return made.grade(list(zip(replies, tasks, strict=True)))
    finally:
        made.close()


def test_a_grader_reads_a_column_by_its_name(tmp_path):
    tasks = read_tasks(write_parquet(tmp_path / "x.parquet", ROWS)).tasks
    assert [each.score for each in graded("by_level", tasks, ["4", "2"])] == [1.0, 0.5]


def test_columns_that_settings_name_keep_their_own_names(tmp_path):
    rows = [{"problem": "2 + 2?", "target": "4"}, {"problem": "3 + 3?", "target": "6"}]
    tasks = read_tasks(write_jsonl(tmp_path / "x.jsonl", rows), columns={"answer": "target"}).tasks
    assert [each.score for each in graded("by_question", tasks, ["2 + 2?", "3 + 3?"])] == [1.0, 0.0]


def test_verls_rows_reach_verls_function_whole(tmp_path):
    tasks = read_tasks(write_parquet(tmp_path / "x.parquet", VERL)).tasks
    grades = graded("columns:verl", tasks, ["0", "2", "9"])
    assert [(each.score, each.extracted) for each in grades] == [
        (1.0, "openai/gsm8k 0"), (1.0, "openai/gsm8k 1"), (0.0, "openai/gsm8k 2")
    ]  # fmt: skip


def test_trls_function_gets_nested_columns(tmp_path):
    row = {"prompt": "2 + 2?", "answer": 4, "difficulty": 0.25, "tests": {"in": ["x"], "out": ["right"]}}
    [task] = read_tasks(write_parquet(tmp_path / "x.parquet", [row])).tasks
    assert [each.score for each in graded("columns:trl", [task] * 2, ["right", "wrong"])] == [0.25, 0.0]


@pytest.mark.parametrize(("name", "column"), [("by_level", "level"), ("columns:trl", "difficulty")])
def test_a_missing_column_is_a_sentence_before_anything_is_graded(tmp_path, name, column):
    rows = [{"id": "a", "question": "2 + 2?", "answer": "4", column: 1, "tests": {"out": ["4"]}},
            {"id": "b", "question": "1 + 1?", "answer": "2", "lvl": 1, "tests": {"out": ["2"]}}]  # fmt: skip
    tasks = read_tasks(write_jsonl(tmp_path / "x.jsonl", rows)).tasks
    made = make_grader(name, timeout_s=20, num_workers=1)
    assert isinstance(made, UserGrader)
    made.check(tasks[:1])
    with pytest.raises(DataError) as error:
        made.check(tasks)
    said = str(error.value)
    assert (
        f"asks for {column}, which task b lacks: it has completion, answer, prompt, task_id, info, kind, id, lvl"
        in said
    )
    assert "'1 + 1?'" in said
    assert "1 of 2 rows lack it: add the column, or give the function's parameter a default" in said
    (grade,) = made.grade([("4", tasks[1])])  # and where nobody looked: no score, and no TypeError
    made.close()
    assert grade.score is None
    assert f"asks for {column}, which task b lacks" in grade.reason


def test_what_verl_never_gives_is_refused_when_it_is_registered():
    def score(solution_str, ground_truth, judge): ...

    with pytest.raises(
        ValueError, match=r"score asks for judge, and verl's functions are given data_source, .*default"
    ):
        from_verl(score)


def test_functions_that_need_no_column_are_asked_for_any_rows(tmp_path):
    [task] = read_tasks(write_jsonl(tmp_path / "x.jsonl", ROWS[:1])).tasks
    for name in ("columns:free", "columns:trl_free"):
        [grade] = graded(name, [task], ["4"])
        assert grade.score == 1.0
