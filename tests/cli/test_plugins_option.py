"""`--plugins` and `plugins=` mean the same, for every command that can use a user's own files."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from support.commands import whet
from whet.cli import app
from whet.cli.own_files import without_plugins

PARTS = ("env", "method", "reward", "prompts", "loss", "callback")
NO_USE = {"compare", "get", "methods", *(f"new {part}" for part in PARTS), "show", "track", "tiny build", "tiny random"}
"""Commands that name nothing which a plug-in could register."""


def commands(group=None, name: str = "") -> dict[str, object]:
    """Every command by its words."""
    group = group or get_command(app)
    found = {}
    for word, command in group.commands.items():
        full = f"{name} {word}".strip()
        found |= commands(command, full) if hasattr(command, "commands") else {full: command}
    return found


def test_every_command_with_a_use_for_them_has_the_option():
    with_option = {
        name for name, command in commands().items() if any("--plugins" in each.opts for each in command.params)
    }
    assert commands().keys() - with_option == NO_USE
    assert {"train", "eval", "resume", "serve", "chat", "export", "report", "config", "list"} <= with_option


@pytest.mark.parametrize(
    ("args", "rest", "files"),
    [
        (["x", "--plugins", "a.py"], ["x"], ["a.py"]),
        (["--plugins=a.py,b.py", "y"], ["y"], ["a.py", "b.py"]),
        (["--plugins", "a.py", "--plugins", "b.py,a.py"], [], ["a.py", "b.py"]),
        (["plugins=[a.py, b.py]"], [], ["a.py", "b.py"]),
        (["plugins=[a.py]", "plugins=[b.py]", "--plugins", "c.py"], [], ["b.py", "c.py"]),
        (["plugins=[]"], ["plugins=[]"], []),
        (["seed=1"], ["seed=1"], []),
        (["plugins=3"], ["plugins=3"], []),  # no list: whoever reads settings says so
        (["plugins=["], ["plugins=["], []),
        (["--", "--plugins", "a.py"], ["--", "--plugins", "a.py"], []),
        (["--plugins"], ["--plugins"], []),
    ],
)
def test_arguments(args, rest, files):
    assert without_plugins(args) == (rest, files)


def test_a_file_with_a_comma_in_its_name_is_one(tmp_path):
    file = tmp_path / "a,b.py"
    file.write_text("")
    assert without_plugins(["--plugins", str(file)]) == ([], [str(file)])


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, Path]:
    """Two plug-ins: a reward, and the environment that `whet new env` writes."""
    tmp_path = tmp_path_factory.mktemp("own")
    reward = tmp_path / "reward.py"
    reward.write_text("import whet\n@whet.reward('own_reward')\ndef own_reward(episode, index):\n    return 0.0\n")
    whet("new", "env", "own_world", "--dir", tmp_path)
    return reward, tmp_path / "own_world.py"


def forms(*files: Path) -> list[list[str]]:
    """The ways to name them."""
    named = [str(file) for file in files]
    return [["--plugins", ",".join(named)], [part for name in named for part in ("--plugins", name)],
            [f"plugins=[{', '.join(named)}]"]]  # fmt: skip


@pytest.mark.parametrize("form", range(3))
def test_commands_with_settings(files, random_model, tmp_path, form):
    own = forms(*files)[form]
    shown = CliRunner().invoke(app, ["config", "grpo", *own, "rewards={own_reward: 1}"])
    assert shown.exit_code == 0, shown.output
    assert str(files[0]) in shown.stdout
    small = [f"policy.path={random_model}", "data.num_train=16", "data.num_test=2", "data.num_validation=2"]
    done = CliRunner().invoke(app, ["train", "grpo", *own, "rewards={own_reward: 1}", *small, "--dry-run"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["eval", "grpo", *own, *small, "num_threads=1", "sampling.max_new_tokens=4"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["env", "record", "own_world", *own, "--policy", "expert", "--limit", "1",
                                    "--out", str(tmp_path / "episodes.jsonl"), "num_threads=1"])  # fmt: skip
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("form", range(3))
def test_commands_without_settings(files, form):
    own = forms(*files)[form]
    shown = CliRunner().invoke(app, ["list", "rewards", "environments", *own])
    assert shown.exit_code == 0, shown.output
    assert "own_reward" in shown.stdout
    assert "own_world" in shown.stdout
    assert "own_world" in CliRunner().invoke(app, ["env", "list", *own]).stdout
    episodes = CliRunner().invoke(app, ["env", "play", "own_world", *own, "--expert"])
    assert episodes.exit_code == 0, episodes.output


def test_of_a_run(files, random_model, tmp_path):
    reward, run = files[0], tmp_path / "run"
    small = ["num_threads=1", "num_steps=1", "prompts_per_step=2", "group_size=2", "data.num_train=8",
             "data.num_test=2", "data.num_validation=2", "sampling.max_new_tokens=4", "evaluation.num_samples=0",
             f"policy.path={random_model}"]  # fmt: skip
    whet("train", "grpo", "--plugins", reward, "rewards={own_reward: 1}", *small, "--out", run)
    for number, form in enumerate(forms(reward)):
        assert "is finished" in whet("resume", run, *form).stdout
        assert "open" in whet("report", run, *form).stdout
        assert "licence" in whet("export", run, tmp_path / f"out{number}", *form).stdout
        assert "1 + 1" in whet_chat(run, form)
    refused = whet("resume", run, "--plugins", files[1], check=False)
    assert refused.returncode == 2
    assert "a run that goes on can only be given more steps" in " ".join(refused.stderr.split())


def whet_chat(run: Path, form: list[str]) -> str:
    done = CliRunner().invoke(app, ["chat", str(run), *form], input="1 + 1\n\n/quit\n")
    assert done.exit_code == 0, done.output
    return done.output


def test_a_file_that_is_not_there_is_said_by_each(tmp_path):
    for command in (["train", "grpo"], ["list"], ["env", "list"], ["serve", "x"], ["chat", "x"], ["report", "x"]):
        done = CliRunner().invoke(app, [*command, "--plugins", str(tmp_path / "none.py")])
        assert done.exit_code == 2, command
        assert "none.py is not there; give the path of a Python file" in " ".join(done.stderr.split()), command
