"""No traceback of ours for what users cause: a table of what went wrong once, through the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.commands import config_of
from whet import cli
from whet.cli.console import guarded
from whet.config import to_yaml
from whet.errors import WhetError

runner = CliRunner()
DIGITS = "1" * 5000
LONG = "x" * 5000


def said(*arguments: object, code: int = 2) -> str:
    """The one sentence on stderr of a command that must fail."""
    done = runner.invoke(cli.app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stderr.startswith("whet: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert len(done.stderr) < 700
    return done.stderr


@pytest.fixture
def grpo(random_model: Path, tmp_path: Path) -> list[object]:
    """A run of a second."""
    return [
        "train", "grpo", f"policy.path={random_model}", "num_threads=1", "data.num_train=40", "data.num_validation=4",
        "data.num_test=4", "evaluation.num_samples=0", "num_steps=2", "prompts_per_step=4", "group_size=4",
        "validate_every=1", "--out", tmp_path / "run",
    ]  # fmt: skip


# --- files ------------------------------------------------------------------------------------------------------------

FILES: list[tuple[str, bytes, str]] = [
    ("an integer of 5,000 digits", f'{{"question": "q", "answer": {DIGITS}}}'.encode(), "thousands of digits"),
    ("a deep list", b"[" * 100_000, "nested too deeply"),
    ("a deep object", b'{"a":' * 100_000, "nested too deeply"),
    ("no UTF-8", b"\xff\xfe{}", "not UTF-8"),
    ("nothing", b"", "is empty"),
    ("CSV", b"question,answer\n1,2\n", "line 1: not JSON"),
    ("half a character in a question", b'{"question": "q\\ud800", "answer": "1"}', "half a character"),
    ("half a character in an answer", b'{"question": "q", "answer": "\\uDBFF"}', "half a character"),
    ("NaN", b'{"question": "q", "answer": NaN}', "NaN is no number"),
    ("a number past the largest", b'{"question": "q", "answer": 1e999}', "past the largest float"),
    ("null", b"null", "expected an object"),
    ("a list of null", b"[null]", "item 1: expected an object"),
    ("a question that is a number", b'{"question": 5, "answer": 1}', "the question is empty or not text"),
    ("options that are no list", b'{"options": 5, "question": "q", "correct": "A"}', "options must be a list"),
]


@pytest.mark.parametrize(("content", "says"), [row[1:] for row in FILES], ids=[row[0] for row in FILES])
def test_files_of_questions(tmp_path, grpo, content, says):
    file = tmp_path / "data.jsonl"
    file.write_bytes(content)
    sentence = said(*without_sizes(grpo), "data.kind=file", "prompts=english", f"data.path={file}")
    assert says in sentence
    assert str(file) in sentence


def without_sizes(arguments: list[object]) -> list[object]:
    return [argument for argument in arguments if not str(argument).startswith("data.num")]


def pipe(tmp_path: Path) -> str:
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


PATHS: list[tuple[str, Callable[[Path], str], str]] = [
    ("a folder", str, "is a folder"),
    ("a pipe", pipe, "no plain file"),
    ("a device without end", lambda tmp_path: "/dev/zero", "no plain file"),
    ("NUL", lambda tmp_path: "a\0b", "can be no path"),
    ("a long name", lambda tmp_path: LONG, "File name too long"),
    ("below a file", lambda tmp_path: "/etc/passwd/data", "Not a directory"),
    ("nothing there", lambda tmp_path: "/no/such/file", "no such file"),
]


@pytest.mark.parametrize(("path", "says"), [row[1:] for row in PATHS], ids=[row[0] for row in PATHS])
@pytest.mark.parametrize("key", ["data.path", "answers_file", "warm_start.file"])
def test_paths_that_cannot_be_read(tmp_path, random_model, key, path, says):
    rows = "".join(json.dumps({"question": f"{n % 10} + {n // 10}?", "answer": str(n)}) + "\n" for n in range(60))
    data = tmp_path / "data.jsonl"
    data.write_text(rows.replace("?", ""))
    settings = [f"actor.path={random_model}", f"critic.path={random_model}", "prompts=english", "data.kind=file",
                f"data.path={data}", "answers=cached", "warm_start.critic_steps=0"]  # fmt: skip
    if key != "warm_start.file":
        settings.append("warm_start.actor_steps=0")
    sentence = said("train", "critique_rl", *settings, f"{key}={path(tmp_path)}", "--out", tmp_path / "run")
    assert says in sentence
    assert says == "can be no path" or key in sentence or "cannot read" in sentence


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"a: " * 100, "not valid YAML at line 1"),
        (b"[" * 20_000, "nested too deeply"),
        (f"seed: {DIGITS}".encode(), "thousands of digits"),
        (b"seed: \0", "not valid YAML"),
        (b"seed: &a [*a]", "refer to themselves"),
        (b"\n".join(f"k{n}: &k{n} [{f'*k{n - 1}, ' * 9 if n else '1'}]".encode() for n in range(12)), "themselves"),
        (b"seed: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        (b"[1]: 2", "not valid YAML"),
    ],
)
def test_files_of_settings(tmp_path, content, says):
    (tmp_path / "settings.yaml").write_bytes(content)
    assert says in said("config", "grpo", tmp_path / "settings.yaml")


@pytest.mark.parametrize("path", ["/tmp", "/dev/zero", LONG, "/no/such.yaml", "a\0b.yaml"])
def test_paths_of_settings(path):
    assert path[:50] in said("config", "grpo", path).replace("\\x00", "\0")


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (f"seed={DIGITS}", "seed"),
        ("seed=1e400", "finite"),
        ("seed=" + "[" * 5000, "seed"),
        ("seed=[&a [*a]]", "themselves"),
        ("num_threads=100000", "num_threads must be a whole number >= 1 and <= 1024"),
        ("sampling.max_new_tokens=1000000000000", "1024 positions"),
        (f"sampling.max_new_tokens={10**30}", "1024 positions"),
        (f"data.num_train={10**30}", "data.num_train"),
        (f"prompts_per_step={10**30}", "prompts_per_step"),
        ("learning.learning_rate=1e300", "learning.learning_rate"),
        (f"num_steps={10**400}", "num_steps must be a whole number >= 1 and <= 1000000000"),
        (f"learning.warmup_steps={10**400}", "learning.warmup_steps must be a whole number >= 0 and <= 1000000000"),
        ("kl.coef=1e300", "kl.coef must be a number >= 0 and <= 1000000.0"),
        ("policy.dtype=flaot32", "policy.dtype must be 'float32' or 'bfloat16'"),
        ("policy.device=cuda:7", "CUDA"),
        ("policy.device=mps", "mps"),
        ("policy.path=a\0b", "there is no folder"),
        ("policy.path=./nowhere", "there is no folder"),
        (f"policy.path={LONG}", "there is no folder"),
        ("policy.lora=5", "policy.lora"),
        ("policy={path: tiny, path: tiny}", "YAML"),
        ("=5", "cannot read the override"),
        ("--seed=3", "there is no option --seed; settings are written without dashes: seed=3"),
        ("--loss.kind=gspo", "settings are written without dashes: loss.kind=gspo"),
        ("loss.kind=dapo", "dapo is a method: whet train dapo"),
        ("loss={kind: bapo_paper}", "loss: there is no policy loss 'bapo_paper'; choose of: clip, cispo"),
    ],
)
def test_settings(grpo, setting, says):
    assert says in said(*grpo, setting)


def test_a_setting_given_as_an_option_with_its_value_after_it(grpo):
    assert "settings are written without dashes: num_steps=4" in said(*grpo, "--num-steps", "4")
    assert "without dashes: seed=VALUE" in said("config", "grpo", "--seed")


def test_weights_that_do_not_fit_into_memory(grpo):
    assert "out of memory" in said(*grpo, "policy.lora.rank=100000000000", code=1)


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["num_steps=1"],
        ["learning.num_epochs=3"],
        ["learning.num_epochs=3", "policy.dtype=bfloat16"],
        ["learning.num_epochs=3", "loss.bounds.kind=bapo"],
    ],
)
def test_a_learning_rate_past_all_measure(grpo, tmp_path, settings):
    sentence = said(*grpo, *settings, "learning.learning_rate=1e30", "advantage=reward", "signed=true", code=1)
    assert "lower the learning rate" in sentence
    assert not (tmp_path / "run" / "summary.json").exists()
    assert (tmp_path / "run" / "metrics.jsonl").exists()


# --- folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "folder", ["/etc/passwd", "/etc/passwd/run", "/proc/nowhere", "/dev/full", "/dev/full/run", LONG, "/tmp"]
)
def test_folders_that_cannot_be_written(grpo, folder):
    assert folder[:50] in said(*grpo, "--out", folder, code=1)


def test_a_folder_with_a_line_end_in_its_name(grpo, tmp_path):
    done = runner.invoke(cli.app, [*map(str, grpo), "num_steps=1", "--out", str(tmp_path / "a\nb")])
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "a\nb" / "report.html").exists()


@pytest.mark.parametrize("command", ["resume", "report", "eval"])
@pytest.mark.parametrize("folder", ["/no/such/run", "/etc/passwd", LONG, "/tmp"])
def test_folders_that_hold_no_run(command, folder):
    arguments = [command, folder]
    code = 1 if folder == LONG else 2
    assert folder[:50] in said(*arguments, code=code)


@pytest.fixture
def begun(tmp_path: Path, random_model: Path) -> Path:
    """A run folder without a checkpoint."""
    run = tmp_path / "run"
    (run / "traces").mkdir(parents=True)
    settings = [f"policy.path={random_model}", "data.num_train=40", "prompts_per_step=4"]
    (run / "config.yaml").write_text(to_yaml(config_of("grpo", *settings)))
    return run


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"null", b'{"rows": 5, "seconds": 1}', b"[" * 100_000])
def test_a_damaged_summary(begun, content):
    (begun / "summary.json").write_bytes(content)
    assert "summary.json is damaged" in said("resume", begun, code=1)


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"[", b"5", b"seed: 1\nnope: 2\n", b"method: [policy_gradient]\n", b"recipe: [solve]\n"],
)
def test_a_damaged_config(begun, content):
    (begun / "config.yaml").write_bytes(content)
    for command in ("resume", "eval"):
        said(command, begun)


def test_half_a_run_has_nothing_to_measure(begun):
    assert "no checkpoint yet" in said("eval", begun, code=1)


@pytest.mark.parametrize(("target", "critic"), [("grpo", "zzz"), ("critique_rl", "zzz"), ("grpo", "[bold]")])
def test_unknown_critics(random_model, target, critic):
    names = ("policy",) if target == "grpo" else ("actor", "critic")
    assert critic in said("eval", target, "--critic", critic, *(f"{name}.path={random_model}" for name in names))


@pytest.mark.parametrize("folder", ["/etc/passwd", "/etc/passwd/model", "/proc/model"])
def test_the_tiny_models_folder_is_made_before_the_work(folder):
    assert folder in said("tiny", "build", "--steps", "1", "--out", folder, code=1)


ODD = {
    "a byte that is no text": "\udcff",
    "nothing": "",
    "NUL": "a\0b",
    "a long name": "x" * 300,
    "a file": "/etc/passwd",
}
COMMANDS = [
    ["resume"], ["report"], ["eval"], ["chat"], ["config"], ["config", "grpo"], ["list"], ["list", "--plugins"],
    ["env", "check"], ["env", "show"], ["new", "env"], ["get"],
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_odd_arguments(tmp_path, monkeypatch, command, odd):
    monkeypatch.chdir(tmp_path)
    done = runner.invoke(cli.app, [*command, odd])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr, done.stderr


# --- our own mistakes -------------------------------------------------------------------------------------------------


def test_a_mistake_of_ours_keeps_its_traceback_and_says_what_is_kept(tmp_path, capsys):
    def work() -> None:
        raise KeyError("ours")

    with pytest.raises(SystemExit) as ended:
        guarded(work, tmp_path)
    assert ended.value.code == 70
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "KeyError: 'ours'" in shown
    assert f"every whole checkpoint in {tmp_path} is kept" in shown.replace("\n", "")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--level-samples", 3], "--level-samples is of strategies: say which, such as --strategy majority,parallel"),
        (["--level-samples", 8], "--level-samples is of strategies"),  # the default, given
        (["--text-votes"], "--text-votes is of strategies"),
        (["--budget", "10", "--text-votes"], "--budget and --text-votes are of strategies"),
        (["--samples", 2, "--level-samples", 3], "--level-samples is of strategies"),
        (["--temperature", 0.5], "--temperature is of samples: ask for some, such as --samples 8, or leave it out"),
        (["--temperature", "inf", "--samples", 2], "--temperature is infinite: give a number"),
        (["--model", "x"], "--model is of an endpoint: give its URL as --policy, or leave --model out"),
        (["--strategy", ""], "--strategy is empty: give it a value, or leave it out"),
        (["--benchmark", ""], "--benchmark is empty"),
        (["--strategy", "majority", "--budget", ""], "--budget is empty"),
    ],
)
def test_an_option_that_would_change_nothing(options, says):
    assert says in said("eval", "grpo", *options)


def test_a_temperature_of_a_greedy_agent_would_change_nothing():
    sentence = said("eval", "--policy", "tiny:textcraft", "--env", "textcraft", "--temperature", 0.5)
    assert "--temperature is of samples" in sentence


def test_an_error_whose_text_breaks(capsys):
    class Broken(WhetError):
        def __str__(self) -> str:
            raise KeyError("mine")

    def work() -> None:
        raise Broken

    with pytest.raises(SystemExit) as ended:
        guarded(work, None)
    assert ended.value.code == 1
    assert capsys.readouterr().err == "whet: (its text cannot be read)\n"


def test_a_reader_that_stops_reading(monkeypatch):
    def work() -> None:
        raise BrokenPipeError(32, "Broken pipe")

    read, write = os.pipe()
    with os.fdopen(write, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with pytest.raises(SystemExit) as ended:
            guarded(work, None)
    os.close(read)
    assert ended.value.code == 1


@pytest.mark.parametrize("shell", ["exec 1>&-", "exec 2>&-", "export PYTHONIOENCODING=ascii"])
def test_streams_that_are_closed_or_know_no_arrows(shell):
    command = f"{shell}; {sys.executable} -m whet.cli methods"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
