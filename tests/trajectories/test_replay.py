"""Replay of recorded actions, in a world that counts."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace

import pytest

from support.commands import whet
from whet.envs.formats import ONLY_ONE
from whet.envs.protocol import EnvError, EnvironmentInfo
from whet.tasks.files import DataError
from whet.trajectories import replay as replays
from whet.trajectories.files import write_trajectories
from whet.trajectories.records import Message, Trajectory, item_number
from whet.trajectories.replay import Comparison, Difference, NothingCompared, replay_file

GOAL = 3


@dataclass
class Counter:
    """`up` and `down` change a number; the episode ends with 1 at three."""

    says: str = "The count is"
    count: int = 0
    is_over: bool = True
    num_closed: int = 0

    def reset(self, item, *, seed=0):
        if not 0 <= item < GOAL:
            raise EnvError(f"there is no item {item}: choose 0 to {GOAL - 1}")
        self.count, self.is_over = item, False
        return self._observed(), {}

    def step(self, action):
        if self.is_over:
            raise EnvError("the episode has ended: reset")
        self.count += {"up": 1, "down": -1}.get(action, 0)
        self.is_over = self.count == GOAL
        return self._observed(), float(self.is_over), self.is_over, False, {}

    def _observed(self):
        return f"{self.says} {self.count}."

    def close(self):
        self.num_closed += 1


class SlowCounter(Counter):
    async def reset(self, item, *, seed=0):
        return super().reset(item, seed=seed)

    async def step(self, action):
        return super().step(action)


INFO = EnvironmentInfo(
    name="counter", make=Counter, splits=lambda: {"train": range(3)}, rules="counter", max_turns=9, parser="cleaned"
)


def recorded(item, *turns, first="The count is {}."):
    """A trajectory: actions, each with what was recorded after it (None: nothing)."""
    says = ["Count to three.", "OK.", first.format(item)]
    for action, observation in turns:
        says += [f"Thought:\nhm\n\nAction:\n{action}", observation]
    chat = [Message("gpt" if n % 2 else "human", text) for n, text in enumerate(says) if text is not None]
    return Trajectory(item_id=f"counter_{item}", messages=tuple(chat))


EXACTLY = Comparison()


def replay(trajectory, env, info, how=EXACTLY):
    item = item_number(trajectory.item_id)
    return asyncio.run(replays.replay(trajectory, env, info, how, item=item, seed=0))


GOOD = recorded(1, ("up", "The count is 2."), ("look", "The count is 2."), ("up", "The count is 3."))


@pytest.mark.parametrize("env", [Counter(), SlowCounter()])
def test_an_episode_that_is_equal(env):
    got = replay(GOOD, env, INFO)
    assert (got.equal_steps, got.num_steps, got.difference, got.is_equal) == (4, 4, None, True)
    assert (got.reward, got.has_ended, got.item_id) == (1.0, True, "counter_1")
    assert replay(GOOD, env, INFO) == got  # in the same world again


def test_the_last_action_need_not_be_answered():
    got = replay(recorded(2, ("up", None)), Counter(), INFO)
    assert (got.equal_steps, got.num_steps, got.reward, got.difference) == (1, 1, 1.0, None)


def test_the_first_difference_is_named_and_the_rest_counted():
    got = replay(
        recorded(0, ("up", "The count is 1."), ("up", "The count is 5."), ("down", "The count is 1.")), Counter(), INFO
    )
    assert (got.equal_steps, got.num_steps) == (3, 4)
    assert got.difference == Difference(2, "The count is 5.", "The count is 2.", 13)
    assert str(got.difference) == "turn 2, character 13: recorded 'The count is 5.', got 'The count is 2.'"


def test_one_text_that_begins_the_other():
    got = replay(recorded(0, ("up", "The count is 1. Well done.")), Counter(), INFO)
    assert got.difference.at == len("The count is 1.")


def test_a_record_that_goes_on_after_the_end():
    got = replay(recorded(2, ("up", "The count is 3."), ("up", "The count is 4."), ("up", None)), Counter(), INFO)
    assert (got.equal_steps, got.num_steps, got.reward) == (2, 3, 1.0)
    assert got.difference.turn == 2
    assert str(got.difference).startswith("turn 2: the episode has ended, and")


def test_a_problem_is_answered_and_not_sent():
    two = "up\nAction: up"
    got = replay(recorded(0, (two, ONLY_ONE), ("up", "The count is 1.")), Counter(), INFO)
    assert got.is_equal
    calls = replace(INFO, parser="function_calling:maze")
    repeated = recorded(0, ("up", "Invalid Action.\n\nThe count is 0."))
    assert replay(repeated, Counter(), calls).is_equal


def test_replies_may_have_been_read_otherwise():
    dotted = recorded(0, ("up.", "The count is 0."))  # `cleaned` takes the full stop off
    assert not replay(dotted, Counter(), INFO).is_equal
    assert replay(dotted, Counter(), INFO, Comparison(parser="react")).is_equal


def test_what_does_not_count():
    marked = recorded(0, ("up", "The count is 1.\nAvailable actions: up"))
    assert not replay(marked, Counter(), INFO).is_equal
    assert replay(marked, Counter(), INFO, Comparison(ignore_after="\nAvailable")).is_equal
    told = recorded(0, ("up", "Instruction:\nThe count is 1. \n"), first="Rules.\nInstruction:\nThe count is {}.")
    assert not replay(told, Counter(), INFO, Comparison(ignore_before="Instruction:\n")).is_equal
    assert replay(told, Counter(), INFO, Comparison(ignore_before="Instruction:\n", ignore_ends=True)).is_equal


def test_lines_of_the_first_observation_in_any_order():
    env = Counter(says="b\na\nb\nc is")
    mixed = recorded(0, ("up", "b\na\nb\nc is 1."), first="a\nc is {}.\nb\nb")
    assert replay(mixed, env, INFO).equal_steps == 1
    how = Comparison(first_in_any_order=True)
    assert replay(mixed, env, INFO, how).is_equal
    fewer = recorded(0, first="a\nc is {}.\nb")  # a line less is a difference
    assert not replay(fewer, env, INFO, how).is_equal
    later = recorded(0, ("up", "a\nb\nb\nc is 1."), first="a\nc is {}.\nb\nb")
    assert replay(later, env, INFO, how).difference.turn == 1


def test_a_file_is_summed_up(tmp_path):
    path = tmp_path / "counter.json"
    wrong = recorded(0, ("up", "The count is 2."))
    write_trajectories(path, [GOOD, wrong, recorded(7), GOOD])
    made = []
    info = replace(INFO, make=lambda **settings: made.append(Counter(**settings)) or made[-1])
    summary = replay_file(path, info, says="The count is")
    assert str(summary) == f"{path} in counter: episodes equal 2 of 4, steps equal 9 of 11, successes 2"
    assert [(each.item_id, each.difference.turn) for each in summary.differing] == [("counter_0", 1), ("counter_7", 0)]
    assert "there is no item 7: choose 0 to 2" in str(summary.differing[1].difference)
    assert [env.num_closed for env in made] == [1]
    assert len(replay_file(path, info, limit=1).episodes) == 1
    assert len(replay_file(path, info, says="It is").differing) == 4
    with pytest.raises(EnvError, match=r"counter does not take these settings \(.*'colour'"):
        replay_file(path, INFO, colour="red")


def test_a_replay_that_compares_nothing_is_an_error(tmp_path):
    path = tmp_path / "maze.json"
    write_trajectories(path, [replace(GOOD, item_id=f"lmrlgym_maze_{item}") for item in (98, 99)])
    done = whet("env", "replay", path, "--env", "maze", check=False)
    assert done.returncode == 1
    said = " ".join((done.stdout + done.stderr).split())
    assert f"whet: none of the 2 episodes of {path} could be compared in maze: " in said
    assert "98" in said.rpartition("in maze: ")[2]
    write_trajectories(path, [replace(GOOD, item_id="lmrlgym_maze_1"), replace(GOOD, item_id="lmrlgym_maze_99")])
    assert whet("env", "replay", path, "--env", "maze").returncode == 0
    with pytest.raises(NothingCompared, match="holds no episode to compare"):
        replay_file(path, "maze", limit=0)


def test_a_file_of_another_environment_is_refused(tmp_path):
    path = tmp_path / "other.json"
    write_trajectories(path, [replace(GOOD, item_id="lmrlgym_maze_1")])
    with pytest.raises(DataError, match="holds lmrlgym_maze_1, an item of maze, and would be replayed in counter"):
        replay_file(path, INFO)
    assert replay_file(path, replace(INFO, item_ids={"lmrlgym_maze": ""})).differing == ()
    path.write_text(json.dumps([{"item_id": "counter_1", "conversations": "[1]"}]))
    with pytest.raises(DataError, match="record 1: message 0 is 1; write an object"):
        replay_file(path, INFO)
