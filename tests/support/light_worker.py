"""A process of a cluster that imports neither torch nor transformers, so that many can start and die in a minute."""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

from whet.cluster.ray_start import facts_of_this_process
from whet.config.base import ConfigError


class LightWorker:
    """Its job takes a moment. Job 7 prints a line."""

    def facts(self) -> Any:
        return facts_of_this_process()

    def start(self) -> None:
        """Needs nothing."""

    def run(self, number: int) -> str:
        time.sleep(0.05)
        if number == 7:
            print("seven is being worked on", flush=True)
        return answer_of(number)


class BrokenWorker(LightWorker):
    def __init__(self) -> None:
        raise ValueError("no grader here")


class DiesAtItsStart(LightWorker):
    """Its first process is killed as it starts."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def start(self) -> None:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class LacksAFile(LightWorker):
    def start(self) -> ConfigError:  # type: ignore[override]
        return ConfigError("mine.py is not there")


class LightRank:
    """Ends a command as this says for its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def run(self, command: bytes, first: Any) -> tuple[str, Any]:
        _, (ends,) = pickle.loads(command)
        match ends[self.number]:
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "waits":
                time.sleep(60)
            case "says":
                return "error", ValueError("no such rows")
            case "loses":
                raise RuntimeError("[/third_party/gloo/transport/pair.cc] Connection closed by peer")
            case "raises":
                raise RuntimeError("a mistake")
        return "answer", first


def answer_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()
