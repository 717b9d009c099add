"""Runs whose plays go on as soon as their own answers are there: the same bits twice, and after a kill."""

from __future__ import annotations

import json

import pytest

from support.commands import has_logged, killed_when, logged, same_bits, whet
from whet.rollout.free import Arrivals
from whet.run.session import arrivals_of
from whet.run_folder.folder import RunFolder
from whet.tasks.files import DataError

GRPO = (
    "num_steps=8", "prompts_per_step=4", "group_size=4", "checkpoint_every=2", "validate_every=3", "num_threads=1",
    "data.num_train=64", "data.num_validation=4", "data.num_test=8", "evaluation.num_samples=0", "engine.rollout=free",
)  # fmt: skip


def test_arrivals_are_written_by_play_and_kept_to(tmp_path):
    written = []
    arrivals = Arrivals(write=written.append)
    arrivals.at("train/1")
    for steps in ({2: 7, 0: 5}, {0: 9}):
        with arrivals.clock() as clock:
            clock.arrivals.update(steps)
    assert written == [
        {"play": "train/1/0", "arrivals": {0: 5, 2: 7}}, {"play": "train/1/1", "arrivals": {0: 9}}
    ]  # fmt: skip
    file = tmp_path / "arrivals.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in written))
    again = arrivals_of(str(file), RunFolder(tmp_path / "run"))
    again.write = lambda line: None
    again.at("train/1")
    with again.clock() as clock:
        assert clock.arrivals == {0: 5, 2: 7}
    with again.clock() as clock:
        assert clock.due("world", 0) == 9
        assert clock.due("world", 1) is None
    file.write_text('{"play": 1}\n')
    with pytest.raises(DataError, match="is no log of arrivals"):
        arrivals_of(str(file), RunFolder(tmp_path / "run"))


@pytest.mark.integration
def test_a_free_run_is_the_same_twice_and_after_a_kill(tmp_path):
    runs = [tmp_path / name for name in ("one", "two", "killed")]
    for run in runs[:2]:
        whet("train", "grpo", *GRPO, "--out", run)
    same_bits(runs[0], runs[1])

    killed_when(runs[2], lambda: has_logged(runs[2], "train", 3), "train", "grpo", *GRPO, "--out", runs[2])
    whet("resume", runs[2])
    same_bits(runs[0], runs[2])
    steps = [row for row in logged(runs[0]) if row["phase"] == "train" and row["step"]]
    assert all(row["episodes/started"] == row["episodes/finished"] == 16 for row in steps)
    assert all(abs(row["kl/sampler"]) < 1e-6 for row in steps if "kl/sampler" in row)


def test_a_free_latency_leaves_a_log_with_which_it_is_repeated(tmp_path):
    first, again = tmp_path / "first", tmp_path / "again"
    whet("train", "grpo", *GRPO, "num_steps=2", "engine.latency=null", "--out", first)
    log = first / "arrivals.jsonl"
    assert {json.loads(line)["play"].split("/")[0] for line in log.read_text().splitlines()} >= {"before", "train"}
    whet("train", "grpo", *GRPO, "num_steps=2", "engine.latency=null", f"engine.arrivals={log}", "--out", again)
    same_bits(first, again)
    assert (again / "arrivals.jsonl").read_text() == log.read_text()


@pytest.mark.integration
def test_critique_rounds_run_free_too(tmp_path):
    run = tmp_path / "run"
    small = ("data.num_train=48", "data.num_validation=4", "data.num_test=4", "num_threads=1")
    steps = ("stage1.num_steps=1", "stage2.num_steps=1", "warm_start.actor_steps=2", "warm_start.critic_steps=2")
    sizes = [f"stage{n}.{k}" for n in (1, 2) for k in ("prompts_per_step=4", "group_size=3")]
    whet("train", "critique_rl", *small, *steps, *sizes, "engine.rollout=free", "--out", run)
    assert (run / "summary.json").exists()
    refused = whet("train", "grpo", "engine.latency=4", "--dry-run", check=False)
    assert "engine.latency" in refused.stderr
