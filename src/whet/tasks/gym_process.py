"""The child process behind `tasks.gym` and `grading.gym`: makes the items of reasoning-gym, and scores answers to them.

It is a separate process for three reasons. Some generators walk through sets of texts, so that an item depends on
Python's hash seed. That can only be fixed at the start of a process (`tasks.gym.ENVIRONMENT`). Some scorers evaluate
the answer as Python code. And the package takes seconds to import. So it imports nothing of ours, and is two things:

`python -P gym_process.py items` reads one JSON object, `{"dataset", "params", "seed"}`, and writes items for ever, one
a line: `{"settings", "index", "question", "answer"}`, or `{"error"}` for an item that could not be made. The one line
`{"problem"}` instead says in a sentence why there are none.

As a program for `sandbox.host` it scores. The parent makes the item of `{"dataset", "settings", "index", "question",
"answer"}` again and tries the scorer on the item's answer. The child scores `{"reply"}` with `{"score", "reason"}`.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import difflib
import importlib
import json
import logging
import math
import os
import random
import signal
import sys
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from itertools import count
from typing import Any

import numpy as np

GymEntry = dict[str, Any]

CHUNK = 1000
"""Items that are taken of one generator. Some make all of theirs at once, and one allows no more than 20,000."""
NUM_PROBED = 5
"""Items whose scorer is tried on nonsense before any is used."""
NONSENSE = "no such answer"


class Problem(Exception):
    """Tells the user why a set cannot be used."""


# --- items ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def generator(dataset: str, settings: str) -> Any:
    """reasoning-gym's object.

    Args:
        settings: JSON, with `seed` and `size`.
    """
    import reasoning_gym

    seed_all(f"{dataset}/{settings}", 0)
    return reasoning_gym.create_dataset(dataset, **json.loads(settings))


@lru_cache(maxsize=256)
def entry(dataset: str, settings: str, index: int) -> GymEntry:
    """An item, the same whatever was generated before it."""
    made = generator(dataset, settings)
    seed_all(f"{dataset}/{settings}/{index}", index)
    item: GymEntry = made[index]
    return item


def seed_all(name: str, index: int) -> None:
    """A few generators draw from the global generators, of Python or of NumPy."""
    random.seed(name)
    np.random.seed(index)


def chunk_seed(seed: int, dataset: str, chunk: int) -> int:
    """reasoning-gym draws item i from seed + i, so generators with neighbouring seeds make the same items. Hashed, two
    of ours are neighbours by chance only. 31 bits, because seed + i has to fit into NumPy's 32."""
    return int.from_bytes(sha256(f"{seed}/{dataset}/{chunk}".encode()).digest()[:4], "big") >> 1


def items(dataset: str, params: dict[str, Any], seed: int) -> Iterator[dict[str, Any]]:
    """Endless. Raises: Problem."""
    check_settings(dataset, params)
    for chunk in count():
        settings = {**params, "seed": chunk_seed(seed, dataset, chunk), "size": CHUNK}
        text = json.dumps(settings, sort_keys=True)
        try:
            made = generator(dataset, text)
        except Exception as error:
            raise Problem(f"{dataset} does not take data.params = {params}: {reason(error)}") from error
        for index in range(CHUNK):
            try:
                item = entry(dataset, text, index)
            except Exception as error:
                yield {"error": reason(error)}
                continue
            if chunk == 0 and index < NUM_PROBED:
                check_scorer(dataset, made, item)
            # None: no single answer is right, and the scorer works from the item's metadata
            answer = "" if item["answer"] is None else str(item["answer"])
            yield {"settings": settings, "index": index, "question": item["question"], "answer": answer}


def check_settings(dataset: str, params: dict[str, Any]) -> None:
    from reasoning_gym.factory import DATASETS

    if dataset not in DATASETS:
        near = difflib.get_close_matches(dataset, DATASETS, n=3, cutoff=0.5) or sorted(DATASETS)
        raise Problem(f"reasoning-gym has no dataset {dataset!r}; choose for data.dataset of: {', '.join(near)}")
    reserved = {"seed": "data.seed", "size": "data.num_train, data.num_validation and data.num_test"} & params.keys()
    for name in reserved:
        raise Problem(f"data.params.{name} is not for you to set: use data.seed and the data.num_ counts")
    allowed = [field.name for field in dataclasses.fields(DATASETS[dataset][1]) if field.name not in ("seed", "size")]
    for name in params:
        if name not in allowed:
            raise Problem(f"{dataset} has no setting {name!r}; data.params may hold: {', '.join(allowed) or 'nothing'}")


def check_scorer(dataset: str, made: Any, item: GymEntry) -> None:
    """game_of_life_halting, for one, takes any text for right."""
    try:
        score = made.score_answer(NONSENSE, item)
    except Exception:  # then such an answer will have no score
        return
    if score >= 1:
        raise Problem(
            f"the scorer of {dataset} takes {NONSENSE!r} for right, so that nothing could be learnt from it; choose "
            "another data.dataset"
        )


def reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


# --- scores ---------------------------------------------------------------------------------------------------------

LITERAL = ("algorithmic.binary_matrix", "algorithmic.spiral_matrix", "algorithmic.string_insertion", "games.n_queens")
"""Modules that `eval` an answer, which may be a list written as Python does. Reading it as a literal is enough."""


def warm() -> None:
    import reasoning_gym  # noqa: F401

    logging.disable(logging.CRITICAL)
    for name in LITERAL:
        vars(importlib.import_module(f"reasoning_gym.{name}"))["eval"] = ast.literal_eval


def prepare(common: dict[str, Any]) -> tuple[Any, GymEntry]:
    """The generator and its item. The scorer works on that item: where it fails later, the reply is at fault.

    Raises: Problem.
    """
    dataset, settings = common["dataset"], json.dumps(common["settings"], sort_keys=True)
    try:
        made, item = generator(dataset, settings), entry(dataset, settings, common["index"])
    except Exception as error:
        raise Problem(f"the item of {dataset} cannot be made again: {reason(error)}") from error
    if (item["question"], str(item["answer"] or "")) != (common["question"], common["answer"]):
        raise Problem(f"{dataset} made another item than the one that was asked")
    reference = NONSENSE if item["answer"] is None else str(item["answer"])
    value, trouble = score(made, item, reference)
    if value is None:
        raise Problem(f"the scorer of {dataset} does not work, not even on {reference[:80]!r}: it {trouble}")
    return made, item


def answer(prepared: tuple[Any, GymEntry], request: dict[str, Any]) -> dict[str, Any]:
    made, item = prepared
    value, trouble = score(made, item, request["reply"])
    if value is None:
        return {"score": 0.0, "reason": f"the scorer takes other answers, but on this one it {trouble}"}
    return {"score": value, "reason": ""}


def score(made: Any, item: GymEntry, reply: str) -> tuple[float | None, str]:
    """A number in [0, 1], or what the scorer did instead."""
    try:
        value = float(made.score_answer(reply, copy.deepcopy(item)))
    except MemoryError:
        raise
    except Exception as error:
        return None, f"broke: {type(error).__name__}: {reason(error)[:200]}"
    if math.isnan(value):
        return None, "gave no number"
    return (value, "") if 0 <= value <= 1 else (None, f"gave {value:g}, which is not in [0, 1]")


# --- the start ------------------------------------------------------------------------------------------------------


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable(logging.CRITICAL)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # so that nothing a library prints is taken for a reply
    try:
        for item in items(**json.loads(sys.stdin.readline())):
            print(json.dumps(item), file=replies, flush=True)
    except Problem as problem:
        print(json.dumps({"problem": str(problem)}), file=replies, flush=True)


if __name__ == "__main__":
    main()
