"""Errors planted into texts: always another number, written like the one it replaces."""

import random
from decimal import Decimal

import pytest

from whet.tasks.demonstrations import solution_demonstration
from whet.tasks.planting import NUMBER, other_number, with_other_number
from whet.tasks.prompts import ENGLISH, SHORT
from whet.tasks.row_formats import DataError
from whet.tasks.sneaky import game_demonstrations, spoilable
from whet.types import Task


@pytest.mark.parametrize("written", ["7", "0", "1", "0.5", "3.50", "2880000", "1,000,000", "999", "12,", "1,234,"])
def test_another_number_written_alike(written):
    rng = random.Random(0)
    for _ in range(50):
        other = other_number(written, rng)
        assert NUMBER.fullmatch(other)  # no sign
        assert Decimal(other.replace(",", "")) != Decimal(written.replace(",", ""))
        assert other.endswith(",") == written.endswith(",")
        assert len(other.partition(".")[2]) == len(written.partition(".")[2])
        assert ("," in other[:-1]) == ("," in written[:-1])


def test_only_the_last_number_changes():
    changed = with_other_number("6 eggs at $1,250.50, so 2", random.Random(0))
    assert changed.startswith("6 eggs at $1,250.50, so ")
    assert NUMBER.findall(changed)[-1] != "2"
    assert with_other_number("no number", random.Random(0)) is None


def test_a_spoiled_answer_is_wrong_and_its_critique_says_so():
    """`3.5` with a 0 behind it is still 3.5, and 1e+06 still a million."""
    task = Task(id="t", prompt="?", answer="3.5", info={"solution": "7 / 2 is 3.5\nso it is\nthe half of 1,000,000 "})
    rng = random.Random(0)
    for _ in range(100):
        shown = solution_demonstration("critique", task, ENGLISH, rng)
        answer, right = shown.messages[0]["content"], "final answer: Correct" in shown.text
        assert ("The answer is 3.5." in answer) == right


def test_steps_without_a_number_are_never_called_wrong():
    tasks = [Task(id="t", prompt="?", answer="4", info={"solution": "Let x be it.\n2 + 2 = 4\nThat is it."})]
    assert spoilable(["Let x be it."]) == []
    assert spoilable(["2 + 2 = 4", "That is it."]) == ["2 + 2 = 4"]
    for side in ("generator", "critic"):
        for shown in game_demonstrations(side, tasks, 200, ENGLISH, random.Random(1)):
            text = shown.messages[0]["content"] if side == "critic" else shown.text
            is_wrong = side == "generator" or ENGLISH.closing(right=False) in shown.text
            assert ("2 + 2 = 4" not in text) == is_wrong or "2 + 2" not in text
    wordless = [Task(id="t", prompt="?", answer="x", info={"solution": "Let x be it."})]
    with pytest.raises(DataError, match="has a step with a number"):
        game_demonstrations("generator", wordless, 1, ENGLISH, random.Random(0))


def test_a_dialect_that_asks_for_no_steps_takes_no_worked_solutions():
    task = Task(id="t", prompt="?", answer="4", info={"solution": "2 + 2 = 4"})
    for kind, asked in (("solve", "answers that begin with 'The answer is'"), ("critique", "critiques without")):
        with pytest.raises(DataError, match=f"these prompts ask for {asked}"):
            solution_demonstration(kind, task, SHORT, random.Random(0))
