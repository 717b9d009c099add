"""Which critiques are kept: AutoMathCritique's filters (arXiv:2411.16579, stage 3) as pure functions.

The *rule filters* read the critique; the *soft filter* counts right refinements. Where the paper's constants are not
known the values are ours: `docs/auto-critique.md` says which.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Literal

from whet.grading.step_critiques import StepCritique, repeats
from whet.tasks.steps import is_closing, sentence

RULES = ("format", "verdict", "location", "hint_leak", "answer_leak")
"""The rule filters, in the order in which they run."""
HINT_WORDS = (
    "reference answer", "reference solution", "ground truth", "ground-truth", "gold answer", "golden answer",
    "answer key", "standard answer", "expected answer", "provided answer", "known answer", "the hint", "hints",
    "as i was told", "according to the key",
)  # fmt: skip
"""By which a critique gives away that its author knew more than the solution. Never `correct answer`: everybody may
have an opinion on that."""
_NUMBER = re.compile(r"\d+")
SLACK = 2
"""Runs of digits that a refinement may have fewer than the shorter of solution and answer."""
MASK = "[masked]"


# --- rules on the critique --------------------------------------------------------------------------------------------


def well_formed(critique: StepCritique, steps: Sequence[str], *, stepwise: bool = True) -> bool:
    """Exactly one final verdict that can be read, and at least one step, each with a label and repeated in order.

    A critique may stop after a step that it calls wrong, and may judge the closing line or leave it out.

    Args:
        steps: of the response, in order, with the line that states the answer.
        stepwise: False: the prompts ask for no steps. Only the verdict counts.
    """
    if critique.verdict is None or critique.num_verdicts != 1:
        return False
    if not stepwise:
        return True
    judgments = critique.steps
    if not judgments or not critique.is_paired or len(judgments) > len(steps):
        return False
    if not all(repeats(judged.sentence, step) for judged, step in zip(judgments, steps, strict=False)):
        return False
    rest = steps[len(judgments) :]
    return not rest or (len(rest) == 1 and is_closing(rest[0])) or judgments[-1].right is False


def agrees_with_grader(critique: StepCritique, *, right: bool) -> bool:
    """The verdict is the grader's; of a right response every step is called right too."""
    if not right:
        return critique.verdict == "wrong"
    return critique.verdict == "correct" and all(critique.labels)


Location = Literal["exact", "after"]


def agrees_with_location(critique: StepCritique, error_step: int | None, *, kind: Location) -> bool:
    """The first step that is called wrong is the one that the hint names.

    Args:
        error_step: from 0. None: no hint, and the critique passes.
        kind: "after" accepts a later step too, as the response need not go wrong where it was pushed off.
    """
    if error_step is None or not critique.steps:
        return True
    return critique.first_wrong == error_step if kind == "exact" else critique.first_wrong >= error_step


def mentions_hint(critique: str, shown: str = "") -> bool:
    """Whether a critique speaks of a reference or a hint.

    Args:
        shown: question and response. Words that stand there give nothing away.
    """
    text, shown_text = sentence(critique).casefold(), sentence(shown).casefold()
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) and word not in shown_text for word in HINT_WORDS)


def holds_answer(text: str, answer: str | None) -> bool:
    """Whether the reference answer stands in a text, as a whole number or word: 12 does not stand in 120."""
    return bool(answer) and re.search(_whole(str(answer)), text) is not None


def masked(text: str, answer: str | None) -> str:
    """The text with a placeholder for the reference answer, wherever `holds_answer` finds it."""
    return re.sub(_whole(answer), MASK, text) if answer else text


def _whole(answer: str) -> str:
    """A pattern for the answer alone. Commas and points before digits continue a number; thousands may be set apart."""
    bare = answer.strip()
    if re.fullmatch(r"-?[\d,]+(\.\d+)?", bare):
        whole, point, rest = bare.replace(",", "").partition(".")
        groups = [whole[max(0, end - 3) : end] for end in range(len(whole), 0, -3)][::-1]
        shown = ",?".join(map(re.escape, groups)).replace("\\-,?", "\\-") + re.escape(point + rest)
        return rf"(?<!\w)(?<!\d[.,]){shown}(?![.,]?\d)(?!\w)"
    return rf"(?<!\w){re.escape(bare)}(?!\w)"


def duplicate_key(question: str, response: str) -> tuple[str, str]:
    """Two responses of one key are one: white space, case and calculator notes aside."""
    return sentence(question), sentence(re.sub(r"<<[^<>]*>>", "", response)).casefold()


# --- counting refinements ---------------------------------------------------------------------------------------------


def num_needed(threshold: float, num_refinements: int) -> int:
    """k = ceil(tau N), in whole numbers: 0.3 of 10 is 3, and 0.7 of 10 is 7, which floats would make 8."""
    return ceil(Fraction(str(threshold)) * num_refinements)


def passes_soft(num_correct: int, threshold: float, num_refinements: int) -> bool:
    """Kept iff N_correct >= k. For right responses `num_correct` counts the refinements that stay right."""
    return num_correct >= num_needed(threshold, num_refinements)


def num_digit_runs(text: str) -> int:
    """Runs of digits, as long as they go: `1,200 = 12 * 100` has four."""
    return len(_NUMBER.findall(text))


def is_shortcut(refinement: str, answer: str, solution: str = "") -> bool:
    """The shortcut barrier of AutoMathCritique's published code: a refinement that hardly calculates only states an
    answer. With d(t) the runs of digits in t: d(refinement) < min(d(solution), d(answer)) - 2.

    Args:
        answer: what it refines.
        solution: the worked one. Empty: there is none, and the answer alone is compared with.
    """
    least = min(num_digit_runs(text) for text in (answer, *([solution] if solution else [])))
    return num_digit_runs(refinement) < least - SLACK
