"""The tables of AgentEval for the terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from whet.evaluation.agenteval import USUAL, AgentEval, Measured, NotRun
from whet.report.agenteval import agenteval_notes, agenteval_tables

ROW = {"n": 4, "score": 0.5, "score_low": 0.15, "score_high": 0.85, "success": 0.25, "turns": 6.0, "invalid": 0.1,
       "truncated": 0.75, "failures": {}, "reason": ""}  # fmt: skip
MAZE = Measured(
    environment="maze", table="published", items=(0, 1, 2, 3), choice="AgentEval's list", paper="AgentGym",
    temperature=0.0, max_turns=15, format="react", overridden=(),
    rows={"policy": ROW, "expert": ROW | {"score": 1.0}, "random": ROW | {"score": 0.125}, "constant": None},
    seconds=1.0,
)  # fmt: skip
BROKEN = ROW | dict.fromkeys(("score", "score_low", "score_high", "success", "turns", "invalid", "truncated"))
RESULT = AgentEval(
    policy="mine", seed=0, num_items=4, version="1", seconds=2.0,
    measured=[
        MAZE,
        replace(MAZE, environment="todo", table="generated", paper=USUAL, choice="whet's own items", rows={
            **MAZE.rows, "policy": BROKEN | {"n": 0, "failures": {"timeout": 3, "env_error": 1}, "reason": "late"},
        }),
    ],
    not_run=[
        NotRun(environment="webshop", cause="absent", why="no such environment"),
        NotRun(environment="sqlgym", cause="absent", why="no such environment"),
        NotRun(environment="sciworld", cause="package", why="needs scienceworld"),
    ],
)  # fmt: skip


def shown(width=100):
    console = Console(file=StringIO(), width=width)
    for table in agenteval_tables(RESULT):
        console.print(table)
    return console.file.getvalue()


def test_a_table_for_each_kind_of_items_and_no_average():
    published, generated, absent = agenteval_tables(RESULT)
    assert (published.row_count, generated.row_count) == (1, 1)  # no line of totals
    assert "published items" in str(published.title)
    assert "generated items" in str(generated.title)
    assert absent.row_count == 2  # one reason, one line
    assert max(map(len, shown().splitlines())) <= 100


def test_values_stand_beside_the_baselines():
    lines = shown().splitlines()
    [maze] = [line for line in lines if line.strip().startswith("maze")]
    assert maze.split() == ["maze", "4", "50.0", "(15–85)", "25.0", "100.0", "12.5", "–", "6.0/15", "10.0", "75.0", "0"]
    [todo] = [line for line in lines if line.strip().startswith("todo")]
    assert todo.split() == ["todo", "4", "–", "–", "100.0", "12.5", "–", "–", "–", "–", "4"]
    assert "webshop, sqlgym" in shown()


def test_notes_say_by_whose_settings_and_why_episodes_failed():
    notes = list(agenteval_notes(RESULT))
    assert "as published by AgentGym: greedy (temperature 0), react, 15 turns in maze" in notes
    assert f"{USUAL}: greedy (temperature 0), react, 15 turns in todo" in notes
    assert "items: AgentEval's list in maze; whet's own items in todo" in notes
    assert not any("understood" in note for note in notes)
    assert "todo, policy: failed episodes: 3 timeout, 1 env_error (the first: late)" in notes


def test_an_agent_whose_actions_nobody_understands_is_told_so():
    rows = {**MAZE.rows, "policy": ROW | {"invalid": 1.0}}
    notes = list(agenteval_notes(replace(RESULT, measured=[replace(MAZE, rows=rows)])))
    assert any(note.startswith("not one action was understood in maze: look at the episodes") for note in notes)
