"""Graders and reward terms that `whet doctor` has to object to."""

from __future__ import annotations

import time

import whet


@whet.grader("doctor_tagged")
def tagged(completion: str, answer: str) -> float:
    """Takes answers in tags alone, and takes its time."""
    time.sleep(0.12)
    return float(completion.endswith(f"<answer>{answer}</answer>"))


@whet.grader("doctor_floats")
def floats(completion: str, answer: str) -> float:
    """Cannot read a reference such as 1,080."""
    return float(completion.split()[-1] == str(int(float(answer))))


@whet.grader("doctor_hangs")
def hangs(completion: str, answer: str) -> float:
    time.sleep(60)
    return 1.0


@whet.grader("doctor_flat")
def flat(completion: str, answer: str) -> float:
    return 0.5


@whet.reward("doctor_brief")
def brief(episode: whet.Episode, index: int) -> float:
    return -len(episode.segments[index].tokens) / 100


@whet.reward("doctor_broken")
def broken(episode: whet.Episode, index: int) -> float:
    return 1 / len(episode.segments[index].text.strip("?"))


@whet.reward("doctor_same")
def same(episode: whet.Episode, index: int) -> float:
    return 1.0
