"""Starts Ray, or joins a Ray cluster that runs, and says what is missing before a run begins."""

from __future__ import annotations

import glob
import importlib.util
import logging
import os
import platform
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

from whet.cluster.shares import num_asked, trains_beside_servers, what_is_asked, without_first_gpu
from whet.config.base import ConfigError
from whet.config.parts import ClusterConfig
from whet.distribution import how_to_install, version
from whet.errors import RunError

CONNECT_S = 10.0
"""Seconds that an address has to answer in."""
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""A client's first bytes (RFC 9113, 3.4). Ray would try for many minutes to talk to a server of another kind."""
HTTP2_SETTINGS = b"\x04"
"""The fourth byte of a server's first frame."""


def check_ray(settings: ClusterConfig) -> None:
    """Checks what can be checked without starting anything.

    Raises: ConfigError where Ray is not installed, an address does not answer, or there are too few GPUs here.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            f"cluster.ranks, cluster.workers and cluster.servers need Ray, which is not installed: "
            f"{how_to_install('ray')}; or start ranks alone by torchrun: `torchrun --nproc-per-node N -m whet.cluster "
            "train ...`"
        )
    if settings.address is None:
        import torch

        num_gpus, own = torch.cuda.device_count(), int(trains_beside_servers(settings))
        if num_gpus and num_asked(settings) + own > num_gpus:
            raise ConfigError(
                f"{what_is_asked(settings, 'GPU')}{' beside the one on which the run trains' * own}, and this machine "
                f"has {num_gpus}: ask for fewer, or give the address of a larger Ray cluster"
            )
    elif settings.address != "auto":
        _check_answers(settings.address)


def _check_answers(address: str) -> None:
    """Raises: ConfigError where nothing listens at the address, or something that is not Ray."""
    host, _, port = address.rpartition(":")
    if "/" in host or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(
            f"cluster.address = {address!r} is no address: give host:port, such as 10.0.0.1:6379, or auto"
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S) as connection:
            connection.sendall(HTTP2_GREETING)
            answer = connection.recv(9)
    except OSError as error:
        raise ConfigError(
            f"nothing answers at cluster.address = {address!r} ({error}): start Ray there with `ray start --head`, or "
            "leave cluster.address out to start it here"
        ) from error
    if answer[3:4] != HTTP2_SETTINGS:
        raise ConfigError(
            f"what answers at cluster.address = {address!r} is not Ray: give the port of `ray start --head`, which is "
            "6379 unless --port says otherwise"
        )


def connect(settings: ClusterConfig) -> Any:
    """The module `ray`, connected to the run's cluster. A second call changes nothing.

    Raises: ConfigError, RunError where no cluster answers, or has fewer GPUs than the run needs.
    """
    check_ray(settings)
    if settings.address is not None:
        _use_token()
    import ray

    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}
    with _signals_as_they_are():
        if settings.address is None:
            # Processes find the modules that this one finds. Ray would make them wait for all others (niceness 15).
            path = os.pathsep.join(place for place in sys.path if place)
            options["runtime_env"] = {"env_vars": {"PYTHONPATH": path}}
            with without_first_gpu() if trains_beside_servers(settings) else nullcontext():
                _start_here(ray, options)
        else:
            try:
                ray.init(address=settings.address, **options)
            except Exception as error:
                raise RunError(_no_cluster(settings.address, error)) from error
    asked, there = num_asked(settings), ray.cluster_resources()
    what = "GPU" if there.get("GPU") else "CPU"
    if asked > there.get(what, 0) and (what == "GPU" or settings.address is not None):
        raise ConfigError(
            f"{what_is_asked(settings, what)}, and the Ray cluster has {int(there.get(what, 0))}: ask for fewer, or "
            "add machines to it"
        )
    if what == "GPU" and settings.address is not None and trains_beside_servers(settings):
        raise ConfigError(
            "in a Ray cluster with GPUs, servers may be given the one on which the run's own process trains: set "
            "cluster.ranks=1, for which Ray keeps one"
        )
    return ray


def _start_here(ray: Any, options: Mapping[str, Any]) -> None:
    """Raises: RunError where Ray does not start, twice: a machine that is busy needs more than its 30 seconds."""
    for is_last in (False, True):
        try:  # "local": else Ray would join a cluster that runs here
            ray.init(address="local", _system_config={"worker_niceness": 0}, **options)
            return
        except Exception as error:
            ray.shutdown()
            if is_last:
                raise RunError(
                    f"Ray did not start here ({_first_line(error)}): the machine may be busy, or its disk full; "
                    f"Ray's own logs are in {os.environ.get('RAY_TMPDIR', '/tmp')}/ray/session_latest/logs"
                ) from error


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _use_token() -> None:
    """Let Ray send the token that this machine has. By itself it sends none to an address."""
    if (Path.home() / ".ray" / "auth_token").exists() or {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # Ray reads it when it is imported


def _no_cluster(address: str, error: BaseException) -> str:
    causes = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    if any("AuthToken" in str(cause) for cause in causes):
        return (
            f"the Ray cluster at cluster.address = {address!r} asks for a token, and this process has none or "
            "another: copy ~/.ray/auth_token from the machine where it was started, and leave RAY_AUTH_MODE unset"
        )
    return (
        f"no Ray cluster answers at cluster.address = {address!r} ({_first_line(error)}): start one with "
        "`ray start --head`, or leave cluster.address out"
    )


@contextmanager
def _signals_as_they_are() -> Iterator[None]:
    """Ray's start lets SIGTERM end this process at once. A run first saves."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def resources(settings: ClusterConfig) -> dict[str, int]:
    """What each rank, worker and server takes of the cluster. On a CPU of one machine, they share its cores."""
    import ray

    num_gpus = 1 if ray.cluster_resources().get("GPU", 0) else 0
    return {"num_cpus": 0 if settings.address is None else 1, "num_gpus": num_gpus}


def versions() -> dict[str, str]:
    """Of what has to be alike in all processes of a run."""
    return {"python": platform.python_version(), "torch": metadata.version("torch"), "whet": version()}


def check_versions(theirs: dict[str, str], where: str) -> None:
    """Raises: RunError where a process has another version than the run's own."""
    for name, ours in versions().items():
        if theirs.get(name) != ours:
            raise RunError(
                f"{where} has {name} {theirs.get(name)}, and this process has {ours}: install the same there, or "
                "results would differ without a word"
            )


# --- processes that died ----------------------------------------------------------------------------------------------

NUM_LAST_LINES = 12
"""Lines of a dead process's log that a message shows."""


def facts_of_this_process() -> dict[str, Any]:
    """Where this process runs, which Ray started, and what is installed there."""
    import ray

    context = ray.get_runtime_context()
    return {
        "node": ray.util.get_node_ip_address(),
        "node_id": context.get_node_id(),
        "pid": os.getpid(),
        "versions": versions(),
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "logs": f"{context.get_temp_dir()}/{context.get_session_name()}/logs/worker-*-{os.getpid()}",
    }


SLOW_S = 60.0
"""Seconds after which a process that has not started is worth a sentence."""
START_S = 900.0
"""Seconds after which a run gives up where none of its processes can work because some have not started."""


def unstarted(names: Sequence[str], waited_s: float, *, is_idle: bool) -> str:
    """A sentence about processes that have not started yet.

    Args:
        is_idle: whether the run cannot go on without them.
    Raises: RunError where it cannot, after `START_S`.
    """
    import ray

    what = "GPU" if (there := ray.cluster_resources()).get("GPU") else "CPU"
    counts = f"{there.get(what, 0):g} {what}s, {ray.available_resources().get(what, 0):g} of them free"
    text = f"{', '.join(names)} did not start in {waited_s:.0f} s; the Ray cluster has {counts}"
    if is_idle and waited_s > START_S:
        raise RunError(
            f"{text}: add machines or end other runs there, then `whet resume`; or resume with smaller cluster.ranks, "
            "cluster.workers or cluster.servers"
        )
    return f"{text}; waiting"


def checked_facts(facts: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What a process says of itself. Raises: RunError where its versions are not this process's."""
    check_versions(facts["versions"], f"{name} on {facts['node']}")
    return facts


def has_failed(error: BaseException) -> bool:
    """Whether a process lives, or never did: its code raised an error, which it would raise again."""
    import ray

    return isinstance(error, ray.exceptions.RayTaskError) or "creation task" in str(error)


def cause_of(error: BaseException, facts: Mapping[str, Any]) -> str:
    """Why a process's answer did not come: a clause, then the process's own last lines or traceback.

    Args:
        error: what `ray.get` raised.
        facts: of the process, as `facts_of_this_process` gives them. {}: it never said.
    """
    if has_failed(error):
        return f"failed:\n{_plain(error)}"
    lines = [
        line
        for ending in (".out", ".err")
        for file in (glob.glob(f"{facts['logs']}{ending}") if "logs" in facts else ())
        for line in Path(file).read_text(errors="replace").splitlines()
        if line.strip() and not line.startswith((":actor_name:", ":task_name:", ":job_id:"))
    ][-NUM_LAST_LINES:]
    said = "its last lines:\n" + "\n".join(lines) if lines else "it wrote nothing"
    return f"died: it was killed, ran out of memory, or its machine is gone; {said}"


def _plain(error: BaseException) -> str:
    """An error's text without colours, and without the lines that only underline others."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()
    return "\n".join(line for line in lines if line.strip(" ^~"))
