"""The prompts of a second attempt without feedback: the policy looks at its answer again."""

from __future__ import annotations

from dataclasses import replace

from whet.tasks.prompts import CHAINS, Prompts
from whet.types import Segment, Task

_AGAIN = (
    "There may be a mistake in your solution, or none. Go through it once more, mend what is wrong, keep what is "
    "right, and write the whole solution anew, closing with the answer in the same form.{critique}"
)


def second_look(prompts: Prompts) -> Prompts:
    """The prompts with that request in place of a critique. The tiny world's have no words for it: they stay, and an
    empty critique asks."""
    return prompts if prompts == CHAINS else replace(prompts, refine=_AGAIN, refine_prefill=prompts.solve_prefill)


def nothing(task: Task, answer: Segment) -> str:
    """The critic's role as a rule: no feedback."""
    return ""
