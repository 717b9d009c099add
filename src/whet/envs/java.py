"""A Java process of a simulator, and calls to it through py4j.

Java is started so that every object has the same hash code. Then sets keep the order of insertion, and the same episode
reads the same in every process. Without memory management Python's garbage collector never talks to Java.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import weakref
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from whet.envs.protocol import EnvError

OPTIONS = ("-XX:+UnlockExperimentalVMOptions", "-XX:hashCode=2", "-XX:+UseSerialGC")
STOP_S = 10.0
"""How long Java may take to end before it is killed."""


class Java:
    """One process.

    Args:
        env: the environment that needs it, for messages.
        package: the simulator's Python package, whose `constants` name its jar and its folder.
        options: of Java, beside `OPTIONS`.
    Raises: ImportError where the package is missing; EnvError where Java cannot be started.
    """

    def __init__(self, env: str, package: str, options: Sequence[str] = ()) -> None:
        constants, java = import_module(f"{package}.constants"), import_module("py4j.java_gateway")
        self._package = package
        self._errors = import_module("py4j.protocol").Py4JError
        try:
            port, process = java.launch_gateway(
                classpath=constants.JAR_PATH,
                cwd=constants.BASEPATH,
                javaopts=[*OPTIONS, *options],
                die_on_exit=True,
                return_proc=True,
            )
        except (OSError, ValueError, self._errors) as error:
            raise EnvError(_no_java(env)) from error
        parameters = java.GatewayParameters(auto_field=True, port=port, enable_memory_management=False)
        self._gateway = java.JavaGateway(gateway_parameters=parameters, java_process=process)
        self.jvm: Any = self._gateway.jvm
        self.pid: int = process.pid
        self._end = weakref.finalize(self, _stop, self._gateway, process)

    def call(self, method: Any, *values: object) -> Any:
        """What a method of Java's returns.

        Raises: EnvError where the process is closed or breaks.
        """
        if not self._end.alive:
            raise EnvError("this simulator has been closed: make a new environment")
        try:
            return method(*values)
        except (OSError, self._errors) as error:
            self.close()
            raise EnvError(
                f"{self._package}'s simulator broke ({type(error).__name__}): make a new environment"
            ) from error

    def texts(self, method: Any) -> tuple[str, ...]:
        """A list of Java's, copied, and given back."""
        java_list = self.call(method)
        copied: tuple[str, ...] = self.call(lambda: tuple(map(str, java_list)))
        self.call(self._gateway.detach, java_list)
        return copied

    def close(self) -> None:
        """End Java, and wait for it."""
        self._end()


def check_java(env: str) -> None:
    """Raises: EnvError where there is no Java to start."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=os.path.join(home, "bin") if home else None) is None:
        raise EnvError(_no_java(env))


def _no_java(env: str) -> str:
    return f"{env} cannot start java: install a Java runtime, such as default-jre-headless"


def sendable(text: str) -> str:
    """A text that py4j can send: half a character becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")


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
