"""What the actor and the critic are shown (spec sections 4.5, 9.11)."""

from __future__ import annotations

import pytest

from support.rounds import WRONG
from whet.grading.verdicts import parse_verdict
from whet.tasks.prompts import CHAINS, ENGLISH, PROMPTS


def test_spec_9_11_the_critic_does_not_see_the_prefill_and_the_refinement_prompt_does():
    answer = ENGLISH.solve_prefill + "2 + 2 = 4. The answer is 4."
    [critic] = ENGLISH.critique_messages("What is 2 + 2?", answer)
    assert ENGLISH.solve_prefill.strip() not in critic["content"]
    assert critic["content"].endswith("2 + 2 = 4. The answer is 4.")
    first, actors, critique = ENGLISH.refine_messages("What is 2 + 2?", answer, "Step sentence: a")
    assert [m["role"] for m in (first, actors, critique)] == ["user", "assistant", "user"]
    assert actors["content"] == answer
    assert critique["content"].endswith("Step sentence: a")
    assert ENGLISH.refine_prefill != ENGLISH.solve_prefill


def test_spec_4_5_only_a_prefill_at_the_start_is_taken_off():
    phrase = ENGLISH.solve_prefill
    [critic] = ENGLISH.critique_messages("q", f"I said: {phrase}and meant it. The answer is 4.")
    assert phrase.strip() in critic["content"]


def test_spec_9_11_the_critique_reaches_the_actor_from_its_first_step_on():
    steps = "Step sentence: a\nStep sentence: b"
    assert ENGLISH.steps_onward(f"I think...\n{steps}") == steps
    assert ENGLISH.steps_onward("no marker here") == "no marker here"
    assert CHAINS.steps_onward("Step 1: 7 + 5 = 2") == "Step 1: 7 + 5 = 2"


@pytest.mark.parametrize("name", PROMPTS.names())
def test_spec_9_11_a_prompt_alone_holds_no_verdict(name):
    prompts = PROMPTS.get(name)
    messages = prompts.critique_messages("7 + 5", WRONG, [(WRONG, "a critique")]) + prompts.solve_messages("7 + 5")
    for message in messages:
        assert parse_verdict(message["content"]) is None


def test_the_whole_history_comes_oldest_first():
    messages = CHAINS.refine_messages("7 + 5", "second", "c2", [("first", "c1")])
    assert [m["content"] for m in messages] == ["Solve: 7 + 5", "first", "Refine: c1", "second", "Refine: c2"]
    messages = CHAINS.critique_messages("7 + 5", "second", [("first", "c1")])
    assert [m["content"] for m in messages] == ["Critique: 7 + 5\nfirst", "c1", "Critique: second"]
