"""Where demonstrations come from: a file, an author who knows the problems, or the set's worked solutions."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from whet.config.critics import ExampleColumns
from whet.config.parts import BasicsData, ChainData
from whet.tasks.basics_steps import CORRUPTED_SHARE, Worked, corrupted, plan, work
from whet.tasks.chains import Carelessness, parse_chain
from whet.tasks.demonstrations import (
    COLLEAGUE,
    COLLEAGUE_MANNER,
    Demonstration,
    Kind,
    chain_demonstration,
    critique_by_steps,
    goes_by_steps,
    gold_demonstration,
    read_demonstrations,
    solution_demonstration,
    solution_steps,
    textbook,
)
from whet.tasks.files import DataError
from whet.tasks.prompts import Prompts
from whet.tasks.splits import PURPOSES, question_key
from whet.types import Task


@dataclass(frozen=True, slots=True)
class Source:
    """What demonstrations are made of, to be looked at before the run begins."""

    imitated: str
    """A model has to have tokens for all of it."""
    length_of: str
    """The text whose length says how long they become."""
    where: str
    make: Callable[[], Sequence[Demonstration]]


class Demonstrator(ABC):
    """Writes demonstrations: answers, critiques and refinements."""

    warning: str = ""
    """A sentence about them, to be shown before the run begins."""

    @abstractmethod
    def show(self, kind: Kind, rng: random.Random) -> Demonstration:
        """Raises: DataError where there is none of that kind."""

    def show_gold(self, kind: Kind, rng: random.Random) -> Demonstration:
        """An answer or a refinement that is right, where `show` may err. A file's rows and worked solutions are taken
        as they are.

        Raises: DataError where there is none of that kind.
        """
        return self.show(kind, rng)

    def sources(self, kinds: Sequence[Kind]) -> Sequence[Source]:
        """None where texts are short, and whole by construction.

        Raises: DataError where there is nothing to imitate.
        """
        return ()


@dataclass(frozen=True, slots=True)
class Examples:
    """A user's file of demonstrations, and how its columns are called."""

    file: str | None = None
    """None: there is none."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """See `read_demonstrations`."""
    at: str = "warm_start."
    """Where the settings `file` and `columns` are, with its dot."""


class ExampleSettings(Protocol):
    """Settings of a file of demonstrations."""

    @property
    def file(self) -> str | None: ...
    @property
    def columns(self) -> ExampleColumns: ...


def examples_of(settings: ExampleSettings, at: str = "warm_start.") -> Examples:
    """What settings name. Columns are read only where there is a file, so that others are known to have no effect."""
    file = settings.file
    return Examples() if file is None else Examples(file, settings.columns.given(), at)


class DataSettings(Protocol):
    """Settings of a run's data, of any kind."""

    @property
    def kind(self) -> str: ...


def demonstrator(
    examples: Examples, data: DataSettings, tasks: Mapping[str, Sequence[Task]], prompts: Prompts, *, ramble: int = 0
) -> Demonstrator:
    """The file's, if there is one; else the author of the data's kind; else whoever wrote the set's solutions.

    Args:
        data: the run's.
        tasks: by split.
        ramble: how many times the tiny world's author repeats each wrong step of an answer.
    Raises: DataError where the file holds nothing to imitate.
    """
    if examples.file is not None:
        return FileOf(examples.file, tasks, prompts, examples.columns, examples.at)
    if isinstance(data, ChainData):
        return TinyWorld(tasks["train"], prompts, data, ramble)
    if isinstance(data, BasicsData):
        return Basics(tasks["train"], prompts)
    return Solutions(tasks["train"], prompts)


class TinyWorld(Demonstrator):
    """Critiques by the colleague, who has misconceptions of another kind; answers and refinements by the textbook."""

    def __init__(self, tasks: Sequence[Task], prompts: Prompts, data: ChainData, ramble: int = 0) -> None:
        self.tasks, self.prompts, self.data, self.ramble = tasks, prompts, data, ramble

    @cached_property
    def author(self) -> Carelessness:
        """The textbook's, as often wrong as the data say. The setting is read only where this author writes."""
        return textbook(self.data.misconceptions)

    def show(self, kind: Kind, rng: random.Random) -> Demonstration:
        chain = parse_chain(rng.choice(self.tasks).prompt)
        if kind == "critique":
            return chain_demonstration(kind, chain, self.prompts, rng, author=COLLEAGUE, manner=COLLEAGUE_MANNER)
        return chain_demonstration(kind, chain, self.prompts, rng, author=self.author, ramble=self.ramble)

    def show_gold(self, kind: Kind, rng: random.Random) -> Demonstration:
        chain = parse_chain(rng.choice(self.tasks).prompt)
        return gold_demonstration(kind, chain, self.prompts, rng, self.author)


class Basics(Demonstrator):
    """Solutions of basics in short steps. Half of those that are critiqued hold a mistake. A critique names the wrong
    step and never the result (`tasks.basics_steps`). Prompts that ask for no steps get answers and verdicts."""

    def __init__(self, tasks: Sequence[Task], prompts: Prompts) -> None:
        self.tasks, self.prompts = tasks, prompts

    def show(self, kind: Kind, rng: random.Random) -> Demonstration:
        task = rng.choice(self.tasks)
        steps = plan(task.info["of"], task.prompt)
        right = work(steps)
        if kind == "solve":
            prefill = self.prompts.solve_prefill
            return Demonstration(
                kind, tuple(self.prompts.solve_messages(task.prompt)), prefill, self._answer(right, prefill)
            )
        worked = corrupted(steps, rng) if rng.random() < CORRUPTED_SHARE else right
        answer, critique = self._answer(worked, self.prompts.solve_prefill), self._critique(worked)
        if kind == "critique":
            messages = self.prompts.critique_messages(task.prompt, answer)
            return Demonstration(kind, tuple(messages), "", critique)
        messages = self.prompts.refine_messages(task.prompt, answer, self.prompts.steps_onward(critique))
        prefill = self.prompts.refine_prefill
        return Demonstration(kind, tuple(messages), prefill, self._answer(right, prefill))

    def _answer(self, worked: Worked, prefill: str) -> str:
        """With the prefill that its prompt forces on it."""
        final = f"The answer is {worked.answer}."
        if goes_by_steps(self.prompts):
            return prefill + "\n".join([*worked.lines, final])
        return final if final.startswith(prefill) else prefill + final

    def _critique(self, worked: Worked) -> str:
        comments = [
            (line, worked.advice(place) if place == worked.mistake else "") for place, line in enumerate(worked.lines)
        ]
        return critique_by_steps(comments, self.prompts, right=worked.mistake is None)


class Solutions(Demonstrator):
    """The set's worked solutions, and copies of them with a planted error."""

    def __init__(self, tasks: Sequence[Task], prompts: Prompts) -> None:
        self.tasks, self.prompts = tasks, prompts

    def show(self, kind: Kind, rng: random.Random) -> Demonstration:
        return solution_demonstration(kind, rng.choice(self.tasks), self.prompts, rng)

    def sources(self, kinds: Sequence[Kind]) -> Sequence[Source]:
        def made(task: Task) -> list[Demonstration]:  # those of the run differ from these by a planted number
            return [solution_demonstration(kind, task, self.prompts, random.Random(0)) for kind in kinds]

        texts = ["\n".join([task.prompt, *solution_steps(task)]) for task in self.tasks]
        return [
            Source(text, text, f"task {task.id}", partial(made, task))
            for task, text in zip(self.tasks, texts, strict=True)
        ]


class FileOf(Demonstrator):
    """A user's rows, without those whose question is measured (by `question_key`)."""

    def __init__(
        self,
        file: str,
        tasks: Mapping[str, Sequence[Task]],
        prompts: Prompts,
        columns: Mapping[str, str] = MappingProxyType({}),
        at: str = "warm_start.",
    ) -> None:
        demonstrations = read_demonstrations(Path(file), prompts, columns, at)
        self.file = file
        splits = [split for split in PURPOSES if split != "train"]
        held = {question_key(task.prompt): PURPOSES[split] for split in splits for task in tasks.get(split, ())}
        lost = {
            demonstration.where: held[key]
            for demonstration in demonstrations
            if (key := question_key(demonstration.question)) in held
        }
        usable = [demonstration for demonstration in demonstrations if demonstration.where not in lost]
        self.of_kind: dict[str, list[Demonstration]] = {}
        for demonstration in usable:
            self.of_kind.setdefault(demonstration.kind, []).append(demonstration)
        if lost:
            num_rows = len({demonstration.where for demonstration in demonstrations})
            places = " or ".join(purpose for purpose in PURPOSES.values() if purpose in lost.values())
            self.warning = (
                f"{len(lost)} of the {num_rows} rows of {file} ask what is measured (questions for {places}), "
                "and were dropped"
            )
        if not usable:
            raise DataError(f"{self.warning}: there is nothing left to imitate; give rows about other questions")

    def show(self, kind: Kind, rng: random.Random) -> Demonstration:
        return rng.choice(self._fitting(kind))

    def sources(self, kinds: Sequence[Kind]) -> Sequence[Source]:
        demonstrations = [demonstration for kind in kinds for demonstration in self._fitting(kind)]
        contents = [
            "".join([*(message["content"] for message in demonstration.messages), demonstration.text])
            for demonstration in demonstrations
        ]
        return [
            Source(demonstration.text, content, demonstration.where, partial(list, [demonstration]))
            for demonstration, content in zip(demonstrations, contents, strict=True)
        ]

    def _fitting(self, kind: Kind) -> list[Demonstration]:
        if kind not in self.of_kind:
            wanted = {"critique": "critique", "refine": "refinement"}.get(kind, "correct: true")
            dropped = f" ({self.warning})" if self.warning else ""
            raise DataError(
                f"{self.file} has no rows to imitate of kind {kind!r}{dropped}: add rows with {wanted}, or ask for "
                "none of that kind (a warm start's steps of 0, a weight of 0)"
            )
        return self.of_kind[kind]
