"""A role that a rule fills: it reads the conversation as a model would, and writes by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from whet.grading.verdicts import parse_verdict
from whet.rollout.roles import written
from whet.tasks.placeholders import read_back
from whet.tasks.prompts import Message, Prompts
from whet.types import Sampling, Segment


class AnsweringRule(Protocol):
    """Answers and refines."""

    def answer(self, question: str, *, seed: int) -> str: ...

    def refine(self, question: str, answer: str, *, called_wrong: bool, seed: int) -> str: ...


@dataclass(frozen=True)
class RuleRole:
    """An actor by rule, as a `Role`. What it writes has no tokens and never trains."""

    name: str
    rule: AnsweringRule
    prompts: Prompts
    sampling: Sampling
    """Not used: the rule draws from the seed."""
    policy: str = "rule"

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        prefill: str = "",
        seed: int,
        parent: int | None = None,
        group: Mapping[str, str] | None = None,
        follows: Segment | None = None,
    ) -> Segment:
        """As `Role.reply`. The latest answer and the latest critique are read, and nothing before them."""
        question = read_back(self.prompts.solve, messages[0]["content"])
        assert question is not None, "a round asks in the words of its prompts"
        if len(messages) == 1:
            text = self.rule.answer(question, seed=seed)
        else:
            critique = read_back(self.prompts.refine, messages[-1]["content"]) or ""
            called_wrong = parse_verdict(critique, **self.prompts.labels) == "wrong"
            text = self.rule.refine(question, messages[-2]["content"], called_wrong=called_wrong, seed=seed)
        return written(self.name, text, policy=self.policy, parent=parent, group=group or {}, seed=seed)
