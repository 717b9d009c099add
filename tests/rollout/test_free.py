"""Free-running play: who shares a batch with whom depends on logical time, and not on the clock."""

from __future__ import annotations

import random
import threading
import time
import weakref
from dataclasses import replace

import pytest

from whet.engines.local import LocalEngine
from whet.rollout.driver import Ask, Batched, roll_out, together
from whet.rollout.free import Clock, roll_out_free
from whet.rollout.services import Fault, Pool
from whet.types import Failure, Request, Sampling


class Scripted:
    """A stepped service: a payload of n is answered after n steps."""

    is_stepped = True

    def __init__(self) -> None:
        self.left: dict[int, int] = {}
        self.steps: list[list[int]] = []
        """Who was in work, by step."""

    def submit(self, ticket, payload):
        self.left[ticket] = payload

    def advance(self, *, wait):
        self.steps.append(sorted(self.left))
        self.left = {ticket: left - 1 for ticket, left in self.left.items()}
        ended = [ticket for ticket, left in self.left.items() if left == 0]
        return [(ticket, self.left.pop(ticket)) for ticket in ended]

    def done(self, payloads): ...


async def turns(*lengths, rests=()):
    for place, length in enumerate(lengths):
        await Ask("engine", length)
        if place < len(rests):
            await Ask("world", rests[place])
    return sum(lengths)


def test_no_flow_waits_for_another():
    """By hand: 5 steps then 1, and 1 step six times: six steps in all. In lockstep 5 + 1 + 1 + 1 + 1 + 1."""
    engine = Scripted()
    assert roll_out_free([turns(5, 1), turns(1, 1, 1, 1, 1, 1)], {"engine": engine}) == [6, 6]
    assert len(engine.steps) == 6
    slow = Scripted()
    roll_out([turns(5, 1), turns(1, 1, 1, 1, 1, 1)], {"engine": slow})
    assert len(slow.steps) == 10


@pytest.mark.parametrize("sleep", [0.0, 0.02])
def test_an_answer_comes_a_set_number_of_steps_after_it_was_asked_for(sleep):
    """Asked at the end of step 1, with a latency of 3 it is there for step 5, however fast the world is."""

    def env(payload):
        time.sleep(sleep)
        return payload

    engine, clock = Scripted(), Clock(latency={"world": 3})
    roll_out_free([turns(1, 1, rests=[0]), turns(8)], {"engine": engine, "world": Pool(env)}, clock)
    first = [step for step, tickets in enumerate(engine.steps, 1) if len(tickets) == 2]
    assert first == [1, 5]
    if sleep:
        assert clock.num_late == {"world": 1}


def test_where_nothing_runs_time_moves_to_the_next_answer():
    engine, clock = Scripted(), Clock(latency={"world": 1000})
    assert roll_out_free(
        [turns(1, 1, rests=[0])], {"engine": engine, "world": Batched(lambda asked: asked)}, clock
    ) == [2]
    assert len(engine.steps) == 2
    assert clock.steps >= 1000


def dialogues(count, number_of_turns, *, env=True):
    async def one(number):
        rng = random.Random(number)
        context, follows = tuple(rng.randrange(4, 40) for _ in range(5)), None
        said = []
        for turn in range(number_of_turns):
            seed = 100 * number + turn
            sampling = Sampling(max_new_tokens=rng.randrange(1, 12))
            done = await Ask(
                "policy", Request(context=context, sampling=sampling, seed=seed, follows=follows, keep=True)
            )
            said.append(done)
            answer = await Ask("world", (number, turn)) if env else 5
            context, follows = (*context, *done.tokens, answer), seed
        return said

    return [one(number) for number in range(count)]


def nap(payload):
    """A world that sleeps at random, by the clock and not by a seed."""
    time.sleep(random.SystemRandom().random() * 0.01)
    return 4 + sum(payload) % 30


@pytest.fixture
def policy(random_policy):
    return replace(random_policy, stop_ids=frozenset())


def episodes(policy, clock, **more):
    services = {"policy": LocalEngine(policy, max_rows=4), "world": Pool(nap, workers=8)}
    return roll_out_free(dialogues(9, 4, **more), services, clock)


@pytest.mark.parametrize("latency", [0, 3, 40])
def test_the_same_bits_whatever_the_clock_does(policy, latency):
    first, second = (episodes(policy, Clock(default=latency)) for _ in range(2))
    assert first == second  # logprobs to the bit


def test_a_latency_left_free_is_repeated_from_its_arrivals(policy):
    clock = Clock(default=None)
    first = episodes(policy, clock)
    assert len(clock.arrivals) == 9 * 4
    again = Clock(default=None, arrivals=dict(clock.arrivals))
    assert episodes(policy, again) == first
    assert again.arrivals == clock.arrivals


def test_a_play_that_was_cut_short_is_repeated_as_far_as_it_went(policy):
    clock = Clock(default=None)
    first = episodes(policy, clock)
    known = dict(sorted(clock.arrivals.items())[:20])
    again = Clock(default=None, arrivals=dict(known))
    second = episodes(policy, again)
    assert [len(rollout) for rollout in second] == [len(rollout) for rollout in first]
    assert {ticket: again.arrivals[ticket] for ticket in known} == known


def test_what_is_written_is_what_lockstep_writes(policy):
    free = roll_out_free(dialogues(6, 3, env=False), {"policy": LocalEngine(policy, max_rows=4)})
    lockstep = roll_out(dialogues(6, 3, env=False), {"policy": LocalEngine(policy).generate})
    assert [[c.tokens for c in rollout] for rollout in free] == [[c.tokens for c in rollout] for rollout in lockstep]


def test_what_is_held_for_a_flow_goes_with_it(policy):
    engine = LocalEngine(policy, max_rows=4)
    roll_out_free(dialogues(3, 3, env=False), {"policy": engine})
    assert len(engine.stream.prefixes) == 0


def test_what_a_service_is_told_in_the_end_is_all_that_is_held_meanwhile():
    class Payload:
        def __init__(self, number):
            self.number = number

    class Brief(Batched):
        def remembered(self, payload):
            return payload.number or None

        def done(self, payloads):
            told.append(payloads)

    def answer(payloads):
        seen.extend(map(weakref.ref, payloads))
        return [sum(payload() is not None for payload in seen) for _ in payloads]

    async def rollout():
        return [await Ask("brief", Payload(number)) for number in range(5)]

    for drive in (roll_out, roll_out_free):
        seen, told = [], []
        assert drive([rollout()], {"brief": Brief(answer)}) == [[1, 1, 1, 1, 1]]
        assert told == [[1, 2, 3, 4]]
    seen = []
    assert roll_out([rollout()], {"brief": answer}) == [[1, 1, 1, 1, 1]]  # a function is told of nothing


def test_an_engine_needs_no_contexts_to_forget(policy):
    engine = LocalEngine(policy)
    asked = Request(context=tuple(range(4, 30)), sampling=Sampling(max_new_tokens=2), seed=1, keep=True)
    engine.submit(0, asked)
    while engine.num_open:
        engine.advance()
    assert len(engine.stream.prefixes) == 1
    told = engine.remembered(asked)
    assert len(told.context) == 1
    engine.done([told])
    assert len(engine.stream.prefixes) == 0
    assert engine.remembered(replace(asked, keep=False)) is None


@pytest.mark.parametrize("is_last", [True, False])
def test_what_the_siblings_of_a_fault_have_asked_is_cancelled(policy, is_last):
    """By hand: two rows of 300 tokens end at the step after the fault, and nothing of them is kept or handed on."""

    async def sibling(seed):
        request = Request(context=(5, 6), sampling=Sampling(max_new_tokens=300), seed=seed, keep=True)
        heard.append(await Ask("policy", request))

    async def broken():
        await Ask("world", 0)

    async def rollout():
        try:
            await together([sibling(1), sibling(2), broken()])
        except Fault:
            return "lost"

    async def other():
        asked = Request(context=(7, 8), sampling=Sampling(max_new_tokens=20), seed=3)
        return len((await Ask("policy", asked)).tokens)

    heard = []
    env = Batched(lambda asked: [Failure(kind="env_error", reason="it fell over")] * len(asked))
    engine = LocalEngine(policy)
    rollouts = [rollout()] if is_last else [rollout(), other()]
    assert roll_out_free(rollouts, {"policy": engine, "world": env}) == ["lost", 20][: len(rollouts)]
    assert heard == []
    assert (engine.num_open, len(engine.stream.prefixes)) == (0, 0)
    assert engine.stream.counts.row_steps <= 20 + 2 * 2


@pytest.mark.parametrize("latency", [2, None])
def test_what_a_closed_flow_has_asked_answers_nobody_in_the_next_play(latency):
    """It is still at work when its play ends, and its ticket is given again."""
    over = threading.Event()

    def env(payload):
        if payload == "fails":
            raise OSError("it fell over")
        if payload == "slow":
            over.wait(30)
        return payload

    async def slow():
        await Ask("engine", 1)  # after the fault has been asked for
        return await Ask("world", "slow")

    async def fails():
        await Ask("world", "fails")

    async def lost():
        with pytest.raises(Fault, match="it fell over"):
            await together([fails(), slow()])

    async def questions():
        return [await Ask("world", number) for number in range(4)]

    services = {"world": Pool(env), "engine": Scripted()}
    roll_out_free([lost()], services, Clock(default=latency))
    over.set()
    time.sleep(0.05)  # time for the late answer to come
    assert roll_out_free([questions()], services, Clock(default=latency)) == [[0, 1, 2, 3]]


def test_forks_wait_for_the_slowest_and_faults_reach_who_can_catch_them():
    async def leaf(number):
        return await Ask("world", number)

    async def careful():
        try:
            return await together(leaf(number) for number in range(3))
        except Fault as fault:
            return fault.failure.reason

    def env(number):
        if number == 1:
            raise OSError("the door is stuck")
        time.sleep(0.01)
        return number

    for drive in (roll_out, roll_out_free):
        assert drive([careful()], {"world": Pool(env)}) == ["OSError: the door is stuck"]
        with pytest.raises(Fault, match="the door is stuck"):
            drive([leaf(1), leaf(2)], {"world": Pool(env)})


def test_what_takes_too_long_is_a_failure_and_what_breaks_is_tried_again():
    tried = []

    def env(number):
        tried.append(number)
        if number == 0:
            time.sleep(10)  # in a thread that nobody waits for
        if number == 1 and tried.count(1) < 3:
            raise ValueError("not yet")
        return number

    async def asks(number):
        try:
            return await Ask("world", number)
        except Fault as fault:
            return fault.failure

    pool = Pool(env, timeout_s=0.5, retries=2)
    late, retried = roll_out_free([asks(0), asks(1)], {"world": pool})
    assert late == Failure(kind="timeout", reason="no answer within 0.5 s")
    assert retried == 1
    assert pool.num_retried == 2
    broken = Pool(lambda payload: 1 / 0)
    [failure] = roll_out_free([asks(5)], {"world": broken})
    assert (failure.kind, failure.reason) == ("env_error", "ZeroDivisionError: division by zero")
    assert "1 / 0" in failure.trace
