"""Records of self-talk: what must hold of them (spec section 4), and how comments are read and said."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from whet.config import ConfigError
from whet.methods.self_correct.records import (
    Piece,
    SelfCorrection,
    as_record,
    find_problems,
    holds,
    numbers,
    of_record,
    plain_text,
    read_self_correction,
    response_pieces,
    smoothed,
)
from whet.methods.self_correct.step_comments import Solution, aligned, solution_of, words_of
from whet.models.prompts import measured
from whet.models.tiny import tiny_tokenizer
from whet.tasks.demonstrations import solution_demonstration, solution_steps
from whet.tasks.prompts import CHAINS, ENGLISH, SHORT
from whet.types import Task

# 7 + 5 * 3: the first step is wrong, then mended; the second is right.
STEPS = ["Step 1: 7 + 5 = 3", "Step 1: 7 + 5 = 2", "Step 2: 2 * 3 = 6"]
SAID = [
    "Step 1: 7 + 5 = 2, claimed 3: Wrong, so write 2",
    "Step 1: 7 + 5 = 2, claimed 2: Correct",
    "Step 2: 2 * 3 = 6, claimed 6: Correct",
]
PIECES = (
    Piece(kind="step", text=STEPS[0]), Piece(kind="check", text=SAID[0], label="Wrong"),
    Piece(kind="fix", text=STEPS[1]), Piece(kind="check", text=SAID[1], label="Correct"),
    Piece(kind="step", text=STEPS[2]), Piece(kind="check", text=SAID[2], label="Correct"),
    Piece(kind="step", text="The answer is 6"),
)  # fmt: skip
TEXT = """Step 1: 7 + 5 = 3
Step 1: 7 + 5 = 2, so write 3: Wrong, so write 2
Step 1: 7 + 5 = 2
Step 1: 7 + 5 = 2, so write 2: Correct
Step 2: 2 * 3 = 6
Step 2: 2 * 3 = 6, so write 6: Correct
The answer is 6"""
TINY = words_of(CHAINS)
SPOKEN = words_of(ENGLISH)


def talk_of(pieces=PIECES, **changed) -> SelfCorrection:
    """Text and rounds follow from the pieces."""
    found = {"qid": "t", "question": "7 + 5 * 3", "gold_answer": "6", "form": "step", "segments": tuple(pieces),
             "rounds": sum(piece.label == "Wrong" for piece in pieces), "text": smoothed(pieces, TINY),
             "final_answer": "6", "source": {"actor": "a", "critic": "c", "smoother": "rule"}}  # fmt: skip
    return SelfCorrection(**{**found, **changed})


def test_a_chain_by_hand():
    talk = talk_of()
    assert talk.text == TEXT
    assert find_problems(talk, is_right=True) == []
    assert plain_text(talk) == "Step 1: 7 + 5 = 2\nStep 2: 2 * 3 = 6\nThe answer is 6"
    assert of_record(json.loads(json.dumps(as_record(talk)))) == talk


def test_the_tiny_tokenizer_has_all_its_words():
    [(count, lost)] = measured([TEXT], tiny_tokenizer())
    assert lost == ""
    assert count == (6 + 11) + (6 + 9) + (6 + 9) + 2  # a step and its check, three times, and the answer


def changed(at: int, **fields) -> tuple[Piece, ...]:
    return (*PIECES[:at], replace(PIECES[at], **fields), *PIECES[at + 1 :])


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        (changed(2, kind="step"), "after a check that says Wrong comes a step"),
        (changed(4, kind="fix"), "after a check that says Correct comes a fix"),
        (changed(0, kind="fix"), "after a check that says None comes a fix"),
        (PIECES[2:], "after a check that says None comes a fix"),
        (changed(5, label="Wrong"), "the last check says Wrong"),
        (changed(5, label=None), "a check has no label"),
        (changed(2, text=STEPS[0]), "a fix repeats what it is to mend"),
        (PIECES[:-1], "do not take turns"),
        ((*PIECES[:1], *PIECES[2:]), "do not take turns"),
    ],
)
def test_labels_that_alternate_illegally_are_found(pieces, says):
    found = find_problems(talk_of(pieces), is_right=True)
    assert any(says in flaw for flaw in found), found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TEXT.replace("Step 2: 2 * 3 = 6\n", "Step 2: 2 * 3 = 6\nStep 2: 2 * 3 = 6\n"), "numbers"),
        (TEXT.replace("write 3: Wrong", "write 4: Wrong"), "numbers"),
        (TEXT.replace("The answer is 6", "6 is what I get"), "last line"),
        ("\n".join([*TEXT.split("\n")[2:4], *TEXT.split("\n")[:2], *TEXT.split("\n")[4:]]), "order"),
        (TEXT.replace(", so write 3", ", claimed 3"), "as a critic does"),
        ("Correctness of the step\n" + TEXT, "as a critic does"),
        ("STEP SENTENCE\n" + TEXT, "as a critic does"),
    ],
)
def test_a_smoother_that_changes_more_than_words_is_found(text, says):
    assert any(says in flaw for flaw in find_problems(talk_of(text=text), is_right=True))


def test_a_wrong_end_and_miscounted_rounds_are_found():
    assert find_problems(talk_of(), is_right=False) == ["the final answer is not right"]
    assert find_problems(talk_of(rounds=2), is_right=True) == ["2 rounds, and 1 checks that say Wrong"]


def test_numbers_are_counted_without_their_separators():
    assert numbers("1,000 and 1000, then 0.5.") == {"1000": 2, "0.5": 1}


FIRST, LAST = (
    Solution(("Step 1: 7 + 5 = 3", "Step 2: 3 * 3 = 9"), "The answer is 9"),
    solution_of(plain_text(talk_of())),
)


def test_whole_responses_are_made_of_the_same_outputs():
    pieces = response_pieces(FIRST, [PIECES[1]], LAST)
    talk = talk_of(pieces, form="response")
    assert talk.text.split("\n") == [*FIRST.lines, TEXT.split("\n")[1], *LAST.lines]
    assert find_problems(talk, is_right=True) == []
    assert [piece.kind for piece in pieces] == [*["step"] * 3, "check", *["fix"] * 3]


def test_a_response_that_needs_no_repair_only_repeats_its_last_line():
    pieces = response_pieces(LAST, [PIECES[3], PIECES[5]], LAST)
    assert find_problems(talk_of(pieces, form="response"), is_right=True) == []
    assert [piece.text for piece in pieces][-3:] == [SAID[1], SAID[2], "The answer is 6"]
    swapped = response_pieces(LAST, [PIECES[1]], LAST)[:-2]  # a wrong step, and no whole new answer
    assert find_problems(talk_of((*swapped, PIECES[3]), form="response"), is_right=True)


def test_a_reply_is_read_back():
    chain = read_self_correction(TEXT, "step", TINY)
    assert (chain.num_checks, chain.num_repairs) == (3, 1)
    assert chain.first == "Step 1: 7 + 5 = 3\nStep 2: 2 * 3 = 6\nThe answer is 6"  # the first attempt at every step
    assert holds(chain.first) is False
    whole = read_self_correction(smoothed(response_pieces(FIRST, [PIECES[1]], LAST), TINY), "response", TINY)
    assert (whole.num_repairs, whole.first) == (1, "\n".join(FIRST.lines))
    clean = read_self_correction(smoothed(response_pieces(LAST, [PIECES[3], PIECES[5]], LAST), TINY), "response", TINY)
    assert (clean.num_checks, clean.num_repairs) == (2, 0)
    stopped = read_self_correction("\n".join(TEXT.split("\n")[:2]), "step", TINY)
    assert (stopped.num_checks, stopped.num_repairs) == (1, 0)  # nothing was mended
    assert holds("The answer is 6") is None
    assert holds("Step 1: 7 + 5 = 2\nStep 2: 2 / 3 = 6") is True  # what is no operation of this world is no step


# --- critics who explain ----------------------------------------------------------------------------------------------

CRITIQUE = """Step sentence: He has 2 + 3 = 5 cats.

Correctness of the step: Correct

Explanation: Two and three are 5.

Step sentence: So 4 * 5 = 24 legs
Correctness of the step:Wrong
Explanation: 4 * 5 is
not 24 but 20.

Step sentence: The answer is 24.
Correctness of the step: Wrong
Explanation: it follows from the step before

Correctness of the final answer: Wrong
Explanation: one step is mistaken"""
ANSWER = solution_of("He has 2 + 3 = 5 cats.\nSo 4 * 5 = 24 legs.\n\nThe answer is 24.")


def test_comments_are_read_with_or_without_blank_lines():
    found = SPOKEN.comments(CRITIQUE)
    assert [comment.label for comment in found] == ["Correct", "Wrong", "Wrong"]
    assert found[1].text == "4 * 5 is not 24 but 20."
    assert found[2].text == "it follows from the step before"
    by_step = aligned(found, ANSWER)
    assert [[comment.label for comment in comments] for comments in by_step] == [["Correct"], ["Wrong"]]


def test_a_comment_on_something_else_ends_what_is_read():
    found = SPOKEN.comments(CRITIQUE.replace("So 4 * 5", "So 5 * 5"))
    assert [len(comments) for comments in aligned(found, ANSWER)] == [1, 0]
    assert aligned(SPOKEN.comments("All is well.\nCorrectness of the final answer: Correct"), ANSWER) == [[], []]


def test_comments_on_sentences_of_one_line_belong_to_its_step():
    one_line = solution_of("He has 2 + 3 = 5 cats. So 4 * 5 = 24 legs.\nThe answer is 24.")
    [comments] = aligned(SPOKEN.comments(CRITIQUE), one_line)
    assert [comment.label for comment in comments] == ["Correct", "Wrong"]


def test_said_in_the_first_person_and_read_back():
    for label in ("Correct", "Wrong"):
        line = SPOKEN.spoken("4 * 5 is 20.", label)
        assert "4 * 5 is 20." in line
        assert SPOKEN.label_in(line) == label
    assert SPOKEN.label_in("Let me check that the bill is 20.") is None


def test_a_dialect_whose_critics_do_not_go_by_steps_is_refused():
    with pytest.raises(ConfigError, match="these prompts do not ask for 'Step sentence:': take prompts=english"):
        words_of(SHORT)


def test_critiques_of_gsm8k_become_self_talk(gsm8k):
    """Real solutions, half of them with a planted error and a critique that finds it: a chain of each, mended by the
    solution's own step."""
    rows = [json.loads(line) for line in gsm8k.read_text().splitlines()]
    rng, num_repairs = random.Random(0), 0
    for number, row in enumerate(rows):
        solution, _, gold = row["answer"].partition("\n####")
        task = Task(id=str(number), prompt=row["question"], answer=gold.strip(), info={"solution": solution})
        shown = solution_demonstration("critique", task, ENGLISH, rng)
        answer = solution_of(shown.messages[0]["content"].partition("\n\nSolution:\n")[2])
        right, pieces = solution_steps(task), []
        for step, own, comments in zip(answer.steps, right, aligned(SPOKEN.comments(shown.text), answer), strict=True):
            [comment] = comments
            assert comment.label == ("Correct" if step == own else "Wrong")
            pieces += [Piece(kind="step", text=step), Piece(kind="check", text=comment.text, label=comment.label)]
            if comment.label == "Wrong":
                num_repairs += 1
                pieces += [Piece(kind="fix", text=own), Piece(kind="check", text="That is it.", label="Correct")]
        pieces.append(Piece(kind="step", text=f"The answer is {task.answer}."))
        text = smoothed(pieces, SPOKEN)
        assert find_problems(talk_of(pieces, text=text), is_right=True) == []
        found = read_self_correction(text, "step", SPOKEN)
        assert found.num_checks == sum(piece.kind == "check" for piece in pieces)
        assert found.num_repairs == sum(piece.label == "Wrong" for piece in pieces)
    assert 60 < num_repairs < 140
