"""The command line: help that teaches, and one clear sentence for whatever a user gets wrong."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from support.commands import ENVIRONMENT, metrics, whet
from whet.cli import app
from whet.distribution import version
from whet.trainer.checkpoint import damage


def complaint(*arguments: object) -> str:
    """The one sentence on stderr of a command that must fail, spaces evened out."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit), done.exception
    assert "Traceback" not in done.stderr, done.stderr
    text = " ".join(done.stderr.split())
    assert text.startswith("whet:"), text
    return text


def test_help_names_what_there_is():
    top = whet("--help").stdout
    assert all(name in top for name in ("train", "resume", "eval", "report", "config", "tiny"))
    shown = whet("train", "--help").stdout
    assert all(name in shown for name in ("critique_rl", "bapo", "ppo", "whet methods"))
    assert "Critique-RL" in whet("methods").stdout
    assert "--oracle-verifier" in whet("eval", "--help").stdout
    assert whet("--version").stdout == f"whet {version()}\n"


def test_no_help_loses_its_brackets_to_markup():
    """`plugins=[mine.py]` in a docstring is rich's markup, and would be shown as `plugins=`."""

    def helps(command, name=""):
        yield from ((name, text) for text in (command.help, *(getattr(each, "help", "") for each in command.params)))
        for inner, each in getattr(command, "commands", {}).items():
            yield from helps(each, f"{name} {inner}")

    texts = [(name, text) for name, text in helps(typer.main.get_command(app)) if text]
    assert len(texts) > 100
    tags = {(name, tag) for name, text in texts for tag in re.findall(r"(?<!\\)\[[a-z/#@][^\]]*\]", text)}
    assert {tag for _, tag in tags} <= {"[bold]", "[/bold]"}, tags


def test_config_shows_every_key_with_its_meaning_and_can_be_used_as_it_is(tmp_path, random_model):
    shown = whet("config", "critique_rl", "seed=7", f"critic.path={random_model}").stdout
    assert "# Of everything that is random in the run.\nseed: 7" in shown
    assert "One of: gated, additive" in shown
    file = tmp_path / "mine.yaml"
    file.write_text(shown)
    assert whet("config", "critique_rl", file).stdout == shown
    assert "all settings are in use" in dry_run("critique_rl", file, "data.num_train=32")


def dry_run(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["train", *map(str, arguments), "--dry-run"])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_dry_run_shows_the_plan_and_writes_nothing(tmp_path, small_run):
    out = tmp_path / "run"
    shown = dry_run("critique_rl", *small_run, "--out", out)
    assert "stage1 4, stage2 4" in shown
    assert "policy critic: 310,464 weights" in shown
    assert not out.exists()
    few = ("data.num_train=32", "data.num_validation=4", "data.num_test=4")
    shown = dry_run("bapo", "off_policy.kind=replay", *few)
    assert "off-policy regime: replay (staleness 4)" in shown
    assert "128 rows, 8 updates of 32 rows" in shown
    idle = dry_run("bapo", "learning.num_epochs=1", "learning.minibatch_rows=128", *few)
    assert "no bound, gate or weight of the loss acts" in idle


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["stage1.lerning_rate=1"], "stage1.learning.learning_rate"),
        (["stage3.num_steps=1"], "stage3"),
        (["stage2.combine=gate"], "gated"),
        (["stage1.group_size=1"], "stage1.group_size"),
        (["missing.yaml"], "missing.yaml"),
        (["stage1.num_steps=0", "stage1.scale=unit"], "stage1.scale"),
        (["stage2.discrimination=false", "stage2.weight=0.5"], "stage2.weight has no effect"),
        (["cached_per_task=3"], "cached_per_task"),
        (["data.path=x.jsonl"], "data.kind=file"),
        (["actor.path=/no/such/model"], "/no/such/model"),
        (["data.kind=file", "data.path=/no/such/file.jsonl", "prompts=english"], "/no/such/file.jsonl"),
        (["data.kind=file", "data.path=x", "prompts=chains"], "prompts"),
        (["actor.device=cuda:7"], "CUDA"),
        (["answers=cached", "answers_file=/no/such/answers.jsonl"], "/no/such/answers.jsonl"),
        (["critic.device=nonsense"], "nonsense"),
        (["seed=-1"], "seed"),
        (["roles.critique.temperature=0"], "roles.critique.temperature"),
        (["roles.critique.max_new_tokens=5000"], "max_new_tokens"),
        (["roles.answer.stop=['']"], "stop"),
        (["data.min_steps=1", "data.max_steps=1", "data.num_train=100000"], "num_train"),
    ],
)  # fmt: skip
def test_bad_settings(tmp_path, random_model, settings, says):
    base = [f"actor.path={random_model}", f"critic.path={random_model}"]
    base = [s for s in base if s.split("=")[0] not in {x.split("=")[0] for x in settings}]
    assert says in complaint("train", "critique_rl", *base, *settings, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())


def test_an_unknown_grader(tmp_path, random_model):
    """Known only once the plug-ins are there, so it is no matter of the config's types."""
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps({"question": f"{n} + 1?", "answer": str(n + 1)}) + "\n" for n in range(60)))
    settings = ["data.kind=file", f"data.path={file}", "prompts=english", "data.grader=math_verfy"]
    models = [f"actor.path={random_model}", f"critic.path={random_model}"]
    said = complaint("train", "critique_rl", *settings, *models, "--out", tmp_path / "run")
    assert "there is no grader 'math_verfy'; did you mean 'math_verify'?" in " ".join(said.split())
    assert not (tmp_path / "run").exists() or not any((tmp_path / "run").iterdir())


def test_a_folder_that_is_no_model(tmp_path):
    (tmp_path / "not-a-model").mkdir()
    said = complaint("train", "critique_rl", f"actor.path={tmp_path / 'not-a-model'}", "--out", tmp_path / "run")
    assert "not-a-model" in said


def test_a_set_without_answers(tmp_path, random_model):
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"question": "What is 1 + 1?"}) + "\n")
    settings = ["data.kind=file", f"data.path={file}", "prompts=english", f"actor.path={random_model}"]
    said = complaint("train", "critique_rl", *settings, f"critic.path={random_model}", "--out", tmp_path / "run")
    assert "answer" in said
    assert "questions.jsonl" in said


@pytest.mark.parametrize("command", [["resume"], ["report"], ["eval"]])
def test_a_folder_that_is_no_run(tmp_path, command):
    assert str(tmp_path / "nothing") in complaint(*command, tmp_path / "nothing").replace(" ", "")


def test_an_unknown_method(tmp_path):
    assert "critique_rl" in complaint("train", "critic_rl", "--out", tmp_path / "run")


def test_a_folder_with_something_else_in_it(tmp_path, small_run):
    (tmp_path / "thesis.tex").write_text("precious")
    assert "no run" in complaint("train", "critique_rl", *small_run, "--out", tmp_path)
    assert "no run" in complaint("train", "critique_rl", *small_run, "--overwrite", "--out", tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_overwrite_deletes_what_a_run_wrote_and_nothing_else_and_not_before_the_new_one_is_ready(
    tmp_path, small_run, critique_run
):
    project = tmp_path / "project"
    project.mkdir()
    (project / "config.yaml").write_text("a: 1\n")
    (project / "thesis.tex").write_text("precious")
    assert "no run" in complaint("train", "critique_rl", *small_run, "--out", project, "--overwrite")
    run = tmp_path / "run"
    shutil.copytree(critique_run, run, symlinks=True)
    (run / "notes.txt").write_text("precious too")
    complaint("train", "critique_rl", "critic.path=/no/model", "--out", run, "--overwrite")
    assert (run / "summary.json").exists()
    shorter = [s for s in small_run if not s.startswith("stage")]
    whet("train", "critique_rl", *shorter, "stage1.num_steps=0", "stage2.num_steps=0", "--out", run, "--overwrite")
    assert list(json.loads((run / "summary.json").read_text())["rows"]) == ["no_critic", "sft_critic"]
    assert (run / "notes.txt").read_text() == "precious too"
    assert (project / "thesis.tex").read_text() == "precious"


def test_settings_changed_by_hand_are_refused_on_resume(tmp_path, small_run):
    run = tmp_path / "run"
    short = [s for s in small_run if not s.startswith("stage")]
    whet("train", "critique_rl", *short, "stage1.num_steps=0", "stage2.num_steps=0", "--out", run)
    (run / "summary.json").unlink()
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("actor_steps: 3", "actor_steps: 2"))
    assert "other settings" in complaint("resume", run)


def test_a_machine_without_git(tmp_path, small_run, monkeypatch):
    short = [s for s in small_run if not s.startswith("stage")]
    monkeypatch.setitem(ENVIRONMENT, "PATH", str(tmp_path))
    whet("train", "critique_rl", *short, "stage1.num_steps=0", "stage2.num_steps=0", "--out", tmp_path / "run")


@pytest.mark.integration
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_while_saving_keeps_what_is_whole(tmp_path, small_run):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(disk)], check=False)
    if mount.returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        said = complaint("train", "critique_rl", *small_run, "--out", disk / "run")
        assert "whet resume" in said
        assert "No space left" in said
        kept = disk / "run" / "checkpoints"
        named = kept / (kept / "latest").read_text().strip()
        assert damage(named) is None
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        whet("resume", disk / "run")
        assert (disk / "run" / "summary.json").exists()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


@pytest.mark.integration
def test_a_grader_that_times_out_is_counted_and_the_run_goes_on(tmp_path, random_model):
    """References that blow up: every grading of a reply with an answer times out or fails, none is a reward."""
    questions = [f"Solve: {n % 10} + 5 - {n}" for n in range(200)]
    file, answers = tmp_path / "bombs.jsonl", tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps({"question": q, "answer": "9^{9^{9^{9}}}"}) + "\n" for q in questions))
    reply = "Step 1: 9 * 9 = 1\nThe answer is 1"  # in words that the tiny tokenizer has
    answers.write_text("".join(json.dumps({"question": q, "answer": reply}) + "\n" for q in questions))
    words = tmp_path / "words.yaml"
    words.write_text("extends: chains\n")  # the words of chains, for other data than the tiny world's
    settings = [
        "data.kind=file", f"data.path={file}", "data.timeout_s=0.5", f"prompts={words}", "num_threads=1",
        f"actor.path={random_model}", f"critic.path={random_model}", "answers=cached", f"answers_file={answers}",
        "warm_start.actor_steps=0", "warm_start.critic_steps=0", "stage2.num_steps=0",
        "stage1.num_steps=1", "stage1.prompts_per_step=2", "stage1.validate_every=1",
        "evaluation.num_validation=1", "evaluation.num_test=1",
    ]  # fmt: skip
    whet("train", "critique_rl", *settings, "--out", tmp_path / "run")
    [step] = [row for row in metrics(tmp_path / "run") if (row["phase"], row["step"]) == ("stage1", 1)]
    assert step["critique/grader_errors"] == 2  # two answers, which go to no critic
    assert (step["episodes/started"], step["episodes/retried"], step["episodes/lost"]) == (4, 2, 2)
    assert step["faults/grader_error"] == 4
    assert "reward/mean" not in step
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["grader_timeouts"] >= 2


def test_report_of_a_path_with_odd_characters(tmp_path):
    assert "[bold]" in complaint("report", Path(tmp_path) / "[bold]")


@pytest.mark.parametrize("command", ["env list", "config grpo"])
def test_a_reader_that_ends_early_ends_the_command_without_a_word(command):
    python = f"{sys.executable} -m whet.cli {command}"
    done = subprocess.run(["bash", "-c", f"{python} | true; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
