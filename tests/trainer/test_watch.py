"""What is said of a run that learns nothing, state by state, by hand. Real runs: tests/run/test_watching.py."""

import json
from dataclasses import asdict, replace

import pytest

from whet.trainer.watch import Signs, Watch, after_loss, after_nll, after_replies

GOOD = Signs(replies=8, right=4)
WRONG = Signs(replies=8, taught=False)


def told(*steps, every=2, watch=None):
    """What is said at each step: the event's name, or None."""
    said = []
    watch = watch or Watch()
    for signs in steps:
        watch, found = after_replies(watch, [signs], every)
        said.append(found and found.event)
    return said


def test_steps_without_credit_are_told_once_and_again_when_they_have_doubled():
    assert told(*[WRONG] * 9) == [None, "no_credit", None, "no_credit", None, None, None, "no_credit", None]
    assert told(GOOD, WRONG, GOOD, WRONG, WRONG) == [None, None, None, None, "no_credit"]
    assert told(*[WRONG] * 4, every=3) == [None, None, "no_credit", None]


def test_a_step_in_which_nothing_ended_neither_counts_nor_forgives():
    assert told(WRONG, Signs(replies=0), WRONG) == [None, None, "no_credit"]


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ({"ungraded": 8}, "the grading of all 8 replies failed; look at the grader"),
        ({"cut": 8, "unread": 8}, "all 8 replies ran into the token limit; try a larger max_new_tokens"),
        ({"unread": 8}, "all 8 replies are without a readable answer; look at some in traces/"),
        ({"unread": 6, "ungraded": 2}, "all 8 replies are without a readable answer; look at some in traces/"),
    ],
)
def test_a_dead_first_batch_is_told_at_once_with_its_cause(lost, said):
    dead = replace(WRONG, **lost)
    watch, found = after_replies(Watch(), [dead], 2)
    assert (found.event, found.level) == ("dead_batch", "warning")
    assert said in found.text
    assert said in after_replies(watch, [dead], 2)[1].text.replace("16", "8")  # and it is the cause of what comes after
    assert told(dead)[0] == "dead_batch"
    assert told(GOOD, dead) == [None, None]  # later on it may be chance
    assert told(WRONG, dead, dead, every=9) == [None, None, None]  # also where the first batch gave no credit
    assert told(replace(dead, right=1, taught=True)) == [None]
    assert told(replace(dead, **{name: count - 1 for name, count in lost.items()}))[0] is None  # one had a chance


def test_others_whose_texts_matter_are_looked_at_too():
    answers = Signs(what="answers", replies=4, cut=4)
    _, found = after_replies(Watch(), [GOOD, Signs(what="refinements", replies=0), answers], 2)
    assert found.text.startswith("in the first batch all 4 answers ran into the token limit")


def test_the_cause_of_steps_without_credit():
    right = replace(WRONG, right=8)
    _, found = after_replies(Watch(begun=True), [right], 1)
    assert (found.event, found.level) == ("all_right", "info")
    _, found = after_replies(Watch(begun=True), [WRONG], 1)
    assert "all 8 replies are wrong; try easier problems" in found.text
    _, found = after_replies(Watch(begun=True), [replace(WRONG, cut=7)], 1)
    assert "all 8 replies are wrong, 7 of them cut off; try a larger max_new_tokens first" in found.text
    _, found = after_replies(Watch(begun=True), [replace(WRONG, replies=128, right=120)], 1)
    assert (found.event, found.level) == ("all_right", "info")
    assert "120 of 128 replies are right" in found.text
    _, found = after_replies(Watch(begun=True), [replace(WRONG, right=4)], 1)
    assert "have equal rewards (4 of 8 are right); try more of them a problem" in found.text


@pytest.mark.parametrize(
    ("losses", "event"),
    [
        ([2.0, 2.0, 2.0, 1.99], "loss_stuck"),
        ([2.0, 1.9, 1.8, 1.7], None),
        ([0.05, 0.04, 0.05, 0.05], None),  # learnt before the warm start
        ([0.05, 0.05, 0.2, 0.9], "loss_rises"),
        ([0.001, 0.001, 0.002, 0.002], None),
    ],
)
def test_a_loss_that_stands_still_or_rises_is_told_once(losses, event):
    watch, said = Watch(), []
    for loss in losses * 2:
        watch, found = after_loss(watch, loss, 2)
        said.append(found and found.event)
    assert said == [None, None, None, event, None, None, None, None]


def test_the_state_survives_a_checkpoint():
    watch, _ = after_replies(Watch(), [WRONG], 2)
    watch, _ = after_loss(watch, 0.5, 2)
    assert Watch.restored(json.loads(json.dumps(asdict(watch)))) == watch
    assert Watch.restored(json.loads(json.dumps(asdict(Watch())))) == Watch()


@pytest.mark.parametrize(
    ("losses", "told_at"),
    [
        ([1.5, 0.4, 9e-5, 3e-5, 1e-5, 0.0, 0.0], 5),  # three steps in a row, every = 3
        ([1.5, 9e-5, 0.4, 9e-5, 9e-5, 0.4, 0.3], None),
        ([0.0, 0.0, 0.0, 0.0, 0.0], None),  # learnt before
        ([1.5] * 27 + [0.0] * 3, 30),
        ([1.5] * 28 + [0.0] * 9, None),  # it took its time
        ([0.09, 0.05, 9e-5, 2e-5, 1e-5] + [0.0] * 5, None),  # nearly learnt before
        ([1.5, 0.03, 0.01, 0.003, 0.002, 0.002] * 3, None),  # what an expert writes
    ],
)
def test_a_loss_that_falls_to_nothing_in_a_few_steps_is_told_once(losses, told_at):
    watch, told = Watch(), []
    for step, loss in enumerate(losses, 1):
        watch, found = after_nll(Watch.restored(json.loads(json.dumps(asdict(watch)))), loss, 3)
        told += [(step, found)] if found else []
    assert [step for step, _ in told] == ([] if told_at is None else [told_at])
    for _, found in told:
        assert (found.event, found.level) == ("loss_gone", "warning")
        assert f"nats a token in {told_at} steps, so the texts to imitate say next to nothing: look" in found.text
