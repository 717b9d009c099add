"""Processes under Ray that are killed while they work: no job is lost or done twice, and the answers are the same.

They import neither torch nor transformers, so that many can die in a minute.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.light_worker import BrokenWorker, LightWorker, answer_of
from whet.cluster.processes import Processes
from whet.cluster.ray_start import connect
from whet.config.parts import ClusterConfig
from whet.errors import RunError

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("ray")]  # one Ray at a time
NUM_JOBS, NUM_KILLS = 120, 20


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    module = connect(ClusterConfig(workers=2))
    yield module
    module.shutdown()


def processes(ray: Any, tell: Any, restarts: int, kind: type[LightWorker] = LightWorker) -> Processes:
    actor = ray.remote(kind).options(num_cpus=0)
    return Processes(ray, actor.remote, 2, restarts=restarts, kind="worker", tell=tell)


def test_no_job_is_lost_or_done_twice_where_processes_are_killed(ray):
    said: list[str] = []
    pool = processes(ray, said.append, NUM_KILLS + 10)
    has_ended = threading.Event()

    def kill() -> None:
        rng = random.Random(0)
        killed: set[int] = set()
        while len(killed) < NUM_KILLS and not has_ended.is_set():
            alive = [member.facts["pid"] for member in pool.started if member.facts["pid"] not in killed]
            if alive:
                killed.add(pid := rng.choice(alive))
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.3)

    killer = threading.Thread(target=kill)
    killer.start()
    answers: list[tuple[int, str]] = []
    prepared: list[int] = []
    rounds = 0
    while pool.num_restarts < NUM_KILLS and rounds < 40:
        found = list(
            pool.work([(number,) for number in range(NUM_JOBS)], lambda m: prepared.append(m.facts["pid"]), int)
        )
        assert sorted(number for number, _ in found) == list(range(NUM_JOBS))
        answers += found
        rounds += 1
    has_ended.set()
    killer.join()
    assert all(answer == answer_of(number) for number, answer in answers)
    assert pool.num_restarts == len(said) >= NUM_KILLS
    assert len(set(prepared)) >= NUM_KILLS  # each new process was prepared before its first job
    assert all("died: it was killed" in text and "A new one takes its place" in text for text in said)
    pool.close()


def test_one_death_more_than_allowed_ends_the_run_with_the_last_lines(ray):
    pool = processes(ray, lambda text: None, 0)
    asked = pool.work([(7,)] * 40, lambda member: None, int)
    for _ in range(6):
        next(asked)
    for member in pool.members:
        os.kill(member.facts["pid"], signal.SIGKILL)
    with pytest.raises(
        RunError, match=r"(?s)worker \d \(process \d+ on .*its last lines:.*seven is being worked on.*rest"
    ):
        list(asked)
    assert not any(member.taken for member in pool.members)
    pool.close()


def test_other_versions_in_a_process_are_refused(ray, monkeypatch):
    monkeypatch.setattr("whet.cluster.ray_start.version", lambda: "9.9")
    text = r"worker 0 on .* has whet .*, and this process has 9\.9: install the same there"
    with pytest.raises(RunError, match=text):
        processes(ray, lambda text: None, 0)


def test_a_process_that_cannot_start_says_why(ray):
    with pytest.raises(RunError, match=r"(?s)worker 0 could not start.*ValueError: no grader here"):
        processes(ray, lambda text: None, 0, BrokenWorker)
