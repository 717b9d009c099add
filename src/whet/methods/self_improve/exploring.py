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
"""Rollout function, task, sample, and the answer where there is one already."""


@dataclass(frozen=True)
class Explorer:
    """Rolls out a step of a round.

    Args:
        rounds: answer, and where it is wrong critique and refinements. It keeps right answers.
        num_samples: answers to each question.
        keep: right refinements to keep after each critique. With a budget: of each question.
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
        questions = {task.id: Question(task) for task in tasks}
        self._roll_out(
            questions, [(rounds, task, sample, None) for task in tasks for sample in range(self.num_samples)]
        )
        for sample in count(self.num_samples) if num_tokens is not None else ():
            before = num_written(questions)
            if before >= (num_tokens or 0):
                break
            self._roll_out(questions, [(rounds, task, sample, None) for task in tasks])
            if num_written(questions) == before:
                break  # all of them failed
        return questions

    def critiqued(self, tasks: Sequence[Task]) -> dict[str, Question]:
        """Answers, and after a critique of each wrong one the round's number of refinements (published)."""
        questions = {task.id: Question(task) for task in tasks}
        self._roll_out(
            questions, [(self.rounds, task, sample, None) for task in tasks for sample in range(self.num_samples)]
        )
        for question in questions.values():
            question.choose(self.keep, barrier=self.barrier)
        return questions

    def allotted(self, tasks: Sequence[Task], budget: int, cap: int | None) -> dict[str, Question]:
        """Answers, and one refinement after another of the wrong ones in turn. A question ends once it has `keep` or
        has spent its part of the budget. An answer is critiqued once.

        Args:
            budget: refinements of all questions.
            cap: of one question. None: none.
        """
        questions = self.answered(tasks)
        left = allotted({name: len(question.wrong) for name, question in questions.items()}, budget, cap)
        for attempt in range(max(left.values(), default=0)):
            requests = [
                self._next(questions[name], attempt)
                for name, most in left.items()
                if attempt < most and questions[name].num_kept < self.keep
            ]
            if not requests:
                break
            self._roll_out(questions, requests)
            for question in questions.values():
                question.choose(self.keep, barrier=self.barrier, in_all=self.keep)
        return questions

    def _next(self, question: Question, attempt: int) -> Asked:
        sample = question.wrong[attempt % len(question.wrong)]
        at = question.attempts[sample]
        rounds = replace(self.rounds, key=(*self.rounds.key, "attempt", attempt), num_refinements=1)
        if at.critique is not None:
            rounds = replace(rounds, critic=_repeating(at.critique.text))
        return rounds, question.task, sample, at.answer

    def _roll_out(self, questions: Mapping[str, Question], requests: Sequence[Asked]) -> None:
        retries = self.runtime.retries()
        episodes = self.runtime.roll_out(
            replace(rounds, retries=retries)(task, answer=answer, sample=sample)
            for rounds, task, sample, answer in requests
        )
        for (_, task, sample, _), episode in zip(requests, episodes, strict=True):
            questions[task.id].add(sample, episode)


class _repeating:
    """A critic that repeats its critique."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, task: Task, answer: Segment) -> str:
        return self.text


def num_written(questions: Mapping[str, Question]) -> int:
    """Tokens."""
    return sum(sum(question.tokens.values()) for question in questions.values())
