"""Exploring with a critic at hand: answers, critiques of the wrong ones, refinements, as many as the settings allot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from whet.methods.self_improve.improving import Question
from whet.methods.self_improve.recovery import allotted
from whet.rollout.critique import CritiqueRound
from whet.rollout.runtime import Runtime
from whet.types import Segment, Task

Asked = tuple[CritiqueRound, Task, int, Segment | None]
"""How, what, which sample of its answers, and the answer where there is one already."""


@dataclass(frozen=True)
class Explorer:
    """Plays a step of a round.

    Args:
        rounds: answer, and where it is wrong critique and refinements; it keeps right answers.
        num_samples: answers to each question.
        keep: right refinements that are kept after each critique; with a budget, of each question.
        barrier: whether shortcuts are left out.
    """

    runtime: Runtime
    rounds: CritiqueRound
    num_samples: int
    keep: int
    barrier: bool

    def answered(self, tasks: Sequence[Task], *, num_tokens: int | None = None) -> dict[str, Question]:
        """Answers alone.

        Args:
            num_tokens: every question is answered again and again until as many are written. None: `num_samples` times.
        """
        rounds = replace(self.rounds, num_critiques=0)
        found = {task.id: Question(task) for task in tasks}
        self._play(found, [(rounds, task, sample, None) for task in tasks for sample in range(self.num_samples)])
        for sample in count(self.num_samples) if num_tokens is not None else ():
            before = num_written(found)
            if before >= (num_tokens or 0):
                break
            self._play(found, [(rounds, task, sample, None) for task in tasks])
            if num_written(found) == before:
                break  # all of them failed
        return found

    def critiqued(self, tasks: Sequence[Task]) -> dict[str, Question]:
        """Answers, and after a critique of each wrong one the round's number of refinements (published)."""
        found = {task.id: Question(task) for task in tasks}
        self._play(found, [(self.rounds, task, sample, None) for task in tasks for sample in range(self.num_samples)])
        for question in found.values():
            question.choose(self.keep, barrier=self.barrier)
        return found

    def allotted(self, tasks: Sequence[Task], budget: int, cap: int | None) -> dict[str, Question]:
        """Answers, and one refinement after another of the wrong ones in turn, until a question has what is kept of it
        or has spent its part of the budget. An answer is critiqued once.

        Args:
            budget: refinements of all questions.
            cap: of one question. None: none.
        """
        found = self.answered(tasks)
        left = allotted({name: len(question.wrong) for name, question in found.items()}, budget, cap)
        for attempt in range(max(left.values(), default=0)):
            asked = [
                self._next(found[name], attempt)
                for name, most in left.items()
                if attempt < most and found[name].num_kept < self.keep
            ]
            if not asked:
                break
            self._play(found, asked)
            for question in found.values():
                question.choose(self.keep, barrier=self.barrier, in_all=self.keep)
        return found

    def _next(self, question: Question, attempt: int) -> Asked:
        sample = question.wrong[attempt % len(question.wrong)]
        at = question.attempts[sample]
        rounds = replace(self.rounds, key=(*self.rounds.key, "attempt", attempt), num_refinements=1)
        if at.critique is not None:
            rounds = replace(rounds, critic=_repeating(at.critique.text))
        return rounds, question.task, sample, at.answer

    def _play(self, found: Mapping[str, Question], asked: Sequence[Asked]) -> None:
        retries = self.runtime.retries()
        episodes = self.runtime.roll_out(
            replace(rounds, retries=retries)(task, answer=answer, sample=sample)
            for rounds, task, sample, answer in asked
        )
        for (_, task, sample, _), episode in zip(asked, episodes, strict=True):
            found[task.id].add(sample, episode)


class _repeating:
    """A critic that says what it said before."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, task: Task, answer: Segment) -> str:
        return self.text


def num_written(questions: Mapping[str, Question]) -> int:
    """Tokens."""
    return sum(sum(question.tokens.values()) for question in questions.values())
