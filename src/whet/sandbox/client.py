"""Runs code that replies can reach, where it can do no harm.

`Sandbox` starts a parent process inside bubblewrap (`host`), which imports what a program needs and then forks a child
for each request. A child

- sees a read-only Python, no /etc, no home, no /proc, no environment of ours; it writes to a scratch folder in memory;
- has no network and no privileges, and can see, signal or trace its own processes alone. It has its own user, mount,
  process, network and IPC namespaces, a filter of system calls, and a user that is not root;
- has limits of wall-clock and CPU time, memory, processes, files (`Limits`);
- is dead, with all that it started and wrote, before its outcome is known.

It can lie about its own outcome only. Its one way out is a pipe, which ends at the process that keeps its clock. Its
memory holds no other reply.

Verified as root and as an ordinary user, on Linux 6.18 with bubblewrap 0.8. The tests (tests/sandbox/test_sandbox.py)
run as the current user, and if that is root, as another user too. A hundred hostile replies: benchmarks/sandbox.py.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import whet
from whet.sandbox.limits import SCRATCH, Limits
from whet.sandbox.workers import Failure, Json, WorkerError, WorkerPool

PACKAGE = Path(whet.__file__).parent
HOST = "whet.sandbox.host"
NO_PROGRAM = PACKAGE / "sandbox" / "nothing.py"
INSTALL = "apt install bubblewrap (Debian, Ubuntu), dnf install bubblewrap (Fedora), pacman -S bubblewrap (Arch)"


@dataclass(frozen=True, slots=True)
class Request:
    common: Json
    """The parent prepares this, once for equal ones. No reply may have a hand in it."""
    private: Json
    """The child alone sees this: the reply."""


@dataclass(frozen=True, slots=True)
class Forfeit:
    """A request without an answer through its own fault: it ran out of time or memory, or ended its process."""

    reason: str


class Sandbox:
    """Answers requests, each in a separate process. It starts with the first one. A context manager.

    Args:
        program: a Python file with the functions that `host` describes. It may import installed packages, and `whet`.
        slots: children at a time.
        enclosed: False runs without bubblewrap, namespaces and filter, for programs that never evaluate a reply.
        prepare_s: wall-clock limit of one preparation.
        environment: variables of the processes, which get none of ours.
    """

    def __init__(
        self,
        program: Path,
        *,
        limits: Limits,
        slots: int,
        enclosed: bool = True,
        prepare_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._pool = WorkerPool(
            _command(program.resolve(), limits, prepare_s, environment or {}, enclosed=enclosed),
            name=f"the sandbox of {program.name}",
            num_workers=1,
            slots=slots,
            # The parent keeps the limits. This clock is for a parent that is itself stuck.
            timeout_s=slots * (limits.wall_s + 2 * prepare_s) + 60,
        )

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends every process. Another `map` starts anew."""
        self._pool.close()

    def map(self, requests: Sequence[Request]) -> list[Json | Forfeit | Failure]:
        """The outcomes, in the order of the requests. A `Failure` is no request's doing.

        Raises: WorkerError where the sandbox cannot be started.
        """
        return [_outcome(line) for line in self._pool.exchange([_payload(i, r) for i, r in enumerate(requests)])]


def _payload(ticket: int, request: Request) -> bytes:
    head = json.dumps({"ticket": ticket, "common": request.common}).encode()
    private = json.dumps(request.private).encode()
    return struct.pack("!QQ", len(head), len(private)) + head + private


def _outcome(line: Json | Failure) -> Json | Forfeit | Failure:
    if isinstance(line, Failure):
        return line
    if "answer" in line:
        answer: Json = line["answer"]
        return answer
    return Forfeit(line["forfeit"]) if "forfeit" in line else Failure("broken", line["broken"])


@functools.cache
def why_not() -> str | None:
    """Why no sandbox can be made here, as a sentence that says what to do. None: it can."""
    if sys.platform != "linux":
        return f"a sandbox needs Linux and bubblewrap, and this is {sys.platform}: use a Linux machine or container"
    if shutil.which("bwrap") is None:
        return f"a sandbox needs bubblewrap, which is not installed: {INSTALL}"
    try:
        with Sandbox(NO_PROGRAM, limits=Limits(), slots=1) as sandbox:
            (outcome,) = sandbox.map([Request({}, {})])
    except WorkerError as error:
        words = str(error)
    else:
        if isinstance(outcome, dict):
            return None
        words = outcome.reason
    return (
        f"bubblewrap cannot make a sandbox here ({words}): allow user namespaces (sysctl user.max_user_namespaces, "
        "kernel.unprivileged_userns_clone or kernel.apparmor_restrict_unprivileged_userns, whichever the system has; "
        "for a container, docker run --privileged, or a seccomp profile that allows them)"
    )


def _command(
    program: Path, limits: Limits, prepare_s: float, environment: Mapping[str, str], *, enclosed: bool
) -> list[str]:
    ours = ("LD_LIBRARY_PATH",) if enclosed else ("LD_LIBRARY_PATH", "HOME", "TMPDIR")
    variables = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        **({"HOME": SCRATCH, "TMPDIR": SCRATCH} if enclosed else {}),
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *_site_folders()]),
        "PYTHONDONTWRITEBYTECODE": "1",
        **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")},  # a fork takes no threads along
        **{name: os.environ[name] for name in ours if name in os.environ},
        **environment,
    }
    clean = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
    host = [sys.executable, "-P", "-m", HOST, str(program), json.dumps(asdict(limits)), str(prepare_s)]
    if not enclosed:
        return [*clean, *host, "open"]
    return [*clean, *_bubblewrap(program), *host, "enclosed"]


def _site_folders() -> list[str]:
    """Where packages are installed, the user's folder included."""
    return [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]


def _bubblewrap(program: Path) -> list[str]:
    """A root folder that holds the system's libraries, Python and its packages, this package and the program, all
    read-only, and nothing else. The parent is the first process of a namespace, with which all others die. Root keeps
    the capabilities to become another user (`jail.shed_root`)."""
    command = [shutil.which("bwrap") or "bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += [
        "--unshare-cgroup-try",
        "--as-pid-1",
        "--proc",
        "/proc",
        "--tmpfs",
        SCRATCH,
        "--dir",
        "/dev",
        "--dir",
        "/etc",
    ]
    command += ["--ro-bind", "/usr", "/usr"]
    for device in ("null", "zero", "random", "urandom"):
        command += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
    for folder in map(Path, ("/bin", "/lib", "/lib32", "/lib64")):
        if folder.is_symlink():
            command += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            command += ["--ro-bind", str(folder), str(folder)]
    for file in ("/etc/ld.so.cache", "/etc/alternatives"):
        command += ["--ro-bind-try", file, file]
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *_site_folders()]
    places = _outermost([*places, *map(os.path.realpath, places), str(PACKAGE), str(program)])
    for place in places:  # folders that bubblewrap makes unasked can be entered by root alone
        command += ["--dir", os.path.dirname(place), "--ro-bind", place, place]
    if not any(Path(place).is_relative_to("/tmp") for place in places):
        command += ["--symlink", SCRATCH.removeprefix("/"), "/tmp"]
    if os.geteuid() == 0:
        command += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*command, "--remount-ro", "/", "--chdir", "/", "--"]


def _outermost(places: Sequence[str]) -> list[str]:
    """The places that exist, and are neither in another one nor in /usr."""
    outermost: list[str] = []
    for place in sorted(set(places)):
        if os.path.exists(place) and not any(Path(place).is_relative_to(p) for p in (*outermost, "/usr")):
            outermost.append(place)
    return outermost
