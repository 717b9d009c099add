"""What is said of servers that Ray is to start, before anything starts: the plan, and what is refused."""

from __future__ import annotations

import importlib.util
import os
import re
import sys

import pytest
from typer.testing import CliRunner

from whet.cli import app
from whet.cluster.ray_start import check_ray
from whet.cluster.server_process import OF_VLLM, WIDEST, check_command, command_of, last_lines
from whet.cluster.servers import check_servers
from whet.cluster.shares import without_first_gpu
from whet.config import ConfigError
from whet.config.parts import ClusterConfig, EngineConfig

VLLM = EngineConfig(kind="vllm")
HERE = ClusterConfig(servers=2, server_command=sys.executable)
"""A program that this machine has."""


def train(*settings: str) -> str:
    """What `whet train grpo --dry-run` says."""
    result = CliRunner().invoke(app, ["train", "grpo", "num_steps=2", *settings, "--dry-run"])
    return " ".join(result.output.split())


def test_a_plan_says_how_many_servers_there_are_and_where():
    text = train("engine.kind=vllm", "cluster.servers=2", f"cluster.server_command={sys.executable}")
    assert re.search(r"servers: 2 processes on the CPU, by '.*'; each at least about 1 MiB of weights", text)
    assert "all settings are in use" in text


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (("cluster.servers=2",), "cluster.servers = 2 starts servers of vLLM, and engine.kind = local samples without"),
        (
            ("cluster.servers=1", "engine.kind=vllm", "engine.urls=[http://127.0.0.1:8000]"),
            "cluster.servers = 1 starts servers, and engine.urls names some that run: leave one of the two out",
        ),
        (
            ("cluster.servers=1", "engine.kind=vllm", "cluster.workers=1"),
            "samples on servers, which workers would give",
        ),
        (("cluster.server_args=--x 1",), "cluster.server_args has no effect: cluster.servers is 0"),
        (("engine.kind=vllm",), "engine.kind = vllm needs servers that run: engine.urls=[http://127.0.0.1:8000]; or"),
        (
            ("engine.kind=vllm", "cluster.servers=1", "cluster.server_command=no-such-program serve"),
            "there is no program 'no-such-program' here. Give its path, as vLLM mostly has an environment of its own",
        ),
        (("cluster.servers=1", "cluster.server_command=''"), "server_command is empty: give the command"),
        (("cluster.servers=1", "cluster.server_args=--x 'y"), "cannot be split into words as a shell does"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_a_sentence(settings, problem):
    text = train(*settings)
    assert problem in text
    assert "Traceback" not in text


def test_ray_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"cluster.servers need Ray, which is not installed: .*EXTRAS=ray"):
        check_servers(HERE, VLLM)


def test_a_client_that_is_not_installed_is_named_before_servers_start(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "httpx" else find(name))
    with pytest.raises(ConfigError, match=r"engine.kind = vllm needs a package: .*EXTRAS=vllm"):
        check_servers(HERE, VLLM)


def test_servers_take_no_gpu_of_a_process_that_trains(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    check_servers(ClusterConfig(servers=3, server_command=sys.executable), VLLM)
    check_servers(ClusterConfig(servers=2, ranks=2, server_command=sys.executable), VLLM)
    with pytest.raises(
        ConfigError,
        match=r"servers = 4 asks for 4 GPUs beside the one on which the run trains, and this machine has 4: ask for",
    ):
        check_ray(ClusterConfig(servers=4))
    with pytest.raises(ConfigError, match=r"ranks = 2 and cluster.servers = 3 ask for 5 GPUs, and this machine has 4"):
        check_ray(ClusterConfig(servers=3, ranks=2))


@pytest.mark.parametrize(("before", "within"), [(None, "1,2,3"), ("5,2", "2"), ("", "1,2,3")])
def test_ray_that_starts_here_does_not_know_the_gpu_of_a_process_that_trains(before, within, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    with without_first_gpu():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == within
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


def test_a_command_has_the_model_the_users_options_and_then_those_that_the_run_needs():
    settings = ClusterConfig(
        servers=1, server_command="env A=1 vllm serve", server_args="--max-model-len 512 --chat-template 'a b'"
    )
    assert command_of(settings, "/model", "bfloat16") == (
        *("env", "A=1", "vllm", "serve", "/model", "--max-model-len", "512", "--chat-template", "a b"),
        *OF_VLLM,
        *("--dtype", "bfloat16"),
    )


def test_a_path_of_a_program_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command_of(ClusterConfig(server_command="./vllm serve"), "m", "float32")[0] == str(tmp_path / "vllm")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert command_of(ClusterConfig(server_command="~/vllm serve"), "m", "float32")[0] == str(tmp_path / "vllm")


def test_a_program_may_be_on_other_machines_alone():
    check_command(ClusterConfig(servers=1, address="auto", server_command="no-such-program"))


def test_the_last_lines_of_a_log_are_those_that_say_something(tmp_path):
    log = tmp_path / "log"
    assert last_lines(log) == ()
    log.write_bytes(b"x" * 100_000 + b"\n" + b"".join(b"%d\n\n" % number for number in range(20)))
    assert last_lines(log) == tuple(str(number) for number in range(8, 20))
    log.write_bytes(b"y" * 100_000 + b"\nend\n")
    assert last_lines(log) == ("y" * WIDEST, "end")
