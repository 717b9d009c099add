"""Exploring with a critic at hand: answers, critiques of the wrong ones, refinements, as many as the settings allot.

How hard questions are for a policy, from samples that serve for nothing else; in the run's store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from whet.evaluation.difficulty import level_of, level_shares
from whet.evaluation.protocol import is_right
from whet.methods.self_improve.improving import Question, allotted
from whet.rollout.critique import CritiqueRound
from whet.rollout.runtime import Runtime
from whet.trainer.buffers import Store
from whet.types import FAULTS, Episode, Segment, Task

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


# --- how hard questions are -------------------------------------------------------------------------------------------


class Levels:
    """Of each question, how many of how many samples were right."""

    def __init__(self, store: Store) -> None:
        self.counts = store.tasks("levels")
        """A batch for each question; the counts are in its `info`."""

    def put(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Args: groups: the samples of a question each. What failed is no sample."""
        for group in groups:
            graded = [episode for episode in group if episode.outcome not in FAULTS]
            info = {"right": sum(is_right(episode.segments[0]) for episode in graded), "samples": len(graded)}
            self.counts.put(group[0].task.id, [Task(id=group[0].task.id, prompt="", info=info)])

    @property
    def by_id(self) -> dict[str, int]:
        """The level of each question that has samples."""
        levels = {task.id: level_of(task.info["right"], task.info["samples"]) for task in self.counts}
        return {name: level for name, level in levels.items() if level is not None}

    def shares(self, tasks: Sequence[Task]) -> dict[str, float]:
        """`difficulty/level_N`, of some questions."""
        levels = self.by_id
        shares = level_shares(levels[task.id] for task in tasks if task.id in levels)
        return {f"difficulty/level_{level}": share for level, share in shares.items()}
