"""Which problems train, which choose a checkpoint, and which are measured: files of their own, or shares by a hash."""

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
"""What two copies of a question share: words, numbers and operators; not spacing, nor the marks of a sentence."""


@dataclass(frozen=True, slots=True)
class Problems:
    """Tasks by split, and what there is to say about them."""

    tasks: Mapping[str, tuple[Task, ...]]
    recognised: str
    """What they are."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """By split, what it is of which file. Empty where problems are made and not read."""
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
    """What a split is of a file."""

    file: TaskSet
    tasks: tuple[Task, ...]
    said: str
    held: tuple[Task, ...]
    """What no split of lower rank may have: more than `tasks` where those are limited."""


def divide(own: Mapping[str, TaskSet], rest: TaskSet | None, shares: Shares, limit: int | None = None) -> Problems:
    """Problems to train with: each split is the file of its own, and the others share `rest`, or, where there is none,
    the training file.

    A question of the test problems that another file has too is dropped from validation and training, and one of the
    validation problems from training: never the other way round.

    Args:
        own: by split.
        rest: serves all other splits. Where training has a file of its own and `rest` serves two, they share all of it,
            in the ratio of their shares.
        limit: take only the first so many questions of each file. None: all.
    Raises: DataError where there is nothing to train on, or a split comes out empty.
    """
    missing = [split for split in SPLITS if split not in own]
    if missing and rest is None:
        if "train" in missing:
            raise DataError("there are no problems to train on: give data.train_path, or data.path")
        rest, missing = own["train"], ["train", *missing]
    pieces = {split: _all_of(found, limit) for split, found in own.items() if split not in missing}
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
        {split: pieces[split].said for split in SPLITS},
        tuple(leaks),
    )


def whole_of(found: TaskSet, split: str, limit: int | None = None) -> Problems:
    """One split alone, to be measured: all that the file has."""
    piece = _all_of(found, limit)
    tasks = {each: piece.tasks if each == split else () for each in SPLITS}
    return Problems(tasks, found.recognised, {split: piece.said})


def num_shared(tasks: Sequence[Task], others: Sequence[Task]) -> int:
    """Those of the tasks whose question is among the others'."""
    known = {question_key(task.prompt) for task in others}
    return sum(question_key(task.prompt) in known for task in tasks)


def _all_of(found: TaskSet, limit: int | None) -> _Piece:
    tasks = found.tasks[:limit]
    said = f"{'all' if len(tasks) == len(found.tasks) else f'the first {limit}'} of {found.name}"
    return _Piece(found, tasks, said, found.tasks)


def _shared(found: TaskSet, splits: Sequence[str], shares: Shares, limit: int | None) -> dict[str, _Piece]:
    """A file that serves these splits: by their shares, and the rest to training; without training, all of it."""
    if len(splits) == 1:
        return {splits[0]: _all_of(found, limit)}
    tasks = found.tasks[:limit]
    place = found.name if len(tasks) == len(found.tasks) else f"the first {limit} of {found.name}"
    wanted: dict[str, float] = {split: getattr(shares, split) for split in splits if split != "train"}
    if "train" in splits:
        asked = {"validation": 0.0, "test": 0.0} | wanted
        parts = split_tasks(tasks, validation=asked["validation"], test=asked["test"], seed=shares.seed)
    else:
        wanted = {split: share / sum(wanted.values()) for split, share in wanted.items()}
        halves = split_tasks(tasks, validation=0, test=wanted["test"], seed=shares.seed)
        parts = {"validation": halves["train"], "test": halves["test"]}
    said = {split: f"{100 * share:.3g} % of {place} by a hash of the question" for split, share in wanted.items()}
    said["train"] = f"the rest of {place}"
    return {split: _Piece(found, parts[split], said[split], parts[split]) for split in splits}


def _drop(pieces: dict[str, _Piece], split: str, other: str) -> str | None:
    """Take out of a split what another file's holds.

    Returns: a sentence, if there was anything. Within one file the hash sees to it.
    """
    ours, theirs = pieces[split], pieces[other]
    if ours.file is theirs.file:
        return None
    known = {question_key(task.prompt) for task in theirs.held}
    kept = tuple(task for task in ours.tasks if question_key(task.prompt) not in known)
    num_dropped = len(ours.tasks) - len(kept)
    if not num_dropped:
        return None
    there = f"among those of {theirs.file.name} for {PURPOSES[other]}"
    if not kept:
        raise DataError(
            f"all {num_dropped} questions for {PURPOSES[split]} ({ours.said}) are {there}: give other files"
        )
    pieces[split] = replace(ours, tasks=kept)
    are, were = ("is", "was") if num_dropped == 1 else ("are", "were")
    which = f"{num_dropped} of the {len(ours.tasks)} questions of {ours.file.name} for {PURPOSES[split]}"
    return f"{which} {are} {there}, and {were} dropped"


def split_tasks(tasks: Sequence[Task], *, validation: float, test: float, seed: int) -> dict[str, tuple[Task, ...]]:
    """Splits by a hash of the question, so that a question that comes again, in other case, spacing or punctuation,
    is in the same split, and a task stays in its split when others join the set.

    Args:
        validation, test: expected shares in [0, 1); 0 asks for none, and its tuple is empty. The sizes that come out
            vary as so many coin tosses do.
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
    """By which a question is known in another file."""
    return " ".join(_TOKENS.findall(unicodedata.normalize("NFKC", question).casefold()))


def _normalised(question: str) -> str:
    """Letters and digits only, in one case: what near-identical copies of a question share. Two questions of one
    `question_key` share it too, so they are in one split of a file."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", question).casefold()))
