"""A plug-in whose graders misbehave in every way that a function can."""

import os
import subprocess
import sys
import time

import numpy as np

from whet.kit import Grade, from_trl, from_verl, grader

print("a plug-in may print while it is imported")


@grader("sorts")
def sorts(completion: str):
    """Does what the reply says."""
    return {
        "right": lambda: True,
        "numpy": lambda: np.float32(0.25),
        "nan": lambda: float("nan"),
        "two": lambda: 2.0,
        "text": lambda: "1.0",
        "none": lambda: None,
        "array": lambda: np.ones(3),
        "grade": lambda: Grade(score=1.5),
        "silent": lambda: Grade(score=None),
        "unsure": lambda: Grade(score=None, reason="the judge was away"),
        "raise": lambda: {}["missing"],
        "exit": lambda: sys.exit(0),
        "die": lambda: os._exit(1),
        "endless": lambda: forever(),
        "sleep": lambda: time.sleep(60),
        "print": lambda: print('{"score": 1.0}', flush=True) or 0.5,
        "child": lambda: subprocess.run(["echo", '{"score": 1.0}'], check=True).returncode + 0.5,
        "read": lambda: 0.5 if sys.stdin.read() == "" else 1.0,
        "fork": lambda: 1.0 if (child := os.fork()) == 0 else os.waitpid(child, 0)[1] * 0 + 0.5,
        "chatty": lambda: print("x" * 20_000_000) or 0.5,
    }[completion]()


def forever() -> float:
    while True:
        pass


@grader("needs_colour")
def needs_colour(completion, colour, size=1, *, answer="none"):
    return Grade(score=0.0, reason=f"{colour} {size} {answer}")


@grader("whole")
def whole(completion, info, **rest):
    return Grade(score=0.0, reason=f"{sorted(info)} {sorted(rest)}")


def trl_style(prompts, completions, answer, **columns):
    """Pays 2 for the answer."""
    assert all(isinstance(message["content"], str) for turn in completions for message in turn)
    return [None if turn[0]["content"] == "?" else 2.0 * (turn[0]["content"] == a)
            for turn, a in zip(completions, answer, strict=True)]  # fmt: skip


async def verl_style(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": float(solution_str == ground_truth), "pred": f"{data_source} {extra_info['level']}"}


grader("trl")(from_trl(trl_style, span=(0, 2), messages=True))
grader("verl")(from_verl(verl_style))
