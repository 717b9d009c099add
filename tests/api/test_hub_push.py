"""`whet export --push-to-hub`: the real client against a hub on loopback, byte for byte and fault by fault."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import yaml
from typer.testing import CliRunner

import whet
from support.push_hub import LARGE, TOKEN, Fault, PushHub, pushing
from whet.api.hub_push import plan_push, push_to_hub
from whet.cli import app
from whet.config import ConfigError
from whet.errors import RunError

NAME = "me/critic"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return whet.train(
        "critique_dpo", out=tmp_path_factory.mktemp("runs") / "critics", progress=False, num_threads=1, num_steps=1,
        prompts_per_step=4, group_size=2, warm_start={"actor_steps": 1, "critic_steps": 1},
        data={"num_train": 32, "num_validation": 4, "num_test": 4},
    ).folder  # fmt: skip


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory) -> Path:
    return whet.export(run, tmp_path_factory.mktemp("exported") / "critic")


@pytest.fixture
def hub(monkeypatch) -> Iterator[PushHub]:
    """The hub that `HF_ENDPOINT` would name, with a token that may write."""
    made = PushHub()
    with pushing(made) as address:
        for name, value in {"ENDPOINT": address, "HF_HUB_OFFLINE": False, "HF_HUB_DISABLE_XET": True}.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        at_once = SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})
        monkeypatch.setattr("huggingface_hub.utils._http.time", at_once)  # it waits between its five tries
        yield made


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_folder_arrives_to_the_byte_in_one_commit_of_a_private_model(hub, folder):
    assert push_to_hub(folder, NAME) == f"{hub.address}/{NAME}"
    assert hub.models == {NAME: files_of(folder)}
    assert hub.private == {NAME: True}
    assert len(hub.commits) == 1
    large = [content for content in files_of(folder).values() if len(content) >= LARGE]
    assert {*hub.lfs.values()} == {*large}  # both ways of sending a file were taken
    assert len(large) < len(files_of(folder))


def test_a_public_model_is_one_only_if_asked(hub, folder):
    push_to_hub(folder, "critic", private=False)
    assert hub.private == {"me/critic": False}


def test_an_update_replaces_the_files_by_one_commit(hub, folder):
    hub.models[NAME], hub.private[NAME] = {"old.bin": b"old", "README.md": b"old", ".gitattributes": b"x"}, False
    with pytest.raises(ConfigError, match=r"has a model me/critic already \(409\): give another name, or --update"):
        push_to_hub(folder, NAME)
    assert hub.models[NAME]["old.bin"] == b"old"
    push_to_hub(folder, NAME, update=True)
    assert hub.models[NAME] == files_of(folder) | {".gitattributes": b"x"}
    assert hub.private == {NAME: False}
    with pytest.raises(ConfigError, match="has no model me/other that the token may see"):
        push_to_hub(folder, "me/other", update=True)


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        (Fault("create", 401), ConfigError, r"does not accept the token for me/critic \(401\)"),
        (Fault("create", 403, "not yours"), ConfigError, r"may not write to me/critic \(403\) \(not yours\)"),
        (Fault("commit", 403), ConfigError, r"may not write to me/critic \(403\)"),
        (Fault("create", 500), RunError, r"answers 500 .*: wait a while, and push again with --update"),
        (Fault("preupload", 500), RunError, "answers 500"),
        (Fault("batch", 503), RunError, "answers 503"),
        (Fault("put", 500), RunError, "answers 500"),
        (Fault("commit", 500), RunError, "answers 500"),
        (Fault("create"), RunError, r"cannot be reached or broke off \(RemoteProtocolError\)"),
        (Fault("batch"), RunError, "cannot be reached or broke off"),
        (Fault("put"), RunError, "cannot be reached or broke off"),
        (Fault("commit"), RunError, "cannot be reached or broke off"),
        (Fault("card", 400), RunError, "did not take the files"),
    ],
    ids=str,
)
def test_a_fault_is_one_sentence_and_a_second_push_mends_it(hub, folder, fault, error, says):
    hub.fault = fault
    with pytest.raises(error, match=says) as raised:
        push_to_hub(folder, NAME)
    message = str(raised.value)
    assert TOKEN not in message
    assert "\n" not in message
    assert len(message) < 400
    hub.fault = None
    push_to_hub(folder, NAME, update=NAME in hub.models)
    assert hub.models[NAME] == files_of(folder)


def test_nothing_is_asked_where_it_cannot_succeed(hub, folder, tmp_path, monkeypatch):
    for name in ("a/b/c", "a b", "me/", "x" * 200, ""):
        with pytest.raises(ConfigError, match="no hub has models of the name"):
            push_to_hub(folder, name)
    with pytest.raises(ConfigError, match="is no exported model with its card"):
        push_to_hub(tmp_path, NAME)
    with pytest.raises(ConfigError, match="which model to update is said by OWNER/NAME"):
        push_to_hub(folder, "critic", update=True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match="HF_HUB_OFFLINE is set"):
        push_to_hub(folder, NAME)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    with pytest.raises(ConfigError, match="there is no token for the hub http://127"):
        push_to_hub(folder, NAME)
    assert hub.asked == []


def test_a_hub_that_nobody_runs_is_told(folder, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(RunError, match=r"the hub http://127.0.0.1:9 cannot be reached or broke off \(ConnectError\)"):
        push_to_hub(folder, NAME)


# --- the command ------------------------------------------------------------------------------------------------------


def typed(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["export", *map(str, arguments)])
    return done.exit_code, done.output


def test_a_dry_run_names_the_files_and_sends_nothing(hub, run, folder, tmp_path):
    code, said = typed(run, tmp_path / "out", "--push-to-hub", NAME, "--dry-run")
    assert code == 0, said
    assert hub.asked == []
    for name, size in plan_push(folder, NAME).files:
        if name != "README.md":
            assert re.search(rf"^ +{size:,}  {name}$", said, re.MULTILINE), name
    assert re.search(rf"would upload \d+ files, .* MB, to a new private model {NAME} at {hub.address}", said)
    assert "nothing was sent; a token is there" in said
    assert "to a new PUBLIC model" in typed(folder, "--push-to-hub", NAME, "--dry-run", "--public")[1]
    assert "in place of the files of model" in typed(folder, "--push-to-hub", NAME, "--dry-run", "--update")[1]


def test_a_dry_run_names_no_folder_that_it_deletes_and_says_that_the_hub_may_not_be_asked(hub, run, monkeypatch):
    said = typed(run, "--push-to-hub", NAME, "--dry-run")[1]
    assert "would upload" in said
    assert "whet-export-" not in said
    assert "HF_HUB_OFFLINE" not in said
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set: unset it to push" in typed(run, "--push-to-hub", NAME, "--dry-run")[1]


@pytest.mark.integration
def test_a_dry_run_of_a_folder_works_in_a_process_of_its_own(hub, folder):
    done = subprocess_of(hub.address, folder, "--push-to-hub", NAME, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"to a new private model {NAME}" in " ".join(done.stdout.split())


def test_python_uploads_no_run_and_no_folder_that_nobody_exported(hub, run, folder):
    for place in (run, folder.parent):
        with pytest.raises(ConfigError, match="no exported model with its card, so nothing of it is uploaded"):
            push_to_hub(place, NAME)
    assert hub.models == {}


def test_a_run_or_a_folder_is_pushed(hub, run, folder):
    code, said = typed(run, "--push-to-hub", NAME)
    assert code == 0, said
    assert f"pushed: {hub.address}/{NAME}" in said
    assert hub.models[NAME].keys() == files_of(folder).keys()
    code, said = typed(folder, "--push-to-hub", NAME, "--update")
    assert code == 0, said
    assert hub.models[NAME] == files_of(folder)
    assert len(hub.commits) == 2


def test_options_that_do_not_go_together_are_refused(hub, run, folder, tmp_path):
    for arguments, says in (
        ((run, tmp_path / "a", "--public"), "go with --push-to-hub NAME"),
        ((run,), "where to is missing"),
        ((run, "--push-to-hub", NAME, "--public", "--update"), "--public is of a new model"),
        ((folder, "--push-to-hub", NAME, "--policy", "actor"), "was exported already"),
    ):
        code, said = typed(*arguments)
        assert code == 2
        assert says in " ".join(said.split())


def subprocess_of(address: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
    environment.pop("HF_HUB_OFFLINE", None)
    command = [sys.executable, "-m", "whet.cli", "export", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.integration
def test_the_command_takes_hub_and_token_from_its_environment(hub, folder):
    done = subprocess_of(hub.address, folder, "--push-to-hub", NAME)
    assert done.returncode == 0, done.stderr
    assert hub.models[NAME] == files_of(folder)
    done = subprocess_of(hub.address, folder, "--push-to-hub", NAME)
    assert done.returncode == 2
    assert f"has a model {NAME} already (409)" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


# --- the card ---------------------------------------------------------------------------------------------------------


def test_the_card_says_how_it_was_trained_after_which_papers_and_under_which_licences(folder, run):
    card = (folder / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    assert "arxiv:2305.18290" in head["tags"]
    assert "| method | `critique_dpo`, after [arXiv:2305.18290](https://arxiv.org/abs/2305.18290)" in card
    assert re.search(r"\| trained by \| `.+`, (commit [0-9a-f]{40}|an installed whet)", card)
    assert "| licence of the data | made by whet's own code, which is Apache-2.0" in card
    assert "| licence | apache-2.0 |" in card
    assert str(run) not in card
    assert str(Path.home()) not in card


@pytest.mark.parametrize(
    "address", ["localhost", "Traceback\n\nImportError", "http://", "ftp://hub", "http://a:x", "http://a b"]
)
def test_an_address_that_is_none_is_one_sentence(monkeypatch, folder, address):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    for push in (plan_push, push_to_hub):
        with pytest.raises(ConfigError, match=r"HF_ENDPOINT is .* no hub's address: set it to one such as https"):
            push(folder, NAME)


def test_the_hub_of_the_guide_says_what_to_set_and_what_came():
    hub = Path(__file__).parents[1] / "support/push_hub.py"
    with subprocess.Popen([sys.executable, str(hub)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert re.fullmatch(r"export HF_ENDPOINT=http://127.0.0.1:\d+ HF_TOKEN=\S+ HF_HUB_DISABLE_XET=1\n", said)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
