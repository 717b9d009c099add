"""Critiques read and filtered: the worked numbers of the method's specification, the released records, and laws."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whet.grading.critique_filters import (
    agrees_with_grader,
    agrees_with_location,
    duplicate_key,
    holds_answer,
    is_shortcut,
    masked,
    mentions_hint,
    num_digit_runs,
    num_needed,
    passes_soft,
    well_formed,
)
from whet.grading.step_critiques import as_blocks, read_critique
from whet.methods.critique_data.formats import MathCritique
from whet.tasks.chains import FULL_HELP, criticise, critique_text, parse_chain
from whet.tasks.files import read_tasks
from whet.tasks.prompts import CHAINS, SHORT
from whet.tasks.splits import question_key
from whet.tasks.steps import split_steps

STEPS = ["She has 3 * 4 = <<3*4=12>>12 eggs.\n", "She sells 2, so 12 - 2 = 9 are left.\n", "The answer is 9."]


def critique(*labels: str, verdict: str = "Wrong", steps: list[str] | None = None) -> str:
    shown = steps or ["She has 3 * 4 = 12 eggs.", "She sells 2, so 12 - 2 = 9 are left.", "The answer is 9."]
    blocks = [
        f"Step sentence: {step}\nCorrectness of the step: {label}\nExplanation: because\n"
        for step, label in zip(shown, labels, strict=False)
    ]
    return "\n".join([*blocks, f"Correctness of the final answer: {verdict}\nExplanation: so\n"])


@pytest.mark.parametrize(
    ("num_correct", "num", "threshold", "needed", "kept"),
    [(3, 10, 0.3, 3, True), (2, 10, 0.3, 3, False), (3, 7, 0.3, 3, True), (2, 7, 0.3, 3, False), (7, 10, 0.7, 7, True)],
)
def test_the_soft_filter_counts_in_whole_numbers(num_correct, num, threshold, needed, kept):
    assert num_needed(threshold, num) == needed
    assert passes_soft(num_correct, threshold, num) is kept


@given(st.integers(0, 1000), st.integers(1, 200))
def test_the_number_needed_is_the_smallest_whose_share_is_enough(thousandths, num):
    needed = num_needed(thousandths / 1000, num)
    assert needed * 1000 >= thousandths * num
    assert needed == 0 or (needed - 1) * 1000 < thousandths * num


def test_the_shortcut_barrier_by_hand():
    gold, corrupted = "1 2 3 4 5 6", "1 2 3 4 5 6 7 8 9"
    assert num_digit_runs("1,200 = 12 * 100") == 4
    assert is_shortcut("1 2 3", corrupted, gold)  # 3 < min(6, 9) - 2
    assert not is_shortcut("1 2 3 4", corrupted, gold)
    assert is_shortcut("1 2 3 4 5 6", corrupted)  # without a solution: 6 < 9 - 2
    assert not is_shortcut("1 2 3 4 5 6 7", corrupted)


def test_the_released_records_are_read_as_they_were_counted(data_folder):
    wanted = {
        "gsm8k": ({"wrong": 99, "correct": 1}, 311, 146, {0: 38, 1: 34, 2: 13, 3: 8, 4: 3, 5: 2, -1: 2}, 4, 21),
        "math": ({"wrong": 100}, 368, 98, {0: 51, 1: 30, 2: 14, 3: 2, 4: 2, 5: 1}, 1, 25),
    }
    for name, (verdicts, num_wrong, num_right, first, num_flagged, longest) in wanted.items():
        path = data_folder / "mathcritique" / f"Meta-Llama-3-8B-{name}-sftdata_0_new.json"
        records = json.loads(path.read_text())
        parts = [MathCritique.of(record) for record in records]
        assert [each.record() for each in parts] == records  # to the letter
        for by in ("lines", "sentences"):
            assert all("".join(split_steps(each.response, by)) == each.response for each in parts)
        found = [read_critique(each.critique) for each in parts]
        labels = Counter(label for each in found for label in each.labels)
        assert Counter(each.verdict for each in found) == verdicts
        assert (labels[False], labels[True]) == (num_wrong, num_right)
        assert Counter(each.first_wrong for each in found) == first
        assert sum(not each.is_paired for each in found) == num_flagged
        assert (min(len(each.labels) for each in found), max(len(each.labels) for each in found)) == (1, longest)
        assert all(each.num_verdicts == 1 for each in found)


def test_more_than_half_of_the_released_critiques_hold_the_answer(data_folder):
    gold = {question_key(t.prompt): t.answer for t in read_tasks(data_folder / "gsm8k" / "train.jsonl").tasks}
    path = data_folder / "mathcritique" / "Meta-Llama-3-8B-gsm8k-sftdata_0_new.json"
    parts = [MathCritique.of(record) for record in json.loads(path.read_text())]
    answers = [gold[question_key(each.question.partition(" Please also give")[0])] for each in parts]
    pairs = list(zip(parts, answers, strict=True))
    assert sum(holds_answer(each.critique, answer) for each, answer in pairs) == 53
    assert sum(holds_answer(each.response, answer) for each, answer in pairs) == 17
    assert not any(holds_answer(masked(each.critique, answer), answer) for each, answer in pairs)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (critique("Correct", "Wrong", "Wrong"), True),
        (critique("Correct", "Wrong"), True),  # it stops at the mistake, or leaves the closing line out
        (critique("Correct", "Correct"), True),
        (critique("Correct"), False),  # nothing is said of the second step, and the first is called right
        (critique(), False),
        (critique("Wrong", "Correct", "Wrong", verdict="Perhaps"), False),
        (critique("Correct", "Wrong") + "Correctness of the final answer: Wrong\n", False),
        (critique("Correct", "Wrong", steps=["She has 3 * 4 = 12 eggs.", "She sells 3."]), False),
        (critique("Correct", "Wrong", steps=["She sells 2, so 12 - 2 = 9 are left.", "The answer is 9."]), False),
        (critique("Correct", "Perhaps"), False),
        ("I cannot say.", False),
    ],
)
def test_the_format_asks_for_one_verdict_and_the_steps_in_order(text, kept):
    assert well_formed(read_critique(text), STEPS) is kept


def test_a_dialect_without_steps_is_asked_for_its_verdict_alone():
    assert not well_formed(read_critique(""), STEPS)
    assert well_formed(read_critique("Verdict: Wrong", SHORT), ["1 + 1 = 3"], stepwise=False)
    assert not well_formed(read_critique("no idea", SHORT), ["1 + 1 = 3"], stepwise=False)


@pytest.mark.parametrize(
    ("labels", "verdict", "right", "agrees"),
    [
        (("Correct", "Wrong"), "Wrong", False, True), (("Correct", "Correct"), "Correct", True, True),
        (("Correct", "Wrong"), "Correct", True, False), (("Correct", "Correct"), "Wrong", True, False),
        (("Correct", "Correct"), "Correct", False, False),
    ],
)  # fmt: skip
def test_the_verdict_is_held_against_the_grader(labels, verdict, right, agrees):
    assert agrees_with_grader(read_critique(critique(*labels, verdict=verdict)), right=right) is agrees


def test_the_location_is_exact_where_the_mistake_was_planted_and_may_be_later_else():
    second = read_critique(critique("Correct", "Wrong"))
    none = read_critique(critique("Correct", "Correct"))
    assert [agrees_with_location(second, at, kind="exact") for at in (0, 1, 2, None)] == [False, True, False, True]
    assert [agrees_with_location(second, at, kind="after") for at in (0, 1, 2, None)] == [True, True, False, True]
    assert not agrees_with_location(none, 0, kind="after")


def test_hints_are_found_and_words_of_the_question_are_none():
    assert mentions_hint("By the Reference\nanswer this is wrong.")
    assert not mentions_hint("The correct answer is 7.")
    assert not mentions_hint("See the hints on page 2.", shown="Anna has 3 hints.")


def test_the_answer_is_found_as_a_whole_number():
    assert [holds_answer(text, "12") for text in ("is 12.", "120", "12.5", "-12", "x12", "12,000")] == [
        True, False, False, True, False, False,
    ]  # fmt: skip
    assert holds_answer("2,000 eggs", "2000")
    assert holds_answer("2000 eggs", "2,000")
    assert not holds_answer("nothing", None)
    assert masked("write 12, not 120", "12") == "write [masked], not 120"


def test_duplicates_differ_in_white_space_case_and_notes_alone():
    assert duplicate_key("q", "So  3*4=<<3*4=12>>12\n") == duplicate_key("q", "so 3*4=12")
    assert duplicate_key("q", "12") != duplicate_key("r", "12")
    assert duplicate_key("q", "12") != duplicate_key("q", "13")


def test_the_tiny_worlds_critiques_are_read_and_written_in_blocks():
    chain = parse_chain("7 + 5 * 3 - 4")
    text = critique_text(chain, criticise(chain, [2, 8, 4], None, FULL_HELP, random.Random(0)))
    found = read_critique(text, CHAINS)
    steps = ["Step 1: 7 + 5 = 2\n", "Step 2: 2 * 3 = 8\n", "Step 3: 8 - 4 = 4\n", "The answer is 4"]
    assert [step.sentence for step in found.steps] == [step.strip() for step in steps[:3]]
    assert (found.labels, found.first_wrong, found.verdict) == ([True, False, False], 1, "wrong")
    assert well_formed(found, steps)
    again = read_critique(as_blocks(found, steps[:3]))
    assert (again.labels, again.verdict, again.num_verdicts) == (found.labels, "wrong", 1)
    assert well_formed(again, steps)
