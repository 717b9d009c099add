"""A user's documents and questions: JSON lines in a folder.

- `documents.jsonl`: a `title` and a `text` a line, or `contents` as in wiki-18, whose first line is the title.
- `test.jsonl`, `train.jsonl` or both: a `question` and its `answers` a line, a list of texts (or `golden_answers`). A
  `kind` (or `data_source`) is the question's subgroup.

Item numbers are AgentGym's: test questions from 0, training questions from 51713, in the order of their lines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from whet.envs.protocol import EnvError
from whet.envs.searchqa.answers import normalised
from whet.envs.searchqa.questions import Question
from whet.envs.searchqa.retrieval import Index
from whet.envs.searchqa.world import Document
from whet.types import is_whole

SOURCES: Mapping[str, range] = {
    "nq": range(3610),
    "triviaqa": range(3610, 14923),
    "popqa": range(14923, 29190),
    "hotpotqa": range(29190, 36595),
    "2wikimultihopqa": range(36595, 49171),
    "musique": range(49171, 51588),
    "bamboogle": range(51588, 51713),
}
"""AgentGym's test items by source."""
TRAIN_SOURCES: Mapping[str, range] = {"nq": range(51713, 130881), "hotpotqa": range(130881, 221328)}
"""Its training items."""
PLACES: Mapping[str, range] = {"test": range(51713), "train": range(51713, 221328)}
"""Item numbers by split."""
DOCUMENTS = "documents.jsonl"


@dataclass(frozen=True, slots=True)
class Library:
    """What a folder holds."""

    index: Index
    questions: Mapping[int, Question]
    """By item number."""

    def split(self, name: str) -> Sequence[int]:
        return tuple(number for number in PLACES[name] if number in self.questions)


def source_of(number: int) -> str:
    """The source of a published item. Empty: there is no such number."""
    ranges = [*SOURCES.items(), *TRAIN_SOURCES.items()]
    return next((source for source, numbers in ranges if number in numbers), "")


def read_folder(path: str | Path) -> Library:
    """The documents and questions of a folder.

    Raises: EnvError where it is not as it should be, or bm25s is not installed.
    """
    folder = Path(path).expanduser().resolve()
    files = [folder / name for name in (DOCUMENTS, *(f"{split}.jsonl" for split in PLACES))]
    there = [file for file in files if file.is_file()]
    if files[0] not in there or len(there) < 2:
        raise EnvError(f"{folder} lacks {DOCUMENTS}, or has neither test.jsonl nor train.jsonl: write them there")
    return _read(folder, tuple((file.name, file.stat().st_mtime_ns) for file in there))


@cache
def _read(folder: Path, files: tuple[tuple[str, int], ...]) -> Library:
    documents = tuple(_document(place, row) for place, row in _rows(folder / DOCUMENTS))
    if not documents:
        raise EnvError(f"{folder / DOCUMENTS} is empty: write a document a line")
    questions: dict[int, Question] = {}
    for name, _ in files[1:]:
        numbers = PLACES[name.removesuffix(".jsonl")]
        rows = list(_rows(folder / name))
        if len(rows) > len(numbers):
            raise EnvError(
                f"{folder / name} has {len(rows):,} questions, and {len(numbers):,} have a number: take fewer"
            )
        questions |= {number: _question(*row) for number, row in zip(numbers, rows, strict=False)}
    if not questions:
        raise EnvError(f"{folder} has no question: write one a line into test.jsonl or train.jsonl")
    return Library(Index(documents), questions)


def _document(place: str, row: Mapping[str, Any]) -> Document:
    if "contents" in row:
        title, _, text = _text(place, row, "contents").partition("\n")
        return Document(title.strip(), text.strip())
    return Document(_text(place, row, "title"), _text(place, row, "text"))


def _question(place: str, row: Mapping[str, Any]) -> Question:
    words = _text(place, row, "question")
    answers = row.get("answers", row.get("golden_answers"))
    if not isinstance(answers, list) or not answers or not all(isinstance(answer, str) for answer in answers):
        raise EnvError(f"{place}: answers is {str(answers)[:60]!r}; write a list with one text or more")
    for answer in answers:
        if not is_whole(answer) or not normalised(answer):
            raise EnvError(
                f"{place}: the answer {answer[:60]!r} is nothing once punctuation and articles are left out; write "
                "another, or leave the question out"
            )
    kind = row.get("kind", row.get("data_source", "questions"))
    return Question(words, tuple(answers), str(kind))


def _text(place: str, row: Mapping[str, Any], name: str) -> str:
    text = row.get(name)
    if not isinstance(text, str) or not text.strip() or not is_whole(text):
        raise EnvError(f"{place}: {name} is {str(text)[:60]!a}; write a text that is not empty")
    return text.strip()


def _rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each line's object, with its place for messages."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvError(f"{file} cannot be read ({error}): write it as UTF-8") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise EnvError(f"{place} is no JSON ({error}): write one object a line") from error
        if not isinstance(row, dict):
            raise EnvError(f"{place} is no object: write one object a line")
        yield place, row
