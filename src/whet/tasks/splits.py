"""Which problems train, which choose a checkpoint, and which are measured: separate files, or shares by a hash."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from whet.config.parts import SPLITS
from whet.tasks.files import TaskSet
from whet.tasks.row_formats import DataError
from whet.types import Task

PURPOSES = {"train": "training", "validation": "validation", "test": "the test"}
_TOKENS = re.compile(r"""\w+|[^\w\s.,;:!?'"‘’“”]""")
"""The tokens that two copies of a question share: words, numbers and operators; no spacing, nor punctuation."""


@dataclass(frozen=True, slots=True)
class Problems:
    """Tasks by split, and sentences about them."""

    tasks: Mapping[str, tuple[Task, ...]]
    recognised: str
    """What they are."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """By split, the part of which file it is. Empty where problems are generated and not read."""
    leaks: tuple[str, ...] = ()
    """A sentence for each split that lost questions because another file has them too."""

    @property
    def sentence(self) -> str:
        return "; ".join([self.recognised, *(f"{split}: {part}" for split, part in self.parts.items()), *self.leaks])


@dataclass(frozen=True, slots=True)
class Shares:
    """How a file that serves several splits is divided."""

    validation: float
    test: float
    """Expected shares in (0, 1) of its questions."""
    seed: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """A split's part of a file."""

    file: TaskSet
    tasks: tuple[Task, ...]
    description: str
    held: tuple[Task, ...]
    """Tasks that no split of lower rank may have: more than `tasks` where those are limited."""


def divide(by_split: Mapping[str, TaskSet], rest: TaskSet | None, shares: Shares, limit: int | None = None) -> Problems:
    """Problems to train with. A split with a file of its own is that file; the others share `rest`, or, where there is
    none, the training file.

    Validation and training drop questions that the test's file has too; training also drops those of the validation
    file. It is never the other way round.

    Args:
        by_split: the files that belong to one split.
        rest: serves all other splits. If it serves validation and test alone, they share all of it, in the ratio of
            their shares.
        limit: take only the first so many questions of each file. None: all.
    Raises: DataError where there is nothing to train on, or a split comes out empty.
    """
    missing = [split for split in SPLITS if split not in by_split]
    if missing and rest is None:
        if "train" in missing:
            raise DataError("there are no problems to train on: give data.train_path, or data.path")
        rest, missing = by_split["train"], ["train", *missing]
    pieces = {split: _all_of(task_set, limit) for split, task_set in by_split.items() if split not in missing}
    if missing and rest is not None:
        pieces |= _shared(rest, missing, shares, limit)
    leaks = [
        leak
        for split, others in (("validation", ("test",)), ("train", ("test", "validation")))
        for other in others
        if (leak := _drop(pieces, split, other))
    ]
    files = {id(pieces[split].file): pieces[split].file for split in SPLITS}
    return Problems(
        {split: pieces[split].tasks for split in SPLITS},
        "; ".join(f"{file.recognised} in {file.name}" for file in files.values()),
        {split: pieces[split].description for split in SPLITS},
        tuple(leaks),
    )


def whole_of(task_set: TaskSet, split: str, limit: int | None = None) -> Problems:
    """One split alone, to be measured: the whole file."""
    piece = _all_of(task_set, limit)
    tasks = {name: piece.tasks if name == split else () for name in SPLITS}
    return Problems(tasks, task_set.recognised, {split: piece.description})


def num_shared(tasks: Sequence[Task], others: Sequence[Task]) -> int:
    """How many of the tasks have a question that is among the others'."""
    keys = {question_key(task.prompt) for task in others}
    return sum(question_key(task.prompt) in keys for task in tasks)


def _all_of(task_set: TaskSet, limit: int | None) -> _Piece:
    tasks = task_set.tasks[:limit]
    description = f"{'all' if len(tasks) == len(task_set.tasks) else f'the first {limit}'} of {task_set.name}"
    return _Piece(task_set, tasks, description, task_set.tasks)


def _shared(task_set: TaskSet, splits: Sequence[str], shares: Shares, limit: int | None) -> dict[str, _Piece]:
    """Divides a file by the splits' shares. Training gets the rest; without training, the others share it all."""
    if len(splits) == 1:
        return {splits[0]: _all_of(task_set, limit)}
    tasks = task_set.tasks[:limit]
    place = task_set.name if len(tasks) == len(task_set.tasks) else f"the first {limit} of {task_set.name}"
    wanted: dict[str, float] = {split: getattr(shares, split) for split in splits if split != "train"}
    if "train" in splits:
        share_of = {"validation": 0.0, "test": 0.0} | wanted
        parts = split_tasks(tasks, validation=share_of["validation"], test=share_of["test"], seed=shares.seed)
    else:
        wanted = {split: share / sum(wanted.values()) for split, share in wanted.items()}
        halves = split_tasks(tasks, validation=0, test=wanted["test"], seed=shares.seed)
        parts = {"validation": halves["train"], "test": halves["test"]}
    descriptions = {
        split: f"{100 * share:.3g} % of {place} by a hash of the question" for split, share in wanted.items()
    }
    descriptions["train"] = f"the rest of {place}"
    return {split: _Piece(task_set, parts[split], descriptions[split], parts[split]) for split in splits}


def _drop(pieces: dict[str, _Piece], split: str, other: str) -> str | None:
    """Drops a split's questions that the file of another split holds. Within one file the hash keeps splits apart.

    Returns: a sentence, if any were dropped.
    """
    ours, theirs = pieces[split], pieces[other]
    if ours.file is theirs.file:
        return None
    held_keys = {question_key(task.prompt) for task in theirs.held}
    remaining = tuple(task for task in ours.tasks if question_key(task.prompt) not in held_keys)
    num_dropped = len(ours.tasks) - len(remaining)
    if not num_dropped:
        return None
    there = f"among those of {theirs.file.name} for {PURPOSES[other]}"
    if not remaining:
        raise DataError(
            f"all {num_dropped} questions for {PURPOSES[split]} ({ours.description}) are {there}: give other files"
        )
    pieces[split] = replace(ours, tasks=remaining)
    are, were = ("is", "was") if num_dropped == 1 else ("are", "were")
    which = f"{num_dropped} of the {len(ours.tasks)} questions of {ours.file.name} for {PURPOSES[split]}"
    return f"{which} {are} {there}, and {were} dropped"


def split_tasks(tasks: Sequence[Task], *, validation: float, test: float, seed: int) -> dict[str, tuple[Task, ...]]:
    """Splits by a hash of the question. A question that comes again, in other case, spacing or punctuation, is in the
    same split. A task stays in its split when others join the set.

    Args:
        validation, test: expected shares in [0, 1); 0 asks for none, and its tuple is empty. The actual sizes vary as
            so many coin tosses do.
    Returns: `train`, `validation` and `test`, each in the order of `tasks`.
    Raises: DataError where a split that was asked for comes out empty.
    """
    if validation < 0 or test < 0 or validation + test >= 1:
        raise DataError(f"shares validation={validation}, test={test} must be at least 0 and leave some for training")
    splits: dict[str, list[Task]] = {"train": [], "validation": [], "test": []}
    for task in tasks:
        digest = sha256(f"{seed}/{_normalised(task.prompt)}".encode()).digest()
        place = int.from_bytes(digest[:7], "big") / 2**56
        splits["test" if place < test else "validation" if place < test + validation else "train"].append(task)
    for name, share in {"train": 1.0, "validation": validation, "test": test}.items():
        if share > 0 and not splits[name]:
            raise DataError(
                f"the {name} split of {len(tasks)} tasks is empty (validation={validation}, test={test}, seed={seed}); "
                "give more tasks, or a larger share (data.validation_share, data.test_share)"
            )
    return {name: tuple(members) for name, members in splits.items()}


def question_key(question: str) -> str:
    """The key by which a question is recognised in another file."""
    return " ".join(_TOKENS.findall(unicodedata.normalize("NFKC", question).casefold()))


def _normalised(question: str) -> str:
    """Letters and digits only, in one case: near-identical copies of a question share it. Two questions of one
    `question_key` share it too, so they are in one split of a file."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", question).casefold()))
