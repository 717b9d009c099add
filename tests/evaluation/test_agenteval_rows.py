"""AgentEval's counts, an agent's row by hand, and a record whose two tables share no number."""

from __future__ import annotations

from whet.envs.registry import HELD
from whet.evaluation.agenteval import (
    COUNTS,
    USUAL,
    AgentEval,
    Measured,
    NotRun,
    count_of,
    protocol_of,
)
from whet.evaluation.agenteval_rows import agent_row
from whet.rollout.roles import observed, written
from whet.types import Episode, Task


def episode(*rewards, outcome="ok", reason="", item=1):
    segments = [observed("here", parent=None)]
    for reward in rewards:
        segments.append(written("agent", "go", parent=len(segments) - 1, parsed={"reward": reward}))
    task = Task(id=f"sciworld_{item}", prompt="", info={"environment": "sciworld"})
    return Episode(task=task, segments=tuple(segments), outcome=outcome, reason=reason)


def line(environment, table, score):
    row = {"n": 1, "score": score, "score_low": 0.0, "score_high": 1.0, "success": score, "turns": 2.0,
           "invalid": 0.0, "truncated": 0.0, "failures": {}, "reason": ""}  # fmt: skip
    return Measured(
        environment=environment, table=table, items=(3,), choice="", paper=USUAL, temperature=0.0, max_turns=5,
        format="react", overridden=(), rows={"policy": row, "expert": None, "random": row, "constant": row},
        seconds=1.0,
    )  # fmt: skip


def test_published_counts():
    """Spec 9.13: AgentEval has 1,160 items; SearchQA came with the second paper."""
    assert sum(COUNTS.values()) - COUNTS["searchqa"] == 1160
    assert (count_of("maze"), count_of("household")) == (25, 100)
    assert HELD.keys() == {"webarena", "miniwob"}


def test_a_row_by_hand():
    """Points 50 and 100 of 100 are scores of 0.5 and 1; a broken environment is in no mean."""
    episodes = [
        episode(20, 30),
        episode(100, item=2),
        episode(outcome="env_error", reason="java died", item=3),
        episode(outcome="timeout", reason="late", item=4),
        episode(outcome="env_error", reason="again", item=5),
    ]
    row = agent_row(episodes, lambda reward: reward / 100, above=99.0)
    assert (row["n"], row["score"], row["success"], row["reward"]) == (2, 0.75, 0.5, 75)
    assert row["turns"] == 1.5
    assert row["failures"] == {"env_error": 2, "timeout": 1}
    assert row["reason"] == "java died"
    assert row["score_low"] < 0.75 < row["score_high"]


def test_failures_alone_give_no_score():
    row = agent_row([episode(outcome="endpoint_error", reason="HTTP 500")], lambda reward: reward, above=0.5)
    assert (row["n"], row["score"], row["score_low"], row["success"]) == (0, None, None, None)


def test_settings_are_the_papers_where_it_has_any():
    assert (protocol_of("wordle", 3).max_turns, protocol_of("wordle", 3).temperature) == (8, 0.0)
    sheet = protocol_of("sheet", 99)  # spec 1.8
    assert (sheet.max_turns, sheet.paper) == (15, protocol_of("wordle", 3).paper)
    ours = protocol_of("household", 12)
    assert (ours.paper, ours.max_turns, ours.temperature, ours.format) == (USUAL, 12, 0.0, "react")


def test_the_record_keeps_both_tables_apart():
    record = AgentEval(
        policy="models/mine", seed=0, num_items=1, version="1", seconds=2.0,
        measured=[line("maze", "published", 1.0), line("wordle", "generated", 0.5)],
        not_run=[NotRun(environment="webarena", cause="held", why="later")],
    ).record()  # fmt: skip
    assert record["format"] == "whet agenteval 1"
    assert record.keys() == {"format", "policy", "seed", "num_items", "version", "not_run", "seconds", "plan",
                             "published", "generated"}  # fmt: skip
    assert {table: list(record[table]) for table in ("published", "generated")} == {
        "published": ["maze"], "generated": ["wordle"],
    }  # fmt: skip
    assert record["published"]["maze"]["items"] == [3]
    assert record["not_run"] == [{"environment": "webarena", "cause": "held", "why": "later"}]
    assert 0.75 not in _numbers(record)  # the mean of the two


def _numbers(value):
    if isinstance(value, dict | list):
        return {
            number for inner in (value.values() if isinstance(value, dict) else value) for number in _numbers(inner)
        }
    return {value} if isinstance(value, float | int) and not isinstance(value, bool) else set()
