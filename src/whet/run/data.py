"""Loads what a data config names: tasks by split, and the grader of their replies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import TypeVar

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from whet.config.environment_data import EnvironmentData
from whet.config.parts import BasicsData, ChainData, FileData, GymData, ModelConfig
from whet.config.runs import RunConfig
from whet.engines.products import Shape, chosen, instructions, timing
from whet.errors import WhetError
from whet.grading import Grader, make_grader
from whet.methods.environment_tasks import load_environment_tasks
from whet.methods.registry import preset_of
from whet.models.loading import device_of, reading
from whet.models.packed import unlike_packed
from whet.models.places import resolve
from whet.seeds import seed_of
from whet.tasks.basics import make_basics
from whet.tasks.chains import Chain, Split, sample_chains
from whet.tasks.files import DataError
from whet.tasks.gym import make_tasks
from whet.tasks.sources import load_files, load_measured, pinned
from whet.tasks.splits import Problems
from whet.trainer.phase import Progress
from whet.types import Grade, Task

C = TypeVar("C", bound=RunConfig)
AnyData = ChainData | FileData | GymData | BasicsData | EnvironmentData
SPLIT_SEED = 20251028
"""Seed of the splits, not of a run: runs on one data config see the same train, validation and test problems."""


def load_tasks(data: AnyData) -> Problems:
    """All problems of a data config, to train with.

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
        raise DataError(
            f"data.min_steps = {data.min_steps} is more than data.max_steps = {data.max_steps}: lower the one, "
            "or raise the other"
        )
    tasks: dict[str, tuple[Task, ...]] = {}
    for split, count in counts.items():
        if count > (available := _num_available(split, data)):
            raise DataError(
                f"there are only about {available} {split} problems of {data.min_steps} to {data.max_steps} "
                f"steps, not {count}: lower data.num_{split}, or raise data.max_steps"
            )
        stream = sample_chains(split, SPLIT_SEED, min_steps=data.min_steps, max_steps=data.max_steps)
        tasks[split] = tuple(chain_task(chain) for chain in islice(stream, count))
    return Problems(tasks, f"chains of {data.min_steps} to {data.max_steps} operations on last digits")


def load_training(data: AnyData, seed: int) -> Problems:
    """All problems of a data config, those for training in the order in which a run takes them.

    Args:
        seed: of the run. It draws that order where `data.shuffle` asks for it, and decides nothing else.
    Raises: DataError.
    """
    problems = load_tasks(data)
    if not isinstance(data, FileData) or not data.shuffle:
        return problems
    train = list(problems.tasks["train"])
    Random(seed_of(seed, "training questions")).shuffle(train)
    return replace(problems, tasks={**problems.tasks, "train": tuple(train)})


def measured_problems(data: AnyData, split: str, changed: Collection[str] | None) -> Problems:
    """The problems that `whet eval` measures. Of files, it reads no other split.

    Args:
        changed: dotted keys of the settings that differ from the run's. None: there is no run.
    Raises: DataError.
    """
    return load_measured(data, split, SPLIT_SEED, changed) if isinstance(data, FileData) else load_tasks(data)


def with_commit(config: C, before: RunConfig | None = None) -> C:
    """The settings with a commit in place of a hub data set's revision, so that a run resumes on the same data.

    Args:
        before: settings of the run that is resumed. Its commit is taken, even where a newer one exists.
    Raises: DataError where neither the hub nor its cache has a commit.
    """
    data = config.__dict__["data"]  # a look-up that counts as no read
    if not isinstance(data, FileData):
        return config
    saved = before.__dict__["data"] if before is not None else None
    names_no_revision = data.__dict__["revision"] is None
    if isinstance(saved, FileData) and names_no_revision and saved.__dict__["hub"] == data.__dict__["hub"]:
        data = data.model_copy(update={"revision": saved.__dict__["revision"]})
    else:
        data = pinned(data)
    return config.model_copy(update={"data": data})


def with_products(config: C, progress: Progress, before: RunConfig | None = None) -> C:
    """The settings with the products that `engine.products = auto` chooses, so that a run resumes with the same ones.

    Args:
        before: settings of the run that is resumed. Its choice is taken.
    """
    engine = config.__dict__["engine"]  # a look-up that counts as no read
    if engine.__dict__["products"] != "auto" or engine.__dict__["kind"] != "local":
        return config
    if before is not None:
        products = before.__dict__["engine"].__dict__["products"]
    else:
        shapes = [_shape_of(model) for model in preset_of(config.method).algorithm.spec.models(config).values()]
        products = chosen(shapes)
        why = f"engine.products = auto took {products} ({', '.join(instructions()) or 'no known instructions'})"
        if products == "bfloat16":
            why += f"; for information alone, {timing(max(shape.width for shape in shapes))}"
        progress.tell("info", why)
    return config.model_copy(update={"engine": engine.model_copy(update={"products": products})})


def with_unit(config: C) -> C:
    """The settings with the unit that workers take where none is set, so that a run without workers resumes with it."""
    cluster = config.__dict__["cluster"]  # a look-up that counts as no read
    return config.model_copy(update={"cluster": cluster.model_copy(update={"unit": cluster.rollouts_a_unit})})


def _shape_of(model: ModelConfig) -> Shape:
    """A model's shape, by its config.json. What is no model packs nothing: the loader says what is wrong with it."""
    try:
        with reading(f"{model.path!r} is no model", "give another"), torch.device("meta"):
            config = AutoConfig.from_pretrained(resolve(model.path), trust_remote_code=False).get_text_config()
            skeleton = AutoModelForCausalLM.from_config(config)
    except WhetError:
        return Shape(0, packs=False)
    on_cpu = model.dtype == "float32" and device_of(model.device).type == "cpu"
    return Shape(config.hidden_size, packs=on_cpu and unlike_packed(skeleton) is None)


def chain_task(chain: Chain) -> Task:
    """A chain as a task: its text is both id and prompt, its last value the answer."""
    text = chain.text
    return Task(id=text, prompt=text, answer=str(chain.values[-1]), info={"kind": "chains"})


def _num_available(split: Split, data: ChainData) -> int:
    """The number of problems of a split that a stream finds without a long search for new ones."""
    share = {"train": 0.8, "validation": 0.1, "test": 0.1}[split]
    return int(10 * 21**data.min_steps * share / 2)


def load_grader(data: AnyData) -> Grader:
    """The grader that a data config names. Close it after use."""
    if isinstance(data, FileData):
        return make_grader(data.grader, timeout_s=data.timeout_s)
    if isinstance(data, GymData):
        return make_grader("reasoning_gym", timeout_s=data.timeout_s)
    if isinstance(data, EnvironmentData):
        return NoGrader()
    return make_grader(data.kind)


class NoGrader:
    """Stands in for a grader where environments reward the episodes."""

    def grade(self, items: Sequence[tuple[str, Task]]) -> list[Grade]:
        raise AssertionError("an environment's episodes are not graded")

    def close(self) -> None: ...
