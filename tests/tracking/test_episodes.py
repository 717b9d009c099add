"""A trace as trackers show it."""

from typing import get_args

from whet.config.runs import TrackerName
from whet.report.read import trace_of
from whet.tracking.episodes import as_markdown, said, table_as_markdown, title_of
from whet.tracking.protocol import KINDS, MAX_TEXT

CRITIQUE = {
    "phase": "stage1", "step": 3, "split": "train", "critic": "stage1", "question": "2 + 2", "answer": "5",
    "answer_score": 0.0, "critique": "# It is 4\n<b>no</b>", "verdict": "wrong", "refinement": "4",
    "refinement_score": 1.0, "reward": 1.2,
}  # fmt: skip
EPISODE = {
    "phase": "train", "step": 1, "split": "train", "policy": "training", "task": "maze 3", "outcome": "env_error",
    "reason": "it died", "turns": [
        {"role": "observation", "text": "You are at 1, 1."},
        {"role": "agent", "text": "go up", "reward": -0.5, "note": "invalid action"},
    ],
}  # fmt: skip


def test_a_critique():
    texts = said(trace_of(CRITIQUE, "critic"))
    assert [(one.role, one.text, one.result) for one in texts] == [
        ("question", "2 + 2", ""),
        ("answer", "5", "score 0"),
        ("critique", "# It is 4\n<b>no</b>", "verdict wrong"),
        ("refinement", "4", "score 1"),
    ]


def test_an_agents_turns():
    texts = said(trace_of(EPISODE, "policy"))
    assert [(one.role, one.result) for one in texts] == [("observation", ""), ("agent", "invalid action, reward -0.5")]


def test_markdown_formats_no_text_of_a_model():
    lines = as_markdown(trace_of(CRITIQUE, "critic")).split("\n")
    assert lines[0] == "**stage1 · train · reward 1.2 · ok**"
    assert "    # It is 4" in lines
    assert "    <b>no</b>" in lines
    assert "env_error · it died" in as_markdown(trace_of(EPISODE, "policy"))


def test_a_long_text_loses_its_middle():
    [_, answer] = said(trace_of({"question": "q", "answer": "x" * (2 * MAX_TEXT)}, "policy"))
    assert MAX_TEXT - 10 < len(answer.text) <= MAX_TEXT


def test_tables_and_titles():
    table = table_as_markdown([{"policy": "a|b", "Acc": 0.123456, "n": None}, {"policy": "c", "Acc": 1.0, "n": 3.0}])
    assert table.split("\n") == ["| policy | Acc | n |", "|---|---|---|", "| a\\|b | 0.1235 | – |", "| c | 1 | 3 |"]
    assert title_of("Size of the test: The table rests on 8 problems.") == "Size of the test"
    assert len(title_of("x" * 100)) == 60


def test_settings_name_the_trackers_that_there_are():
    assert get_args(TrackerName) == tuple(KINDS)
