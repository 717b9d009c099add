"""A round's items, rows and counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from support.explored import explored_episode
from whet.envs.household.alfworld import ALFWORLD
from whet.methods.agent.evolution import Rounds, drawn, episode_rows, item_of, shown_items, some_of
from whet.methods.rounds import in_epochs
from whet.trainer.buffers import Store
from whet.trajectories.records import Message, Trajectory
from whet.types import Row, Task

TASKS = [Task(id=f"{env}_{i}", prompt="", info={"environment": env, "item": i}) for env in ("a", "b") for i in range(8)]


def base(*environments):
    return [
        [Row(policy="policy", tokens=[1, 2], trains=[1], credit=[1.0], logprobs=None, kind=e)] for e in environments
    ]


def test_a_share_is_of_each_environment_and_in_its_order():
    found = some_of(TASKS, 0.25, 0, "base")
    assert Counter(task.info["environment"] for task in found) == {"a": 2, "b": 2}
    assert [task for task in TASKS if task in found] == found == some_of(TASKS, 0.25, 0, "base")
    assert len(some_of(TASKS, 0.001, 0)) == 2, "one at least"
    assert some_of(TASKS, 0.0, 0) == []
    assert some_of(TASKS, 1.0, 0) == TASKS


def test_a_rounds_items_are_all_or_as_many_as_the_shares_say():
    every = drawn(TASKS, {"a": 3.0, "b": 1.0}, None, 0, 1)
    assert sorted(every, key=TASKS.index) == TASKS != every
    some = drawn(TASKS, {"a": 3.0, "b": 1.0}, 8, 0, 1)
    assert Counter(task.info["environment"] for task in some) == {"a": 6, "b": 2}
    assert some != drawn(TASKS, {"a": 3.0, "b": 1.0}, 8, 0, 2), "drawn anew for each round"
    assert len(drawn(TASKS, {"a": 1.0, "b": 1.0}, 1000, 0, 1)) == 16


def test_the_items_of_demonstrations_are_known_by_their_published_names():
    ids = ("lmrlgym_maze_3", "textcraft_3", "look_at_obj_in_light-x_trial_T20190908_043461")
    shown = [Trajectory(item_id=each, messages=(Message("human", "h"),)) for each in ids]
    assert shown_items(shown) == {("maze", 3), ("textcraft", 3)}
    infos = {"alfworld": replace(ALFWORLD, named_items={ids[2]: 7})}  # as a user's mappings number it
    assert shown_items(shown, infos) == {("maze", 3), ("textcraft", 3), ("alfworld", 7)}
    assert item_of(TASKS[3]) == ("a", 3)


def test_batches_go_round_the_pool():
    pool = list(range(10))
    batches = [in_epochs(pool, step, 4, 0, "clone") for step in range(1, 6)]
    flat = [each for batch in batches for each in batch]
    assert sorted(flat[:10]) == sorted(flat[10:]) == pool
    assert flat[:10] != flat[10:], "shuffled anew"
    assert len(in_epochs([1, 2], 1, 5, 0)) == 5
    assert in_epochs([], 1, 5, 0) == []


def test_an_episode_trains_the_ids_that_were_sampled_and_no_observation():
    episode = explored_episode("maze", 4, 0.5, turns=((8, 9, 3), (10, 3)))
    [row] = episode_rows(episode, 0.25)
    assert row.tokens[row.trains].tolist() == [8, 9, 3, 10, 3]
    assert row.credit.tolist() == [0.25] * 5
    assert len(row.tokens) > row.num_trained
    assert (row.kind, row.logprobs, row.temperature, row.versions) == ("maze", None, 1.0, ())


def test_a_reply_that_was_cut_teaches_no_end():
    [row] = episode_rows(explored_episode("maze", 4, 1.0, turns=((8, 9),)), 1.0)
    assert row.tokens[row.trains].tolist() == [8, 9]


def test_a_manifest_counts_what_became_of_every_episode():
    rounds = Rounds(Store(), base("maze", "academia"), "base")
    assert rounds.take(1, [explored_episode("maze", 1, 1.0), explored_episode("maze", 1, None)], [1.0, 0.0]) == 1
    assert rounds.take(1, [explored_episode("wordle", 2, -1.0), explored_episode("wordle", 2, 0.0)], [0.0, 0.0]) == 0
    assert rounds.manifest(1) == {
        "academia": {"explored": 0, "failed": 0, "kept": 0, "merged": 1},  # shown, and not played here
        "maze": {"explored": 2, "failed": 1, "kept": 1, "merged": 2},
        "wordle": {"explored": 2, "failed": 0, "kept": 0, "merged": 0},
    }


def test_an_agent_that_never_came_to_its_turn_said_nothing_to_learn():
    rounds = Rounds(Store(), [], "none")
    assert rounds.take(1, [explored_episode("maze", 1, 0.0, turns=())], [1.0]) == 0
    assert rounds.manifest(1) == {"maze": {"explored": 1, "failed": 0, "kept": 0, "merged": 0}}


@pytest.mark.parametrize(("merge", "left"), [("base", 0), ("previous", 1), ("cumulative", 2), ("none", 0)])
def test_a_round_begins_with_what_it_may_still_need(merge, left):
    rounds = Rounds(Store(), base("maze"), merge)
    for number in (1, 2):
        rounds.take(number, [explored_episode("maze", number, 1.0)], [1.0])
    rounds.begin(3)
    assert len(rounds.examples) == left
    assert len(rounds.explored) == 0


def test_what_was_kept_comes_back_with_the_store(tmp_path):
    store = Store()
    Rounds(store, base("maze"), "cumulative").take(1, [explored_episode("maze", 1, 0.5)] * 2, [0.5, 0.25])
    store.save(tmp_path)
    again = Store()
    rounds = Rounds(again, base("maze"), "cumulative")
    again.load(tmp_path)
    learnt = rounds.merged(1)
    assert [[row.credit[0] for row in rows] for rows in learnt] == [[1.0], [0.5], [0.25]]
    assert rounds.manifest(1) == {"maze": {"explored": 2, "failed": 0, "kept": 2, "merged": 3}}
    assert np.array_equal(learnt[1][0].tokens, learnt[2][0].tokens)
