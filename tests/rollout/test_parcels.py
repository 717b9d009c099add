"""What travels to a worker and back: episodes to the bit, shared objects by name, and nothing of the run itself."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from whet.errors import RunError
from whet.rollout.parcels import pack, unpack
from whet.rollout.services import Fault
from whet.types import Episode, Failure, Grade, Segment, Task


def segment(number: int, prefix: Segment | None = None) -> Segment:
    return Segment(
        role="agent",
        policy="policy",
        added=(number, number + 1),
        tokens=(7, 8, number),
        logprobs=(-0.1, -1 / 3, -1e-9),
        versions=((3, 3),),
        text=f"turn {number}",
        stop_reason="stop",
        temperature=1.0,
        seed=number,
        parent=None if prefix is None else number - 1,
        prefix=prefix,
        parsed={"verdict": None},
        grade=Grade(score=0.5, reason="half"),
        rewards={"outcome": 1.0},
    )


def chain(length: int) -> Episode:
    segments = [segment(0)]
    for number in range(1, length):
        segments.append(segment(number, segments[-1]))
    return Episode(task=Task(id="a", prompt="?", answer="1"), segments=tuple(segments), outcome="truncated", reason="r")


def test_an_episode_comes_home_to_the_bit():
    episode = chain(5)
    again = unpack(pack([episode, "beside"], {}), {})[0]
    assert again == episode
    assert again.segments[4].context == episode.segments[4].context
    assert again.segments[4].prefix is again.segments[3]
    assert all(isinstance(number, int) for number in again.segments[4].tokens)
    assert all(isinstance(number, float) for number in again.segments[4].logprobs)


def test_a_chain_may_be_longer_than_pickle_nests():
    episode = chain(1500)
    assert unpack(pack(episode, {}), {}).segments[-1] == episode.segments[-1]


def test_a_prefix_of_another_episode_travels_too():
    first = chain(3)
    later = Episode(task=first.task, segments=(segment(9, first.segments[2]),))
    again = unpack(pack(later, {}), {})
    assert again == later
    assert len(again.segments) == 1
    assert again.segments[0].context == later.segments[0].context


def test_what_both_sides_have_travels_as_its_name():
    mine, theirs = {"words": ["a"] * 10_000}, {"words": ["b"]}
    parcel = pack(partial(dict.get, mine, "words"), {"tokenizer": mine})
    assert len(parcel) < 200
    assert unpack(parcel, {"tokenizer": theirs})() == ["b"]


def test_what_belongs_to_the_run_is_refused_with_its_name():
    class Loop:
        pass

    loop = Loop()
    with pytest.raises(
        RunError, match=r"as it holds the run's loop: give it what it needs of that by functools.partial"
    ):
        pack(partial(print, loop), {}, {"the run's loop": loop})


def test_a_fault_keeps_its_failure():
    fault = Fault(Failure(kind="grader_error", reason="broken", trace="line 3"))
    again = unpack(pack(fault, {}), {})
    assert (type(again), again.failure) == (Fault, fault.failure)


def test_what_does_not_pickle_is_named():
    with pytest.raises(RunError, match=r"does not pickle .*lock"):
        pack(partial(print, threading.Lock()), {})
