"""Rewards: terms of an episode, how they add up, who is left out, and who shares a baseline."""

import pytest

from support.episodes import exchange, reply
from whet.credit.rewards import (
    gated,
    groups_of,
    least,
    mixture,
    only,
    outcome,
    overlong,
    refine_outcome,
    rewarded,
    verdict_match,
)
from whet.registry import UnknownName
from whet.rewards import REWARDS


@pytest.fixture
def brevity():
    """A user's own term, registered for the test."""
    REWARDS.add("brevity", lambda episode, index: -float(len(episode.segments[index].tokens)))
    yield "brevity"
    del REWARDS._entries["brevity"]


def rewards_of(episodes, role="solver"):
    return [dict(episode.segments[i].rewards) for episode in episodes for i in episode.indices(role)]


def test_terms_are_written_onto_the_segments_with_their_sum():
    terms = {"outcome": outcome(), "overlong": overlong(10, 4)}
    episodes = [reply(1.0, tokens=range(5, 12)), reply(0.25, tokens=(5, 6)), reply(0.0, tokens=range(5, 15))]
    found = rewarded(episodes, "solver", terms)
    assert rewards_of(found) == [
        {"outcome": 1.0, "overlong": -0.25, "total": 0.75},  # 7 tokens of 10, of which the last 4 cost
        {"outcome": 0.25, "overlong": 0.0, "total": 0.25},
        {"outcome": 0.0, "overlong": -1.0, "total": -1.0},
    ]
    assert rewards_of(episodes) == [{}] * 3  # what was played stays as it was
    assert [episode.task for episode in found] == [episode.task for episode in episodes]


@pytest.mark.parametrize(("score", "plain", "signed"), [(0.0, 0.0, -1.0), (0.5, 0.5, 0.0), (1.0, 1.0, 1.0)])
def test_the_outcome(score, plain, signed):
    [episode] = [reply(score)]
    assert outcome()(episode, 0) == plain
    assert outcome(signed=True)(episode, 0) == signed


@pytest.mark.parametrize(("length", "costs"), [(0, 0.0), (6, 0.0), (7, -0.25), (8, -0.5), (10, -1.0)])
def test_the_penalty_on_length_by_hand(length, costs):
    assert overlong(10, 4)(reply(1.0, tokens=(5,) * length), 0) == costs


def test_a_broken_grade_is_no_reward_and_its_segment_is_in_no_group():
    episodes = rewarded([reply(1.0), reply(None), reply(0.0)], "solver", {"outcome": outcome()})
    assert rewards_of(episodes) == [{"outcome": 1.0, "total": 1.0}, {}, {"outcome": 0.0, "total": 0.0}]
    [group] = groups_of(episodes, "solver", "task")
    assert [scored.reward for scored in group] == [1.0, 0.0]
    assert [scored.episode for scored in group] == [episodes[0], episodes[2]]


def test_an_added_term_that_fails_leaves_the_segment_out_too(brevity):
    REWARDS.add("broken", lambda episode, index: None)
    try:
        episodes = rewarded([reply(1.0)], "solver", {"outcome": outcome()}, added={brevity: 1.0, "broken": 1.0})
    finally:
        del REWARDS._entries["broken"]
    assert rewards_of(episodes) == [{}]


def test_a_registered_term_is_added_with_its_weight(brevity):
    terms = {"outcome": outcome()}
    [found] = rewards_of(rewarded([reply(1.0, tokens=(5, 6, 7))], "solver", terms, added={brevity: 0.1}))
    assert found == {"outcome": 1.0, "brevity": -3.0, "total": pytest.approx(0.7)}
    # A total is of the method's own terms: what is added comes on top of it, whatever it is.
    [found] = rewards_of(rewarded([exchange(1.0, [("correct", [])])], "critic", {"direct": verdict_match()},
                                  only("direct"), added={brevity: 0.5}), "critic")  # fmt: skip
    assert found == {"direct": 1.0, "brevity": -2.0, "total": 0.0}


def test_what_is_not_registered_is_refused_by_name(brevity):
    with pytest.raises(UnknownName, match=r"no reward term 'brevty'; did you mean 'brevity'"):
        rewarded([reply(1.0)], "solver", {"outcome": outcome()}, added={"brevty": 1.0})


@pytest.mark.parametrize("name", ["outcome", "total"])
def test_an_added_term_cannot_take_the_place_of_the_methods_own(name):
    REWARDS.add(name, lambda episode, index: 5.0)
    try:
        with pytest.raises(ValueError, match=rf"rewards\.{name}: the name is taken"):
            rewarded([reply(1.0)], "solver", {"outcome": outcome()}, added={name: 1.0})
    finally:
        del REWARDS._entries[name]


def test_only_the_segments_of_the_role_are_paid():
    [episode] = rewarded([exchange(0.0, [("wrong", [1.0])])], "critic", {"direct": verdict_match()})
    assert [bool(segment.rewards) for segment in episode.segments] == [False, True, False]


# --- critiques --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["refine", "delta", "correction"])
@pytest.mark.parametrize(
    ("answer", "refined", "refine", "delta", "correction"),
    [(1.0, 1.0, 1.0, 0.0, 0.2), (1.0, 0.0, 0.0, -1.0, 0.0), (0.0, 1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 0.0, 0.0)],
)
def test_what_a_refinement_is_worth(table, answer, refined, refine, delta, correction):
    episode = exchange(answer, [("wrong", [refined])])
    expected = {"refine": refine, "delta": delta, "correction": correction}[table]
    assert refine_outcome(table)(episode, 1) == expected


def test_of_several_refinements_the_mean_counts():
    episode = exchange(0.0, [("wrong", [1.0, 0.0, 1.0, 1.0]), ("wrong", [0.0, 0.0])])
    assert refine_outcome()(episode, 1) == 0.75
    assert refine_outcome()(episode, 6) == 0.0
    assert refine_outcome("correction")(exchange(1.0, [("correct", [1.0, 0.0])]), 1) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "episode",
    [exchange(1.0, [("correct", [])]), exchange(1.0, [("correct", [None])]), exchange(None, [("correct", [1.0])]),
     exchange(1.0, [("correct", [1.0, None])])],
)  # fmt: skip
def test_a_refinement_that_nobody_graded_is_worth_nothing_known(episode):
    assert refine_outcome()(episode, 1) is None


@pytest.mark.parametrize(
    ("verdict", "answer", "unit", "signed"),
    [("correct", 1.0, 1, 1), ("wrong", 1.0, 0, -1), ("wrong", 0.0, 1, 1), ("correct", 0.0, 0, -1), (None, 0.0, 0, -1),
     ("correct", None, None, None)],
)  # fmt: skip
def test_a_verdict(verdict, answer, unit, signed):
    episode = exchange(answer, [(verdict, [])])
    assert verdict_match()(episode, 1) == unit
    assert verdict_match("signed")(episode, 1) == signed


def test_a_stage_ii_reward_from_an_episode():
    terms = {"indirect": refine_outcome(), "judged_right": verdict_match()}
    episodes = [exchange(0.0, [("wrong", [1.0]), ("wrong", [0.0]), ("correct", [1.0]), (None, [0.0])])]
    totals = {how: [r["total"] for r in rewards_of(rewarded(episodes, "critic", terms, gated(how, 0.2)), "critic")]
              for how in ("gated", "additive")}  # fmt: skip
    assert totals["gated"] == pytest.approx([1.2, 0.2, -1.0, -1.0])
    assert totals["additive"] == pytest.approx([1.2, 0.2, 1.0, 0.0])


def test_totals():
    values = {"verdict": 1.0, "refine": 0.25}
    assert only("refine")(values) == 0.25
    assert least(values) == 0.25
    assert mixture({"verdict": 1.0, "refine": 3.0})(values) == pytest.approx((1 + 0.75) / 4)


# --- groups -----------------------------------------------------------------------------------------------------------


def test_critiques_of_one_answer_share_a_baseline():
    episodes = [exchange(0.0, [("wrong", []), ("correct", [])], task="a"), exchange(1.0, [("correct", [])], task="b"),
                exchange(1.0, [("wrong", [])], task="b")]  # fmt: skip
    groups = groups_of(rewarded(episodes, "critic", {"direct": verdict_match()}), "critic", "answer")
    assert [[(scored.episode.task.id, scored.index, scored.reward) for scored in group] for group in groups] == [
        [("a", 1, 1.0), ("a", 2, 0.0)],
        [("b", 1, 1.0), ("b", 1, 0.0)],
    ]
    assert groups[0][1].segment is groups[0][1].episode.segments[2]


def test_without_the_key_a_task_is_the_group():
    episodes = rewarded([reply(1.0, task="a"), reply(0.0, task="a"), reply(1.0, task="b")], "solver",
                        {"outcome": outcome()})  # fmt: skip
    assert [len(group) for group in groups_of(episodes, "solver", "nothing of the kind")] == [2, 1]


def test_a_group_that_lost_everyone_is_empty_and_stays_in_the_count():
    [group] = groups_of(rewarded([reply(None)], "solver", {"outcome": outcome()}), "solver", "task")
    assert group == []
