"""Records of critiques, in and out of every format."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from support.critique_rows import record_of_row
from support.files import write_jsonl
from whet.methods.critique_data.formats import (
    CritiqueRecord,
    MathCritique,
    as_lines,
    mathcritique_of,
    processbench_of,
    read_given,
    row_of,
    trl_of,
)
from whet.tasks.demonstrations import read_demonstrations
from whet.tasks.files import DataError
from whet.tasks.prompts import ENGLISH

RECORD = CritiqueRecord(
    id="q1/rg3/0", qid="q1", dataset="set", question="What is 1 + 1?", gold="2", response="1 + 1 = 3\nThe answer is 3.",
    right=False, source="rg3", error_step=0, located="planted", mistake="arithmetic", temperature=0.7, prefix_len=1,
    policies={"actor": "model:a"}, seeds={"answer": 7}, hints=("reference", "location"),
    critique="Step sentence: 1 + 1 = 3\nCorrectness of the step: Wrong\nExplanation: it is 2\n\n"
    "Correctness of the final answer: Wrong\nExplanation: so\n", verdict="wrong", first_wrong=0, num_refinements=10,
    num_correct=4, refinement="1 + 1 = 2\nThe answer is 2.", filters={"format": True}, flags=("answer_leak",),
)  # fmt: skip


def test_a_record_survives_the_store_and_its_row():
    again = json.loads(json.dumps(RECORD.task().info))
    assert CritiqueRecord.of(replace(RECORD.task(), info=again)) == RECORD
    assert record_of_row(json.loads(as_lines([row_of(RECORD)]))) == RECORD


def test_its_row_is_a_demonstration_for_critic_and_actor(tmp_path):
    path = write_jsonl(tmp_path / "rows.jsonl", [row_of(RECORD), row_of(replace(RECORD, right=True, refinement=None))])
    found = read_demonstrations(path, ENGLISH)
    assert [each.kind for each in found] == ["critique", "refine", "solve", "critique"]
    assert found[0].text == RECORD.critique
    assert found[1].text == RECORD.refinement


def test_the_other_formats_hold_the_same():
    made = mathcritique_of(RECORD, RECORD.critique or "")
    parts = MathCritique.of(made)
    assert (parts.question, parts.response, parts.critique, parts.refinement) == (
        RECORD.question, RECORD.response, RECORD.critique, RECORD.refinement,
    )  # fmt: skip
    assert made.keys() == {"instruction", "input", "output"}
    row = trl_of(RECORD, ENGLISH)
    assert row["completion"] == [{"role": "assistant", "content": RECORD.critique}]
    assert RECORD.gold not in row["prompt"][-1]["content"].rpartition("Solution:")[2]  # the hints stay out
    run_context = processbench_of(RECORD, ["1 + 1 = 3\n", "The answer is 3."])
    assert (run_context["label"], run_context["steps"]) == (0, ["1 + 1 = 3", "The answer is 3."])


@pytest.mark.parametrize("record", [{}, {"instruction": "q", "output": "r"}, {"instruction": 1, "output": "r"}])
def test_what_is_no_mathcritique_record_is_said(record):
    with pytest.raises(DataError, match="row 3: "):
        MathCritique.of(record, "row 3")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([1], "line 1: expected an object with question and answer"),
        ({"question": "q"}, "line 1: no answer among question; every row needs a question and an answer"),
        ({"question": "q", "answer": 3}, "no answer among question, answer; every row needs"),
        ({"question": "q", "answer": "a", "label": 1}, "unknown field 'label'; the fields are id, question"),
        ({"question": "q", "answer": "a", "correct": "yes"}, "correct must be true or false, not 'yes'"),
        ({"question": "q", "answer": "a", "error_step": -2}, "error_step must be a step's number from 0, or -1"),
        ({"question": "q", "answer": "a", "correct": True, "error_step": 1}, "mend one of them"),
        ({"question": "q", "answer": "a", "reference": [1]}, "reference must be text or a number"),
    ],
)
def test_what_is_wrong_with_somebodys_answers_is_said_in_a_sentence(row, says, tmp_path):
    path = write_jsonl(tmp_path / "mine.jsonl", [row])
    with pytest.raises(DataError, match=says.replace("[", r"\[")):
        read_given(path)
