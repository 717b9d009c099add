"""Steps that lose no letter, and mistakes that are planted by rule."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.methods.critique_data.mistakes import (
    BY_RULE,
    CATALOGUE,
    calculation,
    comes_out,
    evaluated,
    mutated,
    recomputed,
)
from whet.tasks.chains import parse_chain, sample_chains, steps_text
from whet.tasks.files import read_tasks
from whet.tasks.steps import judged_steps, split_steps

SOLD = [
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\n",
    "She sold 48+24 = <<48+24=72>>72 clips altogether.\n",
    "The answer is 72.",
]


@given(st.text(alphabet="ab. \n$?!X-1", max_size=60), st.sampled_from(["lines", "sentences"]))
def test_the_pieces_are_the_text(text, by):
    pieces = split_steps(text, by)
    assert "".join(pieces) == (text if text.strip() else "")
    assert all(piece.strip() for piece in pieces)


def test_sentences_are_not_cut_within_formulas():
    text = r"We get $x. Y = 3$. Then \[ a. B \] holds. So 1.5 is it."
    assert [each.strip() for each in split_steps(text, "sentences")] == [
        "We get $x. Y = 3$.", r"Then \[ a. B \] holds.", "So 1.5 is it.",
    ]  # fmt: skip


def test_the_line_that_states_the_answer_is_no_step_to_judge():
    assert judged_steps("1 + 1 = 2\nThe answer is 2.") == ["1 + 1 = 2\n"]
    assert judged_steps("The answer is 2.") == ["The answer is 2."]  # there is nothing else


def test_a_planted_mistake_is_carried_through_to_the_answer():
    changed = mutated(SOLD[0], "operator", random.Random(0))
    assert changed == "Natalia sold 48*2 = <<48*2=96>>96 clips in May.\n"
    assert recomputed(SOLD, 0, changed) == [
        changed, "She sold 48+96 = <<48+96=144>>144 clips altogether.\n", "The answer is 144.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("step", "is_right"),
    [
        ("He pays 25/2 = $<<25/2=12.50>>12.50.", True),
        ("Half of it is <<1/2=.5>>.5.", True),
        ("24 * 1 = 24.0", True),
        ("1/3 = 0.33", True),  # rounded
        ("5 * 1,000 = 5,000", True),
        ("He pays 25/2 = $<<25/2=12.05>>12.05.", False),
    ],
)
def test_a_result_counts_as_a_number_however_it_is_written(step, is_right):
    assert comes_out(step) == is_right


def test_a_mistake_is_planted_in_an_amount_with_cents():
    assert mutated("3 pens cost 3*4.50 = 13.50 dollars.", "sign", random.Random(0)) is None
    assert (
        mutated("3 pens cost 3*4.50 = 13.50 dollars.", "operator", random.Random(0))
        == "3 pens cost 3+4.50 = 7.5 dollars."
    )


@pytest.mark.parametrize("mistake", BY_RULE)
def test_each_rule_changes_its_step_alone_on_gsm8k(mistake, data_folder):
    tasks = read_tasks(data_folder / "gsm8k" / "train.jsonl").tasks[:400]
    num_planted = 0
    for number, task in enumerate(tasks):
        steps = [f"{line}\n" for line in str(task.info["solution"]).split("\n")]
        at = number % len(steps)
        changed = mutated(steps[at], mistake, random.Random(number))
        if changed is None:
            continue
        num_planted += 1
        assert changed != steps[at]
        assert changed.count("\n") == 1
        found = recomputed([*steps, f"The answer is {task.answer}."], at, changed)
        assert found[:at] == steps[:at]
        assert len(found) == len(steps) + 1
        before, after = calculation(steps[at]), calculation(changed)
        assert before is not None
        assert after is not None
        if mistake in ("operator", "sign", "quantity", "conversion"):  # set up wrongly, and worked out rightly
            assert float(evaluated(after.expr)) == pytest.approx(float(after.value.replace(",", "")))
            assert after.expr != before.expr
        else:
            assert after.expr == before.expr
    assert num_planted >= (3 if mistake == "conversion" else 40)


def test_in_the_tiny_world_every_later_step_goes_on_from_the_wrong_value():
    for number, chain in zip(range(30), sample_chains("train", 1, min_steps=3, max_steps=6), strict=False):
        steps = [f"{step}\n" for step in steps_text(chain, chain.values)] + [f"The answer is {chain.values[-1]}"]
        at, mistake = number % len(chain.operations), BY_RULE[number % 5]
        changed = mutated(steps[at], mistake, random.Random(number))
        if changed is None:
            continue
        found = recomputed(steps, at, changed)
        values = [int(step.strip()[-1]) for step in found]
        assert values[-1] == values[-2]  # the answer is what the last step says
        for place in range(at + 1, len(chain.operations)):
            assert found[place].split()[2] == str(values[place - 1])
            op, b = chain.operations[place]
            assert parse_chain(f"{values[place - 1]} {op} {b}").values == (values[place],)


def test_the_catalogue_says_what_each_mistake_is():
    assert len({each.instruction for each in CATALOGUE.values()}) == len(CATALOGUE) == 10
    assert mutated("Nothing is calculated here.", "arithmetic", random.Random(0)) is None
    with pytest.raises(KeyError):
        mutated(SOLD[0], "no such thing", random.Random(0))
