"""From a data config to tasks by split and the service that grades them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import TypeVar

from whet.config.environment_data import EnvironmentData
from whet.config.parts import BasicsData, ChainData, FileData, GymData
from whet.config.runs import RunConfig
from whet.grading import Grader, make_grader
from whet.methods.environment_tasks import load_environment_tasks
from whet.tasks.basics import make_basics
from whet.tasks.chains import Chain, Split, sample_chains
from whet.tasks.files import DataError
from whet.tasks.gym import make_tasks
from whet.tasks.sources import load_files, load_measured, pinned
from whet.tasks.splits import Problems
from whet.types import Grade, Task

C = TypeVar("C", bound=RunConfig)
AnyData = ChainData | FileData | GymData | BasicsData | EnvironmentData
SPLIT_SEED = 20251028
"""Of problems, not of runs: every run on one data config sees the same train, validation and test problems."""


def load_tasks(data: AnyData) -> Problems:
    """All problems, to train with.

    Raises: DataError.
    """
    if isinstance(data, FileData):
        return load_files(data, SPLIT_SEED)
    if isinstance(data, EnvironmentData):
        return load_environment_tasks(data)
    counts: dict[Split, int] = {"train": data.num_train, "validation": data.num_validation, "test": data.num_test}
    if isinstance(data, GymData):
        return Problems(*make_tasks(data.dataset, data.params, seed=data.seed, counts=counts))
    if isinstance(data, BasicsData):
        return Problems(*make_basics(data, counts))
    if data.min_steps > data.max_steps:
        raise DataError(f"data.min_steps = {data.min_steps} is more than data.max_steps = {data.max_steps}")
    tasks: dict[str, tuple[Task, ...]] = {}
    for split, count in counts.items():
        if count > _room(split, data):
            raise DataError(
                f"there are only about {_room(split, data)} {split} problems of {data.min_steps} to {data.max_steps} "
                f"steps, not {count}: lower data.num_{split}, or raise data.max_steps"
            )
        stream = sample_chains(split, SPLIT_SEED, min_steps=data.min_steps, max_steps=data.max_steps)
        tasks[split] = tuple(chain_task(chain) for chain in islice(stream, count))
    return Problems(tasks, f"chains of {data.min_steps} to {data.max_steps} operations on last digits")


def measured_problems(data: AnyData, split: str, changed: Collection[str] | None) -> Problems:
    """What `whet eval` measures; of files no more than that is read.

    Args:
        changed: dotted keys of the settings that are not the run's own. None: there is no run.
    Raises: DataError.
    """
    return load_measured(data, split, SPLIT_SEED, changed) if isinstance(data, FileData) else load_tasks(data)


def with_commit(config: C, before: RunConfig | None = None) -> C:
    """The settings with the commit in place of a revision of a hub's set: what a run keeps, and goes on with.

    Args:
        before: those of the run that is there. It goes on with its commit, whatever came after that.
    Raises: DataError where the hub and its cache know none.
    """
    data, known = (each.__dict__["data"] if each is not None else None for each in (config, before))
    if not isinstance(data, FileData):
        return config
    given = data.__dict__
    if isinstance(known, FileData) and given["revision"] is None and known.__dict__["hub"] == given["hub"]:
        found = data.model_copy(update={"revision": known.__dict__["revision"]})
    else:
        found = pinned(data)
    return config.model_copy(update={"data": found})


def chain_task(chain: Chain) -> Task:
    text = chain.text
    return Task(id=text, prompt=text, answer=str(chain.values[-1]), info={"kind": "chains"})


def _room(split: Split, data: ChainData) -> int:
    """Problems of a split that a stream finds without searching long for new ones."""
    share = {"train": 0.8, "validation": 0.1, "test": 0.1}[split]
    return int(10 * 21**data.min_steps * share / 2)


def load_grader(data: AnyData) -> Grader:
    if isinstance(data, FileData):
        return make_grader(data.grader, timeout_s=data.timeout_s)
    if isinstance(data, GymData):
        return make_grader("reasoning_gym", timeout_s=data.timeout_s)
    if isinstance(data, EnvironmentData):
        return NoGrader()
    return make_grader(data.kind)


class NoGrader:
    """Of episodes whose world says what they are worth."""

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        raise AssertionError("an environment's episodes are not graded")

    def close(self) -> None: ...
