"""The sandbox's parent: imports what a program needs, then forks a child for each request. `client` starts it.

`python -m whet.sandbox.host PROGRAM LIMITS PREPARE_S enclosed|open`, where PROGRAM is a Python file with

    warm()                   called once, before anything else: imports, above all
    prepare(common)            called here, once for equal `common`; the child has its result, ready made
    answer(prepared, private)  called in the child, which alone ever sees `private`, the reply. Gives a JSON object

and LIMITS a JSON object. A request is two lengths of eight bytes and two JSON texts: `{"ticket", "common"}` and
`private`. The reply is a line with `{"ticket"}` and one of three: `{"answer"}`; `{"forfeit": reason}` where the child
gave none; `{"broken": reason}` where the fault is ours.

Between this process, which must stay as it is, and the child, which may do anything, stands a third: the keeper. It is
forked here, moves to namespaces of its own (`jail`) and forks the child. It reads the child's answer over a pipe, keeps
its clock, kills it, and writes the line. The child has the pipe and nothing else, and sees no other process.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import json
import os
import select
import signal
import struct
import sys
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from whet.sandbox import jail
from whet.sandbox.limits import Limits, set_limits

Json = dict[str, Any]

PROGRAM = "program"
"""Name of the program's module."""
SETUP_S = 30.0
"""A child that has not fenced itself in by then is broken. Normally it takes milliseconds."""
PAUSES_S = (0.1, 0.5)
"""Pauses before another try to fork."""
MAX_ANSWER = 2**20
"""Bytes of an answer."""
MAX_DEPTH = 50
"""Lists in lists, and so on, in an answer: reading it must not cost the reader its stack."""
FENCED = b"+"
"""A child writes this first. Everything after it may come from the reply."""


class Broken(Exception):
    """Our fault, not the reply's."""


class Late(BaseException):
    """A preparation takes too long. A program's `except Exception` must not catch it."""


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(PROGRAM, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[PROGRAM] = module
    spec.loader.exec_module(module)
    return module


class Host:
    """Serves requests until they end."""

    def __init__(self, program: Any, limits: Limits, *, prepare_s: float, enclosed: bool, replies: int) -> None:
        self._program = program
        self._limits = limits
        self._prepare_s = prepare_s
        self._enclosed = enclosed
        self._replies = replies
        self._turn = os.pipe()  # holds one byte: who takes it may write a line
        os.write(self._turn[1], b"1")
        self._prepared = lru_cache(maxsize=256)(self._prepare)  # what fails raises, and is tried again next time

    def serve(self, requests: int) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for keepers
        while lengths := read_exactly(requests, 16):
            size, private_size = struct.unpack("!QQ", lengths)
            head = json.loads(read_exactly(requests, size))
            prepared, trouble = None, ""
            try:
                prepared = self._prepared(json.dumps(head["common"]))
            except Broken as error:
                trouble = str(error)
            # The reply goes through this memory, which every later child gets a copy of, in one place only.
            private = read_exactly(requests, private_size)
            try:
                if trouble:
                    raise Broken(trouble)
                if fork() == 0:
                    self._keep(head["ticket"], prepared, private)
            except (Broken, OSError) as error:
                self._say(head["ticket"], {"broken": describe(error)})
            private[:] = bytes(len(private))

    def _prepare(self, common: str) -> Any:
        """The result of the program's `prepare`.

        Raises: Broken where it fails.
        """
        signal.signal(signal.SIGALRM, _late)
        signal.setitimer(signal.ITIMER_REAL, self._prepare_s, 1.0)  # again and again, should the program catch it
        with open(os.devnull, "w") as nowhere:  # ends this process even in the middle of one endless C call
            faulthandler.dump_traceback_later(2 * self._prepare_s + 5, exit=True, file=nowhere)
            try:
                return self._program.prepare(json.loads(common))
            except Late:
                raise Broken(f"not ready within {self._prepare_s:g} s") from None
            except Exception as error:
                raise Broken(describe(error)) from None
            finally:
                faulthandler.cancel_dump_traceback_later()
                signal.setitimer(signal.ITIMER_REAL, 0)

    def _keep(self, ticket: int, prepared: Any, private: bytearray) -> NoReturn:
        """The keeper's whole life."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        try:
            outcome = run_child(self._program, prepared, private, self._limits, enclosed=self._enclosed)
        except Exception as error:
            outcome = {"broken": describe(error)}
        self._say(ticket, outcome)
        os._exit(0)

    def _say(self, ticket: int, outcome: Json) -> None:
        line = json.dumps({"ticket": ticket, **outcome}).encode() + b"\n"
        os.read(self._turn[0], 1)
        write(self._replies, line)
        os.write(self._turn[1], b"1")


def _late(*_: object) -> NoReturn:
    raise Late


def describe(error: BaseException) -> str:
    """One line of some 300 characters. The program's own errors are sentences."""
    words, name = str(error).strip().partition("\n")[0][:300], type(error).__name__
    if not words:
        return name
    return words if type(error).__module__ in (PROGRAM, Broken.__module__) else f"{name}: {words}"


def fork() -> int:
    """`os.fork`, with patience where the machine is short of processes or memory just then.

    Raises: OSError.
    """
    for pause in PAUSES_S:
        with suppress(OSError):
            return os.fork()
        time.sleep(pause)
    return os.fork()


def read_exactly(source: int, size: int) -> bytearray:
    """Reads so many bytes from a pipe, and none more. Empty at its end."""
    buffer = bytearray(size)
    view, done = memoryview(buffer), 0
    while done < size:
        count = os.readv(source, [view[done:]])
        if count == 0:
            return bytearray()
        done += count
    return buffer


# --- the keeper -----------------------------------------------------------------------------------------------------


def run_child(program: Any, prepared: Any, private: bytearray, limits: Limits, *, enclosed: bool) -> Json:
    """The outcome of one child, of which nothing is left.

    Raises: Broken, OSError.
    """
    if enclosed:
        jail.leave()
    source, sink = os.pipe()
    child = fork()
    if child == 0:
        be_child(program, prepared, private, limits, sink, enclosed=enclosed)
    os.close(sink)
    try:
        first = read_some(source, 1, time.monotonic() + SETUP_S)
        if first != FENCED:
            rest = read_some(source, 1000, time.monotonic() + 1) or b""
            raise Broken(f"the sandbox could not be closed: {((first or b'') + rest).decode(errors='replace')}")
        outcome = listen(source, time.monotonic() + limits.wall_s)
    finally:
        status = end(child)
    if outcome is None:
        return {"forfeit": f"timed out after {limits.wall_s:g} s"}
    return outcome or {"forfeit": f"ended without an answer ({how_it_ended(status)})"}


def end(child: int) -> int:
    """Kills a child and waits for it. With the first process of a namespace all others die, and it is the last to go.
    Without namespaces its process group is killed. Returns: its wait status."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):  # it is no group's first yet, or its last member is gone
            kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def how_it_ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"killed by signal {-code}, perhaps at a limit"


def read_some(source: int, size: int, deadline: float) -> bytes | None:
    """Bytes, as soon as some are there. Empty: nobody is left to write. None: the time is up."""
    ready, _, _ = select.select([source], [], [], max(deadline - time.monotonic(), 0))
    return os.read(source, size) if ready else None


def listen(source: int, deadline: float) -> Json | None:
    """The outcome in a child's line, whoever wrote it. Empty: there was none. None: the time was up."""
    line = bytearray()
    while b"\n" not in line:
        chunk = read_some(source, 2**16, deadline)
        if chunk is None:
            return None
        if not chunk:
            return {}
        line += chunk
        if len(line) > MAX_ANSWER:
            return {"forfeit": f"its answer has more than {MAX_ANSWER} bytes"}
    return read_answer(bytes(line.partition(b"\n")[0]))


def read_answer(line: bytes) -> Json:
    """Parses a child's line. It refuses what a later reader could stumble over: deep nesting, NaN, half a character."""
    try:
        message = json.loads(line.decode(), parse_constant=_no_number)
        json.dumps(message, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return {"forfeit": "its answer cannot be read"}
    if not isinstance(message, dict) or not is_shallow(message, MAX_DEPTH):
        return {"forfeit": "its answer cannot be read"}
    if isinstance(message.get("answer"), dict):
        return {"answer": message["answer"]}
    return {"forfeit": f"ended with {str(message.get('error'))[:300]}"}


def is_shallow(value: object, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(is_shallow(item, depth - 1) for item in inner)


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


# --- the child ------------------------------------------------------------------------------------------------------


def be_child(program: Any, prepared: Any, private: bytearray, limits: Limits, sink: int, *, enclosed: bool) -> NoReturn:
    """The child's whole life. It ends here and at once: exit handlers could be the reply's."""
    code = 1
    try:
        sink = keep_only(sink)
        try:
            if enclosed:
                jail.fence(limits)
            else:
                os.setsid()
                set_limits(limits)
        except Exception as error:
            write(sink, describe(error).encode())
            raise  # to nobody
        write(sink, FENCED)
        try:
            message = {"answer": program.answer(prepared, json.loads(private))}
            code = 0
        except BaseException as error:
            message = {"error": describe(error)}
        write(sink, json.dumps(message).encode() + b"\n")
    finally:
        os._exit(code)


def keep_only(sink: int) -> int:
    """Closes every file of the caller but this one. Its input, output and errors become /dev/null.

    Returns: its new number.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    os.dup2(sink, 3)
    os.set_inheritable(3, False)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    return 3


def write(sink: int, text: bytes) -> None:
    view = memoryview(text)
    while view:
        view = view[os.write(sink, view) :]


# --- the start ------------------------------------------------------------------------------------------------------


def main() -> None:
    path, limits, prepare_s, how = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.dup(1)
    os.dup2(2, 1)  # so that nothing a library prints is taken for a reply
    program = load(Path(path))
    program.warm()
    enclosed = how == "enclosed"
    if enclosed:
        jail.shed_root()
    host = Host(program, Limits(**json.loads(limits)), prepare_s=float(prepare_s), enclosed=enclosed, replies=replies)
    gc.collect()
    gc.freeze()  # children do not touch objects that exist already, so that their memory stays shared
    os.write(replies, b"ready\n")
    host.serve(0)


if __name__ == "__main__":
    main()
