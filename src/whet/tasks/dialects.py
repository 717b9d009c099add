"""Wording: how a question, an answer and a critique are put to a model. Data only; torch and tokenizers stay out.

A dialect turns the pieces of a critique round into chat messages, and knows the prefill an assistant turn starts
with. `chains` is the terse one of the tiny world (every piece is a token of its tokenizer); `english` words the same
three tasks, with the same final labels, for real models (layout after Critique-RL, arXiv:2510.24320, appendix; the
wording is ours).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Message = dict[str, str]
"""`{"role": "user" | "assistant", "content": ...}`, as chat templates take it."""

Round = tuple[str, str]
"""An answer and the critique it got."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Templates with named holes: `{question}`, `{answer}`, `{critique}`."""

    solve: str
    critique: str
    """Opens a critique: shows question and answer."""
    critique_again: str
    """A later round for a critic that remembers: shows the new answer only."""
    refine: str
    """Shows the critique to the actor that wrote the answer."""
    solve_prefill: str = ""
    """The assistant turn starts with this; it belongs to the answer's text."""
    refine_prefill: str = ""
    critique_marker: str = ""
    """What comes before its first occurrence in a critique is not shown to the actor. Empty: show all."""

    def solve_messages(self, question: str) -> list[Message]:
        return [_user(self.solve.format(question=question))]

    def critique_messages(self, question: str, answer: str, history: Sequence[Round] = ()) -> list[Message]:
        """What the critic reads. With a history (oldest first) it sees its own earlier critiques as its turns."""
        rounds = [*history, (answer, "")]
        messages = []
        for index, (text, critique) in enumerate(rounds):
            template = self.critique_again if index else self.critique
            # The prefill is the prompt's, not the solver's: a critic need not judge it. Only at the very start.
            shown = text.removeprefix(self.refine_prefill if index else self.solve_prefill).strip("\n")
            messages += [_user(template.format(question=question, answer=shown)), _assistant(critique)]
        return messages[:-1]

    def steps_onward(self, critique: str) -> str:
        """The critique from its first marker on, without any preamble; all of it where there is no marker."""
        start = critique.find(self.critique_marker)
        return critique[start:] if start >= 0 else critique

    def refine_messages(
        self, question: str, answer: str, critique: str, history: Sequence[Round] = ()
    ) -> list[Message]:
        """What the actor reads: its first turn, then critique and answer in turn, as far back as the history goes."""
        messages = self.solve_messages(question)
        for text, comment in [*history, (answer, critique)]:
            messages += [_assistant(text), _user(self.refine.format(critique=comment))]
        return messages


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}


CHAINS = Dialect(
    solve="Solve: {question}",
    critique="Critique: {question}\n{answer}",
    critique_again="Critique: {answer}",
    refine="Refine: {critique}",
)

ENGLISH = Dialect(
    solve="{question}\n\nWork it out step by step. Close with one line of the form: The answer is [your answer].",
    critique=(
        "You will read a question and a worked solution. Every sentence of the solution is one step, and any step "
        "may be mistaken. Go through the steps in order; repeat each one, say whether it is right, and why. Then "
        "judge the final answer. Keep exactly to this layout:\n\n"
        "Step sentence: <the step, on one line>\n"
        "Correctness of the step: [Correct/Wrong]\n"
        "Explanation: <your reason; for a wrong step, the corrected step>\n"
        "(an empty line, then the next step in the same way)\n\n"
        "Correctness of the final answer: [Correct/Wrong]\n"
        "Explanation: <your reason>\n\n"
        "Question: {question}\n\nSolution:\n{answer}"
    ),
    critique_again="The solution was rewritten after your critique. Judge the new one in the same layout.\n\n"
    "Solution:\n{answer}",
    refine=(
        "Here is a critique of your solution, step by step. Read it with care for the verdict on each step, do what "
        "it asks, and write the whole solution anew. Close with one line of the form: "
        "The answer is [your answer].\n\n{critique}"
    ),
    solve_prefill="Let me work through this one step at a time.\n\n",
    refine_prefill="Let me work through this again, following the critique at every step.\n\n",
    critique_marker="Step sentence:",
)

DIALECTS: dict[str, Dialect] = {"chains": CHAINS, "english": ENGLISH}
