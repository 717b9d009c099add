"""Each self-check of a step, by counts that a reader can redo."""

from __future__ import annotations

import pytest
import torch

from whet.config.parts import WatchConfig
from whet.trainer.learner import moved_share, some_weights
from whet.trainer.selfchecks import Learnt, after_update, at_start, flat_groups, learnt_of
from whet.trainer.watch import Signs, Watch, after_replies
from whet.types import FAULT_HINTS, FAULTS, tail_row

BOUNDS = WatchConfig(steps=2, kl_warn=0.1, kl_stop=1.0)


def learnt(**more):
    known = {
        "policy": "policy", "rate": 1e-3, "grad_norm": 1.0, "moved": 0.5, "has_credit": True, "sampler_kl": 0.0,
        "is_stale": False,
    }  # fmt: skip
    return Learnt(**known | more)


def test_a_row_that_only_a_kl_takes_has_no_credit():
    """So that weights at their reference, which do not move, are no alarm."""
    metrics = {"optim/learning_rate": 1e-3, "optim/moved": 0.0, "rows/without_credit": 0.0}
    rows = [tail_row("policy", (5, 6), (7, 8), credit) for credit in (0.0, 0.0)]
    assert not learnt_of("policy", metrics, rows, 0).has_credit
    assert learnt_of("policy", metrics, [*rows, tail_row("policy", (5, 6), (7, 8), 1.0)], 0).has_credit


def said(findings):
    return [(finding.event, finding.level) for finding in findings]


def test_a_start_is_said_and_a_poor_one_with_advice():
    fair = at_start([Signs(replies=10, right=4, compared=10)], 0.5)
    assert said(fair) == [("start", "info")]
    assert fair[0].text == "starts at 40.0% success (4 of 10 replies); 50% of the groups have a signal"
    cases = {
        (0, 1.0): "next to nothing is right",
        (5, 0.9): "whether the grader tells replies apart",
        (10, 1.0): "take harder problems",
    }
    for (right, no_signal), advice in cases.items():
        [finding] = at_start([Signs(replies=10, right=right, compared=100)], no_signal)
        assert finding.level == "warning"
        assert advice in finding.text


def test_replies_that_are_partly_right_and_never_wholly_are_told_of():
    """A grader that gives right replies 0.9: their success is 0, and no weights are ever the best."""
    [finding] = at_start([Signs(replies=10, partial=4)], None)
    assert finding.text == (
        "starts at 0.0% success (0 of 10 replies); 4 have a score between 0 and 1, and only 1 counts as right, in Acc "
        "and for the best weights"
    )
    [finding] = at_start([Signs(replies=10, right=1, partial=4)], None)
    assert "only 1 counts" not in finding.text


@pytest.mark.parametrize(
    ("compared", "with_signal", "is_poor"), [(8, 0, False), (14, 0, True), (22, 1, True), (20, 1, False)]
)
def test_a_start_is_poor_where_few_groups_do_not_explain_it(compared, with_signal, is_poor):
    """0.8^14 = 0.044 and 0.8^8 = 0.17; of 22 groups one or none: 0.8^22 + 22 * 0.2 * 0.8^21 = 0.048, of 20: 0.069."""
    signs = Signs(replies=10 * compared, right=3 * compared, compared=compared)
    [finding] = at_start([signs], 1 - with_signal / compared)
    assert (finding.level == "warning") == is_poor


def test_groups_that_are_paid_alike_are_no_alarm_where_no_reply_is_held_against_its_group():
    """A value model or the whole batch is the baseline: a group that is right throughout teaches."""
    signs, watch = [Signs(replies=100, right=30, compared=0)], Watch(begun=True)
    [finding] = at_start(signs, 1.0)
    assert (finding.level, finding.text) == ("info", "starts at 30.0% success (30 of 100 replies)")
    for _ in range(4):
        watch, findings = flat_groups(watch, signs, 1.0, BOUNDS)
        assert findings == []


def test_a_start_says_nothing_where_all_failed_or_nothing_has_ended():
    assert at_start([Signs(replies=4, ungraded=4)], None) == []
    assert at_start([Signs(replies=0)], None) == []
    assert at_start([], 1.0) == []


def test_groups_that_teach_nothing_are_said_after_steps_in_a_row_and_when_they_have_doubled():
    signs, watch, heard = [Signs(replies=100, right=30, compared=25)], Watch(begun=True), []
    for step in range(1, 9):
        watch, findings = flat_groups(watch, signs, 0.81, BOUNDS)
        heard += [(step, finding.level) for finding in findings]
    assert heard == [(2, "warning"), (4, "warning"), (8, "warning")]
    assert (
        "in 8 steps in a row over 80% of the groups taught nothing (30% of the replies are right)" in findings[0].text
    )
    watch, _ = flat_groups(watch, signs, 0.8, BOUNDS)  # the bound itself is no alarm
    assert watch.flat_steps == 0


def test_groups_that_are_flat_as_all_is_right_are_no_warning_and_none_is_said_twice():
    watch = Watch(begun=True)
    for _ in range(2):
        watch, findings = flat_groups(watch, [Signs(replies=100, right=95, compared=25)], 0.9, BOUNDS)
    assert said(findings) == [("flat_groups", "info")]
    watch, signs = Watch(begun=True), [Signs(replies=4, right=1, taught=False, compared=1)]
    for _ in range(2):
        watch, found = after_replies(watch, signs, 2)
        watch, findings = flat_groups(watch, signs, 1.0, BOUNDS)
    assert found.event == "no_credit"
    assert findings == []


def test_sampler_kl_warns_then_stops_and_older_weights_are_allowed_five_times_as_much():
    for nats, stale, expected in [
        (0.05, False, []),
        (0.2, False, [("sampler_kl", "warning")]),
        (0.2, True, []),
        (7.8, False, [("sampler_kl", "error")]),
        (0.6, True, [("sampler_kl", "warning")]),
        (7.8, True, [("sampler_kl", "warning")]),
        (float("inf"), False, [("sampler_kl", "error")]),
        (None, False, []),
    ]:
        _, findings = after_update(Watch(), learnt(sampler_kl=nats, is_stale=stale), BOUNDS)
        assert said(findings) == expected, (nats, stale)
    _, findings = after_update(Watch(), learnt(sampler_kl=7.8), WatchConfig(kl_warn=None, kl_stop=None))
    assert findings == []


def test_a_warning_of_an_update_is_said_once_a_policy_and_a_stop_each_time():
    watch, first = after_update(Watch(), learnt(sampler_kl=0.2), BOUNDS)
    watch, again = after_update(watch, learnt(sampler_kl=0.2), BOUNDS)
    watch, other = after_update(watch, learnt(sampler_kl=0.2, policy="critic"), BOUNDS)
    assert [len(first), len(again), len(other)] == [1, 0, 1]
    for _ in range(2):
        watch, stops = after_update(watch, learnt(sampler_kl=2.0), BOUNDS)
        assert said(stops) == [("sampler_kl", "error")]
    assert Watch.restored({"signs": None, "losses": [], "said": list(watch.said)}).said == watch.said


def test_weights_that_did_not_move_are_said_with_the_cause_and_rightly_still_ones_are_not():
    _, [by_rate] = after_update(Watch(), learnt(moved=0.0, rate=1e-30), BOUNDS)
    _, [by_gradient] = after_update(Watch(), learnt(moved=0.0, grad_norm=0.0), BOUNDS)
    assert "a learning rate of 1e-30 is too small" in by_rate.text
    assert "its gradient is 0" in by_gradient.text
    for still in ({"has_credit": False}, {"rate": 0.0}, {"moved": None}, {"moved": 0.01}):
        _, findings = after_update(Watch(), learnt(**{"moved": 0.0} | still), BOUNDS)
        assert findings == [], still


def test_what_moved_is_seen_in_float32_and_lost_in_bfloat16():
    for dtype, expected in ((torch.float32, 1.0), (torch.bfloat16, 0.0)):
        weights = [torch.full((300, 7), 0.02, dtype=dtype), torch.ones(3, dtype=dtype)]
        before = some_weights(weights)
        with torch.no_grad():
            for each in weights:
                each.add_(1e-6)
        assert moved_share(before, weights) == expected
    assert sum(map(len, before)) <= 2 * 256


def test_every_kind_of_failure_has_its_hint():
    assert FAULT_HINTS.keys() == FAULTS
    for kind, hint in FAULT_HINTS.items():
        signs = Signs(what="episodes", replies=16, ungraded=16, failed={"grader_error": 4, kind: 12})
        _, finding = after_replies(Watch(), [signs], 10)
        assert finding.event == "dead_batch"
        assert finding.text.endswith(f"; {hint}")
        assert ("the grading of all" in finding.text) == (kind == "grader_error")
        assert (f"all 16 episodes failed ({kind})" in finding.text) == (kind != "grader_error")


def test_a_run_is_warned_before_it_is_ended():
    with pytest.raises(ValueError, match=r"kl_stop = 0\.01 is below kl_warn = 0\.1"):
        WatchConfig(kl_stop=0.01)
    assert WatchConfig(kl_stop=0.01, kl_warn=None).kl_stop == 0.01
