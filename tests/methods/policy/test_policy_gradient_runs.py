"""Whole runs of one policy through the real command: off-policy queues that survive a kill, and real data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.commands import killed_when, metrics, same_bits, whet
from whet.trainer.buffers import Store

SMALL = (
    "num_threads=1", "seed=3", "data.num_train=64", "data.num_validation=8", "data.num_test=8", "num_steps=6",
    "prompts_per_step=4", "group_size=4", "validate_every=3", "evaluation.num_samples=2", "checkpoint_every=1",
    "learning.minibatch_rows=8", "probe_every=3",
)  # fmt: skip
REGIMES = {
    "replay": ["bapo", "off_policy.kind=replay", "off_policy.staleness=2"],
    "partial": ["grpo", "off_policy.kind=partial", "off_policy.budget=12"],
    "ppo": ["ppo", "value.warmup_updates=1", "kl.coef=0.01", "kl.where=reward"],
}


def train_until_killed(run, checkpoint, *arguments):
    """Train, and kill it as soon as the checkpoint is there."""
    killed_when(run, (run / "checkpoints" / checkpoint).exists, "train", *arguments, "--out", run)


@pytest.mark.integration
@pytest.mark.parametrize("regime", REGIMES)
def test_a_killed_run_resumes_to_the_same_bits(regime, tmp_path):
    preset, *settings = REGIMES[regime]
    whet("train", preset, *SMALL, *settings, "--out", tmp_path / "unbroken")
    run = tmp_path / "killed"
    train_until_killed(run, "step_000004", preset, *SMALL, *settings)
    assert not (run / "summary.json").exists()
    store = run / "checkpoints" / "step_000004" / "store"
    expected = {"replay": ["rows/replay.safetensors"], "partial": ["episodes/unfinished.jsonl"]}
    files = [str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()]
    assert files == expected.get(regime, [])
    kept = Store()
    kept.load(store)
    if regime == "replay":  # it is of training step 2; steps 3 and 4 will train on these
        assert list(kept.rows("replay").batches) == ["1", "2"]
        assert all(row.policy == "policy" and row.num_trained for row in kept.rows("replay"))
    if regime == "partial":
        assert len(kept.episodes("unfinished")) > 0
        assert {episode.outcome for episode in kept.episodes("unfinished")} == {"unfinished"}
    whet("resume", run)
    same_bits(tmp_path / "unbroken", run)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run of one step. Tests add to its `eval` and change nothing else."""
    folder = tmp_path_factory.mktemp("runs") / "grpo"
    whet("train", "grpo", *SMALL, "num_steps=1", "--out", folder)
    return folder


def test_eval_measures_the_policies_of_a_run(run):
    done = whet("eval", run, "--samples", 3, "--critic", "last", "--split", "validation")
    assert "Last" in done.stdout
    [record] = (run / "eval").glob("last-validation-n8-k3-t1.json")  # the run's own temperature
    found = json.loads(record.read_text())["metrics"]
    assert (found["n"], found["k"]) == (8, 3)
    assert found["pass"] >= found["average"]
    whet("eval", run, "data.max_steps=4", "--critic", "last", "--samples", 3, "--split", "validation")
    others = [path for path in (run / "eval").glob("last-validation-n8-k3-t1-*.json") if path != record]
    assert [json.loads(path.read_text())["settings"]["changed"] for path in others] == [["data.max_steps=4"]]
    assert json.loads(record.read_text())["metrics"] == found
    refused = whet("eval", run, "--rounds", 2, check=False)
    assert "are of critics" in " ".join(refused.stderr.split())
    refused = whet("eval", run, "--critic", "oracle", check=False)
    assert refused.returncode == 2
    assert "choose of: best, last" in " ".join(refused.stderr.split())


def test_another_method_in_the_folder_is_refused(run):
    refused = whet("train", "critique_rl", "--out", run, check=False)
    assert refused.returncode == 1
    assert "a run of another method, policy_gradient" in " ".join(refused.stderr.split())
    other = whet("train", "bapo", *SMALL, "num_steps=1", "--out", run, check=False)
    assert "loss.bounds" in " ".join(other.stderr.split())


def test_questions_and_answers_from_a_file(gsm8k: Path, small_model: Path, tmp_path):
    run = tmp_path / "run"
    settings = [
        "data.kind=file", f"data.path={gsm8k}", "prompts=english", f"policy.path={small_model}", "policy.lora.rank=4",
        "num_threads=1", "num_steps=2", "prompts_per_step=3", "group_size=3", "sampling.max_new_tokens=24",
        "evaluation.num_validation=4", "evaluation.num_test=4", "evaluation.num_samples=2", "advantage=reinforce_pp",
        "signed=true",
    ]  # fmt: skip
    whet("train", "bapo", *settings, "--out", run)
    rows = json.loads((run / "summary.json").read_text())["rows"]
    assert all(row["n"] == 4 for row in rows.values())
    assert "200 GSM8K rows" in (run / "events.jsonl").read_text()
    assert sum(row["phase"] == "train" for row in metrics(run)) == 3
    assert json.loads((run / "report_spec.json").read_text())["is_compared"] is False  # reinforce_pp looks at the batch


def test_tasks_of_reasoning_gym(small_model: Path, tmp_path):
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed; it comes with the extra 'gym'")
    run = tmp_path / "run"
    settings = [
        "data.kind=reasoning_gym", "data.dataset=chain_sum", "data.num_train=12", "data.num_validation=4",
        "data.num_test=4", "prompts=english", f"policy.path={small_model}", "num_threads=1", "num_steps=2",
        "prompts_per_step=3", "group_size=3", "sampling.max_new_tokens=24", "evaluation.num_samples=0",
    ]  # fmt: skip
    whet("train", "grpo", *settings, "--out", run)
    rows = json.loads((run / "summary.json").read_text())["rows"]
    assert rows["last"]["acc"] is not None
    assert all(row["reward/mean"] >= 0 for row in metrics(run) if "reward/mean" in row)


@pytest.mark.integration
def test_a_bf16_run_goes_on_after_a_kill(tmp_path):
    """Its engine and trainer differ by rounding; that must not look like a fault once the weights have moved."""
    settings = ["policy.dtype=bfloat16", "policy.lora.rank=4", "learning.learning_rate=1e-3", "num_steps=7"]
    small = [setting for setting in SMALL if not setting.startswith("num_steps")]
    run = tmp_path / "run"
    train_until_killed(run, "step_000004", "grpo", *small, *settings)
    whet("resume", run)
    assert (run / "summary.json").exists()


def test_a_value_model_is_looked_at_before_it_is_used(tmp_path):
    refused = whet("train", "ppo", *SMALL, "value.warmup_updates=1", "value.path=tiny", "--out", tmp_path, check=False)
    assert refused.returncode == 2
    assert "holds no value model" in " ".join(refused.stderr.split())


def test_a_run_that_never_updates_says_so(tmp_path):
    run = tmp_path / "run"
    whet("train", "grpo", *SMALL, "off_policy.kind=partial", "off_policy.budget=1", "--out", run)
    assert "no_update" in (run / "events.jsonl").read_text()
