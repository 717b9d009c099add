"""The row formats of task files: from one row (a JSON object) to a question, its reference answer and extras.

A format is recognised by its fields, in the order of `LAYOUTS`; the first that fits reads the row. To add one, write a
function from row to `Fields` and give it a line there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mathgrade.boxes import last_boxed
from whet.errors import WhetError

Row = Mapping[str, Any]
QUESTION_NAMES = ("question", "problem", "prompt")
"""In plain rows; the first that is there."""
NOTHING: tuple[Any, ...] = (None, "", "None", [])
"""Values by which a row says that it has no worked solution."""


class DataError(WhetError, ValueError):
    """What is wrong with a user's file, where, and what to do about it, in one sentence."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The parts of a row, as its format reads them."""

    question: str
    answer: str | None
    """None: the row has no reference."""
    used: tuple[str, ...]
    """The columns that question and answer were read from. All others reach graders as they are (`Task.info`)."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Values that differ from those of their columns."""


@dataclass(frozen=True, slots=True)
class RowFormat:
    """A way to write a task as a JSON object."""

    kind: str
    """Goes to `Task.info["kind"]`."""
    title: str
    """For the sentence that says what was recognised."""
    fits: Callable[[Row], bool]
    read: Callable[[Row], Fields]


def recognise(row: Row) -> RowFormat:
    """The first row format that fits.

    Raises: DataError where none does.
    """
    for row_format in LAYOUTS:
        if row_format.fits(row):
            return row_format
    raise DataError(
        f"no question field among {', '.join(sorted(row)) or 'no fields at all'}; say which columns hold question and "
        "answer: data.columns.prompt=NAME data.columns.answer=NAME"
    )


# --- fields ---------------------------------------------------------------------------------------------------------


def as_text(value: Any) -> str | None:
    """A scalar of an answer as text (27.0 is `27`), or the one scalar of a list. None: nothing there.

    Raises: DataError for anything else.
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError("a number past the largest float stands where an answer is expected; write it as text")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int | float):
        raise DataError(
            f"expected text or a number where a {type(value).__name__} stands: {str(value)[:60]}; write it as text, or "
            "name what is inside, such as data.columns.answer=answer.value"
        )
    return str(value).strip() or None


def _question(value: Any) -> str:
    """Text, or chat messages with a single user turn."""
    if isinstance(value, list):
        turns = [turn for turn in value if isinstance(turn, dict) and isinstance(turn.get("content"), str)]
        if len(turns) != 1 or len(value) != 1 or turns[0].get("role") != "user":
            roles = [turn.get("role") if isinstance(turn, dict) else type(turn).__name__ for turn in value]
            raise DataError(
                f"a prompt of messages must be one user turn of text, not {roles}; give it as text, or name the turn "
                "that is the question, such as data.columns.prompt=prompt.1.content"
            )
        value = turns[0]["content"]
    if not isinstance(value, str) or not value.strip():
        raise DataError("the question is empty or not text; fill it or drop the row")
    return value.strip()


def _solution(row: Row) -> dict[str, Any]:
    """A worked solution, where there is one."""
    solution = row.get("solution")
    if isinstance(solution, bytes):
        raise DataError("solution holds bytes that are no text; leave it out, or name another column")
    return {} if solution in NOTHING else {"solution": solution}


def _has(*names: str) -> Callable[[Row], bool]:
    return lambda row: all(name in row for name in names)


# --- layouts --------------------------------------------------------------------------------------------------------


def _verl(row: Row) -> Fields:
    model = row["reward_model"]
    truth = model.get("ground_truth") if isinstance(model, dict) else None
    rest = {name: value for name, value in model.items() if name != "ground_truth"} if isinstance(model, dict) else {}
    return Fields(
        question=_question(row["prompt"]),
        answer=as_text(truth),
        used=("prompt", "reward_model"),
        info={"reward_model": rest} if rest else {},
    )


def _svamp(row: Row) -> Fields:
    question = f"{_question(row['Body'])} {_question(row['Question'])}"  # as in the published `question_concat`
    return Fields(question=question, answer=as_text(row["Answer"]), used=("Body", "Question", "Answer"))


def _asdiv(row: Row) -> Fields:
    answer = as_text(row["answer"]) or ""
    question = f"{_question(row['body'])} {_question(row['question'])}"
    without_unit = re.sub(r"\s*\([^()]*\)$", "", answer) or None
    return Fields(question=question, answer=without_unit, used=("body", "question", "answer"))


def _aqua(row: Row) -> Fields:
    options = row["options"]
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        raise DataError(f"options must be a list of texts such as 'A)21', not {str(options)[:60]}")
    choices = [re.sub(r"^\(?([A-Za-z])\)\s*", r"(\1) ", option.strip()) for option in options]
    question = f"{_question(row['question'])}\nAnswer Choices: {' '.join(choices)}"
    solution = {"solution": row["rationale"]} if row.get("rationale") else {}
    info = {"options": choices, **solution}
    return Fields(question=question, answer=as_text(row["correct"]), used=("question", "correct"), info=info)


def _realcritic(row: Row) -> Fields:
    solution = {"solution": row["gt_cot"]} if row.get("gt_cot") not in (None, "", "None") else {}
    return Fields(
        question=_question(row["question"]), answer=as_text(row["gt"]), used=("question", "gt"), info=solution
    )


def _math(row: Row) -> Fields:
    boxed = last_boxed(row["solution"]) if isinstance(row["solution"], str) else None
    answer = as_text(row.get("answer")) or (boxed[1] if boxed else None) or None
    return Fields(question=_question(row["problem"]), answer=answer, used=("problem", "answer"), info=_solution(row))


def _is_gsm8k(row: Row) -> bool:
    return "question" in row and isinstance(row.get("answer"), str) and "####" in row["answer"]


def _gsm8k(row: Row) -> Fields:
    solution, _, gold = row["answer"].rpartition("####")
    answer = gold.strip() or None
    info = {"solution": solution.strip()}
    return Fields(question=_question(row["question"]), answer=answer, used=("question", "answer"), info=info)


def _plain(row: Row) -> Fields:
    name = next(name for name in QUESTION_NAMES if name in row)
    answer = as_text(row.get("answer"))
    return Fields(question=_question(row[name]), answer=answer, used=(name, "answer"), info=_solution(row))


LAYOUTS = (
    RowFormat("verl", "verl rows (prompt, reward_model.ground_truth)", _has("prompt", "reward_model"), _verl),
    RowFormat("svamp", "SVAMP rows (Body, Question, Answer)", _has("Body", "Question", "Answer"), _svamp),
    RowFormat("asdiv", "ASDiv rows (body, question, answer)", _has("body", "question", "answer"), _asdiv),
    RowFormat("aqua", "AQuA rows (question, options, correct)", _has("question", "options", "correct"), _aqua),
    RowFormat("realcritic", "RealCritic rows (question, gt)", _has("question", "gt"), _realcritic),
    RowFormat("gsm8k", "GSM8K rows (question, answer after ####)", _is_gsm8k, _gsm8k),
    RowFormat("math", r"MATH rows (problem, solution with \boxed)", _has("problem", "solution"), _math),
    RowFormat(
        "plain",
        "plain rows (question, answer)",
        lambda row: any(name in row for name in QUESTION_NAMES),
        _plain,
    ),
)
