"""Small real objects that tests share."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings
from transformers import Qwen2ForCausalLM

from support.commands import whet
from support.disk import never_wait
from support.random_policy import random_policy as make_random_policy
from whet.models.policy import Policy
from whet.models.stand_in import save_stand_in
from whet.models.tiny import tiny_config, tiny_tokenizer

pytest_plugins = ("support.cpu_times",)
CHROMIUM = "/usr/bin/chromium"
torch.set_num_threads(1)
never_wait()
# What an example takes on the clock says what else the machine does.
settings.register_profile("whet", deadline=None)
settings.load_profile("whet")
# Started in the background by a script, we would inherit that Ctrl-C is ignored, and so would the runs that tests stop.
signal.signal(signal.SIGINT, signal.default_int_handler)


OTHERS = {"chromium", "java"}
"""Fixtures that start a program of others."""
COSTLY = ("critique_run",)
"""Fixtures of the session that take seconds: all tests that use one go to one process."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share what their module makes once, such as a run, go to one process: else each would make it. Those
    that start a program of others are of the integration tier."""
    for item in items:
        if isinstance(item, pytest.Function):
            if OTHERS.intersection(item.fixturenames):
                item.add_marker(pytest.mark.integration)
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            shared = [
                f"{name}={parameters[name]}" if name in parameters else ""
                for name, found in item._fixtureinfo.name2fixturedefs.items()
                if found[-1].scope == "module"
            ]
            costly = [name for name in COSTLY if name in item.fixturenames]
            if costly:
                item.add_marker(pytest.mark.xdist_group(costly[0]))
            elif shared and item.get_closest_marker("xdist_group") is None:
                item.add_marker(pytest.mark.xdist_group(f"{item.path.stem} {max(shared)}"))


@pytest.fixture
def random_policy() -> Policy:
    return make_random_policy()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = Path(os.environ.get("WHET_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent: set WHET_DATA to the folder with the data sets")
    return folder


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny architecture, untrained: enough wherever learning is not the point."""
    folder = tmp_path_factory.mktemp("models") / "random"
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer()
    Qwen2ForCausalLM(tiny_config(len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def small_run(random_model: Path) -> list[str]:
    """Settings of a run of seconds that goes through every phase."""
    return [
        f"actor.path={random_model}",
        f"critic.path={random_model}",
        "num_threads=1",
        "data.num_train=64",
        "data.num_validation=8",
        "data.num_test=12",
        "warm_start.actor_steps=3",
        "warm_start.critic_steps=3",
        "warm_start.rows_per_step=8",
        "stage1.num_steps=4",
        "stage1.prompts_per_step=4",
        "stage1.validate_every=2",
        "stage1.learning.minibatch_rows=8",
        "stage2.num_steps=4",
        "stage2.prompts_per_step=4",
        "stage2.validate_every=2",
        "stage2.learning.minibatch_rows=8",
        "checkpoint_every=1",
    ]


@pytest.fixture(scope="session")
def critique_run(small_run: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of such a run of Critique-RL, finished, with seed 3. Tests share it: they look, and change nothing but
    its `eval`."""
    run = tmp_path_factory.mktemp("runs") / "critique_rl"
    whet("train", "critique_rl", *small_run, "seed=3", "--out", run)
    return run


@pytest.fixture(scope="session")
def gsm8k(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first rows of GSM8K's training split, as they are."""
    path = tmp_path_factory.mktemp("data") / "train.jsonl"
    lines = (data_folder / "gsm8k" / "train.jsonl").read_text().splitlines()
    path.write_text("\n".join(lines[:200]) + "\n")
    return path


@pytest.fixture(scope="session")
def small_model(gsm8k: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE trained on that text, and a random Qwen3 of 0.2 M weights."""
    folder = tmp_path_factory.mktemp("models") / "gsm"
    save_stand_in(gsm8k.read_text().splitlines(), folder)
    return folder


@pytest.fixture(scope="session")
def java() -> None:
    """SciWorld's simulator can be started."""
    pytest.importorskip("scienceworld")
    if shutil.which("java") is None:
        pytest.skip("there is no java here")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no browser at {CHROMIUM}")
    playwright = pytest.importorskip("playwright.sync_api")
    args = ["--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    args += ["--no-first-run"] + (["--no-sandbox"] if os.geteuid() == 0 else [])
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=args)
        yield browser
        browser.close()
