"""Failures: played again under a fresh seed, counted, in no baseline; a play that fails too often names the cause."""

from __future__ import annotations

import random

import pytest

from support.episodes import reply
from whet.config.parts import EngineConfig, FaultsConfig
from whet.credit import ADVANTAGES, assign_credit, groups_of, rewarded
from whet.methods.sampling import kept
from whet.rollout.driver import Ask
from whet.rollout.retries import LATEST, EpisodeCounts, TooManyFaults
from whet.rollout.runtime import Runtime
from whet.rollout.services import Pool
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


def test_a_budget_of_one_never_ends_a_play(monkeypatch):
    runtime = desk_with(Crashing(1.0), monkeypatch, retries=0, budget=1.0)
    groups = runtime.by_task(rollout, TASKS[:5], num_samples=8)
    assert {episode.outcome for group in groups for episode in group} == {"env_error"}
    assert runtime.episode_counts.lost == 40
    assert runtime.episode_counts.metrics() == {
        "episodes/started": 40.0, "episodes/finished": 0.0, "episodes/retried": 0.0, "episodes/lost": 40.0,
        "faults/env_error": 40.0,
    }  # fmt: skip


def test_the_budget_looks_back_on_the_latest_rollouts():
    episode_counts, task = EpisodeCounts(budget=0.5), TASKS[0]
    for _ in range(1000):
        episode_counts.count(Episode(task=task, segments=()), again=False)
    for _ in range(LATEST // 2):
        episode_counts.count(Episode(task=task, segments=(), outcome="timeout", reason="late"), again=False)
    with pytest.raises(TooManyFaults, match="101 of the last 200 rollouts failed"):
        episode_counts.count(Episode(task=task, segments=(), outcome="timeout", reason="late"), again=False)


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
