"""A role that a rule fills, and the rule of an actor for the tiny world.

The role reads the conversation as a model would, and writes by rule. Critique-RL (arXiv:2510.24320) trains a critic
through the refinements of its actor, so what a critic learns depends on what a verdict does there. A trained actor has
one habit, which is hard to set. Here two numbers set it (`VerdictActor`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from whet.grading.verdicts import parse_verdict
from whet.rollout.roles import written
from whet.seeds import seed_of
from whet.tasks.chains import Carelessness, Chain, answer_text, corrupt_chain, parse_chain, work_out
from whet.tasks.demonstrations import TEXTBOOK, textbook
from whet.tasks.placeholders import read_back
from whet.tasks.prompts import Message, Prompts
from whet.types import Sampling, Segment


class AnsweringRule(Protocol):
    """Writes what an actor writes: answers, and refinements after a critique."""

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


@dataclass(frozen=True, slots=True)
class VerdictActor:
    """Answers as the careless textbook does, and refines by the critique's verdict alone: neither its steps nor its
    corrections are read.

    Args:
        mend: in [0, 1]. The chance that a wrong answer becomes right when it is called wrong.
        spoil: in [0, 1]. The chance that a right answer becomes wrong when it is called wrong.
        author: which errors its answers have, and how often.
    """

    mend: float
    spoil: float
    author: Carelessness = TEXTBOOK

    def answer(self, question: str, *, seed: int) -> str:
        """A worked answer to a chain, by the author.

        Args:
            seed: of the author's errors. The same seed gives the same answer.
        Raises: ValueError where the question is no chain.
        """
        chain = parse_chain(question)
        return answer_text(chain, work_out(chain, self.author, random.Random(seed)))

    def refine(self, question: str, answer: str, *, called_wrong: bool, seed: int) -> str:
        """The answer after a critique. It stays as it is unless it was called wrong.

        Args:
            called_wrong: whether the critique's verdict is *wrong*. An unreadable verdict is not.
            seed: of the change.
        Raises: ValueError where the question is no chain.
        """
        # Other draws than the answer's, also where both get the same seed.
        chain, rng = parse_chain(question), random.Random(seed_of("refinement by rule", seed))
        is_right = answer.splitlines()[-1:] == answer_text(chain, chain.values).splitlines()[-1:]
        if not called_wrong or rng.random() >= (self.spoil if is_right else self.mend):
            return answer
        return answer_text(chain, _spoilt(chain, rng) if is_right else chain.values)


def verdict_actor(mend: float, spoil: float, misconceptions: tuple[float, float] | None = None) -> VerdictActor:
    """A `VerdictActor` whose author has misconceptions of the requested strength.

    Args:
        misconceptions: lowest and highest chance that a misconceived fact is written wrong, in [0, 1]. None: the
            textbook's.
    """
    return VerdictActor(mend, spoil, textbook(misconceptions))


def _spoilt(chain: Chain, rng: random.Random) -> list[int]:
    """A solution with one planted error, which makes the final answer wrong: each operation is a bijection."""
    return corrupt_chain(chain, rng, 0.0)
