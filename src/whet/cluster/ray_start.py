"""Starts Ray, or joins a Ray cluster that runs, and says what is missing before a run begins."""

from __future__ import annotations

import glob
import importlib.util
import logging
import os
import platform
import re
import socket
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from whet.config.base import ConfigError
from whet.config.parts import ClusterConfig
from whet.distribution import how_to_install, version
from whet.errors import RunError

CONNECT_S = 10.0
"""Seconds that an address has to answer in."""


def check_ray(settings: ClusterConfig) -> None:
    """Checks what can be checked without starting anything.

    Raises: ConfigError where Ray is not installed, an address does not answer, or there are too few GPUs here.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            f"cluster.ranks and cluster.workers need Ray, which is not installed: {how_to_install('ray')}; or start "
            "ranks alone by torchrun: `torchrun --nproc-per-node N -m whet.cluster train ...`"
        )
    if settings.address is None:
        import torch

        num_gpus, asked = torch.cuda.device_count(), settings.ranks + settings.workers
        if num_gpus and asked > num_gpus:
            raise ConfigError(
                f"cluster.ranks = {settings.ranks} and cluster.workers = {settings.workers} ask for {asked} GPUs, and "
                f"this machine has {num_gpus}: ask for fewer, or give the address of a larger Ray cluster"
            )
    elif settings.address != "auto":
        _check_answers(settings.address)


def _check_answers(address: str) -> None:
    """Raises: ConfigError where nothing listens at the address."""
    parts = urlsplit(address if "://" in address else f"ray://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise ConfigError(
            f"cluster.address = {address!r} is no address: give host:port, such as 10.0.0.1:6379, or auto"
        )
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        raise ConfigError(
            f"nothing answers at cluster.address = {address!r} ({error}): start Ray there with `ray start --head`, or "
            "leave cluster.address out to start it here"
        ) from error


def connect(settings: ClusterConfig) -> Any:
    """The module `ray`, connected to the run's cluster. A second call changes nothing.

    Raises: ConfigError, RunError where no cluster answers, or has fewer GPUs than the run needs.
    """
    check_ray(settings)
    import ray

    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.CRITICAL}
    if settings.address is None:
        # Processes here find the modules that this one finds. Ray would make them wait for all others (niceness 15).
        path = os.pathsep.join(place for place in sys.path if place)
        options["runtime_env"] = {"env_vars": {"PYTHONPATH": path}}
        ray.init(_system_config={"worker_niceness": 0}, **options)
    else:
        try:
            ray.init(address=settings.address, **options)
        except Exception as error:
            raise RunError(
                f"no Ray cluster answers at cluster.address = {settings.address!r} "
                f"({str(error).splitlines()[0] if str(error) else type(error).__name__}): start one with "
                "`ray start --head`, or leave cluster.address out"
            ) from error
    asked, there = settings.ranks + settings.workers, ray.cluster_resources()
    what = "GPU" if there.get("GPU") else "CPU"
    if asked > there.get(what, 0) and (what == "GPU" or settings.address is not None):
        raise ConfigError(
            f"cluster.ranks = {settings.ranks} and cluster.workers = {settings.workers} ask for {asked} {what}s, and "
            f"the Ray cluster has {int(there.get(what, 0))}: ask for fewer, or add machines to it"
        )
    return ray


def resources(settings: ClusterConfig) -> dict[str, int]:
    """What each rank and worker takes of the cluster. On a CPU of one machine, they share its cores."""
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

    session = ray.get_runtime_context().get_session_name()
    return {
        "node": ray.util.get_node_ip_address(),
        "pid": os.getpid(),
        "versions": versions(),
        "devices": os.environ.get("CUDA_VISIBLE_DEVICES", ""),
        "logs": f"/tmp/ray/{session}/logs/worker-*-{os.getpid()}",
    }


def facts_of(actor: Any, name: str) -> Mapping[str, Any]:
    """What a process that Ray has started says of itself, once its versions are this process's.

    Args:
        name: of the process, for messages.
    Raises: RunError where it could not start, or its versions are others.
    """
    import ray

    try:
        facts = ray.get(actor.facts.remote())
    except ray.exceptions.RayError as error:
        raise RunError(f"{name} could not start: it {cause_of(error, {})}") from error
    check_versions(facts["versions"], f"{name} on {facts['node']}")
    return facts


def cause_of(error: BaseException, facts: Mapping[str, Any]) -> str:
    """Why a process's answer did not come: a clause, then the process's own last lines or traceback.

    Args:
        error: what `ray.get` raised.
        facts: of the process, as `facts_of_this_process` gives them. {}: it never said.
    """
    import ray

    if isinstance(error, ray.exceptions.RayTaskError):
        return f"failed:\n{_plain(error)}"
    if "creation task" in str(error):  # its constructor raised
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
