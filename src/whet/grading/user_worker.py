"""The child process behind `user.UserGrader`: calls a user's function, one JSON line after the other.

Run as a script, `python -P user_worker.py '{"name", "module", "file", "neighbours", "timeout_s"}'`: it imports the
plug-in (the file, or without one the module), which registers the function by its name. Each request holds the
arguments, each reply the fields of a `Grade`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Any, TextIO

from whet.errors import text_of
from whet.grading.orphans import ended_if_orphaned
from whet.grading.user import GRADERS, UserFunction
from whet.plugins import as_loaded, load_plugins
from whet.types import Grade

MAX_SAID = 10 * 2**20
"""Bytes that a chatty function may leave in the file behind stderr."""
MAX_REASON = 600
WANTED = "it must return a number from 0 to 1, or a whet.types.Grade"


def load_function(place: dict[str, Any]) -> UserFunction:
    """The registered function. Ends the process where a file of its module has changed."""
    if place["file"]:
        (module,) = load_plugins([place["file"]])
        _, neighbours = as_loaded(Path(place["file"]))
        files = [place["file"]] * (module.__name__ != place["module"])
        files += [file for file, digest in place["neighbours"].items() if neighbours.get(file) != digest]
        if files:
            sys.exit(f"{files[0]} has changed since it was loaded: put it back as it was, or start again")
    else:
        import_module(place["module"])
    function = GRADERS.get(place["name"])
    assert isinstance(function, UserFunction), "only functions have workers"
    return function


def graded(function: UserFunction, arguments: dict[str, Any], runner: asyncio.Runner, file: str) -> dict[str, Any]:
    """The reply to one request."""
    try:
        value = function.function(**arguments)
        if inspect.isawaitable(value):
            value = runner.run(awaited(value))
    except BaseException as error:  # SystemExit too: the function has no say over this process
        return unscored(f"the {function.title} raised {error_text(error)}{line(error, file)}")
    grade = value if isinstance(value, Grade) else Grade(score=value)
    trouble = problem(grade)
    if trouble is not None or value is None:
        return unscored(f"the {function.title} gave {shown(value)}{trouble or ''}; {WANTED}")
    score = None if grade.score is None else float(grade.score)
    return {
        "score": score,
        "reason": grade.reason[:MAX_REASON],
        "extracted": grade.extracted,
        "exhausted": grade.exhausted,
    }


async def awaited(value: Any) -> Any:
    return await value


def problem(grade: Grade) -> str | None:
    """What is wrong with a grade, as the end of a sentence that has its value; None: nothing."""
    if not isinstance(grade.reason, str) or not isinstance(grade.extracted, str | None):
        return ", whose reason and extracted are not both text"
    if not isinstance(grade.exhausted, bool):
        return ", whose exhausted is neither True nor False"
    if grade.score is None:
        return None if grade.reason else " (no reason)"
    if isinstance(grade.score, str) or not hasattr(grade.score, "__float__"):  # NumPy's and PyTorch's scalars have it
        return ""
    try:
        score = float(grade.score)
    except Exception as error:  # a tensor of several numbers
        return f" ({error_text(error)})"
    return None if 0 <= score <= 1 else " (no number)" if math.isnan(score) else " (outside of [0, 1])"


def unscored(reason: str) -> dict[str, Any]:
    return {"score": None, "reason": reason[:MAX_REASON]}


def error_text(error: BaseException) -> str:
    words = text_of(error).strip().partition("\n")[0][:200]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def shown(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception as error:
        text = f"a {type(value).__name__} whose repr raised {type(error).__name__}"
    return text if len(text) <= 120 else f"{text[:117]}..."


def line(error: BaseException, file: str) -> str:
    """Where in the plug-in's file it was raised."""
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
    return f" ({os.path.basename(file)}, line {lines[-1]})" if lines else ""


def serve(function: UserFunction, place: dict[str, Any], requests: TextIO, replies: TextIO) -> None:
    file, process = str(getattr(sys.modules[place["module"]], "__file__", "")), os.getpid()
    print("ready", file=replies, flush=True)
    with asyncio.Runner() as runner:
        for request in requests:
            with ended_if_orphaned(place["timeout_s"]):
                answer = json.dumps(graded(function, json.loads(request), runner, file))
            if os.getpid() != process:  # a child that the function forked, whose answer would pass for the next one
                os._exit(1)
            if os.fstat(2).st_size > MAX_SAID:
                os.ftruncate(2, 0)
                os.lseek(2, 0, os.SEEK_SET)
            print(answer, file=replies, flush=True)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # so that nobody else reads a request
    os.dup2(2, 1)  # nor prints a reply
    place = json.loads(sys.argv[1])
    try:
        function = load_function(place)
    except Exception as error:
        sys.exit(error_text(error))
    serve(function, place, requests, replies)


if __name__ == "__main__":
    main()
