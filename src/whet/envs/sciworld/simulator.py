"""scienceworld's simulator in a Java process of its own, started for determinism.

scienceworld's own class is not used, for three reasons. It starts Java so that sets of objects are ordered by chance,
and the same episode reads differently from process to process (`envs/java.py` does not). It lists all valid actions at
every step, hundreds of them, one message each. And it takes 1.9 GB, since nothing limits the heap.

All games in one Java process share one source of chance, which a load seeds: so a process serves one environment only.
"""

from __future__ import annotations

from typing import Any

from whet.distribution import how_to_install
from whet.envs.java import Java, sendable
from whet.envs.protocol import EnvError
from whet.envs.sciworld.items import TASKS

HEAP = "-Xmx1g"


class Simulator:
    """One Java process.

    Raises: EnvError where scienceworld or Java is missing, or this scienceworld's tasks are not those we number.
    """

    def __init__(self) -> None:
        try:
            self._process = Java("sciworld", "scienceworld", [HEAP])
        except ImportError as error:
            raise EnvError(f"sciworld needs scienceworld: {how_to_install('sciworld')}") from error
        self.pid = self._process.pid
        self._call = self._process.call
        self._java: Any = self._call(self._process.jvm.scienceworld.runtime.pythonapi.PythonInterface)
        self._check_version()
        self.actions: tuple[str, ...] = ()
        """The forms of actions, with `OBJ` for any object. Empty until a game is loaded."""

    def load(self, task: str, variation: int, *, with_gold: bool = False) -> str:
        """Begin a game anew. Returns: the task's description.

        Args:
            with_gold: compute the way to the goal too (`gold_actions`), which may take seconds.
        """
        self._call(self._java.load, task, variation, "", with_gold)
        if not self.actions:
            self.actions = self._process.texts(self._java.getPossibleActions)
        return str(self._call(self._java.getTaskDescription))

    def gold_actions(self) -> tuple[str, ...]:
        """The simulator's way to the goal of a game that was loaded with `with_gold`."""
        return self._process.texts(self._java.getGoldActionSequence)

    def say(self, action: str) -> str:
        """Act."""
        return str(self._call(self._java.step, sendable(action)))

    def objects(self) -> tuple[str, ...]:
        """Names of the objects that can be seen now."""
        return self._process.texts(self._java.getPossibleObjects)

    def goal_progress(self) -> str:
        """The goals of the task, and which are reached."""
        return str(self._call(self._java.getGoalProgressStr))

    @property
    def score(self) -> int:
        """-100 after a fatal mistake, else 0 to 100."""
        return round(100 * self._call(self._java.getScore))

    @property
    def is_complete(self) -> bool:
        return bool(self._call(self._java.getCompleted))

    @property
    def num_moves(self) -> int:
        """Units of time that have passed; looking around takes none."""
        return int(self._call(self._java.getNumMoves))

    def close(self) -> None:
        """End Java, and wait for it."""
        self._process.close()

    def _check_version(self) -> None:
        for task in TASKS:
            number = self._call(self._java.getTaskMaxVariations, task.name)
            if number != task.num_variations:
                self.close()
                raise EnvError(
                    f"this scienceworld has {number} variations of {task.name}, not {task.num_variations}, so items "
                    "would be others: pip install scienceworld==1.2.3"
                )
