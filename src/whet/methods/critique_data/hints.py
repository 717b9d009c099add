"""The hints that an annotator gets beside question and response, and the requests for a mistake or to go on.

AutoMathCritique (arXiv:2411.16579, figure 2) hints by what is known: the reference answer. With RG2 it adds the place
where the response was diverted, with RG3 the mistake too. The words are ours. The tiny world's tokenizer has none for
any of this: there rules annotate and corrupt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from whet.methods.critique_data.mistakes import CATALOGUE
from whet.tasks.prompts import CHAINS, Message, Prompts
from whet.tasks.steps import sentence

_OPENING = (
    "For your eyes alone, so that you judge rightly. Do not speak of it, and write as if you had found it all yourself:"
)
_GO_ON = (
    "Your solution was cut off here. Go on from exactly there with the next step, in the same style, without a word "
    "about the interruption and without repeating anything, and close with the answer in the form that was asked for."
)
_CORRUPT = (
    "Below are a question, the first steps of a solution, and the step that comes next. Rewrite that step, on one line "
    "and in the same style, so that it holds this mistake: {mistake}. Write the changed step and nothing else."
)


def hint_lines(known: Mapping[str, Any], *, right: bool) -> list[tuple[str, str]]:
    """Hints with their names.

    Args:
        known: `reference`, `location` (from 0), `exact` (whether the first mistake is known to be there), `mistake`.
        right: whether the final answer is.
    """
    hints = []
    if known.get("reference"):
        verdict = "the final answer of the solution is right" if right else "the final answer of the solution is wrong"
        hints.append(("reference", f"The right answer is {known['reference']}, and {verdict}."))
    if known.get("location") is not None:
        step = f"step {known['location'] + 1}"
        exact = f"The first mistake is in {step}."
        hints.append(("location", exact if known.get("exact") else f"It probably goes wrong in {step}, or later."))
    if known.get("mistake") in CATALOGUE:
        hints.append(("mistake", f"The mistake there: {CATALOGUE[known['mistake']].instruction}."))
    return hints


def hinted(messages: Sequence[Message], hints: Sequence[tuple[str, str]]) -> list[Message]:
    """A critic's conversation with hints at the end of its last turn."""
    if not hints:
        return list(messages)
    *before, last = messages
    lines = "\n".join([_OPENING, *(f"- {line}" for _, line in hints)])
    return [*before, {**last, "content": f"{last['content']}\n\n{lines}"}]


def has_words(prompts: Prompts) -> bool:
    """Whether hints can be put in the words of these prompts."""
    return prompts != CHAINS


def go_on_messages(prompts: Prompts, question: str, begun: str) -> list[Message]:
    """For roles that cannot be made to begin a turn in a given way."""
    return [
        *prompts.solve_messages(question),
        {"role": "assistant", "content": begun},
        {"role": "user", "content": _GO_ON},
    ]


def corrupt_messages(question: str, before: Sequence[str], step: str, mistake: str) -> list[Message]:
    """Asks for a step with a mistake of the catalogue."""
    instruction = _CORRUPT.replace("{mistake}", CATALOGUE[mistake].instruction)
    first = "\n".join(map(sentence, before)) or "(there are none)"
    content = (
        f"{instruction}\n\nQuestion: {question}\n\nFirst steps:\n{first}\n\nThe step to rewrite:\n{sentence(step)}"
    )
    return [{"role": "user", "content": content}]
