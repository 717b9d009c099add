"""Answers to basics: the final answer counts, and nothing else does."""

from __future__ import annotations

import pytest

from whet.engines.local import LocalEngine
from whet.grading.basics import BasicsGrader
from whet.rollout.driver import GRADER, roll_out
from whet.rollout.roles import PolicyRole
from whet.rollout.solve import Solve
from whet.tasks.prompts import CHAINS
from whet.types import MUST_END, Grade, Sampling, Task

NUMBER = Task(id="n", prompt="Ann has 5 apples and finds 7 more. How many apples does Ann have now?", answer="12")
WORDS = Task(id="w", prompt="Put these words in alphabetical order: stone, apple, river", answer="apple, river, stone")


@pytest.mark.parametrize(
    ("task", "reply", "right"),
    [
        (NUMBER, "12", True),
        (NUMBER, "The answer is 12.", True),
        (NUMBER, "Ann has 5 + 7 = 12 apples.", True),
        (NUMBER, "5 + 7 = 12", True),
        (NUMBER, "Ann has 12 apples now.", True),
        (NUMBER, "First 5.\nThen 7 more.\nThe answer is **12 apples**", True),
        (NUMBER, "12 is what I thought first.\nThe answer is 13.", False),
        (NUMBER, "The answer is 12 or 13.", False),
        (NUMBER, "The answer is 11, 12, 13", False),
        (NUMBER, "The answer is not 12", False),
        (NUMBER, "The answer is 120", False),
        (NUMBER, "5 + 7 = 13", False),
        (NUMBER, "", False),
        (WORDS, "apple, river, stone", True),
        (WORDS, "The answer is apple, river, stone.", True),
        (WORDS, "Apple, river and stone", True),
        (WORDS, "The sorted words are:\n1. apple\n2. river\n3. stone", True),
        (WORDS, "- apple\n- river\n- stone\n", True),
        (WORDS, "The words in alphabetical order are apple, river, stone.", True),
        (WORDS, "apple river stone", True),
        (WORDS, "stone, apple, river", False),
        (WORDS, "stone, apple, river becomes: apple, stone, river", False),
        (WORDS, "The answer is apple, river, stone, tree.", False),
        (WORDS, "The answer is apple, river.", False),
        (WORDS, "apple, river, stone or apple, stone, river", False),
        (WORDS, "The words are apple, river, stone. The answer is stone, river, apple", False),
        (WORDS, "", False),
    ],
)
def test_the_final_answer_counts(task, reply, right):
    (grade,) = BasicsGrader().grade([(reply, task)])
    assert grade.score == float(right), grade


@pytest.mark.parametrize(("must_end", "score"), [(True, 0.0), (False, 1.0)])
def test_a_reply_that_was_cut_off_is_wrong_where_the_task_says_so(random_policy, must_end, score):
    """`1` of `12`: what stands there is no answer. The grader finds everything right."""
    task = Task(id="t", prompt="7 + 5", answer="2", info={MUST_END: must_end} if must_end else {})
    role = PolicyRole("solver", "policy", random_policy.tokenizer, Sampling(max_new_tokens=1, temperature=0.0))
    services = {"policy": LocalEngine(random_policy).generate, GRADER: lambda items: [Grade(score=1.0) for _ in items]}
    (episode,) = roll_out([Solve(CHAINS, role, (0,))(task)], services)
    assert episode.segments[0].stop_reason == "length"
    assert episode.segments[0].grade.score == score
    assert episode.outcome == "truncated"


def test_basics_reads_the_same_words() -> None:
    task = Task(id="a", prompt="3 - 8 =", answer="-5")
    grades = BasicsGrader().grade([(reply, task) for reply in ("minus five", "five", "The answer is negative 5.")])
    assert [grade.score for grade in grades] == [1.0, 0.0, 1.0]
