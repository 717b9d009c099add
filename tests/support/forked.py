"""Commands in processes of their own that need not import torch first: a server that has it is forked for each.

All of one test process share their hash seed, as they have one parent. Those that are killed are started anew
(`commands.killed_when`), so a run that was killed and one that was not have different seeds.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from unittest.mock import patch

from support.disk import never_wait

SERVER = multiprocessing.get_context("forkserver")
PRELOADED = [
    "whet.cli", "whet.run.session", "whet.api.run", "whet.run.evaluate", "whet.methods.policy.grpo",
    "whet.methods.critic.critique_rl", "whet.report.page", "rich.progress", "torch._dynamo",
    "transformers.models.qwen2.modeling_qwen2",
]  # fmt: skip
"""What most commands come to import: a second of CPU time in each, where the server does not have it."""
SERVER.set_forkserver_preload(PRELOADED)
FLUSHED = ("stdout", "stderr")
CPU = "cpu"
"""The file with what a command took, as it is no child of ours."""
_cpu_seconds: list[float] = []


def own_cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended, in user and system mode."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def cpu_seconds() -> float:
    """The same of all commands that have ended by themselves so far."""
    return sum(_cpu_seconds)


def forked(arguments: list[str], environment: Mapping[str, str], timeout: float = 300) -> CompletedProcess[str]:
    """`whet` with these arguments, from where the tests are run. What it says is kept as `subprocess.run` keeps it."""
    with tempfile.TemporaryDirectory() as folder:
        said = [Path(folder) / name for name in FLUSHED]
        took = Path(folder) / CPU
        process = SERVER.Process(target=_whet, args=(arguments, os.getcwd(), dict(environment), said, took))
        with patch.dict(os.environ, environment, clear=True):  # the server is started with the first one
            process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise TimeoutExpired(arguments, timeout)
        if took.exists():
            _cpu_seconds.append(float(took.read_text(encoding="utf-8")))
        out, err = (file.read_text(encoding="utf-8") for file in said)
        return CompletedProcess(arguments, process.exitcode, out, err)


def _whet(arguments: list[str], folder: str, environment: dict[str, str], said: list[Path], took: Path) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, place in enumerate((Path(os.devnull), *said)):
        opened = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    sys.argv = ["whet", *arguments]
    never_wait()
    from whet.cli import main

    try:
        main()
    finally:
        took.write_text(str(own_cpu_seconds()), encoding="utf-8")
