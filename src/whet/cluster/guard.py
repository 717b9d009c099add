"""Starts a server and ends its whole process group once the actor that asked for it, or the run itself, is gone.

A program of its own, run by its path: python -I guard.py LOG RUN COMMAND...  RUN is the run's process id where it runs
on this machine, else 0. Standard input stays open as long as the server is wanted. Standard output says the server's
process id, and then the code that it ended with.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

GRACE_S = 5.0
"""Seconds that a server has to end by itself, after SIGTERM."""
LOOK_S = 0.2
"""Seconds between two looks whether it has ended."""
SET_PDEATHSIG = 1
"""Of prctl(2): a signal that a process gets once its parent is gone."""


def main() -> None:
    log, run, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if os.fork():  # Ray kills the children of an actor that ends: this process becomes nobody's child
        os._exit(0)
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the server gets the defaults back
    with open(log, "ab") as file:
        try:
            server = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                preexec_fn=_end_with_guard,
            )
        except OSError as error:
            file.write(
                f"{command[0]} cannot be run ({error.strerror}): give its path, cluster.server_command\n".encode()
            )
            say("code 127")
            return
    say(f"pid {server.pid}")
    await_end(server, run)
    end(server)
    say(f"code {server.returncode}")


def _end_with_guard() -> None:
    """In the server's process, before it becomes the server: where this program is killed, it is too (on Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SET_PDEATHSIG, signal.SIGKILL)


def say(text: str) -> None:
    with suppress(BrokenPipeError):
        print(text, flush=True)


def await_end(server: subprocess.Popen[bytes], run: int) -> None:
    """Waits until the server has ended, or is not wanted any more.

    Args:
        run: the run's process id. 0: it is on another machine.
    """
    watched: list[int] = [0]
    if run and hasattr(os, "pidfd_open"):
        with suppress(OSError):
            watched.append(os.pidfd_open(run))  # readable once the process has ended
    while server.poll() is None:
        if select.select(watched, [], [], LOOK_S)[0]:
            return


def end(server: subprocess.Popen[bytes]) -> None:
    """Ends the server and all processes of its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, number)
        with suppress(subprocess.TimeoutExpired):
            server.wait(GRACE_S)
    until = time.monotonic() + GRACE_S
    with suppress(ProcessLookupError, PermissionError):
        while time.monotonic() < until:  # until the last of the group is gone, with what it held of a GPU
            os.killpg(server.pid, 0)
            time.sleep(0.05)


if __name__ == "__main__":
    main()
