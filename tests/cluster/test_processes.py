"""Processes under Ray that are killed while they work: no job is lost or done twice, and the answers are the same.

They import neither torch nor transformers, so that many can die in a minute.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from support.light_worker import BrokenWorker, DiesAtItsStart, LacksAFile, LightRank, LightWorker, answer_of
from whet.cluster import processes as cluster_processes
from whet.cluster import ray_ranks, ray_start
from whet.cluster.processes import Processes
from whet.cluster.ray_ranks import RayRanks
from whet.cluster.ray_start import connect
from whet.config.parts import ClusterConfig
from whet.errors import RunError
from whet.trainer.sharded import RanksLost

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("ray")]  # one Ray at a time
NUM_JOBS, NUM_KILLS = 120, 20


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", "127.0.0.1:9")  # without cluster.address, Ray starts here all the same
        module = connect(ClusterConfig(workers=2))
    assert signal.getsignal(signal.SIGTERM) is handler  # which saves a run before it ends
    yield module
    module.shutdown()


def processes(
    ray: Any,
    tell: Any,
    restarts: int,
    kind: type[LightWorker] = LightWorker,
    *arguments: Any,
    needs: Mapping[str, int] = {},
) -> Processes:
    actor = ray.remote(kind).options(num_cpus=0, resources=dict(needs))
    return Processes(ray, lambda: actor.remote(*arguments), 2, restarts=restarts, kind="worker", tell=tell)


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
    text = r"worker \d on .* has whet .*, and this process has 9\.9: install the same there"
    with pytest.raises(RunError, match=text):
        processes(ray, lambda text: None, 0)


def test_a_process_that_cannot_start_says_why(ray):
    with pytest.raises(RunError, match=r"(?s)worker \d could not start.*ValueError: no grader here"):
        processes(ray, lambda text: None, 0, BrokenWorker)


def test_a_process_that_is_killed_as_it_starts_is_started_again(ray, tmp_path):
    said: list[str] = []
    pool = processes(ray, said.append, 9, DiesAtItsStart, tmp_path / "mark")
    assert [number for number, _ in pool.work([(1,)] * 4, lambda member: None, int)]
    assert 1 <= len(said) == pool.num_restarts <= 2
    assert all("worker" in text and "died: it was killed" in text for text in said)
    pool.close()


def test_settings_that_do_not_fit_a_machine_are_said_without_a_traceback(ray):
    with pytest.raises(RunError, match=r"^worker \d on [\d.]+ could not start: mine.py is not there$"):
        processes(ray, lambda text: None, 9, LacksAFile)


def test_processes_without_room_are_said_and_do_not_wait_for_ever(ray, monkeypatch):
    monkeypatch.setattr(cluster_processes, "SLOW_S", 0.2)
    monkeypatch.setattr(ray_start, "START_S", 1.0)
    said: list[str] = []
    with pytest.raises(RunError, match=r"^worker 0, worker 1 did not start in . s; .* has .*CPUs, .*: add machines"):
        processes(ray, said.append, 0, needs={"nobody has": 1})
    assert len(said) == 1
    assert said[0].endswith("free; waiting")


@pytest.mark.parametrize(
    ("ends", "text"),
    [
        (("loses", "dies"), r"rank 1 \(process 11 on here\) died: it was killed"),
        (("loses", "raises"), r"(?s)rank 1 .* failed:.*a mistake"),
        (("answers", "says"), r"rank 1 .* failed, and the others did not: no such rows"),
        (("waits", "says"), r"rank 1 .* failed, and the others did not: no such rows"),
    ],
)
def test_the_rank_that_went_first_is_named_and_none_is_waited_for(ray, monkeypatch, ends, text):
    monkeypatch.setattr(ray_ranks, "OTHERS_S", 2.0)
    with pytest.raises(RanksLost, match=text):
        light_ranks(ray).call("end", ends)


def test_an_error_of_all_ranks_is_that_of_the_first(ray):
    ranks = light_ranks(ray)
    with pytest.raises(ValueError, match=r"^no such rows$"):
        ranks.call("end", ("says", "says"))
    ranks.close()


def light_ranks(ray: Any) -> RayRanks:
    ranks = RayRanks(ClusterConfig(ranks=2), None)
    ranks._ray = ray
    make = ray.remote(LightRank).options(num_cpus=0)
    ranks._actors = [make.remote(number) for number in range(2)]
    ranks.facts = [{"pid": 10 + number, "node": "here"} for number in range(2)]
    return ranks
