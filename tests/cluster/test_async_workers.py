"""Training while two workers roll out: ages within the bound, the bits of its log, kills of a worker and of the run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import worker_cases
from typer.testing import CliRunner

from support.commands import killed_when, whet
from whet.cli import app
from whet.run_folder.logs import Logs

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("ray")]  # one Ray at a time
STEPS, SIZE = 12, 3
SMALL = (
    "num_threads=1", "data.num_train=40", "data.num_validation=4", "data.num_test=4", f"num_steps={STEPS}",
    f"prompts_per_step={SIZE}", "group_size=4", "validate_every=6", "evaluation.num_samples=0", "checkpoint_every=3",
    "learning.minibatch_rows=12", "sampling.max_new_tokens=32", "cluster.unit=4", "off_policy.kind=async",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    worker_cases.watch_pools()
    yield
    import ray

    ray.shutdown()


AGENT = (
    "policy.path=tiny_agent", "data.env=[textcraft, maze]", "evaluation.max_turns=3", "max_turns=3", "rules=none",
    "max_context=2000", "data.num_validation=2", "data.num_test=2", "sampling.max_new_tokens=24",
    "evaluation.num_samples=1",
)  # fmt: skip


def train(folder: Path, *more: str, method: str = "grpo") -> None:
    result = CliRunner().invoke(app, ["train", method, *SMALL, *more, "--out", str(folder)])
    assert result.exit_code == 0, result.output


def repeat(folder: Path, log: Path, *more: str, method: str = "grpo") -> None:
    train(folder, f"off_policy.log={log}", *more, method=method)


def batches(folder: Path) -> list[Any]:
    return Logs(folder).rows("async.jsonl")


def check_ages(folder: Path, max_age: int) -> None:
    """By the log, and by the versions of the tokens that each step trained on."""
    ages = [row["step"] - begun for row in batches(folder) for _, begun in row["units"]]
    assert 0 <= min(ages) <= max(ages) <= max_age
    rows = [row for row in Logs(folder).rows("metrics.jsonl") if row["phase"] == "train" and row["step"]]
    assert len(rows) == STEPS
    assert all(row["staleness/max"] <= max_age for row in rows if "staleness/max" in row)
    units = [unit for row in batches(folder) for unit, _ in row["units"]]
    assert sorted(units) == list(range(STEPS * SIZE)), "each unit trains once"


def learnt(folder: Path) -> list[dict[str, Any]]:
    """What a step learnt, without what depends on the clock."""
    rows = [row for row in Logs(folder).rows("metrics.jsonl") if row["phase"] == "train"]
    timed = ("time/", "throughput/", "cluster/", "buffer/")
    return [{key: value for key, value in row.items() if not key.startswith(timed)} for row in rows]


def last_weights(folder: Path) -> bytes:
    newest = sorted((folder / "checkpoints").glob("step_*"))[-1]
    return (newest / "policies/policy/model.safetensors").read_bytes()


def check_repeats(folder: Path, again: Path, *more: str, method: str = "grpo") -> None:
    repeat(again, folder / "async.jsonl", *more, method=method)
    assert batches(again) == batches(folder)
    assert learnt(again) == learnt(folder)
    assert last_weights(again) == last_weights(folder)


def test_ages_stay_within_the_bound_and_the_log_repeats_the_run_with_and_without_workers(tmp_path):
    train(tmp_path / "live", "cluster.workers=2", "off_policy.max_age=1")
    check_ages(tmp_path / "live", 1)
    check_repeats(tmp_path / "live", tmp_path / "alone")
    check_repeats(tmp_path / "live", tmp_path / "three", "cluster.workers=3")


def test_episodes_of_several_turns_are_as_old_as_the_bound_lets_them_be(tmp_path):
    train(tmp_path / "live", *AGENT, "cluster.workers=2", "off_policy.max_age=1", method="agent_grpo")
    check_ages(tmp_path / "live", 1)
    check_repeats(tmp_path / "live", tmp_path / "alone", *AGENT, method="agent_grpo")


def test_a_killed_worker_loses_no_unit(tmp_path):
    has_ended = threading.Event()
    killer = threading.Thread(target=worker_cases._kill, args=(2, has_ended))
    killer.start()
    try:
        train(tmp_path / "live", "cluster.workers=2", "cluster.restarts=9")
    finally:
        has_ended.set()
        killer.join()
    assert worker_cases.deaths(tmp_path / "live")
    check_ages(tmp_path / "live", 2)
    check_repeats(tmp_path / "live", tmp_path / "alone")


@pytest.mark.integration
def test_a_killed_run_goes_on_and_its_log_tells_of_one_run(tmp_path):
    live = tmp_path / "live"
    command = ("train", "grpo", *SMALL, "cluster.workers=2", "--out", live)
    killed_when(live, (live / "checkpoints" / "step_000008").exists, *command)
    whet("resume", live)
    check_ages(live, 2)
    check_repeats(live, tmp_path / "alone")
