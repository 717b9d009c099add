"""Explores with a critic: answers, critiques of the wrong ones, and refinements, as many as the settings allot.

`Levels` says how hard each question is for the policy, by samples that serve nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

from whet.evaluation.difficulty import level_of, level_shares
from whet.evaluation.protocol import is_right
from whet.methods.self_improve.improving import Question, allot_refinements
from whet.rollout.critique import CritiqueRound
from whet.rollout.runtime import Runtime
from whet.trainer.buffers import Store
from whet.types import FAULTS, Episode, Segment, Task

Request = tuple[CritiqueRound, Task, int, Segment | None]
"""Rollout function, task, sample, and the answer if there is one already."""


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
        """Samples answers alone.

        Args:
            num_tokens: all questions get further samples until so many tokens are written. None: `num_samples` each.
        """
        rounds = replace(self.rounds, num_critiques=0)
        questions = self._sample(rounds, tasks)
        for sample in count(self.num_samples) if num_tokens is not None else ():
            before = num_written(questions)
            if before >= (num_tokens or 0):
                break
            self._roll_out(questions, [(rounds, task, sample, None) for task in tasks])
            if num_written(questions) == before:
                break  # all of them failed
        return questions

    def critiqued(self, tasks: Sequence[Task]) -> dict[str, Question]:
        """Samples answers, and after a critique of each wrong one the round's number of refinements (published)."""
        questions = self._sample(self.rounds, tasks)
        for question in questions.values():
            question.choose(self.keep, barrier=self.barrier)
        return questions

    def allotted(self, tasks: Sequence[Task], budget: int, cap: int | None) -> dict[str, Question]:
        """Samples answers, then refinements of each question's wrong answers in turn, one at a time.

        A question ends once it has `keep` right refinements or has spent its part of the budget. An answer is critiqued
        once.

        Args:
            budget: refinements of all questions.
            cap: the most of one question. None: no limit.
        """
        questions = self.answered(tasks)
        wrong = {name: len(question.wrong) for name, question in questions.items()}
        counts = allot_refinements(wrong, budget, cap)
        for number in range(max(counts.values(), default=0)):
            requests = [
                self._next(questions[name], number)
                for name, count in counts.items()
                if number < count and questions[name].num_kept < self.keep
            ]
            if not requests:
                break
            self._roll_out(questions, requests)
            for question in questions.values():
                question.choose(self.keep, barrier=self.barrier, in_all=self.keep)
        return questions

    def _next(self, question: Question, number: int) -> Request:
        """The question's refinement of that number. A known critique is repeated."""
        sample = question.wrong[number % len(question.wrong)]
        attempt = question.attempts[sample]
        rounds = replace(self.rounds, key=(*self.rounds.key, "attempt", number), num_refinements=1)
        if attempt.critique is not None:
            text = attempt.critique.text
            rounds = replace(rounds, critic=lambda task, answer: text)
        return rounds, question.task, sample, attempt.answer

    def _sample(self, rounds: CritiqueRound, tasks: Sequence[Task]) -> dict[str, Question]:
        """`num_samples` episodes of each task, by its id."""
        questions = {task.id: Question(task) for task in tasks}
        samples = range(self.num_samples)
        self._roll_out(questions, [(rounds, task, sample, None) for task in tasks for sample in samples])
        return questions

    def _roll_out(self, questions: Mapping[str, Question], requests: Sequence[Request]) -> None:
        retries = self.runtime.retries()
        episodes = self.runtime.roll_out(
            partial(replace(rounds, retries=retries), task, answer=answer, sample=sample)
            for rounds, task, sample, answer in requests
        )
        for (_, task, sample, _), episode in zip(requests, episodes, strict=True):
            questions[task.id].add(sample, episode)


def num_written(questions: Mapping[str, Question]) -> int:
    """Tokens of all texts."""
    return sum(sum(question.tokens.values()) for question in questions.values())


# --- how hard questions are -------------------------------------------------------------------------------------------


class Levels:
    """Of each question, how many of how many samples were right."""

    def __init__(self, store: Store) -> None:
        self.counts = store.tasks("levels")
        """A batch for each question; the counts are in its `info`."""

    def put(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Stores the counts of questions.

        Args:
            groups: the samples of each question. Failed episodes are no samples.
        """
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
        """`difficulty/level_N`: the share of the tasks at each level."""
        levels = self.by_id
        shares = level_shares(levels[task.id] for task in tasks if task.id in levels)
        return {f"difficulty/level_{level}": share for level, share in shares.items()}
