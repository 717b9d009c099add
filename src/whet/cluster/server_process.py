"""A vLLM server as a process that Ray places: what an actor does on the machine where the server runs."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.cluster import guard
from whet.cluster.ray_start import NUM_LAST_LINES, facts_of_this_process
from whet.config.base import ConfigError
from whet.config.parts import ClusterConfig

OF_VLLM = ("--enable-scale-out", "--logprobs-mode", "processed_logprobs")
"""Options that give a server the routes and the logprobs that `whet.engines.vllm_server` asks for."""
PORT_S = 10.0
"""Seconds that a port has to become free in, of a server whose actor was killed."""
STOP_S = 20.0
"""Seconds that a server has to end in, with all its processes."""
TAIL = 65536
"""Bytes of a log that are read for its last lines."""
WIDEST = 240
"""Characters of such a line that are shown: vLLM writes lines of thousands."""


@dataclass(frozen=True)
class Launch:
    """How a server is started."""

    command: tuple[str, ...]
    """Words before the host and the port."""
    folder: str
    """Of the run's process, where it is there too."""
    run: int
    """The run's process id."""
    node: str
    """The address of the run's machine."""
    num_threads: str | None
    """OMP_NUM_THREADS of the run's process, which Ray would set otherwise."""


@dataclass(frozen=True)
class State:
    """What is known of a server."""

    pid: int | None
    """None: it has not begun yet."""
    code: int | None
    """What it ended with. None: it goes on."""
    lines: tuple[str, ...]
    """The last ones of its log."""

    @property
    def said(self) -> str:
        """Its last lines, for messages."""
        return "its last lines:\n" + "\n".join(self.lines) if self.lines else "it wrote nothing"


def command_of(settings: ClusterConfig, model: str, dtype: str) -> tuple[str, ...]:
    """The words that start a server, but for its host and port.

    Args:
        model: its folder.
        dtype: of the policy's weights: "bfloat16".
    """
    words = [*shlex.split(settings.server_command), model, *shlex.split(settings.server_args)]
    if os.sep in words[0]:
        words[0] = str(Path(words[0]).expanduser().absolute())
    return (*words, *OF_VLLM, "--dtype", dtype)


def check_command(settings: ClusterConfig) -> None:
    """Raises: ConfigError where this machine has no such program. With an address, other machines may have it."""
    program = shlex.split(settings.server_command)[0]
    if settings.address is None and shutil.which(os.path.expanduser(program)) is None:
        raise ConfigError(
            f"cluster.server_command = {settings.server_command!r}: there is no program {program!r} here. Give its "
            "path, as vLLM mostly has an environment of its own: cluster.server_command='/path/to/venv/bin/vllm serve'"
        )


class ServerProcess:
    """A Ray actor: one server. It ends with the actor, however that ends."""

    def __init__(self, number: int, launch: Launch) -> None:
        self.number, self.launch = number, launch
        self._guard: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._is_over = False

    def facts(self) -> Mapping[str, Any]:
        """Where it runs, whether that is the run's own machine, and a port that is free there."""
        facts = facts_of_this_process()
        is_here = facts["node"] == self.launch.node
        host = "127.0.0.1" if is_here else facts["node"]
        with socket.socket(_family(host)) as free:
            free.bind((host, 0))
            port = free.getsockname()[1]
        log = str(Path(facts["logs"]).parent / f"whet-server-{self.number}-{os.getpid()}.log")
        return facts | {"is_here": is_here, "host": host, "port": port, "log": log}

    def start(self, host: str, port: int, log: str) -> None:
        """Start the server, or start it again where it has ended. Does not wait until it answers."""
        self.stop()
        await_port(host, port)
        self._log, self._said, self._is_over = Path(log), b"", False
        run = self.launch.run if host == "127.0.0.1" else 0
        command = [*self.launch.command, "--host", host, "--port", str(port)]
        folder = self.launch.folder if os.path.isdir(self.launch.folder) else None
        arguments = [sys.executable, "-I", guard.__file__, log, str(run), *command]
        self._guard = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment(), cwd=folder
        )
        self._guard.wait()  # it has made the process that goes on, and ends

    def _environment(self) -> dict[str, str]:
        """The actor's, without what Ray and whet put there: vLLM mostly has another Python environment."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_") and key != "PYTHONPATH"}
        kept.pop("OMP_NUM_THREADS", None)
        if self.launch.num_threads is not None:
            kept["OMP_NUM_THREADS"] = self.launch.num_threads
        return kept | {"VLLM_SERVER_DEV_MODE": "1"}

    def state(self) -> State:
        self._read(0)
        said = {name: int(number) for name, number in map(str.split, self._said.decode().splitlines())}
        code = said.get("code", -int(signal.SIGKILL) if self._is_over else None)
        return State(said.get("pid"), code, last_lines(self._log))

    def stop(self) -> None:
        """End the server. Returns once it and all its processes are gone."""
        if self._guard is None:
            return
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        with suppress(OSError):
            self._guard.stdin.close()
        until = time.monotonic() + STOP_S
        while not self._is_over and time.monotonic() < until:
            self._read(until - time.monotonic())
        self._guard.stdout.close()
        self._guard = None

    def _read(self, wait_s: float) -> None:
        """Take in what the guard says."""
        if self._guard is None or self._is_over:
            return
        assert self._guard.stdout is not None
        while select.select([self._guard.stdout], [], [], wait_s)[0]:
            if not (read := os.read(self._guard.stdout.fileno(), 4096)):
                self._is_over = True
                return
            self._said += read


def await_port(host: str, port: int) -> None:
    """Wait until a port is free, for `PORT_S` at most: a server that needs it then says so itself."""
    until = time.monotonic() + PORT_S
    while time.monotonic() < until:
        with suppress(OSError), socket.create_server((host, port), family=_family(host)):
            return
        time.sleep(0.1)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def last_lines(log: Path) -> tuple[str, ...]:
    """The last lines of a log. (): it has none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            lines: Sequence[str] = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(line[:WIDEST] for line in lines if line.strip())[-NUM_LAST_LINES:]
