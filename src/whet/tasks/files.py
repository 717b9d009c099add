"""Task files in: JSON lines or a JSON list, in any of the layouts of `layouts.py`, to a `TaskSet`; and its splits.

What was recognised is said in a sentence, to be shown; what is wrong with a file stops the run with another.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from whet.tasks.layouts import DataError, Fields, Layout, Row, recognise
from whet.types import Task

__all__ = ["DataError", "TaskSet", "parse_json", "read_tasks", "read_text", "split_tasks"]

ID_NAMES = ("id", "unique_id", "ID", "idx")
"""Fields that may hold a row's own id; the first one that is there and differs in every row is used."""


_ESCAPED_HALF = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of a file and one sentence about it: `7473 GSM8K rows (question, answer after ####)`."""

    tasks: tuple[Task, ...]
    recognised: str


@dataclass(frozen=True, slots=True)
class _Record:
    where: str
    """`line 7`, or `item 7` of a list."""
    row: Row
    layout: Layout
    fields: Fields


def read_tasks(path: str | Path, *, limit: int | None = None) -> TaskSet:
    """Reads a file of one layout. A question that comes again (but for white space) is dropped and counted.

    Args:
        limit: keep the first so many questions. None: all. The whole file is checked either way.
    Returns: tasks in the file's order. A task's id is the file's own where every row has a different one, else a hash
        of the question. `Task.info` has the layout's `kind`, and a `solution` and the like where the row has them.
    Raises: DataError.
    """
    if limit is not None and limit < 1:
        raise DataError(f"limit is {limit}; give the number of questions to keep, or leave it out for all")
    records = [_recognise(path, where, row) for where, row in _rows(Path(path))]
    _check(path, records)
    kept: dict[str, _Record] = {}
    num_contradictions = 0
    for record in records:
        first = kept.setdefault(" ".join(record.fields.question.split()), record)
        num_contradictions += first.fields.answer != record.fields.answer
    sentence = f"{len(records)} {records[0].layout.title}"
    if len(kept) < len(records):
        sentence += f", {len(records) - len(kept)} dropped as repeated questions"
    if num_contradictions:
        sentence += f" ({num_contradictions} of them with another answer than the first)"
    if limit is not None and limit < len(kept):
        sentence += f", the first {limit} kept"
    ids = _ids(list(kept.values()))
    tasks = tuple(_task(name, record) for name, record in zip(ids, kept.values(), strict=True))
    return TaskSet(tasks[:limit], sentence)


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


def _normalised(question: str) -> str:
    """Letters and digits only, in one case: what near-identical copies of a question share."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", question).casefold()))


def _rows(path: Path) -> list[tuple[str, Any]]:
    text = read_text(path, "data.path")
    if text.lstrip().startswith("["):
        items = parse_json(text, str(path), "mend the list there")
        if not items:
            raise DataError(f"{path} is an empty list; write one JSON object a task")
        return [(f"item {number}", item) for number, item in enumerate(items, 1)]
    lines = enumerate(text.split("\n"), 1)  # not splitlines: JSON text may hold U+2028
    return [(f"line {number}", parse_json(line, f"{path}, line {number}")) for number, line in lines if line.strip()]


def read_text(path: Path, setting: str) -> str:
    """A user's file as text.

    Args:
        setting: the key that names it.
    Raises: DataError where it is missing, no plain file (a pipe never ends), no UTF-8, or holds nothing.
    """
    try:
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "no plain file"
            raise DataError(f"{path} is {kind}; give {setting} a .jsonl or .json file")
        text = path.read_text(encoding="utf-8-sig")
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file; give {setting} the path of a .jsonl or .json file") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); convert it to JSON lines") from error
    except OSError as error:
        shown = str(path) if len(str(path)) < 200 else f"{str(path)[:200]}..."
        raise DataError(f"cannot read {shown} ({error.strerror}); give {setting} another file") from error
    except ValueError as error:  # NUL
        raise DataError(f"{str(path)!r} can be no path ({error}); give {setting} another") from error
    if not text.strip():
        raise DataError(f"{path} is empty; write one JSON object a line")
    return text


def parse_json(text: str, where: str, advice: str = "write one whole JSON object a line, or one list") -> Any:
    """JSON of a user's file: no NaN, no half characters, nothing that Python cannot hold.

    Args:
        where: the file and line, or the file alone of a text of many lines.
    Raises: DataError.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        place = f"{where}, line {error.lineno}" if "\n" in text else where
        raise DataError(f"{place}: not JSON ({error.msg}); {advice}") from error
    except RecursionError as error:
        raise DataError(f"{where}: nested too deeply to be read; write the fields of a task side by side") from error
    except ValueError as error:
        said = "an integer of thousands of digits" if "digits" in str(error) else str(error)
        raise DataError(f"{where}: {said}; write it as text") from error
    if _ESCAPED_HALF.search(text) and not _is_whole(value):
        raise DataError(f"{where}: half a character (a lone \\u{{d8..df}}.. escape); mend it")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number that JSON has")


def _is_whole(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _recognise(path: str | Path, where: str, row: Any) -> _Record:
    if not isinstance(row, dict):
        kind = type(row).__name__
        raise DataError(f"{path}, {where}: expected an object with a task's fields, {{...}}, and found {kind}")
    try:
        layout = recognise(row)
        record = _Record(where, row, layout, layout.read(row))
    except DataError as error:
        raise DataError(f"{path}, {where}: {error}") from error
    return record


def _check(path: str | Path, records: Sequence[_Record]) -> None:
    """Every row has an answer, and all are of one layout."""
    unanswered = [record for record in records if record.fields.answer is None]
    if len(unanswered) == len(records):
        fields = ", ".join(sorted(records[0].row))
        raise DataError(
            f"{path}: none of the {len(records)} rows has a reference answer (fields: {fields}); "
            "add an answer to each, or name the field that holds it 'answer'"
        )
    if unanswered:
        raise DataError(
            f"{path}, {unanswered[0].where}: no reference answer, as in {len(unanswered)} of {len(records)} rows; "
            "add the answers or drop these rows"
        )
    counts = Counter(record.layout.kind for record in records)
    first = records[0]
    if len(counts) > 1:
        odd = next(record for record in records if record.layout is not first.layout)
        raise DataError(
            f"{path}, {odd.where}: read as {odd.layout.title}, but {first.where} as {first.layout.title}; "
            "keep to one layout a file"
        )


def _ids(records: Sequence[_Record]) -> list[str]:
    for name in ID_NAMES:
        own = [str(record.row[name]) for record in records if record.row.get(name) not in (None, "")]
        if len(own) == len(set(own)) == len(records):
            return own
    return [sha256(" ".join(record.fields.question.split()).encode()).hexdigest()[:16] for record in records]


def _task(name: str, record: _Record) -> Task:
    fields = record.fields
    return Task(id=name, prompt=fields.question, answer=fields.answer, info={"kind": record.layout.kind, **fields.info})
