"""A pool's threads: what is late is a failure, once, and holds up nobody else; a play's answers end with it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial

import pytest

from support.counter import Counter, info_of
from whet.rollout import services
from whet.rollout.driver import Batched
from whet.rollout.environments import Act, Begin, Environments
from whet.rollout.services import Pool
from whet.types import Failure

LATE = Failure(kind="timeout", reason="no answer within 0.1 s")


def answers(service, number, seconds=30.0):
    """As many answers, by ticket."""
    found, until = {}, time.monotonic() + seconds
    while len(found) < number and time.monotonic() < until:
        found |= dict(service.advance(wait=False))
        time.sleep(0.005)
    return found


def test_what_is_late_is_not_tried_again():
    tried = []

    def fails_late(payload):
        tried.append(payload)
        time.sleep(0.2)
        raise ValueError("too late anyway")

    pool = Pool(fails_late, timeout_s=0.1, retries=3)
    pool.submit(0, "a")
    assert answers(pool, 1) == {0: LATE}
    time.sleep(0.2)
    pool.submit(1, "b")
    assert answers(pool, 1) == {1: LATE}
    time.sleep(0.2)
    assert tried == ["a", "b"]
    assert (pool.num_retried, pool.num_hung) == (0, 0)


def test_what_came_late_is_late_also_where_nobody_looked_in_time():
    """Whether a caller that computes looks before the answer is there depends on the machine."""
    tried = []

    def slow(payload):
        tried.append(payload)
        time.sleep(0.3)
        if payload == "breaks":
            raise ValueError("too late anyway")
        return payload

    pool = Pool(slow, timeout_s=0.1, retries=3)
    for ticket, payload in enumerate(["answers", "breaks"]):
        pool.submit(ticket, payload)
    while pool._jobs:
        time.sleep(0.01)
    assert dict(pool.advance(wait=False)) == {0: LATE, 1: LATE}
    assert sorted(tried) == ["answers", "breaks"]
    assert (pool.num_retried, pool.num_hung) == (0, 0)


def test_a_number_that_is_used_again_has_a_time_of_its_own():
    """The thread of the first begins another try while the second waits."""

    def work(payload):
        time.sleep(1.2 if payload == "slow" else 0.3)
        if payload == "slow":
            raise ValueError("again")
        return payload

    pool = Pool(work, timeout_s=1.0, retries=5)
    pool.submit(0, "slow")
    assert answers(pool, 1) == {0: replace(LATE, reason="no answer within 1 s")}
    for _ in range(4):
        pool.submit(0, "quick")
        assert answers(pool, 1) == {0: "quick"}


def test_those_that_hang_hold_up_nobody_else():
    held = threading.Event()
    pool = Pool(lambda payload: held.wait(9) if payload == "hang" else payload, workers=2, timeout_s=0.5)
    for ticket, payload in enumerate(["hang", "hang", "hang", "fine", "fine"]):
        pool.submit(ticket, payload)
    late = replace(LATE, reason="no answer within 0.5 s")
    assert answers(pool, 5) == {0: late, 1: late, 2: late, 3: "fine", 4: "fine"}
    assert pool.num_hung == 3
    held.set()
    pool.submit(5, "fine")
    assert answers(pool, 1) == {5: "fine"}


def test_so_many_hang_that_nothing_more_is_begun(monkeypatch):
    monkeypatch.setattr(services, "MAX_HUNG", 2)
    held = threading.Event()
    pool = Pool(lambda payload: held.wait(9), workers=1, timeout_s=0.05)
    for ticket in range(4):
        pool.submit(ticket, "hang")
    found = answers(pool, 4)
    assert [found[ticket].reason[:9] for ticket in range(4)] == ["no answer", "no answer", "not begun", "not begun"]
    held.set()


def test_a_function_that_exits_is_a_failure():
    pool = Pool(lambda payload: exit(3))
    pool.submit(0, "a")
    [(_, failure)] = pool.advance(wait=True)
    assert (failure.kind, failure.reason) == ("env_error", "SystemExit: 3")


def test_threads_are_never_more_than_the_workers():
    lock, now, most = threading.Lock(), 0, 0

    def work(payload):
        nonlocal now, most
        with lock:
            now, most = now + 1, max(most, now + 1)
        time.sleep(0.002)
        with lock:
            now -= 1
        return payload

    pool = Pool(work, workers=3)
    for ticket in range(60):
        pool.submit(ticket, ticket)
    found = {}
    while len(found) < 60:
        found |= dict(pool.advance(wait=True))
    assert found == {ticket: ticket for ticket in range(60)}
    assert most == 3


def test_an_answer_of_a_play_that_is_over_never_comes():
    held = threading.Event()
    pool = Pool(lambda payload: (held.wait(9), payload) if payload.startswith("old") else payload, workers=1)
    pool.submit(0, "old")
    pool.submit(1, "old, queued")
    time.sleep(0.02)
    pool.restart()
    assert pool.advance(wait=True) == []
    pool.submit(0, "new")
    assert pool.advance(wait=True) == [(0, "new")]
    held.set()
    time.sleep(0.05)
    assert (pool.advance(wait=False), pool.num_hung) == ([], 0)
    pool.submit(1, "come")
    time.sleep(0.05)
    pool.restart()
    assert pool.advance(wait=False) == []


def test_a_batch_that_was_asked_in_a_play_that_is_over_is_not_answered():
    batched = Batched(lambda payloads: payloads)
    batched.submit(0, "old")
    batched.restart()
    batched.submit(0, "new")
    assert batched.advance(wait=True) == [(0, "new")]


@pytest.fixture
def envs():
    made = Environments(capacity=2, timeout_s=None)
    yield made
    made.close()


def test_all_worlds_come_back_when_a_play_is_over(envs):
    """One is at rest, one is in a step, and a third flow waits for its own."""
    closed, entered, over = threading.Event(), threading.Event(), threading.Event()

    class Slow(Counter):
        def step(self, action):
            entered.set()
            over.wait(30)
            return super().step(action)

        def close(self):
            closed.set()

    begun = Begin(info_of(Slow), 3, 0), Begin(info_of(), 3, 0), Begin(info_of(), 3, 0)
    for ticket, begin in enumerate(begun):
        envs.submit(ticket, begin)
    assert set(answers(envs, 2)) == {0, 1}
    envs.submit(3, Act(begun[0].lease, "go"))
    assert entered.wait(30)
    envs.restart()
    assert (envs.advance(wait=False), list(envs.queued)) == ([], [])
    assert envs.counts["thrown_away"] == 1
    over.set()
    for ticket in range(2):
        envs.submit(ticket, Begin(info_of(), 5, 0))
    assert {seen.observation for seen in answers(envs, 2).values()} == {"5 to go"}
    assert envs.counts["reused"] == 1
    assert closed.wait(30)


def test_a_flow_that_ends_while_its_world_is_asked_gives_nobody_that_world(envs):
    over = threading.Event()

    class Slow(Counter):
        def step(self, action):
            over.wait(30)
            return super().step(action)

    begin = Begin(info_of(partial(Slow)), 3, 0)
    envs.submit(0, begin)
    answers(envs, 1)
    act = Act(begin.lease, "go")
    envs.submit(1, act)
    envs.done([begin, act])
    over.set()
    envs.submit(2, Begin(info_of(partial(Slow)), 3, 0))
    assert set(answers(envs, 2)) == {1, 2}
    assert (envs.counts["made"], envs.counts["thrown_away"]) == (2, 1)


def test_a_flow_that_ends_while_it_waits_for_a_world_holds_none(envs):
    begun = [Begin(info_of(), 3, 0) for _ in range(3)]
    for ticket, begin in enumerate(begun):
        envs.submit(ticket, begin)
    envs.done([begun[2]])
    assert isinstance(answers(envs, 3)[2], Failure)
    envs.done(begun[:1])
    envs.submit(3, Begin(info_of(), 3, 0))
    assert answers(envs, 1)[3].observation == "3 to go"
