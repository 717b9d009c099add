"""Whole runs on servers that Ray starts, by the program of tests/support that has vLLM's routes."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whet.run_folder.logs import Logs

PROGRAM = Path(__file__).parents[1] / "support" / "vllm_command.py"
COMMAND = shlex.join([sys.executable, str(PROGRAM)])
SMALL = (
    *("num_steps=3", "prompts_per_step=3", "group_size=4", "validate_every=3", "data.num_train=24"),
    *("data.num_validation=4", "data.num_test=4", "sampling.max_new_tokens=32", "evaluation.num_samples=1"),
    *("learning.learning_rate=0.003", "learning.minibatch_rows=6", "num_threads=1", "engine.kind=vllm"),
)


def placed(count: int, *more: str, command: str = COMMAND) -> tuple[str, ...]:
    """Settings of a run that starts its servers."""
    words = json.dumps(command)  # YAML reads it
    return (*SMALL, f"cluster.servers={count}", f"cluster.server_command={words}", *more)


def events(folder: Path) -> list[Mapping[str, Any]]:
    """What a run wrote about its servers."""
    return [event for event in Logs(folder).rows("events.jsonl") if event.get("event") == "servers"]


def alive(*words: str) -> dict[int, str]:
    """Processes whose command line has all these words: the command lines by number."""
    lines: dict[int, str] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if int(place.name) != os.getpid() and all(word in line for word in words):
            lines[int(place.name)] = line
    return lines
