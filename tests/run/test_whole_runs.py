"""Whole runs through the real command: same seed same bits, kills and resumes, checkpoints that load."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from support.commands import ENVIRONMENT, has_logged, killed_when, metrics, same_bits, whet


@pytest.fixture(scope="module")
def unbroken(critique_run: Path) -> Path:
    """For the module, so that its tests go to one process."""
    return critique_run


def test_a_run_leaves_what_it_promises(unbroken):
    names = (
        "config.yaml",
        "env.json",
        "report_spec.json",
        "metrics.jsonl",
        "events.jsonl",
        "summary.json",
        "report.html",
    )
    for name in names:
        assert (unbroken / name).stat().st_size > 0, name
    summary = json.loads((unbroken / "summary.json").read_text())
    assert list(summary["rows"]) == ["no_critic", "sft_critic", "stage1", "stage2"]
    keys = {"acc", "acc_refine", "delta", "c2i", "i2c", "acc_dis", "acc_dis_correct", "acc_dis_incorrect", "unparsed"}
    for row in summary["rows"].values():
        assert keys <= row.keys()
        assert row["n"] == 12
    assert summary["seed"] == 3
    phases = [row["phase"] for row in metrics(unbroken)]
    assert sorted(set(phases), key=phases.index) == ["sft_actor", "sft_critic", "stage1", "stage2", "test"]


@pytest.mark.integration
def test_two_runs_with_one_seed_are_the_same_bits(unbroken, small_run, tmp_path):
    whet("train", "critique_rl", *small_run, "seed=3", "--out", tmp_path / "again")
    same_bits(unbroken, tmp_path / "again")


@pytest.mark.integration
def test_another_seed_is_another_run(unbroken, small_run, tmp_path):
    whet("train", "critique_rl", *small_run, "seed=4", "--out", tmp_path / "other")
    assert metrics(unbroken) != metrics(tmp_path / "other")


@pytest.mark.integration
@pytest.mark.parametrize("phase", ["sft_critic", "stage1", "stage2"])
def test_a_killed_run_resumes_to_the_same_bits(unbroken, small_run, tmp_path, phase):
    run = tmp_path / "killed"
    killed_when(run, lambda: has_logged(run, phase, 2), "train", "critique_rl", *small_run, "seed=3", "--out", run)
    log = run / "metrics.jsonl"
    with log.open("a") as file:
        file.write('{"phase": "torn')  # what a kill in the middle of a write leaves
    whet("resume", run)
    same_bits(unbroken, run)
    assert any("resumed" in line for line in (run / "events.jsonl").read_text().splitlines())


@pytest.mark.integration
def test_ctrl_c_saves_and_stops(unbroken, small_run, tmp_path):
    run = tmp_path / "stopped"
    settings = [*small_run[:-1], "checkpoint_every=0", "seed=3"]
    command = [sys.executable, "-m", "whet.cli", "train", "critique_rl", *settings, "--out", str(run)]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (run / "traces" / "stage1.jsonl").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "whet resume" in complaint
    assert "Traceback" not in complaint
    whet("resume", run)
    same_bits(unbroken, run)


def test_every_policy_loads_with_from_pretrained(unbroken):
    latest = unbroken / "checkpoints" / (unbroken / "checkpoints" / "latest").read_text().strip()
    folders = sorted(folder.name for folder in (latest / "policies").iterdir())
    assert folders == ["actor", "critic", "critic_sft", "critic_stage1", "critic_stage2"]
    for folder in folders:
        model = AutoModelForCausalLM.from_pretrained(latest / "policies" / folder)
        tokenizer = AutoTokenizer.from_pretrained(latest / "policies" / folder)
        ids = tokenizer.apply_chat_template([{"role": "user", "content": "Solve: 7 + 5"}], return_tensors="pt")
        assert model(**ids).logits.isfinite().all()


@pytest.mark.integration
def test_kills_and_damages(tmp_path):
    """The study of `benchmarks/kill_resume.py`, in small: what takes processes of its own."""
    script = Path(__file__).parents[2] / "benchmarks" / "kill_resume.py"
    damages = ["link_is_the_run", "another_process", "read_only", "disk_full_at_the_weights", "disk_full_at_once"]
    command = [sys.executable, script, "--kinds", "replay", "eval", "--kills", "4", "--damages", *damages]
    command += ["--root", tmp_path, "--name", tmp_path / "found"]
    subprocess.run([*map(str, command)], env=ENVIRONMENT, check=True, timeout=300, capture_output=True)
    found = json.loads((tmp_path / "found.json").read_text())
    assert [(row["kills"], row["others"]) for row in found["kills"].values()] == [(2, []), (2, [])]
    assert [row["outcome"] for row in found["damages"].values()] == ["same bits", *["refused"] * 4]


def test_a_finished_run_is_shown_and_another_config_refused_with_the_difference(unbroken, small_run):
    again = whet("train", "critique_rl", *small_run, "seed=3", "--out", unbroken)
    assert "is finished" in again.stdout
    other = whet("train", "critique_rl", *small_run, "seed=3", "stage2.kl_coef=0.5", "--out", unbroken, check=False)
    assert other.returncode == 1
    assert "stage2.kl_coef: 0.01 -> 0.5" in " ".join(other.stderr.split())


def test_eval_measures_kept_critics_samples_rounds_and_oracles(unbroken):
    done = whet("eval", unbroken, "--critic", "critic_stage2", "--critic", "oracle", "--samples", 2, "--rounds", 2)
    assert "stage2, sampled refinements: majority" in done.stdout
    [record] = (unbroken / "eval").glob("stage2-*.json")
    found = json.loads(record.read_text())["metrics"]
    assert found["n"] == 24
    assert {"majority_answer", "pass_refine", "average_refine"} <= found.keys()
    kept = whet("eval", unbroken, "--critic", "oracle", "--oracle-verifier")
    assert "Oracle" in kept.stdout


@pytest.mark.integration
@pytest.mark.parametrize(
    "settings",
    [
        ["stage1.num_steps=0", "stage2.discrimination=false", "stage2.indirect=delta"],
        ["stage2.num_steps=0", "stage1.scale=unit", "stage1.sequence_level=true"],
        ["stage2.combine=additive", "stage2.kl_coef=0", "answers=cached", "cached_per_task=2"],
        ["warm_start.actor_steps=0", "warm_start.critic_steps=0", "evaluation.oracle_verifier=true"],
    ],
)
def test_baselines_and_variants_are_settings(small_run, tmp_path, settings):
    given = {setting.split("=")[0] for setting in settings}
    dropped = {name for name in ("warm_start", "stage1", "stage2") if f"{name}.num_steps=0" in settings}
    if "warm_start.actor_steps" in given:
        dropped.add("warm_start")
    base = [s for s in small_run if s.split("=")[0] not in given and s.split(".")[0] not in dropped]
    whet("train", "critique_rl", *base, *settings, "--out", tmp_path / "run")
    rows = json.loads((tmp_path / "run" / "summary.json").read_text())["rows"]
    assert ("stage1" in rows) == ("stage1.num_steps=0" not in settings)
    assert ("stage2" in rows) == ("stage2.num_steps=0" not in settings)
