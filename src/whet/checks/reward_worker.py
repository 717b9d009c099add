"""The child process behind `scorers.FunctionScorer`: calls a user's grader or reward term, one JSON line at a time.

Run as a script, `python -P reward_worker.py '{"kind", "name", "module", "file", "timeout_s"}'`. A reply to a request
holds `value`, the raw number, or `trouble` and `reason`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from whet.errors import text_of
from whet.grading import make_grader
from whet.grading.orphans import ended_if_orphaned
from whet.grading.user import GRADERS, UserFunction
from whet.plugins import line_of, load_plugins
from whet.rewards import REWARDS
from whet.types import MAX_REWARD, Episode, Grade, Segment, Task, in_brief

Json = dict[str, Any]
Score = Callable[[Json], Any]


def episode_of(task: Task, reply: str, grade: Grade | None) -> Episode:
    """An episode of one reply. Its tokens stand in for a model's: one for each byte of the text."""
    tokens = tuple(reply.encode(errors="replace"))
    segment = Segment(
        role="solver",
        policy="policy",
        added=tuple(task.prompt.encode(errors="replace")) or (0,),
        tokens=tokens,
        logprobs=(-1.0,) * len(tokens),
        versions=((0, len(tokens)),),
        text=reply,
        stop_reason="eos",
        temperature=1.0,
        seed=0,
        parent=None,
        group={"task": task.id},
        grade=grade,
    )
    return Episode(task=task, segments=(segment,))


def scorer_of(kind: str, name: str) -> Score:
    """A function from a request to what the user's function returns."""
    if kind == "grader":
        function = GRADERS.get(name)
        if not isinstance(function, UserFunction):
            grader = make_grader(name)
            return lambda request: grader.grade([(request["reply"], Task(**request["task"]))])[0]
        call, wishes = function.function, function.wishes
        return lambda request: call(**wishes.arguments(request["reply"], Task(**request["task"])))
    term = REWARDS.get(name)

    def score(request: Json) -> Any:
        grade = None if request["grade"] is None else Grade(**request["grade"])
        return term(episode_of(Task(**request["task"]), request["reply"], grade), 0)

    return score


def answer(kind: str, score: Score, request: Json, runner: asyncio.Runner, file: str) -> Json:
    """The reply to one request."""
    try:
        value = score(request)
        if inspect.isawaitable(value):
            value = runner.run(_awaited(value))
    except BaseException as error:  # SystemExit too
        words = text_of(error).strip().partition("\n")[0][:200]
        reason = f"raised {type(error).__name__}" + (f": {words}" if words else "")
        return {"trouble": "crashed", "reason": f"{reason}{line_of(error, file).rstrip(',')}"}
    if isinstance(value, Grade):
        if value.score is None:
            return {"trouble": "no score", "reason": value.reason[:200]}
        value = value.score
    return judged(value, (0.0, 1.0) if kind == "grader" else (-MAX_REWARD, MAX_REWARD))


async def _awaited(value: Any) -> Any:
    return await value


def judged(value: Any, span: tuple[float, float]) -> Json:
    """What a returned value is: a number within the span, or a trouble."""
    if value is None:
        return {"trouble": "no score", "reason": "gave None"}
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except Exception:
        return {"trouble": "no number", "reason": f"gave {in_brief(value)}"}
    if isinstance(value, str | bytes):
        return {"trouble": "no number", "reason": f"gave the text {in_brief(value)}"}
    if not math.isfinite(number):
        return {"trouble": "not finite", "reason": f"gave {number}"}
    if not span[0] <= number <= span[1]:
        return {"trouble": "out of range", "reason": f"gave {number:g}, outside of [{span[0]:g}, {span[1]:g}]"}
    return {"value": number}


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    place = json.loads(sys.argv[1])
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # so that the function reads no request
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # nor prints a reply
    try:
        if place["file"]:
            load_plugins([place["file"]])
        else:
            import_module(place["module"])
        score = scorer_of(place["kind"], place["name"])
    except Exception as error:
        sys.exit(text_of(error))
    process = os.getpid()
    os.dup2(quiet, 2)
    print("ready", file=replies, flush=True)
    with asyncio.Runner() as runner:
        for line in requests:
            with ended_if_orphaned(place["timeout_s"]):
                reply = json.dumps(answer(place["kind"], score, json.loads(line), runner, place["file"]))
            if os.getpid() != process:  # a child that the function forked
                os._exit(1)
            print(reply, file=replies, flush=True)


if __name__ == "__main__":
    main()
