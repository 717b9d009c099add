"""Players by rule: what fails is tried again in a new world, what hangs is left."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

from support.counter import Counter, info_of
from whet.envs.protocol import EnvError
from whet.envs.retries import Attempts, Late, beginnings
from whet.trajectories.experts import expert_trajectories

HANGS_S = 30
"""In a thread that nobody waits for."""


class World:
    """Answers from the second one on, if it was told to fail."""

    made: list[World]

    def __init__(self, made):
        self.number, self.is_closed = len(made), False
        self.threads = {threading.get_ident()}
        made.append(self)

    def step(self, action):
        self.threads.add(threading.get_ident())
        if action == "break" and self.number == 0:
            raise OSError("broken")
        if action == "hang" and self.number == 0:
            time.sleep(HANGS_S)
        return f"{action} in {self.number}"

    async def step_later(self, action):
        await asyncio.sleep(0)
        return self.step(action)

    def close(self):
        self.is_closed = True
        raise OSError("gone already")


@pytest.fixture
def made():
    return []


def says(action):
    return lambda env, call: call(env.step, action)


def test_one_world_is_made_when_it_is_needed_called_in_one_thread_and_closed(made):
    attempts = Attempts(lambda: World(made))
    assert made == []
    assert [attempts.run(says(action)) for action in ("a", "b")] == ["a in 0", "b in 0"]
    attempts.close()
    attempts.close()
    [env] = made
    assert env.is_closed
    assert len(env.threads) == 1
    assert threading.get_ident() not in env.threads


def test_what_fails_is_tried_again_in_a_new_world(made):
    attempts = Attempts(lambda: World(made), retries=1)
    assert attempts.run(says("break")) == "break in 1"
    assert [env.is_closed for env in made] == [True, False]
    made.clear()
    with pytest.raises(OSError, match="broken"):
        Attempts(lambda: World(made)).run(says("break"))
    assert made[0].is_closed


def test_what_hangs_is_left_and_not_waited_for(made):
    attempts = Attempts(lambda: World(made), retries=1, timeout_s=0.5)
    begun = time.monotonic()
    assert attempts.run(says("hang")) == "hang in 1"
    attempts.close()
    assert time.monotonic() - begun < HANGS_S
    assert [env.is_closed for env in made] == [False, True]
    made.clear()
    with pytest.raises(Late, match=r"no answer within 0\.5 s \(pool.timeout_s\)"):
        Attempts(lambda: World(made), timeout_s=0.5).run(says("hang"))


def test_one_who_is_interrupted_as_a_world_hangs_does_not_wait_for_it(made):
    attempts = Attempts(lambda: World(made))
    begun = time.monotonic()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    with pytest.raises(KeyboardInterrupt), closing(attempts):
        attempts.run(says("hang"))
    signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begun < HANGS_S


def test_coroutines_are_awaited_all_in_one_loop(made):
    attempts = Attempts(lambda: World(made))
    loops = set()

    async def loop():
        loops.add(id(asyncio.get_running_loop()))

    def roll_out(env, call):
        call(loop)
        said = call(env.step_later, "go")
        call(loop)
        return said

    assert attempts.run(roll_out) == "go in 0"
    assert len(loops) == 1
    attempts.close()


def test_a_world_that_cannot_be_made_is_asked_for_again():
    asked = []

    def make():
        asked.append(1)
        raise ConnectionError("nobody there")

    with pytest.raises(ConnectionError, match="nobody there"):
        Attempts(make, retries=2).run(says("a"))
    assert len(asked) == 3


class Full(Counter):
    """It finds no room for some of its items."""

    def __init__(self, full: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.full = full

    def reset(self, item, *, seed=0):
        if item in self.full:
            raise OSError(f"no room for {item}")
        return super().reset(item, seed=seed)


def test_a_world_that_fails_now_and_then_is_looked_at_all_the_same():
    assert beginnings(Attempts(Full), range(1, 5)) == [f"{item} to go" for item in range(1, 5)]
    assert beginnings(Attempts(lambda: Full((1, 3))), range(1, 5)) == ["2 to go", "4 to go"]
    assert beginnings(Attempts(Full), []) == []


def test_one_that_begins_nothing_says_why():
    with pytest.raises(OSError, match="no room for 1"):
        beginnings(Attempts(lambda: Full((1, 2, 3))), range(1, 4))


def test_one_that_begins_by_a_coroutine_is_awaited(made):
    class Later(World):
        async def reset(self, item):
            return f"item {item}", {}

    assert beginnings(Attempts(lambda: Later(made)), [3]) == ["item 3"]


def test_a_world_that_ends_its_program_does_not_end_the_run():
    def make():
        raise SystemExit(3)

    with pytest.raises(EnvError, match="SystemExit: 3"):
        Attempts(make).run(says("a"))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((7, 1.0, True, False, {}), "an observation has to be a text, and is int"),
        (
            ("on", float("inf"), True, False, {}),
            "a reward has to be a finite number of at most 1e+09 in size, and is 'inf'",
        ),
        (("on", 1.0, "False", False, {}), "terminated has to be true or false, and is 'False'"),
        (("on", 1.0, True, False, None), "info has to be a dict, and is NoneType"),
        ("on", "step has to return five things, and returned 'on'"),
    ],
)
def test_an_expert_whose_world_answers_garbage_shows_nothing(answer, told):
    class Garbage(Counter):
        def step(self, action):
            return answer

    info = replace(info_of(Garbage), expert=lambda env, *, seed: iter([("I go.", "go")]))
    with pytest.raises(EnvError, match=re.escape(told)):
        list(expert_trajectories(info, [1], rules="", seed=0))
