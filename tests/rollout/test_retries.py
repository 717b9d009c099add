"""Failures: played again under a fresh seed, counted, in no baseline; a play that fails too often names the cause."""

from __future__ import annotations

import json
import random

import pytest

from support.episodes import reply
from whet.config.parts import EngineConfig, FaultsConfig
from whet.credit import ADVANTAGES, assign_credit, groups_of, rewarded
from whet.methods.sampling import kept
from whet.rollout.async_units import as_info, from_info
from whet.rollout.driver import Ask
from whet.rollout.retries import LATEST, PATIENCE, EpisodeCounts, EpisodeRecords, TooManyFaults
from whet.rollout.runtime import Runtime
from whet.rollout.services import Pool
from whet.rollout.units import UnitResult
from whet.types import FAULTS, Episode, Task

TASKS = [Task(id=str(number), prompt="?") for number in range(50)]


class Crashing:
    """An environment that crashes at random, by a seed, for a share of the rollouts."""

    def __init__(self, share: float) -> None:
        self.share, self.seeds = share, []

    def __call__(self, payload):
        task, sample = payload
        self.seeds.append(payload)
        if random.Random(f"{task} {sample}").random() < self.share:
            raise ConnectionResetError("the world is gone")
        return sample


async def rollout(task, *, sample):
    await Ask("world", (task.id, sample))
    return Episode(task=task, segments=())


def desk_with(env, monkeypatch, **faults):
    runtime = Runtime({}, lambda asked: [], EngineConfig(), faults=FaultsConfig(**faults))
    pool = Pool(env)
    monkeypatch.setattr(Runtime, "__getitem__", lambda self, name: pool)
    return runtime


def test_a_failed_sample_is_played_again_under_a_fresh_seed(monkeypatch):
    env = Crashing(0.05)
    runtime = desk_with(env, monkeypatch, retries=2)
    groups = runtime.by_task(rollout, TASKS, num_samples=8)
    assert all(episode.outcome == "ok" for group in groups for episode in group)
    assert len(set(env.seeds)) == len(env.seeds)  # none is asked twice
    episode_counts = runtime.episode_counts
    assert episode_counts.started == len(env.seeds)
    assert episode_counts.started == episode_counts.episodes + episode_counts.retried + episode_counts.lost
    assert (episode_counts.episodes, episode_counts.lost) == (400, 0)
    assert 5 <= episode_counts.retried == episode_counts.by_kind["env_error"] <= 45


def test_at_five_percent_faults_hardly_a_good_episode_is_lost(monkeypatch):
    """Groups of 8; whole groups thrown away would lose 1 - 0.95 ^ 8 = 33.7 % of all."""
    runtime = desk_with(Crashing(0.05), monkeypatch, retries=1)
    groups = runtime.by_task(rollout, TASKS * 4, num_samples=8)
    whole = sum(all(episode.outcome == "ok" for episode in group) for group in groups)
    lost = sum(episode.outcome in FAULTS for group in groups for episode in group)
    assert lost <= 0.01 * 1600
    assert whole >= 0.97 * 200
    assert pytest.approx(0.337, abs=1e-3) == 1 - 0.95**8


def test_a_play_that_fails_too_often_ends_and_names_the_first_cause(monkeypatch):
    runtime = desk_with(Crashing(0.9), monkeypatch, retries=1, budget=0.5)
    with pytest.raises(TooManyFaults, match=r"more than the budget of 50 % .*env_error: ConnectionResetError: ") as e:
        runtime.by_task(rollout, TASKS, num_samples=8)
    assert "raise ConnectionResetError" in str(e.value)  # where it came from
    assert runtime.episode_counts.started < 100


def test_a_play_of_which_few_fail_early_goes_on(monkeypatch):
    """The failures come with the first answer, and the others end with the second one."""

    async def two_asks(task, *, sample):
        await rollout(task, sample=sample)
        await Ask("world", ("good", 1))
        return Episode(task=task, segments=())

    assert random.Random("good 1").random() >= 0.1
    runtime = desk_with(Crashing(0.1), monkeypatch, retries=1, budget=0.5)
    runtime.by_task(two_asks, TASKS, num_samples=8)
    assert runtime.episode_counts.by_kind["env_error"] >= PATIENCE


def test_a_budget_of_one_never_ends_a_play(monkeypatch):
    runtime = desk_with(Crashing(1.0), monkeypatch, retries=0, budget=1.0)
    groups = runtime.by_task(rollout, TASKS[:5], num_samples=8)
    assert {episode.outcome for group in groups for episode in group} == {"env_error"}
    assert runtime.episode_counts.lost == 40
    assert runtime.episode_counts.metrics() == {
        "episodes/started": 40.0, "episodes/finished": 0.0, "episodes/retried": 0.0, "episodes/lost": 40.0,
        "faults/env_error": 40.0,
    }  # fmt: skip


LATE = Episode(task=TASKS[0], segments=(), outcome="timeout", reason="late")
WELL = Episode(task=TASKS[0], segments=())


def count_all(episode_counts, numbers, again=False):
    """All of these fail."""
    for number in numbers:
        episode_counts.count(LATE, number, again=again)


def test_the_budget_looks_back_on_the_latest_rollouts():
    episode_counts = EpisodeCounts(budget=0.5)
    for _ in range(1000):
        episode_counts.count(WELL, episode_counts.begin(), again=False)
    count_all(episode_counts, [episode_counts.begin() for _ in range(LATEST // 2)])
    with pytest.raises(TooManyFaults, match="101 of 200 rollouts begun in a row failed"):
        episode_counts.count(LATE, episode_counts.begin(), again=False)


def test_failures_that_end_before_the_others_do_not_end_a_play():
    """One of ten fails, and all of these end first."""
    episode_counts = EpisodeCounts(budget=0.5)
    numbers = [episode_counts.begin() for _ in range(400)]
    count_all(episode_counts, numbers[::10])
    for number in filter(lambda number: number % 10, numbers):
        episode_counts.count(WELL, number, again=False)
    assert (episode_counts.episodes, episode_counts.lost) == (360, 40)


@pytest.mark.parametrize("num_slow", [0, 1, 9])
def test_an_outage_ends_a_play_at_once_whatever_is_under_way(num_slow):
    episode_counts = EpisodeCounts(budget=0.5)
    numbers = [episode_counts.begin() for _ in range(1000)]
    with pytest.raises(TooManyFaults):
        count_all(episode_counts, numbers[num_slow:], again=True)
    assert episode_counts.started <= PATIENCE


def test_what_comes_from_other_processes_is_judged_as_it_began_there():
    episode_counts = EpisodeCounts(budget=0.5)
    for _ in range(3):
        records = EpisodeRecords()
        numbers = [records.begin() for _ in range(50)]
        count_all(records, numbers[::5])
        for number in filter(lambda number: number % 5, numbers):
            records.count(WELL, number, again=False)
        info = json.loads(json.dumps(as_info(UnitResult([WELL], records.records, {}), 1)))  # by way of a checkpoint
        episode_counts.replay(from_info(info, [WELL]).endings)
    assert (episode_counts.episodes, episode_counts.lost) == (120, 30)
    records = EpisodeRecords()
    count_all(records, [records.begin() for _ in range(200)])
    with pytest.raises(TooManyFaults, match="101 of 200"):
        episode_counts.replay(records.records)


def test_a_fault_is_in_no_baseline():
    """Rewards 1, 3, 2 and a fault: the mean of the others is 2, and the fault has no credit at all."""
    episodes = [reply(1.0, seed=seed) for seed in range(3)]
    episodes.append(Episode(task=episodes[0].task, segments=(), outcome="timeout", reason="the world hangs"))
    worth = {0: 1.0, 1: 3.0, 2: 2.0}
    terms = {"outcome": lambda episode, index: worth[episode.segments[index].seed]}
    [group] = groups_of(
        rewarded(kept(episodes), episodes[0].segments[0].role, terms), episodes[0].segments[0].role, "task"
    )
    assigned = assign_credit([group], ADVANTAGES.get("dr_grpo"))
    assert [float(row.credit[0]) for row in assigned.rows] == [-1.0, 1.0, 0.0]
