"""Checks of a user's rows, whatever model reads them: leaks, one-sided answers, damaged or unfilled texts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import ceil

from whet.checks.findings import Finding, by_share, listed
from whet.types import Task

ONE_SIDED, MOSTLY = 0.9, 0.6
"""Shares of one answer at which a run is worth nothing, or a constant is hard to beat."""
MANY = 0.2
"""Share of damaged rows from which the set is damaged, and not a few rows."""
MOST_WORDS = 7
"""Of a reference that replies can be compared with."""
SMALL_TEST, TINY_TEST = 50, 10
"""Questions below which a test's interval is wide, or says nothing."""
SAME_WORDS = 0.8
"""Share of words, by Jaccard, above which questions with the same numbers are near copies."""
MOJIBAKE = re.compile("â€|Ã[\x80-\xbf©¨¼¶¤]|Â[\xa0°£]|\ufffd")
CONTROL = re.compile(r"<\|(?:im_start|im_end|endoftext|eot_id|start_header_id|user|assistant|end)\|>|\[/?INST\]|</s>")
UNFILLED = re.compile(r"\{\{?\s*(?:question|problem|prompt|input|text|context|answer)\s*\}?\}|<(?:question|problem)>")


def row_findings(splits: Mapping[str, Sequence[Task]]) -> Iterator[Finding]:
    """Findings about rows of files.

    Args:
        splits: the tasks that a run trains on and is measured by.
    """
    train, test = splits["train"], splits["test"]
    yield from _copies(train, test)
    yield from _one_sided(train)
    yield from _leaked(train)
    yield from _other_kind(train, test)
    yield from _sentences(train)
    every = [*train, *splits["validation"], *test]
    yield from _marked(
        every, MOJIBAKE.search, "characters of a wrong decoding", "read the file as UTF-8 and write it again"
    )
    yield from _marked(
        every,
        CONTROL.search,
        "control tokens as text",
        "give plain questions: whet applies the chat template itself, and these reach the model as ordinary text",
    )
    yield from _marked(every, UNFILLED.search, "a placeholder that nothing filled", "fill it, or name the right column")
    yield from _small_test(test)


def _copies(train: Sequence[Task], test: Sequence[Task]) -> Iterator[Finding]:
    """Test questions that training has in almost the same words."""
    trained = {(_numbers(task), _words(task)) for task in train}
    counts = Counter(word for _, words in trained for word in words)
    by_rare_word: dict[tuple[tuple[str, ...], str], list[frozenset[str]]] = defaultdict(list)
    for numbers, words in trained:
        for word in _rarest(words, counts):
            by_rare_word[numbers, word].append(words)

    def is_copy(task: Task) -> bool:
        numbers, words = _numbers(task), _words(task)
        candidates = (by_rare_word.get((numbers, word), ()) for word in _rarest(words, counts))
        return any(_alike(words, other) for other in chain.from_iterable(candidates))

    copies = [task for task in test if is_copy(task)]
    if copies:
        yield Finding(
            by_share(len(copies), len(test), MANY),
            "data",
            f"{len(copies)} of {len(test)} test questions are near copies of training questions "
            f"({listed([task.prompt for task in copies], 1)}): the test would measure memory, so leave them out",
        )


def _numbers(task: Task) -> tuple[str, ...]:
    return tuple(sorted(re.findall(r"\d+", task.prompt)))


def _words(task: Task) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W\d]+|[+*/=<>^-]", task.prompt.casefold()))


def _rarest(words: frozenset[str], counts: Mapping[str, int]) -> list[str]:
    """So many of the rarest words that any question which is alike has one of them among its own rarest.

    Both share at least `SAME_WORDS` of the words of each, so that few can be missing (prefix filtering; Chaudhuri,
    Ganti and Kaushik 2006). Comparing all pairs would take hours for 100,000 questions.
    """
    least_shared = ceil(SAME_WORDS * len(words) - 1e-9)
    return sorted(words, key=lambda word: (counts.get(word, 0), word))[: len(words) - least_shared + 1]


def _alike(one: frozenset[str], two: frozenset[str]) -> bool:
    union = one | two
    return len(union) >= 4 and len(one & two) >= SAME_WORDS * len(union)


def _one_sided(train: Sequence[Task]) -> Iterator[Finding]:
    answer, count = Counter(task.answer for task in train).most_common(1)[0]
    share = count / len(train)
    if share >= MOSTLY and len(train) > 3:
        yield Finding(
            "fail" if share >= ONE_SIDED else "warning",
            "data",
            f"{share:.0%} of the training answers are {str(answer)[:40]!r}, so a constant wins: balance the answers",
        )


def _leaked(train: Sequence[Task]) -> Iterator[Finding]:
    """Questions that say their answer, by words such as `answer: 85` before it."""
    leaks = [
        task
        for task in train
        if task.answer
        and re.search(rf"(?:answer|solution)\W+(?:is\W+)?{re.escape(task.answer)}(?!\w)", task.prompt, re.I)
    ]
    if leaks:
        yield Finding(
            by_share(len(leaks), len(train), MANY),
            "data",
            f"{len(leaks)} of {len(train)} training questions say their answer ({listed([leaks[0].prompt[-60:]])}): "
            "take it out of the question, or another column holds the question (data.columns.prompt)",
        )


def _other_kind(train: Sequence[Task], test: Sequence[Task]) -> Iterator[Finding]:
    shares = [sum(_is_number(task.answer) for task in tasks) / len(tasks) for tasks in (train, test) if tasks]
    if len(shares) == 2 and abs(shares[0] - shares[1]) > 0.5:
        yield Finding(
            "warning",
            "data",
            f"{shares[0]:.0%} of the training answers are numbers, and {shares[1]:.0%} of the test's: the test asks "
            "for what training never rewards, so give both one kind of answer",
        )


def _is_number(answer: str | None) -> bool:
    return re.fullmatch(r"[-+$]?[\d,]*\.?\d+%?", (answer or "").strip()) is not None


def _sentences(train: Sequence[Task]) -> Iterator[Finding]:
    sentences = [task.answer for task in train if len((task.answer or "").split()) > MOST_WORDS]
    if sentences:
        yield Finding(
            by_share(len(sentences), len(train), MANY),
            "data",
            f"{len(sentences)} of {len(train)} references are sentences ({listed([str(sentences[0])])}), and only the "
            "same words would be right: shorten them to the value, or leave the rows out",
        )


def _marked(tasks: Sequence[Task], marked: Callable[[str], object], what: str, advice: str) -> Iterator[Finding]:
    rows = [task for task in tasks if marked(task.prompt)]
    if rows:
        example, level = listed([rows[0].prompt]), by_share(len(rows), len(tasks), MANY)
        yield Finding(level, "data", f"{len(rows)} of {len(tasks)} questions hold {what} ({example}): {advice}")


def _small_test(test: Sequence[Task]) -> Iterator[Finding]:
    if len(test) < SMALL_TEST:
        points = 100 / max(1, len(test)) ** 0.5
        yield Finding(
            "fail" if len(test) < TINY_TEST else "warning",
            "data",
            f"the test has {len(test)} questions, so a result is good to ±{points:.0f} points: give a larger test file "
            "(data.test_path), or raise data.test_share",
        )
