"""RG1, RG2 and RG3 on the shipped model: what each makes, what is known of it, and the first error by Monte Carlo."""

from __future__ import annotations

from dataclasses import replace

import pytest

from whet.config.parts import ModelConfig
from whet.engines.local import LocalEngine
from whet.grading import make_grader
from whet.methods.critique_data.rollouts import NO_SOURCE, Corruption, FirstErrors, continued, first_error, keeps
from whet.models.policy import load_policies
from whet.rollout.driver import GRADER, roll_out
from whet.rollout.retries import EpisodeCounts, Retries
from whet.rollout.roles import EndpointRole, PolicyRole
from whet.rollout.services import Fault
from whet.tasks.chains import parse_chain, steps_text
from whet.tasks.prompts import CHAINS
from whet.tasks.steps import judged_steps, split_steps
from whet.types import Grade, Sampling, Task

CHAIN = parse_chain("7 + 5 * 3 - 4 + 8")
TASK = Task(id="t", prompt=CHAIN.text, answer=str(CHAIN.values[-1]), info={"kind": "chains"})


@pytest.fixture(scope="module")
def services():
    policies = load_policies({"actor": ModelConfig()})
    return {"actor": LocalEngine(policies["actor"]).generate, GRADER: make_grader("chains").grade}, policies["actor"]


@pytest.fixture
def flaws(services):
    def role(temperature):
        return PolicyRole("actor", "actor", services[1].tokenizer, Sampling(temperature=temperature, max_new_tokens=64))

    return Corruption(CHAINS, role(0.7), role(1.3), key=(0, "test"), mistakes=("arithmetic", "quantity"))


def roll_out_all(services, rollout, count=24):
    return roll_out([rollout(TASK, sample=sample) for sample in range(count)], services[0])


def test_rg1_is_whole_solutions_that_differ(flaws, services):
    episodes = roll_out_all(services, flaws.rg1)
    assert {len(episode.segments) for episode in episodes} == {1}
    assert {episode.segments[0].grade.score for episode in episodes} == {0.0, 1.0}
    assert len({episode.segments[0].seed for episode in episodes}) == len(episodes)
    assert roll_out_all(services, flaws.rg1) == episodes


def test_rg2_keeps_the_steps_before_the_place_and_goes_on_hot(flaws, services):
    places = set()
    for episode in roll_out_all(services, flaws.rg2):
        source, answer = episode.segments
        at = answer.parsed["error_step"]
        assert answer.parsed == {"error_step": at, "prefix_len": at}
        assert keeps(answer.text, split_steps(source.text)[:at], "lines")
        assert 1 <= at < len(judged_steps(source.text))
        assert (source.temperature, answer.temperature, answer.parent) == (0.7, 1.3, 0)
        places.add(at)
    assert places == {1, 2, 3}


def test_rg3_plants_a_mistake_into_a_right_solution_and_goes_on(flaws, services):
    episodes = roll_out_all(services, flaws.rg3)
    made = [episode for episode in episodes if NO_SOURCE not in episode.segments[-1].parsed]
    assert 0 < len(made) < len(episodes)  # where the actor is wrong already nothing can be planted
    for episode in made:
        source, wrong, answer = episode.segments
        at = answer.parsed["error_step"]
        assert source.grade.score == 1.0
        assert answer.parsed["prefix_len"] == at + 1
        assert answer.parsed["mistake"] in flaws.mistakes
        steps = split_steps(source.text)
        assert keeps(answer.text, [*steps[:at], wrong.text], "lines")
        assert wrong.text != steps[at]


def test_rg3_needs_no_model_where_the_rest_is_worked_out(services):
    def reference(task):
        return [*(f"{step}\n" for step in steps_text(CHAIN, CHAIN.values)), f"The answer is {task.answer}"]

    nobody = EndpointRole("actor", "nobody", Sampling())
    by_rule = Corruption(CHAINS, nobody, nobody, (0,), mistakes=("arithmetic",), reference=reference, rest="recomputed")
    for episode in roll_out([by_rule.rg3(TASK, sample=i) for i in range(8)], {GRADER: make_grader("chains").grade}):
        answer = episode.segments[-1]
        assert answer.grade.score == 0.0
        assert keeps(answer.text, reference(TASK)[: answer.parsed["error_step"]], "lines")


def test_a_solution_that_does_not_go_on_from_its_prefix_is_no_solution(flaws, services):
    """Who is asked in words may begin anew."""

    def anew(prompts):
        from whet.engines.replies import Reply

        assert prompts[0].messages[-1][1].startswith("Your solution was cut off")
        return [Reply(text="Step 1: 1 + 1 = 2\nThe answer is 2", stop_reason="eos", num_read=1, num_written=1)
                for _ in prompts]  # fmt: skip

    asked = EndpointRole("actor", "asked", Sampling())
    found = roll_out(
        [replace(flaws, hot=asked).rg2(TASK, sample=0)], {**services[0], "asked": anew}
    )[0].segments[-1]  # fmt: skip
    assert found.text.count("Step 1") == 2  # what it was to go on from, and what it wrote
    [told] = roll_out(
        [continued(replace(asked, prefills=True), CHAINS, TASK, "Step 1: 7 + 5 = 2", seed=1)],
        {"asked": lambda prompts: [_reply(prompt) for prompt in prompts]},
    )
    assert told.text == "Step 1: 7 + 5 = 2\nThe answer is 2"


def _reply(prompt):
    from whet.engines.replies import Reply

    assert prompt.prefill == "Step 1: 7 + 5 = 2"
    return Reply(text="\nThe answer is 2", stop_reason="eos", num_read=1, num_written=1)


def test_the_first_error_is_where_completions_stop_being_right(flaws, services):
    right = "\n".join([*steps_text(CHAIN, CHAIN.values), f"The answer is {TASK.answer}"])
    values = [CHAIN.values[0], (CHAIN.values[1] + 1) % 10, 5, 3]
    wrong = "\n".join([*steps_text(CHAIN, values), "The answer is 3"])
    rollout = FirstErrors(
        CHAINS, flaws.actor, (0, "locate"), num_completions=16, retries=Retries(EpisodeCounts(budget=1.0), 1)
    )
    of_right, of_wrong = roll_out([rollout(TASK, text, name=text) for text in (right, wrong)], services[0])
    assert len(of_right) == 4
    assert of_right[-1] > 0.5
    assert first_error(of_right) == -1
    assert of_wrong[0] > 0
    assert first_error(of_wrong, 0.15) == 1


@pytest.mark.parametrize("limit", [0, 1])
def test_a_grader_that_fails_says_nothing_of_a_step(flaws, services, limit):
    """Every second grading fails: with one more try all are known, with none the solution is not located."""
    text = "\n".join([*steps_text(CHAIN, CHAIN.values), f"The answer is {TASK.answer}"])
    calls = []

    def flaky(pairs):
        calls.append(len(pairs))
        broken = Grade(score=None, reason="the grader is down")
        return [broken] * len(pairs) if len(calls) % 2 else make_grader("chains").grade(pairs)

    episode_counts = EpisodeCounts(budget=1.0)
    rollout = FirstErrors(CHAINS, flaws.actor, (0, "locate"), num_completions=4, retries=Retries(episode_counts, limit))
    [found] = roll_out([caught(rollout(TASK, text, name="x"))], {**services[0], GRADER: flaky})
    assert episode_counts.by_kind["grader_error"] > 0
    if limit:
        assert len(found) == 4
        assert first_error(found) == -1
    else:
        assert found == "the grader is down"


async def caught(rollout):
    try:
        return await rollout
    except Fault as fault:
        return fault.failure.reason


@pytest.mark.parametrize("only_way", [True, False])
def test_a_right_answer_through_luck_is_no_source(only_way):
    """Its second step is wrong, and two wrongs make a right: a mistake planted behind it would not be the first."""
    steps = steps_text(CHAIN, CHAIN.values)
    lucky = [steps[0], steps[1][:-1] + str((int(steps[1][-1]) + 1) % 10), *steps[2:]]
    nobody = EndpointRole("actor", "nobody", Sampling())
    text = [*(f"{step}\n" for step in lucky), f"The answer is {TASK.answer}"]
    by_rule = Corruption(
        CHAINS, nobody, nobody, (0,), mistakes=("arithmetic",), reference=lambda task: text, rest="recomputed",
        only_way=(lambda task: steps) if only_way else None,
    )  # fmt: skip
    episodes = roll_out([by_rule.rg3(TASK, sample=i) for i in range(12)], {GRADER: make_grader("chains").grade})
    assert {episode.segments[-1].parsed["error_step"] for episode in episodes} == {0}


@pytest.mark.parametrize(
    ("rates", "threshold", "place"),
    [((1.0, 0.5, 0.0), 0.0, 2), ((1.0, 0.5, 0.0), 0.5, 1), ((0.0,), 0.0, 0), ((1.0, 0.2), 0.0, -1), ((), 0.0, -1)],
)
def test_first_error_by_hand(rates, threshold, place):
    assert first_error(rates, threshold) == place
