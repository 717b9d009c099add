"""A rule in the actor's place: it reads a round's conversation in any dialect, and answers verdicts alone."""

from __future__ import annotations

import asyncio

import pytest

from support.rounds import RIGHT, TASK, WRONG
from support.sessions import finished
from whet.rollout.rule_roles import RuleRole, verdict_actor
from whet.tasks.placeholders import read_back
from whet.tasks.prompts import CHAINS, ENGLISH
from whet.types import Sampling

ALWAYS = verdict_actor(1.0, 1.0)


def replied(prompts, messages, rule=ALWAYS, seed=0):
    role = RuleRole("actor", rule, prompts, Sampling(temperature=0.0, max_new_tokens=8))
    return asyncio.run(role.reply(messages, seed=seed, parent=3, group={"task": "t"}))


@pytest.mark.parametrize("prompts", [CHAINS, ENGLISH])
@pytest.mark.parametrize("right", [True, False])
def test_the_latest_verdict_decides(prompts, right):
    answer, other = (RIGHT, WRONG) if right else (WRONG, RIGHT)
    alarm, praise = prompts.closing(right=False), prompts.closing(right=True)
    both = f"{alarm}\n{praise}"
    for critique in (praise, "", "no verdict", both):
        assert replied(prompts, prompts.refine_messages(TASK.prompt, answer, critique)).text == answer
    refined = replied(prompts, prompts.refine_messages(TASK.prompt, answer, f"Some words.\n{alarm}"))
    assert refined.text.splitlines()[-1] != answer.splitlines()[-1]
    assert (refined.text.splitlines()[-1] == "The answer is 6") is not right
    assert (refined.role, refined.parent, refined.tokens, refined.policy) == ("actor", 3, (), "rule")
    # An earlier alarm is over once the critic has said that the answer is right.
    again = prompts.refine_messages(TASK.prompt, answer, praise, [(other, alarm)])
    assert replied(prompts, again).text == answer


def test_an_answer_is_to_the_question_alone():
    text = replied(CHAINS, CHAINS.solve_messages(TASK.prompt)).text
    assert text == ALWAYS.answer(TASK.prompt, seed=0)


@pytest.mark.parametrize(
    ("template", "text", "filling"),
    [
        ("Solve: {question}", "Solve: 1 + {answer}\n2", "1 + {answer}\n2"),
        ("{critique}\n\nOnce more: {critique}", "a\nb\n\nOnce more: a\nb", "a\nb"),
        ("{critique}\n\nOnce more: {critique}", "a\n\nOnce more: b", None),
        (r"\boxed{} of (x). {question}?", r"\boxed{} of (x). a?b?", "a?b"),
        ("Solve: {question}", "Refine: 1", None),
    ],
)
def test_what_fills_a_template_is_read_back(template, text, filling):
    assert read_back(template, text) == filling


@pytest.mark.integration
def test_a_run_with_an_actor_by_rule_trains_the_critic_alone(tmp_path):
    settings = ("actor.kind=rule", "actor.mend=1", "actor.spoil=0", "warm_start.critic_steps=2", "data.num_test=200")
    steps = [f"stage{n}.{key}" for n in (1, 2) for key in ("num_steps=1", "prompts_per_step=4", "validate_every=1")]
    session = finished("critique_rl", *settings, *steps, folder=tmp_path / "run")
    assert set(session.sampled) == {"critic"}
    test = session.algorithm.evaluator.evaluated(session.algorithm.run.tasks["test"], "critic")
    assert len(test) == 200
    for episode in test:
        answer, critique, refinement = episode.segments
        alarm = critique.parsed["verdict"] == "wrong"
        assert (refinement.text == answer.text) or alarm
        assert (refinement.grade.score == 1.0) == (answer.grade.score == 1.0 or alarm)
    assert 0 < sum(episode.segments[0].grade.score for episode in test) < 200
