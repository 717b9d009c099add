"""SearchQA of AgentGym-RL (arXiv:2509.08755): a question, a search over documents, and an answer.

A turn searches, `<search>words</search>`, or answers, `<answer>words</answer>`; the one that begins first counts. A
search shows the three best documents. An answer has reward 1 where it equals a right one, but for case, punctuation,
articles and spaces. As published, a wrong answer does not end the episode, and of several answers in a reply the last
is marked.

Documents and questions are generated, and found by BM25. Numbers of generated items begin at `FIRST_ITEM`, so that no
published number means one of them by chance. `path` is a folder of one's own documents and questions.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Self

from whet.envs.protocol import ACTIONS, INVALID, EnvError, EnvironmentInfo, Info, Observed, Stepped
from whet.envs.searchqa.answers import ANSWER, SEARCH, first_tag, is_right, last_answer
from whet.envs.searchqa.expert import expert, search
from whet.envs.searchqa.folder import SOURCES, Library, read_folder, source_of
from whet.envs.searchqa.questions import KINDS, NUM_TEST, NUM_TRAIN, Question, generated
from whet.envs.searchqa.retrieval import Index
from whet.envs.searchqa.world import Document, the_world, told_object

NUM_SHOWN = 3
"""Documents of one search."""
FIRST_ITEM = 1_000_000
"""The first generated item."""
TRAIN = range(FIRST_ITEM, FIRST_ITEM + NUM_TRAIN * len(KINDS))
TEST = range(TRAIN.stop, TRAIN.stop + NUM_TEST * len(KINDS))
MAX_LISTED = 6
"""Titles that the listed actions name."""

INSTRUCTION = (
    "Answer the question. Think inside <think> and </think> first. To look something up, write <search>words</search> "
    "and stop: the best documents come back inside <information> and </information>. Once you are sure, write only the "
    "answer itself inside <answer> and </answer>."
)
RIGHT, WRONG = "The answer is right.", "The answer is wrong. You may go on."
UNCLEAR = (
    "This is neither a search nor an answer. Write words to look up inside <search> and </search>, or the answer "
    "inside <answer> and </answer>."
)
NOTHING_FOUND = "No document has any of these words."


class SearchQA:
    """One question. Its `question` may be read.

    Args:
        path: a folder of documents and questions (see `folder`). None: the generated ones.
        one_answer: whether the first answer ends the episode, right or wrong. False: as published.
    Raises: EnvError where the folder is not as it should be, or bm25s is not installed.
    """

    def __init__(self, path: str | Path | None = None, *, one_answer: bool = False) -> None:
        self._library: Library | None = None if path is None else read_folder(path)
        self._index: Index = _own_index() if self._library is None else self._library.index
        self._one_answer = one_answer
        self._number = -1
        self._seen: tuple[int, ...] = ()
        """Numbers of the documents that were shown, in the order of numbers."""
        self._is_over = True
        self.question = Question("", (), "")

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        """`seed` changes nothing. The info lists a few searches and answers."""
        self._is_over = True
        self.question = self._found(item)
        self._number, self._seen, self._is_over = item, (), False
        return f"{INSTRUCTION}\n\nQuestion: {self.question.words}", self._info()

    def check_item(self, item: int) -> None:
        """Raises: EnvError where there is no such item."""
        self._found(item)

    def step(self, action: str) -> Stepped:
        if self._is_over:
            raise EnvError("this question has not been asked or has been answered: call reset(item) first")
        kind, content = first_tag(action)
        if kind == SEARCH:
            return self._searched(content), 0.0, False, False, self._info()
        if kind == ANSWER:
            is_solved = is_right(last_answer(action), self.question.answers)
            self._is_over = is_solved or self._one_answer
            return RIGHT if is_solved else WRONG, float(is_solved), self._is_over, False, self._info()
        return UNCLEAR, 0.0, False, False, {**self._info(), INVALID: True}

    def _searched(self, query: str) -> str:
        numbers = self._index.search(query, NUM_SHOWN)
        self._seen = tuple(sorted({*self._seen, *numbers}))
        documents = [self._index.documents[number] for number in numbers]
        lines = [
            f"Doc {place}(Title: {document.title}) {document.text}" for place, document in enumerate(documents, start=1)
        ]
        return "<information>" + ("\n".join(lines) or NOTHING_FOUND) + "</information>"

    def told(self, subject: str, relation: str) -> str | None:
        """What the documents that were shown say of a subject. None: nothing."""
        documents = [document for document in self.seen if document.title == subject]
        return told_object(documents[0], relation) if documents else None

    @property
    def seen(self) -> Sequence[Document]:
        """The documents that were shown in this episode."""
        return [self._index.documents[number] for number in self._seen]

    def _info(self) -> Info:
        titles = [document.title for document in self.seen[:MAX_LISTED]]
        answers = [f"<answer>{title}</answer>" for title in titles]
        return {ACTIONS: (search(self.question.words), *map(search, titles), *answers)}

    def _found(self, item: int) -> Question:
        if self._library is None:
            return _generated(item)
        if item not in self._library.questions:
            raise EnvError(
                f"the folder has no item {item}: the lines of test.jsonl are numbered from 0, and those of train.jsonl "
                "from 51713"
            )
        return self._library.questions[item]

    def state_key(self) -> Hashable:
        """The question, and the documents that the agent has been shown."""
        return self._number, self.question, self._seen, self._is_over

    def fork(self) -> Self:
        return copy(self)

    def close(self) -> None:
        self._is_over = True


@cache
def _own_index() -> Index:
    return Index(the_world().documents)


def _generated(item: int) -> Question:
    if item in TRAIN:
        return generated("train")[item - TRAIN.start]
    if item in TEST:
        return generated("test")[item - TEST.start]
    source = source_of(item)
    published = f"{item} is a published number, of {source}: give path=FOLDER with its questions. " if source else ""
    raise EnvError(f"searchqa has no item {item}. {published}Generated items are {TRAIN.start} to {TEST.stop - 1}")


def splits() -> Mapping[str, Sequence[int]]:
    """Generated items. Questions of `train` and of `test` name no subject in common."""
    return {"train": TRAIN, "test": TEST}


def group(item: int) -> str:
    """The hops of a generated item, or `comparison`."""
    return KINDS[(item - TRAIN.start) // NUM_TRAIN] if item in TRAIN else KINDS[(item - TEST.start) // NUM_TEST]


def of_settings(settings: Mapping[str, Any]) -> EnvironmentInfo:
    """With a folder: its items, by the subgroups that it names."""
    if settings.get("path") is None:
        return SEARCHQA
    library = read_folder(settings["path"])
    parts = {split: library.split(split) for split in ("train", "test")}
    return replace(SEARCHQA, splits=lambda: parts, group=lambda item: library.questions[item].kind)


SEARCHQA = EnvironmentInfo(
    name="searchqa",
    make=SearchQA,
    splits=splits,
    rules="searchqa",
    max_turns=10,
    group=group,
    item_ids=dict.fromkeys(("searchqa", *SOURCES), ""),
    parser="tags",
    needs="envs",
    expert=expert,
    of_settings=of_settings,
)
