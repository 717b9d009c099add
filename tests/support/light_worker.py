"""A process of a cluster that imports neither torch nor transformers, so that many can start and die in a minute."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from whet.cluster.ray_start import facts_of_this_process


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


def answer_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()
