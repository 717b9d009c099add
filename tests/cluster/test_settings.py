"""What is said of a cluster before anything starts: the plan, and what is missing."""

from __future__ import annotations

import importlib.util
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

import whet
from support.commands import Quiet
from support.json_server import JsonServer
from support.sessions import Silent
from whet.cli import app
from whet.cluster import ranks, ray_start
from whet.cluster.ray_start import check_ray
from whet.config import ConfigError
from whet.config.base import plain
from whet.config.parts import ClusterConfig
from whet.errors import RunError
from whet.methods.registry import config_of
from whet.run import launch
from whet.run.provenance import changed_access, check_settings
from whet.trainer.sharded import RanksLost

SMALL = ["num_steps=2", "prompts_per_step=4", "group_size=4"]


def dry_run(*settings: str) -> str:
    result = CliRunner().invoke(app, ["train", "grpo", *SMALL, *settings, "--dry-run"])
    return " ".join(result.output.split())


def test_a_plan_says_what_each_process_holds_and_where():
    text = dry_run("cluster.ranks=2", "cluster.workers=2", "cluster.unit=4")
    assert re.search(r"ranks: 2 processes on the CPU; each at most about .* weights, .* gradients and optimiser", text)
    assert re.search(r"workers: 2 processes on the CPU; each .* keys and values\); units of 4 rollouts", text)
    assert "some will wait" not in text


def test_a_plan_warns_of_fewer_than_two_units_a_worker():
    text = dry_run("cluster.workers=2", "cluster.unit=8")
    assert "a step has 16 rollouts, which are 2 units for 2 workers" in text


def endpoint_agent(url: str, *settings: str) -> list[str]:
    policy = ("policy.kind=endpoint", f"policy.url={url}/v1", "policy.model=m", "policy.cache=null")
    return ["train", "agent", *policy, "data.env=maze", *settings, "--dry-run"]


def test_workers_that_roll_out_an_endpoints_replies_hold_no_weights():
    pytest.importorskip("openai")
    models = {"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "test"}]}
    with JsonServer(lambda path, body: models) as server:
        result = CliRunner().invoke(app, endpoint_agent(server.url, "cluster.workers=2"))
    assert result.exit_code == 0, result.output
    assert "workers: 2 processes on the CPU; each at most about 0 MiB" in " ".join(result.output.split())


def test_ranks_are_refused_where_no_weights_are_trained():
    result = CliRunner().invoke(app, endpoint_agent("http://127.0.0.1:9", "cluster.ranks=2"))
    assert result.exit_code == 2
    assert "cluster.ranks = 2, but endpoints and rules have all roles" in " ".join(result.output.split())


def test_settings_of_a_cluster_without_processes_have_no_effect():
    assert "cluster.address has no effect" in dry_run("cluster.address=auto")


def test_a_unit_is_64_with_workers_and_all_at_once_without():
    assert ClusterConfig(workers=1).rollouts_a_unit == 64
    assert ClusterConfig().rollouts_a_unit is None
    assert ClusterConfig(unit=5).rollouts_a_unit == 5


def test_ray_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"need Ray, which is not installed: .*EXTRAS=ray.*torchrun --nproc"):
        check_ray(ClusterConfig(ranks=2))


@pytest.mark.parametrize("address", ["here", "10.0.0.1", "host:port", "host:70000", "ray://host:10001"])
def test_an_address_without_a_port_is_none(address):
    with pytest.raises(ConfigError, match="is no address: give host:port"):
        check_ray(ClusterConfig(workers=1, address=address))


def test_an_address_that_does_not_answer_is_said_at_once():
    with pytest.raises(ConfigError, match=r"nothing answers at cluster.address = '127.0.0.1:9'.*ray start --head"):
        check_ray(ClusterConfig(workers=1, address="127.0.0.1:9"))


def test_an_address_of_something_else_than_ray_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            connection = server.accept()[0]
            connection.recv(100)
            connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            connection.close()

        threading.Thread(target=answer).start()
        with pytest.raises(
            ConfigError, match=rf"what answers at cluster.address = '127.0.0.1:{port}' is not Ray: .*6379"
        ):
            check_ray(ClusterConfig(workers=1, address=f"127.0.0.1:{port}"))


def test_a_rank_that_raises_the_same_error_twice_in_turn_ends_the_run():
    errors = [RanksLost("killed"), RanksLost("a", "one"), RanksLost("b", "two"), RanksLost("c", "two")]
    config, attempts = config_of("grpo", None, []), iter(errors)

    def work() -> None:
        raise next(attempts)

    with pytest.raises(RanksLost, match=r"^c$"):
        launch._restarting(config, Silent(), work, lambda lost: work())
    assert next(attempts, None) is None


def test_more_gpus_than_there_are_are_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    with pytest.raises(ConfigError, match="ask for 5 GPUs, and this machine has 4: ask for fewer"):
        check_ray(ClusterConfig(ranks=3, workers=2))
    check_ray(ClusterConfig(ranks=2, workers=2))


@pytest.mark.parametrize("name", ["python", "torch", "whet"])
def test_other_versions_are_named(name):
    theirs = ray_start.versions() | {name: "0.1"}
    with pytest.raises(RunError, match=rf"worker 3 has {name} 0\.1, and this process has .*: install the same there"):
        ray_start.check_versions(theirs, "worker 3")


def test_a_run_may_go_on_with_other_processes_but_not_with_another_unit():
    before = {"cluster": {"ranks": 0, "workers": 2, "unit": 8, "address": None, "restarts": 10, "servers": 1}}
    now = {"cluster": {"ranks": 4, "workers": 0, "unit": 9, "address": "auto", "restarts": 3, "servers": 2}}
    keys = ("ranks", "workers", "servers", "address", "restarts")
    assert changed_access(before, now) == {f"cluster.{key}" for key in keys}
    command = {"server_command": "vllm serve", "server_args": ""}
    other = {"server_command": "/venv/bin/vllm serve", "server_args": "--max-model-len 512"}
    assert changed_access({"cluster": command}, {"cluster": other}) == {f"cluster.{key}" for key in command}


def test_workers_may_join_a_run_that_has_their_unit_and_no_other():
    """Without workers and a unit, a run rolls out all at once; workers would take units of 64."""
    place = Path("run/checkpoints/step_000001")
    alone, with_a_unit = config_of("grpo", None, []), config_of("grpo", None, ["cluster.unit=64"])
    four = config_of("grpo", None, ["cluster.workers=4"])
    check_settings(
        {"settings": plain(with_a_unit)}, config_of("grpo", None, ["cluster.workers=4", "cluster.unit=64"]), place
    )
    with pytest.raises(RunError, match=r"made with all rollouts at once, and cluster.workers = 4 takes units of 64"):
        check_settings({"settings": plain(alone)}, four, place)


def test_the_unit_that_workers_take_is_part_of_the_run(tmp_path, monkeypatch):
    """So it goes on with this unit where it has no workers any more."""
    prepared = []

    def prepare(config, *_):
        prepared.append(config)
        raise RunError("enough")

    monkeypatch.setattr(launch, "prepare_with_provenance", prepare)
    for workers in (0, 2):
        with pytest.raises(RunError, match="enough"):
            launch.start(config_of("grpo", None, [f"cluster.workers={workers}"]), tmp_path / "run", Quiet())
    assert [config.cluster.unit for config in prepared] == [None, 64]


def test_torchrun_of_anything_else_is_refused_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RunError, match=r"torchrun started this program 2 times.*-m whet\.cluster train"):
        whet.train("grpo", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_settings_that_differ_from_torchrun_are_refused(monkeypatch):
    class Started:
        size = 2

    monkeypatch.setattr(ranks, "HERE", Started())
    with pytest.raises(ConfigError, match=r"cluster.ranks = 3, but torchrun started 2 processes"):
        ranks.ranks_of(ClusterConfig(ranks=3), None)
    for processes in ({"workers": 1}, {"servers": 1}):
        with pytest.raises(ConfigError, match=f"torchrun starts ranks only: for cluster.{next(iter(processes))} start"):
            ranks.ranks_of(ClusterConfig(ranks=2, **processes), None)


def test_the_cluster_module_alone_says_how_it_is_started():
    env = {name: value for name, value in os.environ.items() if name != "RANK"}
    env["PYTHONPATH"] = str(Path(whet.__file__).parents[1])
    done = subprocess.run([sys.executable, "-m", "whet.cluster"], capture_output=True, text=True, env=env)
    assert done.returncode == 1
    assert "torchrun --nproc-per-node 2 -m whet.cluster train" in done.stderr
