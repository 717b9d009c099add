"""CSV and TSV: cells as spreadsheets and pandas write them, and what is no table is one sentence."""

from __future__ import annotations

import csv
import json

import pytest

from whet.tasks.demonstrations import read_demonstrations
from whet.tasks.files import DataError, file_rows, read_tasks
from whet.tasks.prompts import ENGLISH

ROWS = [
    {"query": 'She said "7, or 8". Which?', "label": "7", "level": "hard"},
    {"query": "First line\nsecond line\u2028third", "label": "0.5", "level": ""},
    {"query": "Ünï", "label": "B", "level": "easy"},
]


def written(path, rows, **options):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), **options)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize(("name", "options"), [("rows.csv", {}), ("rows.TSV", {"delimiter": "\t"})])
def test_cells_come_back_as_they_were_written(tmp_path, name, options):
    file = written(tmp_path / name, ROWS, **options)
    assert file_rows(file, "data.path") == [("line 2", ROWS[0]), ("line 3", ROWS[1]), ("line 5", ROWS[2])]
    tasks = read_tasks(file, columns={"prompt": "query", "answer": "label"}).tasks
    assert [(task.prompt, task.answer, task.info["level"]) for task in tasks] == [
        (row["query"], row["label"], row["level"]) for row in ROWS
    ]


def test_a_cell_may_be_long(tmp_path):
    """Python's reader refuses cells above 131,072 characters."""
    written(tmp_path / "x.csv", [{"question": "word " * 40_000, "answer": "1"}])
    [(_, row)] = file_rows(tmp_path / "x.csv", "data.path")
    assert len(row["question"]) == 200_000


def test_the_tasks_are_those_of_json_lines_and_a_mark_of_excel_is_no_letter(tmp_path):
    rows = [{"question": f"{n} + 1", "answer": str(n + 1)} for n in range(3)]
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = written(tmp_path / "rows.csv", rows)
    table.write_bytes(b"\xef\xbb\xbf" + table.read_bytes())
    assert read_tasks(table).tasks == read_tasks(lines).tasks


def test_a_warm_start_reads_true_and_false(tmp_path):
    rows = [
        {"question": "1 + 1", "answer": "The answer is 2.", "critique": "", "correct": "True"},
        {"question": "1 + 2", "answer": "The answer is 4.", "critique": "Verdict: wrong", "correct": "false"},
        {"question": "1 + 3", "answer": "The answer is 4.", "critique": "Verdict: right", "correct": ""},
    ]
    kinds = [each.kind for each in read_demonstrations(written(tmp_path / "warm.csv", rows), ENGLISH)]
    assert kinds == ["solve", "critique", "critique"]
    rows[0]["correct"] = "yes"
    with pytest.raises(DataError, match="line 2: correct must be true or false, not 'yes'"):
        read_demonstrations(written(tmp_path / "warm.csv", rows), ENGLISH)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("question;answer\n1 + 1;2\n", "write ',' between cells in place of ';'"),
        ("question,answer,\n1 + 1,2,\n", "column 3 has no name"),
        ("question,answer,answer\n1 + 1,2,3\n", "two columns of the name 'answer'"),
        ("question,answer\n1 + 1,2\n\n1,000 + 1,1001\n", r"line 4: 3 cells for 2 columns \(question, answer\)"),
        ('question,answer\n"1 + 1,2\n', "line 2: cannot be read as CSV .*; close its quotes"),
        ("question,answer\n", "no row below the names"),
        ("", "is empty"),
    ],
)
def test_what_is_no_table_is_one_sentence(tmp_path, text, says):
    file = tmp_path / "rows.csv"
    file.write_text(text)
    with pytest.raises(DataError, match=says):
        file_rows(file, "data.path")
