"""A run that did no step holds no folder: the next one with the same --out begins as if it had not been."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import whet
from support.commands import Quiet, config_of, killed_when, metrics
from support.commands import whet as command
from whet.errors import RunError
from whet.rewards import RewardError
from whet.run import launch, start
from whet.run_folder.files import write_atomic

SMALL = [
    "num_threads=1", "num_steps=2", "prompts_per_step=2", "group_size=2", "data.num_train=8", "data.num_validation=2",
    "data.num_test=2", "sampling.max_new_tokens=4", "evaluation.num_samples=0",
]  # fmt: skip
PLUGIN = "import whet\n@whet.reward('breaks')\ndef breaks(episode, index):\n    {body}\n"


def settings(random_model: Path) -> list[str]:
    return [*SMALL, f"policy.path={random_model}"]


def test_a_dry_run_writes_nothing(tmp_path, random_model, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "runs" / "dry"
    done = command("train", "grpo", *settings(random_model), "--out", out, "--dry-run")
    assert "nothing was written" in done.stdout
    command("data", "critiques", "num_questions=4", "--out", out, "--dry-run")
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_in_its_first_training_step_is_in_nobodys_way(tmp_path, random_model):
    """What it measured before is kept: the same run goes on from there, another begins in its place."""
    plugin, out = tmp_path / "mine.py", tmp_path / "run"
    options = [*settings(random_model), f"plugins=[{plugin}]", "rewards={breaks: 1}", "--out", out]

    def failed() -> str:
        plugin.write_text(PLUGIN.format(body="return {}['key']"))
        done = command("train", "grpo", *options, check=False)
        assert done.returncode == 1
        assert "raised KeyError: 'key'" in " ".join(done.stderr.split())
        return " ".join(done.stdout.split())

    failed()
    assert "began in its place" not in failed()  # the same, from its checkpoint
    assert "resumed" in (out / "events.jsonl").read_text()
    plugin.write_text(PLUGIN.format(body="return 0.5"))
    assert "did no step of work: a new one begins in its place" in command("train", "grpo", *options).stdout
    assert (out / "summary.json").exists()

    done = command("train", "grpo", *options, "--overwrite")
    failed_again = command("train", "grpo", *options, "seed=3", check=False)
    assert done.returncode == 0
    assert "holds a run with another config" in failed_again.stderr


def test_another_setting_begins_in_its_place_too(tmp_path, random_model):
    plugin, out = tmp_path / "mine.py", tmp_path / "run"
    plugin.write_text(PLUGIN.format(body="return {}['key']"))
    options = [*settings(random_model), "--out", out]
    command("train", "grpo", *options, f"plugins=[{plugin}]", "rewards={breaks: 1}", check=False)
    done = command("train", "grpo", *options, "seed=3")
    assert "did no step of work: a new one begins in its place" in " ".join(done.stdout.split())
    assert "seed: 3" in (out / "config.yaml").read_text()


@pytest.mark.parametrize("is_there", [False, True])
def test_a_run_that_is_refused_leaves_no_folder(tmp_path, random_model, is_there):
    """Its data are other than its prompts are for."""
    out, data = tmp_path / "run", tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"question": f"{n} + 1", "answer": "1"}) + "\n" for n in range(12)))
    if is_there:
        out.mkdir()
    own = [each for each in settings(random_model) if not each.startswith("data.")]
    done = command("train", "grpo", *own, "data.kind=file", f"data.path={data}", "--out", out, check=False)
    assert done.returncode == 2
    assert "prompts = 'chains' does not fit data.kind = 'file'" in done.stderr
    assert "`extends: chains`" in done.stderr
    assert (list(out.iterdir()) == []) if is_there else not out.exists()


def test_a_run_that_is_refused_while_it_begins_leaves_none_either(tmp_path, random_model, monkeypatch):
    def disagree(*_args):
        raise RunError("the engine disagrees")

    monkeypatch.setattr(start, "check_agreement", disagree)
    out = tmp_path / "deep" / "run"
    small = {key: json.loads(value) for key, _, value in (each.partition("=") for each in SMALL)}
    for overwrite in (False, True):
        with pytest.raises(RunError, match="the engine disagrees"):
            whet.train(
                "grpo", out=out, progress=False, overwrite=overwrite, policy={"path": str(random_model)}, **small
            )
        assert not out.exists()


def test_a_run_that_another_process_finished_meanwhile_is_not_destroyed(tmp_path, random_model, monkeypatch):
    """It looked at the folder before preparing, which takes long."""
    out, prepare = tmp_path / "run", launch.prepare_with_provenance
    config = config_of("grpo", *settings(random_model))

    def prepare_slowly(*arguments):
        session = prepare(*arguments)
        with monkeypatch.context() as others:
            others.setattr(launch, "prepare_with_provenance", prepare)
            launch.start(config, out, Quiet()).go()
        return session

    monkeypatch.setattr(launch, "prepare_with_provenance", prepare_slowly)
    with pytest.raises(RunError, match=r"another process began a run in .* meanwhile: choose another --out"):
        launch.start(config, out, Quiet())
    monkeypatch.undo()
    assert isinstance(launch.start(config, out, Quiet()), dict)  # it is whole, and nobody has it locked


def test_what_another_process_stored_meanwhile_is_not_mixed_with_a_run(tmp_path, random_model, monkeypatch):
    out, prepare = tmp_path / "run", launch.prepare_with_provenance

    def prepare_slowly(*arguments):
        out.mkdir()
        (out / "notes.txt").write_text("mine")
        return prepare(*arguments)

    monkeypatch.setattr(launch, "prepare_with_provenance", prepare_slowly)
    with pytest.raises(RunError, match="holds something that is no run; choose another --out"):
        launch.start(config_of("grpo", *settings(random_model)), out, Quiet())
    assert (out / "notes.txt").exists()
    assert not (out / "config.yaml").exists()


def test_a_run_that_fails_later_stays_and_can_go_on(tmp_path, random_model):
    plugin, out, switch = tmp_path / "mine.py", tmp_path / "run", tmp_path / "switch"
    body = f"import os\n    if os.path.exists({str(switch)!r}): raise ValueError('off')\n    return 1.0"
    plugin.write_text(PLUGIN.format(body=body))
    small = {key: json.loads(value) for key, _, value in (each.partition("=") for each in SMALL)}

    class SwitchesOff(Quiet):
        phase = ""

        def begin(self, phase: str, done: int, total: int) -> None:
            self.phase = phase

        def step(self, step: int, shown: object) -> None:
            if self.phase == "train":
                switch.write_text("")

    with pytest.raises(RewardError, match="off"):
        whet.train("grpo", out=out, progress=SwitchesOff(), policy={"path": str(random_model)}, plugins=[str(plugin)],
                   rewards={"breaks": 1}, **small)  # fmt: skip
    assert [row["step"] for row in metrics(out) if row["phase"] == "train"] == [0, 1]
    done = command("train", "grpo", *settings(random_model), "--out", out, check=False)
    assert done.returncode == 1
    assert "holds a run with another config" in done.stderr
    switch.unlink()
    command("resume", out)
    assert (out / "summary.json").exists()


@pytest.mark.integration
def test_a_run_that_was_killed_before_a_step_is_in_nobodys_way(tmp_path, random_model):
    plugin, out = tmp_path / "mine.py", tmp_path / "run"
    plugin.write_text(PLUGIN.format(body="import time; time.sleep(100)"))
    options = [*settings(random_model), f"plugins=[{plugin}]", "rewards={breaks: 1}"]

    def began() -> bool:
        return any(row["phase"] == "train" for row in metrics(out)) if (out / "metrics.jsonl").exists() else False

    killed_when(out, began, "train", "grpo", *options, "--out", out)
    assert (out / "env.json").exists()
    plugin.unlink()
    done = command("train", "grpo", *settings(random_model), "--out", out)
    assert "did no step of work: a new one begins in its place" in " ".join(done.stdout.split())
    assert (out / "summary.json").exists()
    assert "plugins: []" in (out / "config.yaml").read_text()


def test_a_run_with_a_step_is_never_taken_for_one_without(tmp_path, random_model):
    out = tmp_path / "run"
    command("train", "grpo", *settings(random_model), "--out", out)
    (out / "summary.json").unlink()
    for lost in (None, "metrics.jsonl"):
        if lost:
            (out / lost).unlink()
        done = command("train", "grpo", *settings(random_model), "seed=5", "--out", out, check=False)
        assert "holds a run with another config" in done.stderr
    for state in (out / "checkpoints").glob("step_*/state.json"):
        write_atomic(state, "{}")
    done = command("train", "grpo", *settings(random_model), "seed=5", "--out", out, check=False)
    assert "holds a run with another config" in done.stderr
