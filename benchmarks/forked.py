"""`whet` commands in processes forked from one that has imported everything: a start costs milliseconds."""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import contextlib
import json
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import peft  # noqa: F401  for the children
import transformers.models.qwen2.modeling_qwen2
import transformers.models.qwen3.modeling_qwen3  # noqa: F401

import whet.report.page
import whet.report.table
import whet.run.evaluate
import whet.run.launch  # noqa: F401
from whet.cli import app
from whet.methods.critique_data.records import FILES
from whet.run_folder.folder import ROUNDS
from whet.trainer.checkpoint import MANIFEST, damage, newest_first

TIMES = ("time/", "throughput/", "endpoint/")
"""What a run measures of its surroundings: clocks, and how often an endpoint failed."""
STATE = ("done", "began", "step", "total_steps", "best", "versions", "forks", "gates")
"""Of `state.json`, what has to be the same."""
KILLED = -signal.SIGKILL


def begin(arguments: Sequence[object], log: Path, prepare: Callable[[], None] = lambda: None) -> int:
    """A process that runs a command, and writes what it prints to the end of `log`. The parent must not have computed
    with torch, whose threads do not survive a fork.

    Args:
        prepare: runs in the process before the command.
    """
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        number = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(number, 1)
        os.dup2(number, 2)
        prepare()
        sys.argv = ["whet", *map(str, arguments)]
        app(sys.argv[1:])
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def end(process: int, after: float | None = None) -> int:
    """Wait for it; its exit code.

    Args:
        after: seconds after which it is killed, if it still runs. None: never.
    """
    if after is not None:
        deadline = time.monotonic() + after
        while time.monotonic() < deadline:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def run(
    arguments: Sequence[object], log: Path, after: float | None = None, prepare: Callable[[], None] = lambda: None
) -> int:
    return end(begin(arguments, log, prepare), after)


def end_state(folder: Path) -> dict[str, Any]:
    """What two runs with the same bits have in common: the last checkpoint's tensors, store and place in the run,
    metrics but for times, traces, measurements, what became of rounds, and the final table."""
    found: dict[str, Any] = {}
    files = ("traces/*", "eval/*", "answers.jsonl", ROUNDS, *FILES)
    for path in [path for each in files for path in folder.glob(each)]:
        found[str(path.relative_to(folder))] = path.read_bytes()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    found["metrics"] = [{k: v for k, v in json.loads(line).items() if not k.startswith(TIMES)} for line in lines]
    with contextlib.suppress(OSError):
        found["summary"] = json.loads((folder / "summary.json").read_text())["rows"]
    last = newest_first(folder)[0]
    found["damage"] = damage(last)
    listed = json.loads((last / MANIFEST).read_text())
    found["tensors"] = {k: v for k, v in listed.items() if k.endswith(".safetensors") or k.startswith("store/")}
    state = json.loads((last / "state.json").read_text())
    found["state"] = {k: state[k] for k in STATE}
    return found


def difference(a: dict[str, Any], b: dict[str, Any]) -> str | None:
    """Names of what differs; None: the same bits."""
    return ", ".join(sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))) or None
