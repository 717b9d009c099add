"""scienceworld's simulator in a Java process of its own, started for determinism.

scienceworld's own class is not used, for three reasons. It starts Java so that sets of objects are ordered by chance,
and the same episode reads differently from process to process. Here every object has the same hash code, so that sets
keep the order of insertion. It lists all valid actions at every step, hundreds of them, one message each. And it takes
1.9 GB, since nothing limits the heap.

All games in one Java process share one source of chance, which a load seeds: so a process serves one environment only.
"""

from __future__ import annotations

import contextlib
import subprocess
import weakref
from importlib import import_module
from typing import Any

from whet.distribution import how_to_install
from whet.envs.protocol import EnvError
from whet.envs.sciworld.items import TASKS

JAVA_OPTIONS = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2", "-XX:+UseSerialGC", "-Xmx1g")
STOP_S = 10.0
"""How long Java may take to end before it is killed."""


class Simulator:
    """One Java process.

    Raises: EnvError where scienceworld or Java is missing, or this scienceworld's tasks are not those we number.
    """

    def __init__(self) -> None:
        try:
            constants, java = import_module("scienceworld.constants"), import_module("py4j.java_gateway")
        except ImportError as error:
            raise EnvError(f"sciworld needs scienceworld: {how_to_install('sciworld')}") from error
        self._errors = import_module("py4j.protocol").Py4JError
        try:
            port, process = java.launch_gateway(
                classpath=constants.JAR_PATH,
                cwd=constants.BASEPATH,
                javaopts=list(JAVA_OPTIONS),
                die_on_exit=True,
                return_proc=True,
            )
        except (OSError, ValueError, self._errors) as error:
            raise EnvError(
                "sciworld cannot start java: install a Java runtime, such as default-jre-headless"
            ) from error
        # Without memory management: otherwise Python's garbage collector talks to Java whenever it finds a reference.
        parameters = java.GatewayParameters(auto_field=True, port=port, enable_memory_management=False)
        gateway = self._gateway = java.JavaGateway(gateway_parameters=parameters, java_process=process)
        self.pid: int = process.pid
        self._end = weakref.finalize(self, _stop, gateway, process)
        self._java: Any = self._call(gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface)
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
            self.actions = self._list(self._java.getPossibleActions)
        return str(self._call(self._java.getTaskDescription))

    def gold_actions(self) -> tuple[str, ...]:
        """The simulator's way to the goal of a game that was loaded with `with_gold`."""
        return self._list(self._java.getGoldActionSequence)

    def say(self, action: str) -> str:
        """Act. Half a character cannot be sent, and becomes a question mark."""
        return str(self._call(self._java.step, action.encode("utf-8", "replace").decode("utf-8")))

    def objects(self) -> tuple[str, ...]:
        """Names of the objects that can be seen now."""
        return self._list(self._java.getPossibleObjects)

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
        self._end()

    def _check_version(self) -> None:
        for task in TASKS:
            number = self._call(self._java.getTaskMaxVariations, task.name)
            if number != task.num_variations:
                self.close()
                raise EnvError(
                    f"this scienceworld has {number} variations of {task.name}, not {task.num_variations}, so items "
                    "would be others: pip install scienceworld==1.2.3"
                )

    def _list(self, method: Any) -> tuple[str, ...]:
        """A list of Java's, copied, and given back."""
        java_list = self._call(method)
        copied = self._call(lambda: tuple(map(str, java_list)))
        self._call(self._gateway.detach, java_list)
        return copied

    def _call(self, method: Any, *values: object) -> Any:
        if not self._end.alive:
            raise EnvError("this simulator has been closed: make a new environment")
        try:
            return method(*values)
        except (OSError, self._errors) as error:
            self.close()
            raise EnvError(
                f"scienceworld's simulator broke ({type(error).__name__}): make a new environment"
            ) from error


def _stop(gateway: Any, process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(Exception):  # it may be gone already, and it is ended below whatever happens here
        gateway.close()
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # java ends when its input does
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
