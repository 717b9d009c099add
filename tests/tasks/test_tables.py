"""Parquet in, and columns with names of the user's own: right values, or a sentence."""

import datetime
import importlib.util
import json
from decimal import Decimal

import pyarrow
import pyarrow.parquet
import pytest

from support.files import sums, write_jsonl, write_parquet
from whet.tasks import tables
from whet.tasks.files import DataError, read_tasks

Q = {"question": "What is it?"}
VERL = {
    "data_source": "gsm8k",
    "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": "2 + 2?"}],
    "reward_model": {"style": "rule", "ground_truth": "4"},
    "extra_info": {"question": "2 + 2?", "index": 3},
}
TRL = {
    "prompt": [{"role": "user", "content": "2 + 2?"}],
    "completion": [{"role": "assistant", "content": "two and two"}],
    "ground_truth": 4.0,
}


def test_a_parquet_file_reads_as_the_json_lines_do(tmp_path, data_folder):
    lines = data_folder / "gsm8k" / "test.jsonl"
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    table = write_parquet(tmp_path / "test.parquet", rows)
    assert read_tasks(table).tasks == read_tasks(lines).tasks


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (datetime.datetime(2024, 1, 2, 3), "2024-01-02T03:00:00"),
        (datetime.timedelta(seconds=5), "0:00:05"),
        (Decimal("27.50"), "27.5"),
        (Decimal("27.00"), "27"),
        (b"72", "72"),
        (["5"], "5"),
        (27.0, "27"),
    ],
)
def test_values_that_json_does_not_have(tmp_path, value, answer):
    assert read_tasks(write_parquet(tmp_path / "x.parquet", [{**Q, "answer": value}])).tasks[0].answer == answer


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({**Q, "answer": b"\xff\xfe"}, r"row 1: expected text or a number where a bytes stands"),
        ({**Q, "answer": ["5", "6"]}, r"row 1: expected text or a number where a list stands"),
        ({**Q, "answer": {"value": 5}}, r"row 1: expected text or a number where a dict stands"),
        ({**Q, "answer": float("inf")}, r"row 1: a number past the largest float"),
        ({**Q, "answer": float("nan")}, r"none of the 1 rows has a reference answer"),
        ({**Q, "answer": None}, r"none of the 1 rows has a reference answer"),
        ({"question": None, "answer": "5"}, r"row 1: the question is empty"),
        ({**Q, "answer": "5", "solution": b"\xff"}, r"row 1: solution holds bytes that are no text"),
    ],
)
def test_values_that_are_no_task(tmp_path, row, says):
    with pytest.raises(DataError, match=says):
        read_tasks(write_parquet(tmp_path / "x.parquet", [row]))


def test_what_is_not_asked_for_may_be_anything(tmp_path):
    row = {**Q, "answer": "5", "image": b"\x89PNG\xff", "at": datetime.datetime(2024, 1, 1), "nested": [{"a": [None]}]}
    assert read_tasks(write_parquet(tmp_path / "x.parquet", [row])).tasks[0].answer == "5"


def test_files_that_are_no_whole_parquet(tmp_path):
    whole = write_parquet(tmp_path / "x.parquet", sums(range(50))).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[:-20])
    with pytest.raises(DataError, match=r"cut\.parquet cannot be read as Parquet"):
        read_tasks(tmp_path / "cut.parquet")
    damaged = bytearray(whole)
    damaged[8:60] = bytes(52)
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    with pytest.raises(DataError, match=r"damaged\.parquet cannot be read as Parquet"):
        read_tasks(tmp_path / "damaged.parquet")
    schema = pyarrow.schema([("question", pyarrow.string()), ("answer", pyarrow.string())])
    pyarrow.parquet.write_table(schema.empty_table(), tmp_path / "none.parquet")
    with pytest.raises(DataError, match=r"none\.parquet has no rows"):
        read_tasks(tmp_path / "none.parquet")
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(DataError, match=r"folder\.parquet is a folder; give data\.test_path a \.jsonl"):
        read_tasks(tmp_path / "folder.parquet", setting="data.test_path")


def test_without_pyarrow_a_sentence_names_what_to_install(tmp_path, monkeypatch):
    file = write_parquet(tmp_path / "x.parquet", sums(range(2)))
    found = importlib.util.find_spec
    monkeypatch.setattr(tables, "find_spec", lambda name: None if name == "pyarrow" else found(name))
    with pytest.raises(
        DataError,
        match=r"x\.parquet: .* not installed: .*`make setup EXTRAS=data`",
    ):
        read_tasks(file)


@pytest.mark.parametrize("write", [write_jsonl, write_parquet])
@pytest.mark.parametrize(
    ("row", "columns", "prompt", "answer", "solution"),
    [
        ({"text": "2 + 2?", "target": 4}, {"prompt": "text", "answer": "target"}, "2 + 2?", "4", None),
        ({"text": "2 + 2?", "answer": 4}, {"prompt": "text"}, "2 + 2?", "4", None),
        ({"text": "2 + 2?", "work": "two and two\n#### 4"}, {"prompt": "text", "answer": "work"},
         "2 + 2?", "4", "two and two"),
        ({"text": "2 + 2?", "work": r"so \boxed{4}"}, {"prompt": "text", "solution": "work"},
         "2 + 2?", "4", r"so \boxed{4}"),
        (VERL, {"prompt": "extra_info.question", "answer": "reward_model.ground_truth"}, "2 + 2?", "4", None),
        (VERL, {"prompt": "prompt.1.content", "answer": "reward_model.ground_truth"}, "2 + 2?", "4", None),
        (TRL, {"answer": "ground_truth", "solution": "completion.0.content"}, "2 + 2?", "4", "two and two"),
        ({"a.b": "2 + 2?", "answer": 4}, {"prompt": "a.b"}, "2 + 2?", "4", None),
    ],
)  # fmt: skip
def test_columns(tmp_path, write, row, columns, prompt, answer, solution):
    found = read_tasks(write(tmp_path / f"rows.{write.__name__.removeprefix('write_')}", [row]), columns=columns)
    [task] = found.tasks
    assert (task.prompt, task.answer, task.info.get("solution")) == (prompt, answer, solution)
    assert f"read from {next(iter(columns.values()))} ({next(iter(columns))})" in found.recognised


def test_a_verl_row_of_one_turn_is_known_without_naming_columns(tmp_path):
    row = VERL | {"prompt": VERL["prompt"][1:]}
    assert read_tasks(write_parquet(tmp_path / "x.parquet", [row])).tasks[0].answer == "4"
    with pytest.raises(DataError, match=r"one user turn of text, not \['system', 'user'\].*data\.columns\.prompt="):
        read_tasks(write_parquet(tmp_path / "x.parquet", [VERL]))


@pytest.mark.parametrize(
    ("row", "columns", "says"),
    [
        ({"text": "?", "target": 4}, {"prompt": "txt"},
         r"row 1: there is no column 'txt' .data\.columns\.prompt.; did you mean text\? It has target, text"),
        (VERL, {"answer": "reward_model.groundtruth"}, r"did you mean reward_model\.ground_truth\?"),
        ({"text": "?"}, {"answer": "zzz"},
         r"there is no column 'zzz' .data\.columns\.answer.; it has text: name one of them, data\.columns\.answer="),
        (TRL, {"answer": "completion.7.content"}, r"there is no column 'completion\.7\.content'"),
        ({"text": "?", "target": 4}, {"answer": "target"}, r"no question field among target, text; name it: data\.col"),
        ({"text": "?", "target": 4}, {}, r"no question field among target, text; say which columns .*data\.columns\.p"),
        ({"prompt": "?", "truth": 4}, {}, r"none of the 1 rows has a reference answer .*data\.columns\.answer=NAME"),
    ],
)  # fmt: skip
def test_columns_that_are_not_there(tmp_path, row, columns, says):
    with pytest.raises(DataError, match=says):
        read_tasks(write_parquet(tmp_path / "x.parquet", [row]), columns=columns)


def test_a_path_of_thousands_of_digits_names_no_place_in_a_list(tmp_path):
    rows = write_jsonl(tmp_path / "x.jsonl", [{"question": "?", "answer": ["4"]}])
    for digits in ("9" * 5000, "0" * 5000, "9" * 19):
        with pytest.raises(DataError, match=r"line 1: .* no column 'answer\.[09]{1,100}' .data\.columns\.answer.;"):
            read_tasks(rows, columns={"answer": f"answer.{digits}"})
    assert read_tasks(rows, columns={"answer": "answer.0"}).tasks[0].answer == "4"


def test_a_time_zone_that_is_not_known_is_said_with_its_columns(tmp_path):
    at = pyarrow.array([0, 1], pyarrow.timestamp("us", tz="Mars/Olympus"))
    table = pyarrow.table({"question": ["a", "b"], "answer": ["1", "2"], "at": at})
    pyarrow.parquet.write_table(table, tmp_path / "zones.parquet")
    with pytest.raises(DataError, match=r"zones\.parquet: no time zone .* 'Mars/Olympus' is known \(at\); write"):
        read_tasks(tmp_path / "zones.parquet")


def test_two_columns_of_one_name_are_refused(tmp_path):
    table = pyarrow.table([["1"], ["q"], ["7"]], names=["answer", "question", "answer"])
    pyarrow.parquet.write_table(table, tmp_path / "two.parquet")
    with pytest.raises(DataError, match="two columns of the name 'answer'"):
        read_tasks(tmp_path / "two.parquet")


def test_a_narrow_float_keeps_the_digits_that_it_was_written_with(tmp_path):
    table = pyarrow.table({"question": ["a", "b"], "answer": pyarrow.array([0.1, 2.5], pyarrow.float32())})
    pyarrow.parquet.write_table(table, tmp_path / "narrow.PARQUET")
    assert [task.answer for task in read_tasks(tmp_path / "narrow.PARQUET").tasks] == ["0.1", "2.5"]
