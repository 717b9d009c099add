"""Basics: problems whose answers are right, splits that share no fact, the same with the same seed."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest

from whet.config.parts import BasicsData
from whet.run.data import load_grader, load_tasks
from whet.tasks.basics import MAKERS, WORDS, make_basics
from whet.tasks.files import DataError

COUNTS = {"train": 600, "validation": 60, "test": 300}


def only(kind):
    return {each: float(each == kind) for each in MAKERS}


def numbers(text):
    return [int(found) for found in re.findall(r"[0-9]+", text)]


def solved(task):
    """The answer, worked out from the question's words alone."""
    found, question = numbers(task.prompt), task.prompt
    if question.startswith("Put"):
        return ", ".join(sorted(question.split(": ")[1].split(", ")))
    if "comes next" in question:
        assert len({b - a for a, b in pairwise(found)}) == 1
        return str(found[-1] + found[1] - found[0])
    if "smallest" in question or "largest" in question:
        return str((min if "smallest" in question else max)(found))
    sign = re.search(r"[+*]", question)
    if sign:
        return str(found[0] * found[1] if sign[0] == "*" else found[0] + found[1])
    less = any(word in question for word in ("gives away", "loses", "sells", "into a box"))
    return str(found[0] - found[1] if less else found[0] + found[1])


def asked(task):
    """What is asked, whatever the words and the order."""
    found, question = numbers(task.prompt), task.prompt
    if question.startswith("Put"):
        return ("sort", *sorted(question.split(": ")[1].split(", ")))
    if "comes next" in question:
        return ("next", *found)
    if "these numbers" in question:
        return (question.split()[3], *sorted(found))
    less = any(word in question for word in ("gives away", "loses", "sells", "into a box"))
    return ("less", *found) if less else ("*" if "*" in question else "+", *sorted(found))


def test_answers_are_right_and_of_all_kinds():
    tasks, sentence = make_basics(BasicsData(), COUNTS)
    assert {split: len(found) for split, found in tasks.items()} == COUNTS
    every = [task for found in tasks.values() for task in found]
    assert [task.answer for task in every] == [solved(task) for task in every]
    assert len({task.id for task in every}) == len(every)
    of_kinds = Counter(task.info["of"] for task in tasks["train"])
    assert set(of_kinds) == set(MAKERS)
    assert min(of_kinds.values()) > 70
    assert sentence.startswith("basics (train ")
    assert f"{Counter(task.info['of'] for task in tasks['test'])['sort']} sort" in sentence.rpartition("; ")[2]
    assert min(int(task.answer) for task in every if task.info["of"] != "sort") > 0
    assert len(set(WORDS)) == len(WORDS)


def test_no_fact_is_in_two_splits_with_any_seeds():
    """Sums in any order, and stories that come to the same sum."""
    info = {split: set() for split in COUNTS}
    for seed in (0, 1, 7):
        for split, found in make_basics(BasicsData(seed=seed), COUNTS)[0].items():
            info[split] |= {asked(task) for task in found}
    assert not info["train"] & info["test"]
    assert not info["train"] & info["validation"]
    assert not info["validation"] & info["test"]


def test_the_seed_decides():
    first, again, other = (make_basics(BasicsData(seed=seed), COUNTS)[0] for seed in (3, 3, 4))
    assert first == again
    shared = {task.id for task in first["train"]} & {task.id for task in other["train"]}
    assert len(shared) < 0.6 * COUNTS["train"]  # there are few small sums
    more = make_basics(BasicsData(seed=3), {**COUNTS, "train": 700})[0]
    assert more["train"][:600] == first["train"]


def test_difficulty_is_a_setting():
    tasks = make_basics(BasicsData(mix=only("sum") | {"next": 3}, max_term=500, max_number=9, max_step=2), COUNTS)
    kinds = Counter(task.info["of"] for task in tasks[0]["train"])
    assert set(kinds) == {"sum", "next"}
    terms = [n for task in tasks[0]["train"] if task.info["of"] == "sum" for n in numbers(task.prompt)]
    assert max(terms) > 400
    assert kinds["next"] <= 18  # there are no more: the others take their place


def test_fewer_problems_than_asked_for():
    with pytest.raises(
        DataError, match=r"there are only \d+ test problems with these settings, not 300: lower data.num_"
    ):
        load_tasks(BasicsData(mix=only("product"), num_train=9, num_validation=1))


def test_a_run_finds_its_tasks_and_its_grader():
    data = BasicsData(num_train=6, num_validation=2, num_test=2)
    tasks = load_tasks(data).tasks
    task = tasks["train"][0]
    grades = load_grader(data).grade([(f"The answer is {task.answer}.", task), ("The answer is 1234567.", task)])
    assert [grade.score for grade in grades] == [1.0, 0.0]
