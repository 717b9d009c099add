"""Servers that Ray starts: a run's results are those of servers started by hand, whatever dies, and none is left."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from server_cases import PROGRAM, SMALL, alive, events, placed

from support.outcome import outcome
from support.sessions import finished
from support.vllm_server import serving, wait_until
from whet.cluster import guard, ray_start, servers
from whet.cluster.servers import RayServers
from whet.config.base import ConfigError
from whet.config.parts import ClusterConfig, ModelConfig
from whet.errors import RunError
from whet.models.policy import load_policies
from whet.run_folder.logs import Logs
from whet.trainer.loop import Loop

pytestmark = [pytest.mark.xdist_group("ray")]  # one Ray at a time


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    yield
    import ray

    ray.shutdown()


def in_step(step: int, monkeypatch: pytest.MonkeyPatch, act: object) -> None:
    """Runs `act(servers)` after a training step of a run in this process."""
    make = Loop._step
    done: list[int] = []

    def then_acts(loop: Loop, phase: object, number: int, trainers: object) -> None:
        make(loop, phase, number, trainers)
        done.append(number)
        if len(done) == step:
            act(MADE[-1])

    monkeypatch.setattr(Loop, "_step", then_acts)


MADE: list[RayServers] = []


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps what runs start, so that it can be killed."""
    make = RayServers.__init__

    def noted(self: RayServers, *arguments: object) -> None:
        make(self, *arguments)
        MADE.append(self)

    monkeypatch.setattr(RayServers, "__init__", noted)


@pytest.mark.integration
def test_a_run_has_the_bits_of_servers_started_by_hand_whatever_dies(tmp_path, monkeypatch, made):
    """In step 1 a server is killed, in step 2 the actor of the other."""
    policy = load_policies({"policy": ModelConfig()})["policy"]
    with serving(policy) as one, serving(policy) as two:
        finished("grpo", *SMALL, f"engine.urls=[{one.url}, {two.url}]", folder=tmp_path / "urls")
    urls: list[str] = []

    def kill_server(servers: RayServers) -> None:
        urls[:] = [server.url for server in servers.servers]
        os.kill(servers.servers[0].pid, signal.SIGKILL)
        wait_until(lambda: servers.num_restarts == 1)

    def kill_actor(servers: RayServers) -> None:
        os.kill(servers.servers[1].facts["pid"], signal.SIGKILL)
        wait_until(lambda: servers.num_restarts == 2)

    in_step(2, monkeypatch, kill_server)
    in_step(3, monkeypatch, kill_actor)
    (sync := tmp_path / "sync").mkdir()
    finished("grpo", *placed(2, "engine.limit_s=60", f"engine.sync_folder={sync}"), folder=tmp_path / "placed")
    assert outcome(tmp_path / "placed") == outcome(tmp_path / "urls")
    assert not alive(str(PROGRAM))
    assert not list(sync.glob("whet-model-*"))
    told = [event["message"] for event in events(tmp_path / "placed") if event["level"] == "warning"]
    assert len(told) == 2
    assert re.match(
        rf"server 0 \({urls[0]}, process \d+ on [\d.]+\) ended with code -9; its last lines:\nserving", told[0]
    )
    assert "gets the newest weights (9 more such restarts)" in told[0]
    assert re.match(rf"server 1 \({urls[1]}, .*\) is gone with its actor, which died", told[1])
    restarts = [row["cluster/restarts"] for row in Logs(tmp_path / "placed").rows("metrics.jsonl") if row.get("step")]
    assert restarts[-1] == 2


@pytest.mark.integration
def test_the_only_server_may_die_and_new_weights_reach_the_next_one(tmp_path, monkeypatch, made):
    in_step(2, monkeypatch, lambda servers: os.kill(servers.servers[0].pid, signal.SIGKILL))
    finished("grpo", *placed(1, "engine.limit_s=60"), folder=tmp_path / "run")
    assert MADE[-1].num_restarts == 1
    assert (tmp_path / "run" / "summary.json").exists()


@pytest.mark.integration
def test_a_run_that_is_killed_leaves_no_server_and_no_port(tmp_path):
    out, log = tmp_path / "run", tmp_path / "log"
    command = [sys.executable, "-m", "whet.cli", "train", "grpo", *placed(1), "num_steps=500", "--out", str(out)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with log.open("w") as file:
        run = subprocess.Popen(command, stdout=file, stderr=file, env=env)
    try:
        wait_until(lambda: (out / "metrics.jsonl").exists() or run.poll() is not None, seconds=90)
        left = alive(str(PROGRAM))
        assert left, log.read_text()[-3000:]
    finally:
        run.kill()
        run.wait()
    wait_until(lambda: not left.keys() & alive(str(PROGRAM)).keys(), seconds=15)
    [address] = re.findall(r"answered after \d+ s: (http://[\d.:]+)", events(out)[-1]["message"])
    with socket.create_server(("127.0.0.1", urlsplit(address).port or 0)):
        pass  # the port is free again


@pytest.mark.integration
def test_servers_of_other_machines_listen_at_their_address_and_need_a_folder_that_all_see(tmp_path, monkeypatch):
    """The run says that its own machine has another address, so that Ray's are others."""
    import ray

    ray_start.connect(ClusterConfig(servers=1))
    here = ray.util.get_node_ip_address()
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "192.0.2.77")
    with pytest.raises(ConfigError, match=rf"server 0 is on another machine \({here}\): give engine.sync_folder"):
        finished("grpo", *placed(1), folder=tmp_path / "refused")
    (sync := tmp_path / "sync").mkdir()
    finished("grpo", *placed(1, f"engine.sync_folder={sync}"), folder=tmp_path / "run")
    assert "answered after" in (text := events(tmp_path / "run")[-1]["message"])
    assert f"http://{here}:" in text
    assert not alive(str(PROGRAM))


@pytest.mark.integration
def test_a_server_that_ends_at_its_start_ends_the_run_with_its_last_lines(tmp_path):
    command = "sh -c 'echo it lacks a GPU >&2; exit 3'"
    with pytest.raises(RunError) as error:
        finished("grpo", *placed(1, command=command), folder=tmp_path)
    says = r"^server 0 \(http://127.*\) ended before it answered, with code 3; its last lines:\nit lacks a GPU$"
    assert re.search(says, str(error.value))


@pytest.mark.integration
def test_a_program_that_only_the_servers_machine_looks_for_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "check_command", lambda settings: None)
    with pytest.raises(RunError) as error:
        finished("grpo", *placed(1, command="no-such-program serve"), folder=tmp_path)
    says = r"code 127; its last lines:\nno-such-program cannot be run \(No such file or directory\): give its path"
    assert re.search(says, str(error.value))


@pytest.mark.integration
def test_a_server_that_does_not_answer_ends_the_run_with_the_limit(tmp_path):
    with pytest.raises(RunError, match=r"does not answer 1 s after its start \(engine.limit_s\); it wrote nothing"):
        finished("grpo", *placed(1, "engine.limit_s=1", command="sh -c 'sleep 1000'"), folder=tmp_path)
    assert not alive("sleep 1000")


@pytest.mark.integration
def test_deaths_past_the_limit_end_the_run_at_once(tmp_path, monkeypatch, made):
    in_step(2, monkeypatch, lambda servers: os.kill(servers.servers[0].pid, signal.SIGKILL))
    started = time.monotonic()
    with pytest.raises(
        RunError, match=r"(?s)code -9.*as cluster.restarts = 0 processes have died before; `whet resume`"
    ):
        finished("grpo", *placed(1, "cluster.restarts=0", "engine.limit_s=500"), folder=tmp_path / "run")
    assert time.monotonic() - started < 100
    assert not alive(str(PROGRAM))


@pytest.mark.integration
@pytest.mark.parametrize("gone", ["the actor", "the run", "the server"])
def test_a_servers_whole_process_group_ends_with_whoever_wants_it(gone, tmp_path):
    """A server that has a child, and ignores SIGTERM as the child does."""
    run = subprocess.Popen(["sleep", "1000"])
    number = f"{run.pid}.5"  # of seconds: it marks the processes
    script = f"trap '' TERM; sleep {number} & sleep {number}; sleep {number}"
    command = [sys.executable, "-I", guard.__file__, str(tmp_path / "log"), str(run.pid), "sh", "-c", script]
    actor = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert actor.stdin is not None
    assert actor.stdout is not None
    try:
        server = int(actor.stdout.readline().removeprefix("pid "))
        wait_until(lambda: sum(line.startswith("sleep ") for line in alive("sleep", number).values()) == 2)
        if gone == "the actor":
            actor.stdin.close()
        elif gone == "the run":
            run.kill()
        else:
            os.kill(server, signal.SIGKILL)
        assert actor.stdout.readline() == "code -9\n"
        assert actor.stdout.read() == ""
        assert not alive("sleep", number)
    finally:
        run.kill()
        run.wait()
        actor.wait()
        actor.stdin.close()
        actor.stdout.close()
