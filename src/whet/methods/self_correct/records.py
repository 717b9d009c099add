"""Self-correction: one chain of thought that comments on its steps and mends them. It is after arXiv:2411.16579, whose
section could not be read, so the construction is ours, in its outline.

It is made of what an actor and a critic wrote: a step, a comment on it, the next step, and so on. Where a comment calls
a step wrong, the step follows again. Here are the records and their conditions. `methods.self_correct.rollout` makes
them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from whet.methods.self_correct.step_comments import Label, Solution, Words
from whet.tasks.chains import OPERATIONS, apply
from whet.tasks.planting import NUMBER
from whet.tasks.prompts import Message

Form = Literal["step", "response"]
"""Comments after each step, or after a whole response."""
VOCABULARY = ("step sentence", "correctness of", "explanation:", ", claimed ")
"""Phrases of critics, who judge somebody else. None may stand in a self-correction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a chain, on a line of its own."""

    kind: Literal["step", "check", "fix"]
    text: str
    """A check's is the critic's comment as it was, without its label where that has a line of its own."""
    label: Label | None = None
    """A check's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfCorrection:
    """A record of self-correction."""

    qid: str
    question: str
    gold_answer: str
    form: Form
    segments: tuple[Piece, ...]
    """`step`: steps and fixes, each but the last line (`The answer is N`, a step) with a check behind it. `response`:
    the first answer's steps, checks, and the steps of a new answer as fixes. Where none is needed: its last line
    again."""
    rounds: int
    """Repairs: times that the actor wrote on from a step found wrong; with whole responses at most 1."""
    text: str
    """What is to be learnt: the segments in the first person."""
    final_answer: str
    """As the grader read it from `text`."""
    source: Mapping[str, str]
    """The models behind `actor`, `critic` and `smoother`."""


def as_record(talk: SelfCorrection) -> dict[str, Any]:
    return asdict(talk)


def of_record(record: Mapping[str, Any]) -> SelfCorrection:
    """Undoes `as_record`."""
    return SelfCorrection(**{**record, "segments": tuple(Piece(**piece) for piece in record["segments"])})


# --- smoothing --------------------------------------------------------------------------------------------------------


def smoothed(pieces: Sequence[Piece], words: Words) -> str:
    """Smooths by rule: checks get the first person, all else stays."""
    return "\n".join(words.spoken(piece.text, piece.label) if piece.kind == "check" else piece.text for piece in pieces)


def smoothing_messages(question: str, text: str) -> list[Message]:
    """Asks a model to smooth a text further than the rule did."""
    content = (
        "Below, somebody works on a question and checks the work line by line. Rewrite the lines that check, so that "
        "it reads as one person thinking aloud: in the first person, with words that connect one line to the next. "
        "Leave every other line exactly as it is and where it is, keep all numbers, add none, and end with the same "
        f"last line. Write the rewritten text only.\n\nQuestion: {question}\n\n{text}"
    )
    return [{"role": "user", "content": content}]


# --- what has to hold -------------------------------------------------------------------------------------------------


def find_problems(talk: SelfCorrection, *, is_right: bool) -> list[str]:
    """Sentences on what is wrong with a record. []: it may be learnt.

    Args:
        is_right: whether the final answer of its text was graded 1.
    """
    checks = [piece for piece in talk.segments if piece.kind == "check"]
    problems = [*(_order_problems(talk.segments) if talk.form == "step" else _response_problems(talk.segments))]
    num_repairs = sum(piece.label == "Wrong" for piece in checks)
    if talk.rounds != (num_repairs if talk.form == "step" else min(num_repairs, 1)):
        problems.append(f"{talk.rounds} rounds, and {num_repairs} checks that say Wrong")
    if not is_right:
        problems.append("the final answer is not right")
    if numbers(talk.text) != numbers("\n".join(piece.text for piece in talk.segments)):
        problems.append("smoothing changed the numbers")
    lines = [piece.text for piece in talk.segments if piece.kind != "check"]
    if not _stand_in_order(lines, talk.text):
        problems.append("smoothing changed a step, or their order")
    if talk.segments and talk.text.rpartition("\n")[2].strip() != talk.segments[-1].text:
        problems.append("smoothing changed the last line")
    lowered = talk.text.casefold()
    problems += [f"it says {word!r}, as a critic does" for word in VOCABULARY if word in lowered]
    return problems


def _order_problems(pieces: Sequence[Piece]) -> list[str]:
    """Of a chain: (step or fix, check)*, then the last line."""
    problems, before = [], None
    lines, checks = pieces[0::2], pieces[1::2]
    if len(pieces) % 2 == 0 or any(p.kind == "check" for p in lines) or any(p.kind != "check" for p in checks):
        return ["steps and checks do not take turns, with a last line behind them"]
    for line, check in zip(lines, (*checks, None), strict=True):
        wanted = "fix" if before == "Wrong" else "step"
        if line.kind != wanted:
            problems.append(f"after a check that says {before} comes a {line.kind}")
        before = check.label if check else before
        if check and check.label is None:
            problems.append("a check has no label")
    if before != "Correct":
        problems.append(f"the last check says {before}")
    for one, two in pairwise(lines):
        if two.kind == "fix" and one.text == two.text:
            problems.append("a fix repeats what it is to mend")
    return problems


def _response_problems(pieces: Sequence[Piece]) -> list[str]:
    """Of a whole response: steps, checks, and fixes where a check says Wrong, else the last line again."""
    kinds = "".join(piece.kind[0] for piece in pieces)
    has_wrong = any(piece.label == "Wrong" for piece in pieces)
    if not re.fullmatch("s+c+f+" if has_wrong else "s+c+s", kinds):
        return ["answer, reflection and new answer do not follow one another"]
    return [] if all(piece.label for piece in pieces if piece.kind == "check") else ["a check has no label"]


def numbers(text: str) -> Counter[str]:
    """How often each number occurs in a text, whatever separates its thousands."""
    return Counter(number.replace(",", "") for number in NUMBER.findall(text))


def _stand_in_order(wanted: Sequence[str], text: str) -> bool:
    lines = iter(text.split("\n"))
    return all(any(line.strip() == step for line in lines) for step in wanted)


# --- the other forms that a chain gives -------------------------------------------------------------------------------


def plain_text(talk: SelfCorrection) -> str:
    """The right answer of a chain without checks: the steps found right, and the last line."""
    pairs = zip(talk.segments[0::2], (*talk.segments[1::2], None), strict=True)
    return "\n".join(line.text for line, check in pairs if check is None or check.label == "Correct")


def response_pieces(first: Solution, checks: Sequence[Piece], last: Solution) -> tuple[Piece, ...]:
    """Whole-response self-correction of the same outputs: the first answer, all comments on it, the last answer."""
    steps = [Piece(kind="step", text=line) for line in first.lines]
    is_changed = any(check.label == "Wrong" for check in checks)
    again = [Piece(kind="fix", text=line) for line in last.lines] if is_changed else steps[-1:]
    return (*steps, *checks, *again)


def mistakes(talk: SelfCorrection) -> list[tuple[int, int]]:
    """Spans (first character and end) of the steps that a check found wrong, in the text of a valid record."""
    if talk.form == "step":
        checked = list(zip(talk.segments[0::2], talk.segments[1::2], strict=False))
    else:  # the n-th check is of the n-th step
        checks = [piece for piece in talk.segments if piece.kind == "check"]
        checked = list(zip(talk.segments, checks, strict=False))
    spans, place = [], 0
    for line, check in checked:
        place = f"{talk.text}\n".index(f"{line.text}\n", place)
        if check.label == "Wrong":
            spans.append((place, place + len(line.text)))
        place += len(line.text)
    return spans


# --- replies read back ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a reply with self-correction did."""

    num_checks: int
    num_repairs: int
    """Checks that say Wrong and have a line of the answer behind them."""
    first: str
    """Of a whole response, its first answer. Of a chain, the first attempt at every step."""


def read_self_correction(body: str, form: Form, words: Words) -> Spoken:
    """Args: body: a reply without its prefill."""
    lines = [line for line in body.split("\n") if line.strip()]
    labels = [words.label_in(line) for line in lines]
    checks = [at for at, label in enumerate(labels) if label]
    wrong = [at for at in checks if labels[at] == "Wrong"]
    mended = [at for at in wrong if labels[at + 1 : at + 2] == [None]]
    if form == "response":
        end = checks[0] if checks else len(lines)
        has_new = any(labels[at] is None for at in range(wrong[0], len(lines))) if wrong else False
        return Spoken(len(checks), int(has_new), "\n".join(lines[:end]))
    fixes = {at + 1 for at in mended}
    first = [line for at, line in enumerate(lines) if labels[at] is None and at not in fixes]
    return Spoken(len(checks), len(mended), "\n".join(first))


_FACT = re.compile(r"Step \d+: (\d) ([-+*]) (\d) = (\d)")


def holds(first: str) -> bool | None:
    """Whether every step of the tiny world in it is true. Each goes on from what was written before, so a chain whose
    first attempts all hold needed no repair. None: there is no such step."""
    info = _FACT.findall(first)
    facts = [(int(a), (op, int(b)), int(c)) for a, op, b, c in info]
    if not facts:
        return None
    return all(operation in OPERATIONS and apply(a, operation) == c for a, operation, c in facts)


def with_text(talk: SelfCorrection, text: str, smoother: str) -> SelfCorrection:
    return replace(talk, text=text, source={**talk.source, "smoother": smoother})
