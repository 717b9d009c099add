"""What a row holds besides question and answer: all of it in `info`. Columns joined by a template."""

import datetime
import json
from decimal import Decimal

import pytest

from support.files import write_jsonl, write_parquet
from whet.tasks.files import DataError, read_tasks
from whet.types import MUST_END

VERL = {
    "data_source": "openai/gsm8k",
    "prompt": [{"role": "user", "content": "2 + 2?"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "4"},
    "extra_info": {"split": "train", "index": 3, "tests": [{"in": "1", "out": [1, 2]}]},
}


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
@pytest.mark.parametrize(
    ("row", "columns", "info"),
    [
        (VERL, {}, {"kind": "verl", "data_source": "openai/gsm8k", "ability": "math", "reward_model": {"style": "rule"},
                    "extra_info": VERL["extra_info"]}),
        ({"question": "Q?", "answer": "5 #### 5", "level": 2, "tags": ["a"], "note": None}, {},
         {"kind": "gsm8k", "solution": "5", "level": 2, "tags": ["a"], "note": None}),
        ({"problem": "P?", "prompt": "other", "answer": 5, "solution": "", "kind": "algebra", "id": "x"}, {},
         {"kind": "algebra", "prompt": "other", "id": "x"}),
        ({"question": "Q?", "gt": "C", "gt_cot": "why", "answer": "long", "idx": 0}, {},
         {"kind": "realcritic", "gt_cot": "why", "solution": "why", "answer": "long", "idx": 0}),
        ({"text": "Q?", "target": 4, "answer": "other", "question": "x"}, {"prompt": "text", "answer": "target"},
         {"kind": "plain", "text": "Q?", "target": 4, "answer": "other", "question": "x"}),
        ({"text": "Q?", "answer": 4}, {"prompt": "text"}, {"kind": "plain", "text": "Q?"}),
        ({"Body": "B.", "Question": "Q?", "Answer": 2, "Type": "Sum", "Equation": "1+1"}, {},
         {"kind": "svamp", "Type": "Sum", "Equation": "1+1"}),
    ],
)  # fmt: skip
def test_all_that_a_row_holds_besides_is_in_info(tmp_path, write, row, columns, info):
    [task] = read_tasks(write(tmp_path / f"x.{write.__name__.removeprefix('write_')}", [row]), columns=columns).tasks
    assert dict(task.info) == info
    assert json.loads(json.dumps(task.info)) == info


def test_values_that_json_does_not_have_become_text_or_numbers_and_bytes_are_left_out_by_name(tmp_path):
    row = {
        "question": "Q?", "answer": "5", "at": datetime.datetime(2024, 1, 2, 3), "price": Decimal("2.50"),
        "blob": b"text", "image": b"\x89PNG\xff", "nested": {"day": datetime.date(2024, 1, 2), "raw": b"\xff", "n": 1},
        "many": [b"\xff", b"a"], "gap": float("nan"), MUST_END.partition("/")[2]: True,
    }  # fmt: skip
    found = read_tasks(write_parquet(tmp_path / "x.parquet", [row]))
    [task] = found.tasks
    assert task.info == {
        "kind": "plain", "at": "2024-01-02T03:00:00", "price": "2.5", "blob": "text",
        "nested": {"day": "2024-01-02", "n": 1}, "gap": None, "must_end": True,
    }  # fmt: skip
    assert MUST_END not in task.info  # no column decides how a reply that was cut off is graded
    assert found.recognised.endswith("; bytes that are no text reach no grader: image, many, nested.raw")
    json.dumps(task.info)


def test_a_real_set_keeps_its_columns(data_folder):
    tasks = read_tasks(data_folder / "math500" / "test.jsonl").tasks
    rows = [json.loads(line) for line in (data_folder / "math500/test.jsonl").read_text(encoding="utf-8").splitlines()]
    for task, row in zip(tasks, rows, strict=True):
        besides = {name: value for name, value in row.items() if name not in ("problem", "answer")}
        assert task.info == {"kind": "math", **besides}


ROW = {
    "context": "Ann has 2.0 pens.",
    "question": "How many?",
    "n": 3.0,
    "answer": 2,
    "deep": {"er": "in"},
    "{odd}": "o",
}


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("{context}\n\n{question}", "Ann has 2.0 pens.\n\nHow many?"),
        ("Context: {context} ({n}) {{not}} {deep.er}", "Context: Ann has 2.0 pens. (3) {not} in"),
        ("{question}{question}", "How many?How many?"),
        ("{odd}", "o"),  # a column of just that name
        ("{{odd}}: {question}", "{odd}: How many?"),
    ],
)
def test_columns_are_joined_by_a_template(tmp_path, template, prompt):
    found = read_tasks(write_jsonl(tmp_path / "x.jsonl", [ROW]), columns={"prompt": template})
    assert found.tasks[0].prompt == prompt
    assert found.tasks[0].info["context"] == "Ann has 2.0 pens."  # the parts stay, by their own names
    assert f"read from {template!r} (prompt)" in found.recognised


def test_an_answer_may_be_joined_too_and_what_is_filled_in_is_not_looked_at_again(tmp_path):
    row = {"a": "{b}", "b": "x", "question": "Q?"}
    [task] = read_tasks(write_jsonl(tmp_path / "x.jsonl", [row]), columns={"answer": "{a}-{b}"}).tasks
    assert task.answer == "{b}-x"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (
            "{contxt} {question}",
            r"line 1: there is no column 'contxt' \(data\.columns\.prompt\); did you mean context\?",
        ),
        ("{} {question}", r"there is no column '' \(data\.columns\.prompt\); it has answer, context"),
        ("{context} } {question}", r"line 1: data\.columns\.prompt = .* has a lone '\}'; write it twice"),
        ("{context", r"has a lone '\{'"),
        ("{deep} {question}", r"'deep' \(data\.columns\.prompt\) holds a dict, .* such as \{deep\.er\}"),
        ("{nothing}", r"'nothing' \(data\.columns\.prompt\) holds nothing; write \"\" where it is meant to be empty"),
    ],
)
def test_a_template_that_does_not_fit_is_said_with_the_row(tmp_path, template, says):
    with pytest.raises(DataError, match=says):
        read_tasks(write_jsonl(tmp_path / "x.jsonl", [{**ROW, "nothing": None}]), columns={"prompt": template})


def test_ids_that_come_again_are_said(tmp_path):
    rows = [{"id": "a", "question": f"{n}?", "answer": n} for n in range(3)]
    said = read_tasks(write_jsonl(tmp_path / "x.jsonl", rows)).recognised
    assert said.endswith("; id is 'a' in line 1 and line 2, so ids are hashes of the questions")
    fine = [{**row, "idx": number} for number, row in enumerate(rows)]
    assert "hash" not in read_tasks(write_jsonl(tmp_path / "y.jsonl", fine)).recognised


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('5\n', r"x\.jsonl, line 1: expected an object .* found int; write one such object a task"),
        ('{"question": "Q?", "answer": {"value": 1}}\n', r"line 1: expected text .*data\.columns\.answer=ans"),
        ('{"question": "Q?", "answer": 1}\n{"question": 5, "answer": 1}\n', r"line 2: the question is .*; fill it"),
        ('{"question": "Q?", "answer": 1}\n{"question": "R?"\n', r"line 2: not JSON .*; write one whole JSON obj"),
    ],
)  # fmt: skip
def test_a_wrong_row_says_where_it_is_and_what_to_do(tmp_path, lines, says):
    path = tmp_path / "x.jsonl"
    path.write_text(lines)
    with pytest.raises(DataError, match=says):
        read_tasks(path)


ROW_OF_NUMBERS = {"question": "Q?", "answer": "5", "scores": {"by_hand": [0.5, 1.0]}}


def test_an_infinity_in_any_column_is_refused_with_its_row_and_column(tmp_path):
    """JSON has none: from `info` it went on into the requests of workers, and into files of the run."""
    rows = [ROW_OF_NUMBERS, {"question": "R?", "answer": "5", "scores": {"by_hand": [0.5, float("-inf")]}}]
    says = r"{}, {} 2: a number past the largest float stands in the column 'scores\.by_hand\.1'; write it as text"
    with pytest.raises(DataError, match=says.format(r"x\.parquet", "row")):
        read_tasks(write_parquet(tmp_path / "x.parquet", rows))
    text = "\n".join(json.dumps(row) for row in rows).replace("-Infinity", "-1e999")
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(DataError, match=says.format(r"x\.jsonl", "line")):
        read_tasks(tmp_path / "x.jsonl")
    (tmp_path / "x.json").write_text(f"[{text.replace(chr(10), ',')}]")
    with pytest.raises(DataError, match=says.format(r"x\.json", "item")):
        read_tasks(tmp_path / "x.json")


@pytest.mark.parametrize("depth", [101, 900])
def test_a_value_that_is_nested_too_deeply_is_refused_and_one_that_is_not_travels(tmp_path, depth):
    def written(levels: int) -> str:
        return '{"question": "Q?", "answer": "5", "deep": ' + "[" * levels + "]" * levels + "}"

    (tmp_path / "x.jsonl").write_text(written(depth))
    with pytest.raises(DataError, match=r"x\.jsonl, line 1: the column 'deep' is nested too deeply, past 100"):
        read_tasks(tmp_path / "x.jsonl")
    (tmp_path / "x.jsonl").write_text(written(100))
    [task] = read_tasks(tmp_path / "x.jsonl").tasks
    assert json.dumps(task.info["deep"]) == "[" * 100 + "]" * 100
