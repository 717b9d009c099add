"""Careless players: each dial errs as it says, everything else stays the expert's, and a seed repeats."""

from __future__ import annotations

import re
from random import Random

import pytest

from whet.envs import ENVIRONMENTS
from whet.envs.protocol import ACTIONS, INVALID
from whet.trajectories.experts import Care, careless_move, expert_trajectories

CARELESS = Care(wrong_count=0.3, wrong_action=0.1, stuck=0.9)
REFUSED = "Could not"
ITEMS = 60


def episodes(care: Care, *, seed: int = 1, max_turns: int | None = None, name: str = "textcraft"):
    info = ENVIRONMENTS.get(name)
    items = list(info.splits()["train"])[:ITEMS]
    return list(
        expert_trajectories(
            info, items, rules="", seed=seed, format="plain", only_successes=False, care=care, max_turns=max_turns
        )
    )


def texts(trajectory):
    """Actions, each with what the environment answered."""
    said = [message.text for message in trajectory.messages[2:]]  # behind the rules and the promise
    return list(zip(said[1::2], [*said[2::2], ""], strict=False))


def next_of(care, about, last, move=("why", "get 4 logs"), seed=0):
    return careless_move(care, Random(seed), lambda: move, about, last)


def test_without_mistakes_the_play_is_the_experts_own():
    told = {each.item_id: each.messages for each in episodes(Care())}
    info = ENVIRONMENTS.get("textcraft")
    for each in expert_trajectories(info, list(info.splits()["train"])[:ITEMS], rules="", seed=1, format="plain"):
        assert told[each.item_id] == each.messages


def test_careless_play_fails_often_and_not_always_and_a_seed_repeats():
    once, again, other = (episodes(CARELESS, seed=seed, max_turns=10) for seed in (1, 1, 2))
    assert [each.messages for each in once] == [each.messages for each in again]
    assert [each.messages for each in once] != [each.messages for each in other]
    expert = sum(bool(each.success) for each in episodes(Care(), max_turns=10)) / ITEMS
    assert expert == 1  # these are shallow
    assert 0.5 < sum(bool(each.success) for each in once) / ITEMS < 0.98


@pytest.mark.parametrize(("count", "wrong"), [("4", {"3", "5"}), ("1", {"2"}), ("2", {"1", "3"})])
def test_a_wrong_count_is_one_off_and_never_0(count, wrong):
    care = Care(wrong_count=1.0)
    made = {next_of(care, {}, None, ("why", f"get {count} logs"), seed)[1] for seed in range(30)}
    assert made == {f"get {each} logs" for each in wrong}
    assert next_of(care, {}, None, ("why", "inventory")) == ("why", "inventory")


def test_a_wrong_action_is_another_one_of_those_that_are_listed():
    care = Care(wrong_action=1.0)
    listed = {ACTIONS: ("get 4 logs", "inventory", "craft a")}
    assert {next_of(care, listed, None, seed=seed)[1] for seed in range(30)} == {"inventory", "craft a"}
    assert next_of(care, {}, None) == ("why", "get 4 logs")  # nothing is listed


def test_who_is_stuck_repeats_what_was_refused_and_who_wastes_what_was_done():
    last = ("so", "craft a")
    refused, done = {INVALID: True}, {}
    assert next_of(Care(stuck=1.0), refused, last) == last
    assert next_of(Care(stuck=1.0), done, last)[1] == "get 4 logs"
    assert next_of(Care(wasteful=1.0), done, last) == last
    assert next_of(Care(wasteful=1.0), refused, last)[1] == "get 4 logs"


def test_the_expert_goes_on_from_what_its_mistakes_have_made():
    """Nobody is stuck: with turns enough, all are made in the end."""
    roll_out = episodes(Care(wrong_count=0.3, wrong_action=0.1), max_turns=60)
    assert all(each.success for each in roll_out)
    assert any(REFUSED in answer for each in roll_out for _, answer in texts(each))


def test_who_is_stuck_for_good_does_one_thing_to_the_end():
    roll_out = episodes(Care(wrong_count=0.5, stuck=1.0), max_turns=10)
    failed = [texts(each) for each in roll_out if not each.success]
    assert len(failed) > 5
    for turns in failed:
        first = next(i for i, (_, answer) in enumerate(turns) if answer.startswith(REFUSED))
        assert len({action for action, _ in turns[first:]}) == 1
        assert len(turns) == 10


def test_a_wasteful_expert_succeeds_and_takes_more_turns():
    wasteful, expert = episodes(Care(wasteful=0.4), max_turns=60), episodes(Care(), max_turns=60)
    assert all(each.success for each in wasteful)
    assert sum(len(texts(each)) for each in wasteful) > 1.15 * sum(len(texts(each)) for each in expert)


def test_the_dials_work_in_an_environment_without_numbers():
    roll_out = episodes(Care(wrong_action=0.3, wrong_count=0.5), name="maze", max_turns=60)
    told = {action for each in roll_out for action, _ in texts(each)}
    assert told
    assert not any(re.search(r"[0-9]", action) for action in told)
