"""A play that stands still is told of while it does: which service, and where every thread is."""

import time

from whet.rollout.driver import Ask, Batched, roll_out
from whet.rollout.free import roll_out_free
from whet.rollout.runtime import Watchdog


async def asks():
    return await Ask("slow_judge", 1)


def slow_judge(payloads):
    time.sleep(1.1)
    return payloads


def test_it_names_the_service_and_writes_the_stacks(tmp_path):
    for drive in (roll_out, roll_out_free):
        told, stacks = [], tmp_path / f"{drive.__name__}.txt"
        dog = Watchdog(0.25, told.append, stacks)
        with dog.watching():
            assert drive([asks()], {"slow_judge": Batched(slow_judge)}, beat=dog.beat) == [1]
        assert 2 <= len(told) <= 4  # again each time as long again has passed
        assert all("nothing has come from the service 'slow_judge' for" in each for each in told)
        assert "slow_judge" in stacks.read_text()
        assert "File" in stacks.read_text()


def test_a_play_that_goes_on_is_left_alone():
    told = []
    dog = Watchdog(2.0, told.append)
    with dog.watching():
        for _ in range(5):
            dog.beat("judge")
            time.sleep(0.5)
    assert told == []


def test_0_seconds_watch_nothing():
    dog = Watchdog(0.0)
    with dog.watching():
        assert roll_out([asks()], {"slow_judge": Batched(lambda asked: asked)}, beat=dog.beat) == [1]
