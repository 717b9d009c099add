"""Tasks from reasoning-gym's generators: from a generator's name and settings to questions by split.

A child process (`gym_process`) makes the questions, as one long stream; this module sorts them. The package has two
traps, and both lead to tests on training questions. Item i of seed 1 is item i + 1 of seed 0, and small generators
repeat themselves. So seeds are hashed (there), repeats are dropped, and the split is a function of the question's text
alone (here). A question of the test set is no training question under any other seed, setting or number of tasks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from whet.distribution import how_to_install
from whet.sandbox.client import why_not
from whet.tasks.chains import Split
from whet.tasks.row_formats import DataError
from whet.types import Task

PROCESS = Path(__file__).with_name("gym_process.py")
ENVIRONMENT = {"PYTHONHASHSEED": "0"}
"""For every process that makes items. Without it isomorphic_strings, ransom_note, polynomial_multiplication and others
make other items in each process."""
EVALUATING = frozenset(
    [
        *("binary_matrix", "n_queens", "spiral_matrix", "string_insertion"),  # eval
        *("countdown", "puzzle24"),  # SymPy's parser, which evaluates too
        *("intermediate_integration", "polynomial_multiplication", "simple_integration"),
        "composite",  # may hold any of them
    ]
)
"""Generators whose scorers evaluate an answer. They are scored in the sandbox or not at all; the others only compare,
and are scored without one where none can be made."""
PATIENCE = 2000
"""Items in a row without a new question after which there are no more."""


def make_tasks(
    dataset: str, params: Mapping[str, Any], *, seed: int, counts: Mapping[Split, int]
) -> tuple[dict[str, tuple[Task, ...]], str]:
    """The first questions of each split, and one sentence that says what they are. The same for the same arguments,
    in every process.

    Args:
        params: the generator's settings.
        counts: how many questions each split gets.
    Returns: tasks whose `info` says how to make their item again (`dataset`, `settings`, `index`), as `grading.gym`
        does. A task's `answer` is empty where no single answer is right.
    Raises: DataError where reasoning-gym is not installed, or has no such dataset. Also where the dataset does not
        take the settings, or has too few questions, or needs a sandbox and none can be made.
    """
    if find_spec("reasoning_gym") is None:
        raise DataError(f"data.kind = 'reasoning_gym' needs a package that is not installed: {how_to_install('gym')}")
    if trouble := unsafe(dataset):
        raise DataError(trouble)
    splits: dict[Split, list[Task]] = {split: [] for split in counts}
    with closing(_items(dataset, params, seed)) as items:
        num_repeats = _fill(splits, items, dataset, counts)
    sentence = f"{dataset} questions of reasoning-gym" + (f", {num_repeats} repeats dropped" if num_repeats else "")
    return {split: tuple(tasks) for split, tasks in splits.items()}, sentence


def unsafe(dataset: str) -> str | None:
    """Why answers to this generator cannot be scored here. None: they can."""
    if dataset not in EVALUATING or (why := why_not()) is None:
        return None
    return f"the scorer of {dataset} evaluates what the model writes, which takes a sandbox; {why}"


def split_of(question: str) -> Split:
    """The one split this question can ever be in, whatever its white space."""
    bucket = int.from_bytes(sha256(f"reasoning_gym/{_key(question)}".encode()).digest()[:4], "big") % 10
    return "test" if bucket == 9 else "validation" if bucket == 8 else "train"


def _fill(
    splits: Mapping[Split, list[Task]], items: Iterator[dict[str, Any]], dataset: str, counts: Mapping[Split, int]
) -> int:
    """Takes items until every split has its count. Returns how many repeated an earlier question."""
    seen: set[str] = set()
    num_questions: Counter[Split] = Counter()
    num_repeats, num_in_vain, trouble = 0, 0, ""
    while any(len(splits[split]) < count for split, count in counts.items()):
        if num_in_vain == PATIENCE:
            raise DataError(_dry(dataset, num_questions, counts, trouble))
        num_in_vain += 1
        item = next(items)
        if "error" in item:
            trouble = item["error"]
            continue
        key = _key(item["question"])
        if key in seen:
            num_repeats += 1
            continue
        num_in_vain = 0
        seen.add(key)
        split = split_of(item["question"])
        num_questions[split] += 1
        if len(splits[split]) < counts[split]:
            splits[split].append(_task(dataset, key, item))
    return num_repeats


def _dry(dataset: str, num_questions: Mapping[Split, int], counts: Mapping[Split, int], trouble: str) -> str:
    shares = ", ".join(
        f"{num_questions.get(split, 0)} for {split} ({count} asked for)" for split, count in counts.items()
    )
    last = f" (it also failed, with: {trouble})" if trouble else ""
    return (
        f"{dataset} has only {sum(num_questions.values())} different questions with these data.params: {shares}{last}; "
        "lower data.num_train, data.num_validation or data.num_test, or widen data.params"
    )


def _task(dataset: str, key: str, item: Mapping[str, Any]) -> Task:
    info = {"kind": "reasoning_gym", "dataset": dataset, "settings": item["settings"], "index": item["index"]}
    name = sha256(key.encode()).hexdigest()[:16]
    return Task(id=name, prompt=item["question"], answer=item["answer"], info=info)


def _key(question: str) -> str:
    """Equal for questions that count as the same. Signs stay: `4 + 3` is not `4 - 3`, and some puzzles are drawn."""
    return " ".join(question.split())


def _items(dataset: str, params: Mapping[str, Any], seed: int) -> Generator[dict[str, Any], None, None]:
    """The child process's items, for as long as the caller asks.

    Raises: DataError.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            (sys.executable, "-P", str(PROCESS), "items"),  # -P: our `types` must not pass for Python's
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            env={**os.environ, **ENVIRONMENT},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            request = {"dataset": dataset, "params": dict(params), "seed": seed}
            process.stdin.write(json.dumps(request, default=str) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                item = json.loads(line)
                if "problem" in item:
                    raise DataError(item["problem"])
                yield item
            errors.seek(0)
            words = errors.read().decode(errors="replace").strip()[-500:]
            raise DataError(f"the process that makes questions of {dataset} died: {words or 'perhaps out of memory'}")
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
