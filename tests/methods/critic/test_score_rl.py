"""SCoRe: what both attempts are paid, what holds the first one, and the words that ask for the second."""

from __future__ import annotations

import numpy as np
import pytest

from support.episodes import exchange
from support.sessions import STEPS, session_of
from whet.credit import ADVANTAGES, assign_credit, groups_of, outcome, rewarded
from whet.methods.critic.score_rl import gain, second_look
from whet.tasks.prompts import CHAINS, ENGLISH


@pytest.mark.parametrize(
    ("first", "second", "rewards"),  # bonus 10
    [(0.0, 1.0, (0.0, 11.0)), (1.0, 1.0, (1.0, 1.0)), (1.0, 0.0, (1.0, -10.0)), (0.0, 0.0, (0.0, 0.0))],
)
def test_the_shaped_reward_by_hand(first, second, rewards):
    [scored] = rewarded(
        [exchange(first, [(None, [second])])], "actor", {"outcome": outcome(), "gain": gain},
        lambda values: values["outcome"] + 10 * values["gain"],
    )  # fmt: skip
    assert tuple(scored.segments[index].rewards["total"] for index in (0, 2)) == rewards


def test_an_attempt_whose_grading_failed_leaves_the_gain_unknown():
    assert gain(exchange(0.0, [(None, [None])]), 2) is None
    assert gain(exchange(None, [(None, [1.0])]), 2) is None


def test_attempts_are_compared_with_those_of_their_own_turn():
    """Second attempts with rewards 11, 1, 0 and -10: each less the mean of the other three."""
    pairs = [(0.0, 1.0), (1.0, 1.0), (0.0, 0.0), (1.0, 0.0)]
    scored = rewarded(
        [exchange(a, [(None, [b])]) for a, b in pairs], "actor", {"outcome": outcome(), "gain": gain},
        lambda values: values["outcome"] + 10 * values["gain"],
    )  # fmt: skip
    [group] = groups_of(scored, "actor", "task")
    rows = assign_credit([[p for p in group if p.index]], ADVANTAGES.get("rloo")).rows
    assert [row.credit[0] for row in rows] == pytest.approx([11 + 3, 1 - 1 / 3, -2 / 3, -10 - 4])


def test_stage_one_holds_the_first_attempt_and_pays_the_second_alone():
    method = session_of("score_rl", *STEPS).algorithm
    (scored, first, second) = method._updates("stage1", 2, 1)["policy"].terms
    assert scored.kinds == {"second"}
    assert (first.kinds, first.weight) == ({"first"}, 10.0)
    assert (second.kinds, second.weight) == ({"second"}, 0.01)
    (scored, first, second) = method._updates("stage2", 2, 1)["policy"].terms
    assert scored.kinds == {"first", "second"}
    assert (first.weight, second.weight) == (0.01, 0.01)


def test_a_step_gives_two_rows_a_pair_and_the_second_follows_the_first():
    method = session_of("score_rl", *STEPS).algorithm
    batch = method._collect("stage2", 1)
    rows = {kind: [row for row in batch.rows if row.kind == kind] for kind in ("first", "second")}
    assert len(rows["first"]) == len(rows["second"]) == 6 * 4
    for one, two in zip(rows["first"], rows["second"], strict=True):
        assert np.array_equal(two.tokens[: len(one.tokens)], one.tokens)
        assert one.ref_logprobs is not None
    gained = batch.metrics["attempt/second"] - batch.metrics["attempt/first"]
    assert batch.metrics["reward/gain"] == pytest.approx(gained / 2)  # a mean over both attempts; the first gains 0


def test_the_second_attempt_is_asked_for_without_feedback():
    words = second_look(ENGLISH)
    *_, last = words.refine_messages("1 + 1?", "The answer is 3", "")
    assert "critique" not in last["content"]
    assert words.refine_prefill == ENGLISH.solve_prefill
    assert second_look(CHAINS) is CHAINS
