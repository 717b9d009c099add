"""TextWorldExpress (arXiv:2208.01174) in a Java process of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whet.distribution import how_to_install
from whet.envs.household.items import Item
from whet.envs.java import Java, check_java, sendable
from whet.envs.protocol import EnvError

HEAP = "-Xmx256m"


@dataclass(frozen=True, slots=True)
class Said:
    """What the simulator answers."""

    text: str
    actions: tuple[str, ...]
    """All that can be done now, sorted."""
    score: float
    """0 to 1, of the episode so far."""
    is_won: bool
    is_lost: bool
    look: str
    """What the room looks like, whatever was done."""
    inventory: str


class Simulator:
    """One Java process, with one game.

    Raises: EnvError where textworld-express or Java is missing.
    """

    def __init__(self, game: str) -> None:
        check_installed(game)
        self._process = Java(game, "textworld_express", [HEAP])
        self.pid = self._process.pid
        self._game = game
        self._java: Any = self._process.call(self._process.jvm.textworldexpress.runtime.PythonInterface)

    def load(self, item: Item) -> Said:
        """Begin a game anew."""
        problem = self._process.call(self._java.load, self._game, item.level.written())
        if problem:
            raise EnvError(f"this textworld-express does not know the levels of {self._game} ({problem}): use 1.1.0")
        return _read(self._process.call(self._java.generateNewGameJSON, item.seed, item.fold, True))

    def task(self) -> str:
        """What is to be done."""
        return str(self._process.call(self._java.getTaskDescription))

    def gold_actions(self) -> tuple[str, ...]:
        """The simulator's way from the game's start to its goal."""
        return self._process.texts(self._java.getGoldActionSequence)

    def say(self, action: str) -> Said:
        """Act."""
        return _read(self._process.call(self._java.stepJSON, sendable(action)))

    def close(self) -> None:
        """End Java, and wait for it."""
        self._process.close()


def check_installed(game: str) -> None:
    """Raises: EnvError where textworld-express or Java is missing."""
    if find_spec("textworld_express") is None or find_spec("py4j") is None:
        raise EnvError(f"{game} needs textworld-express: {how_to_install('household')}")
    check_java(game)


@cache
def usual_places() -> Mapping[str, frozenset[str]]:
    """By thing of `twc`, the places where it belongs, from the package's own list."""
    folder = Path(import_module("textworld_express.constants").BASEPATH)
    folds = json.loads((folder / "twc_objects.folds.json").read_text(encoding="utf-8"))
    return {name: frozenset(thing["locations"]) for things in folds.values() for name, thing in things.items()}


def _read(answer: str) -> Said:
    said = json.loads(answer)
    return Said(
        text=said["observation"],
        actions=tuple(sorted(said["validActions"])),
        score=min(1.0, max(0.0, float(said["score"]))),
        is_won=bool(said["tasksuccess"]),
        is_lost=bool(said["taskfailure"]),
        look=said["look"],
        inventory=said["inventory"],
    )
