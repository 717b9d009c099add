"""The service of environments: worlds are lent, reused, thrown away where they break; every failure has its kind."""

from __future__ import annotations

import re
import threading
import time

import numpy
import pytest

from support.counter import AsyncCounter, Counter, info_of
from whet.envs.formats import Parsed
from whet.envs.protocol import stepped
from whet.errors import WhetError
from whet.rollout.agent import _turn
from whet.rollout.driver import Ask, together
from whet.rollout.environments import Act, Begin, Environments, Leave
from whet.rollout.free import Clock, roll_out_free
from whet.rollout.roles import written
from whet.rollout.services import Fault, Pool


async def count(item, seed=0, info=None, **settings):
    begin = Begin(info or info_of(), item, seed, settings)
    seen = await Ask("environment", begin)
    said, total = [seen.observation], 0.0
    while not seen.is_over:
        seen = await Ask("environment", Act(begin.lease, "go"))
        said.append(seen.observation)
        total += seen.reward
    return said, total


async def with_retries(rollout):
    try:
        return await rollout
    except Fault as fault:
        return fault.failure


@pytest.fixture
def envs():
    made = Environments(capacity=4, workers=8, timeout_s=0.5, retries=1)
    yield made
    made.close()


@pytest.mark.parametrize("make", [Counter, AsyncCounter])
def test_worlds_are_reused_and_never_more_than_there_is_room_for(envs, make):
    make.made = 0
    found = roll_out_free([count(3, info=info_of(make)) for _ in range(40)], {"environment": envs})
    assert found == [(["3 to go", "2 to go", "1 to go", "0 to go"], 1.0)] * 40
    assert make.made <= 4
    assert envs.counts["made"] + envs.counts["reused"] == 40


@pytest.mark.parametrize("fault", ["crash", "hang", "garbage", "reset"])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_world_that_fails_is_a_failure_of_its_kind_and_no_reward(envs, fault, share):
    """Every episode is played or failed, and none is both; what fails is thrown away."""
    rollouts = [with_retries(count(3, seed, fault=fault, share=share)) for seed in range(24)]
    found = roll_out_free(rollouts, {"environment": envs})
    failed = [each for each in found if not isinstance(each, tuple)]
    assert [each[1] for each in found if isinstance(each, tuple)] == [1.0] * (24 - len(failed))
    assert {each.kind for each in failed} <= {"timeout" if fault == "hang" else "env_error"}
    assert failed or share < 0.5
    words = {"crash": "the world has ended", "hang": "no answer within", "garbage": "finite", "reset": "no room"}
    assert all(words[fault] in each.reason for each in failed)
    assert envs.counts["thrown_away"] >= len(failed)


class Wordless(Exception):
    def __str__(self):
        raise ZeroDivisionError


class Odd(Counter):
    """Answers with something odd, by its action."""

    def step(self, action):
        if action == "wordless":
            raise Wordless
        marks = {"array": numpy.array([1, 0]), "text": "no", "number": numpy.bool_(True)}
        return numpy.str_("odd"), 0.0, False, False, {"invalid": marks[action]}


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ("wordless", r"Wordless: \(its text cannot be read\)"),
        ("array", "ambiguous"),
        ("text", r"info\['invalid'\] has to be true or false, and is 'no'"),
    ],
)
def test_what_is_odd_about_an_answer_is_a_failure_at_once_and_breaks_no_flow(action, says):
    envs = Environments(timeout_s=60)

    async def acted():
        begin = Begin(info_of(Odd), 3, 0)
        await Ask("environment", begin)
        return _turn(written("agent", ""), Parsed("", action), await Ask("environment", Act(begin.lease, action)), None)

    began = time.monotonic()
    [failure] = roll_out_free([with_retries(acted())], {"environment": envs})
    assert failure.kind == "env_error"
    assert re.search(says, failure.reason)
    assert time.monotonic() - began < 30  # the wordless one was not found by its time limit
    envs.close()


def test_an_answer_is_of_pythons_own_kinds():
    observation, _, _, _, info = stepped(Odd().step("number"))
    assert type(observation) is str
    assert info == {"invalid": True}
    assert type(info["invalid"]) is bool


def test_a_flow_that_has_left_its_world_does_not_act_in_it(envs):
    async def left():
        begin = Begin(info_of(), 3, 0)
        await Ask("environment", begin)
        await Ask("environment", Leave(begin.lease))
        return await Ask("environment", Act(begin.lease, "go"))

    [failure] = roll_out_free([with_retries(left())], {"environment": envs})
    assert (failure.kind, "counter: its item failed or was left" in failure.reason) == ("env_error", True)


def test_a_begin_that_fails_is_tried_again_in_a_new_world():
    made = []

    def make():
        made.append(Counter("reset" if not made else ""))
        return made[-1]

    envs = Environments(retries=1)
    found = roll_out_free([count(2, info=info_of(make))], {"environment": envs})
    assert found == [(["2 to go", "1 to go", "0 to go"], 1.0)]
    assert envs.counts["begun_again"] == 1
    envs.close()


def test_worlds_that_hang_take_nobody_elses_place():
    """More of them than workers: the others go on beside them, and the process can end."""
    over = threading.Event()

    class Hanging(Counter):
        def step(self, action):
            if self.fault:
                over.wait(30)
            return super().step(action)

    envs = Environments(capacity=8, workers=2, timeout_s=0.5)
    rollouts = [with_retries(count(2, seed, info_of(Hanging), fault="x" * (seed < 6), share=0)) for seed in range(8)]
    found = roll_out_free(rollouts, {"environment": envs})
    assert [each.kind for each in found[:6]] == ["timeout"] * 6
    assert [each[1] for each in found[6:]] == [1.0, 1.0]
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "pool")
    over.set()
    envs.close()


@pytest.mark.parametrize("latency", [0, 3, None])
def test_where_nobody_can_make_room_the_play_says_so(latency):
    """Each has a world and waits for a second one."""

    async def greedy():
        for _ in range(2):
            await Ask("environment", Begin(info_of(), 3, 0))

    envs = Environments(capacity=2)
    with pytest.raises(WhetError, match="all 2 are lent"):
        roll_out_free([greedy(), greedy()], {"environment": envs}, Clock(default=latency))
    envs.close()


def test_a_world_that_is_at_work_when_its_flow_ends_is_lent_to_nobody():
    over = threading.Event()

    class Slow(Counter):
        def step(self, action):
            over.wait(30)
            return super().step(action)

    async def left():
        begin = Begin(info_of(Slow), 9, 0)
        await Ask("environment", begin)
        with pytest.raises(Fault):
            await together([ask("environment", Act(begin.lease, "go")), ask("broken", 1)])

    envs = Environments(capacity=4)
    services = {"environment": envs, "broken": Pool(lambda payload: 1 / 0)}
    roll_out_free([left()], services, Clock(latency={"environment": 50}))
    over.set()
    assert envs.advance(wait=True) == []
    assert roll_out_free([count(1, info=info_of(Slow))], services) == [(["1 to go", "0 to go"], 1.0)]
    assert (envs.counts["made"], envs.counts["reused"], envs.counts["thrown_away"]) == (2, 0, 1)
    envs.close()


@pytest.mark.parametrize("fault", ["crash", "hang"])
def test_a_world_that_failed_before_a_restart_is_lent_to_nobody(fault):
    """Its failure has arrived in the pool, and the rollouts broke off before anybody took it."""
    envs = Environments(timeout_s=0.05)
    begin = Begin(info_of(), 3, 0, {"fault": fault})
    envs.submit(0, begin)
    envs.advance(wait=True)
    envs.submit(1, Act(begin.lease, "go"))
    time.sleep(0.2)
    envs.restart()
    envs.submit(0, Begin(info_of(), 1, 0, {"fault": fault}))
    envs.advance(wait=True)
    assert (envs.counts["reused"], envs.counts["thrown_away"]) == (0, 1)
    envs.close()


def test_who_ends_while_it_waits_for_a_world_gets_none():
    async def left():
        with pytest.raises(Fault):
            await together([ask("environment", Begin(info_of(), 1, 0)), ask("broken", 1)])

    envs = Environments(capacity=1)
    services = {"environment": envs, "broken": Pool(lambda payload: 1 / 0)}
    roll_out_free([count(3), left()], services, Clock(latency={"environment": 2}))
    assert roll_out_free([count(1), count(1)], services) == [(["1 to go", "0 to go"], 1.0)] * 2
    envs.close()


async def ask(service, payload):
    return await Ask(service, payload)
