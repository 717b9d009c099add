"""Worked solutions of basics: right by the grader, mistakes that are wrong, critiques that give nothing away."""

from __future__ import annotations

import random
import re

import pytest

from whet.config.parts import BasicsData
from whet.grading.basics import BasicsGrader
from whet.grading.verdicts import parse_verdict
from whet.tasks.basics import MAKERS, make_basics
from whet.tasks.basics_steps import corrupted, plan, work
from whet.tasks.demonstrators import Basics
from whet.tasks.prompts import ENGLISH, SHORT, STEPS

TASKS = make_basics(BasicsData(max_term=99, max_factor=99), {"train": 300})[0]["train"]


def score(text, task):
    [grade] = BasicsGrader().grade([(text, task)])
    return grade.score


def test_a_sum_in_steps():
    worked = work(plan("sum", "What is 47 + 38?"))
    assert worked.lines == ["40 + 30 = 70", "7 + 8 = 15", "70 + 15 = 85"]
    assert (worked.answer, worked.mistake) == ("85", None)


def test_words_are_put_in_order_one_by_one():
    worked = work(plan("sort", "Put these words in alphabetical order: stone, apple, river"))
    assert worked.lines == ["The first of stone, apple and river is apple", "The first of stone and river is river"]
    assert worked.answer == "apple, river, stone"


@pytest.mark.parametrize("kind", MAKERS)
def test_solutions_are_right_and_those_with_a_mistake_are_wrong(kind):
    tasks = [task for task in TASKS if task.info["of"] == kind]
    rng = random.Random(0)
    assert len(tasks) > 10
    for task in tasks:
        steps = plan(kind, task.prompt)
        assert work(steps).answer == task.answer
        worked = corrupted(steps, rng)
        assert worked.answer != task.answer
        carried = work(steps).lines[: worked.mistake]
        assert worked.lines[: worked.mistake] == carried
        for place, step in enumerate(worked.steps):  # all other steps are right by themselves
            if step.operation in "+-*":
                left, right = worked.lines[place].split(" = ")
                assert (eval(left) == int(right)) == (place != worked.mistake)


@pytest.mark.parametrize("prompts", [STEPS, ENGLISH, SHORT], ids=["steps", "english", "short"])
def test_demonstrations_fit_the_dialect_and_the_grader(prompts):
    author, rng, verdicts = Basics(TASKS, prompts), random.Random(1), []
    by_prompt = {task.prompt: task for task in TASKS}
    for _ in range(200):
        shown = author.show("solve", rng)
        task = next(task for prompt, task in by_prompt.items() if prompt in shown.messages[0]["content"])
        assert shown.text.startswith(shown.prefill)
        assert score(shown.text, task) == 1.0
        critique = author.show("critique", rng)
        task = next(task for prompt, task in by_prompt.items() if prompt in critique.messages[0]["content"])
        verdict = parse_verdict(critique.text, **prompts.labels)
        answer = critique.messages[0]["content"].replace(task.prompt, "")
        verdicts.append(verdict)
        given = set(re.findall(r"\w+", answer + task.prompt))
        assert {word for word in re.findall(r"\d+", critique.text) if not word.startswith("0")} <= given | set("123")
        if verdict == "wrong":
            assert f"The answer is {task.answer}." not in critique.text
            assert f"answer is {task.answer}." not in answer
        refinement = author.show("refine", rng)
        assert refinement.prefill == prompts.refine_prefill
        task = next(task for prompt, task in by_prompt.items() if prompt in refinement.messages[0]["content"])
        assert score(refinement.text, task) == 1.0
    assert 60 < verdicts.count("correct") < 140
    assert None not in verdicts


def test_a_critique_names_the_wrong_step_and_not_its_result():
    author, rng = Basics([task for task in TASKS if task.info["of"] == "sum"], STEPS), random.Random(2)
    texts = [author.show("critique", rng).text for _ in range(50)]
    wrong = [text for text in texts if text.endswith("Verdict: Wrong")]
    assert len(wrong) > 10
    for text in wrong:
        [line] = [line for line in text.split("\n")[:-1] if "Wrong." in line]
        left, claimed = re.fullmatch(r"(.*) = (\d+): Wrong\. Work out \1 again\.", line).groups()
        assert eval(left) != int(claimed)
