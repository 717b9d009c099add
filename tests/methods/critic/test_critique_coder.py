"""Critique-Coder's mix: what is judged, how it is paid, and that one policy learns from both."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from support.sessions import STEPS, finished, session_of
from whet.methods.critic.critique_coder import labelled
from whet.methods.critic.critique_coder_config import CritiqueCoderConfig
from whet.methods.solvers import solve_rollout
from whet.types import Episode, Grade

MIX = (*STEPS, "num_steps=3", "judge_share=0.5")


def test_solutions_of_earlier_steps_are_judged(tmp_path):
    session = finished("critique_coder", *MIX, folder=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["phase"] == "train" and row["step"]]
    assert [row["judge/items"] for row in steps] == [0, 3, 3]
    assert steps[0]["judge/right"] is None
    assert 0 <= steps[2]["judge/right"] <= 1
    assert len(session.loop.store.episodes("solutions")) == 3
    assert {"before", "best", "last"} == set(session.algorithm.evaluator.summary())
    assert all("acc_dis" in row for row in session.algorithm.evaluator.summary().values())


def test_rows_of_both_prompts_train_the_one_policy():
    method = session_of("critique_coder", *MIX, "group_size=8").algorithm
    method._collect(1)
    solving, judging = (
        method.run.prompts.solve_messages("Q")[0]["content"],
        method.run.prompts.critique_messages("Q", "A"),
    )
    tokenizer = method.run.loop.policies["policy"].tokenizer
    texts = [tokenizer.decode(row.tokens) for step in (2, 3) for row in method._collect(step).rows]
    assert any(solving[:5] in text for text in texts)
    assert any(judging[0]["content"][:5] in text for text in texts)


@pytest.mark.parametrize(("score", "right"), [(1.0, 1.0), (0.81, 1.0), (0.8, 0.0), (0.0, 0.0)])
def test_a_solution_is_right_above_its_pass_rate(score, right):
    method = session_of("critique_coder", *MIX).algorithm
    solution = solve_rollout(method, "policy").begin(method.run.tasks["train"][0], 0)
    task = method.run.tasks["train"][0]
    episode = Episode(task=task, segments=(replace(solution, grade=Grade(score=score)),), outcome="ok")
    assert labelled(episode, 0.8).segments[0].grade.score == right


def test_kept_solutions_have_an_end():
    method = session_of("critique_coder", *MIX, "kept_steps=2").algorithm
    for step in (1, 2, 3, 4):
        method._collect(step)
    assert list(method.run.loop.store.episodes("solutions").batches) == ["3", "4"]


def test_no_problem_is_left_to_judging_for_ever(monkeypatch):
    """Three of six problems a step make room; the set comes round every second step."""
    method = session_of("critique_coder", *MIX, "data.num_train=12", "num_steps=40", "group_size=2").algorithm
    train, seen = method.run.tasks["train"], set()
    method.run.loop.store.episodes("solutions").put("0", [Episode(task=task, segments=()) for task in train])

    class Drawn(Exception):
        """What is to be solved is known."""

    def whole(rollout, runtime, batches, group_size):
        seen.update(task.id for tasks in batches for task in tasks)
        raise Drawn

    monkeypatch.setattr("whet.methods.critic.critique_coder.whole", whole)
    for step in range(1, 41):
        with pytest.raises(Drawn):
            method._collect(step)
    assert seen == {task.id for task in train}


def test_equal_judgments_teach_nothing_and_are_refused():
    with pytest.raises(ValidationError, match=r"critique\.temperature = 0 makes all judgments of a solution equal"):
        CritiqueCoderConfig(critique={"temperature": 0})
    assert CritiqueCoderConfig(critique={"temperature": 0}, judge_share=0).judge_share == 0
