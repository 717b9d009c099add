"""The critique round: the actor answers, the critic critiques, the actor refines; any number of samples and rounds.

The same rollout function serves training (one answer, a group of critiques, a refinement of each) and evaluation (a
greedy chain). It also gives K chains for a majority vote, and several rounds. Source: Critique-RL (arXiv:2510.24320),
section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from whet.grading.verdicts import parse_verdict
from whet.rollout.driver import together
from whet.rollout.retries import Retries, broken_grade, part_of
from whet.rollout.roles import Role, written
from whet.rollout.solve import grade_of
from whet.seeds import seed_of
from whet.tasks.prompts import Prompts, Round
from whet.types import Episode, Failure, Outcome, Segment, Task

RuleCritic = Callable[[Task, Segment], str]
"""Writes a critique by rule, from the task and the graded answer: an oracle, an empty one, a false one."""


Which = tuple[int, int | str, int]
"""The numbers of the answer, of its critique, and of the round."""


@dataclass(frozen=True)
class CritiqueRound:
    """A rollout function: a call with a task returns a rollout.

    The actor is the same policy for answer (y) and refinement (y'). All seeds derive from `key`.
    """

    prompts: Prompts
    actor: Role
    critic: Role | RuleCritic
    reviser: Role
    """The actor when it refines: the same policy, its own sampling settings."""
    key: tuple[object, ...]
    """Run seed, phase, step: the seeds' first part."""
    num_critiques: int = 1
    """Critiques of each answer (a group). Each gets a refinement."""
    num_rounds: int = 1
    """Rounds after the answer. Only the first forks into a group."""
    history: Literal["full", "last"] = "full"
    """What later rounds see: everything so far (the paper), or only the latest answer (the published code)."""
    refine: bool = True
    """False: stop at the critiques (a verdict's reward needs no refinement)."""
    num_refinements: int = 1
    """Refinements after each critique. The value of a critique is their mean. Later rounds continue the first."""
    keep_right: bool = False
    """Oracle-verifier mode: an answer that the verifier finds right goes to no critic."""
    retries: Retries | None = None
    """Repeats a failed answer, or a failed critique with its refinements. None: a failure ends the episode."""

    async def __call__(self, task: Task, *, answer: Segment | None = None, sample: int = 0) -> Episode:
        """Roll out one task from one answer.

        Args:
            answer: a cached one instead of a new sample.
            sample: the number among the task's answers, for the seeds.
        """
        segments, failure, number = await part_of(
            self.retries, task, partial(self.answered, task, answer, sample), is_counted=not self.num_critiques
        )
        if failure is not None:
            return _ended(task, segments, failure)
        [answer] = segments
        if not (self.keep_right and _is_right(answer)):
            parts = await together(
                # The first chain continues the answer's sample; the others begin one each.
                part_of(
                    self.retries,
                    task,
                    partial(self._chain, task, answer, sample, index),
                    number=None if index else number,
                )
                for index in range(self.num_critiques)
            )
            for chain, lost, _ in parts:
                segments += _rooted(chain, len(segments))
                failure = failure or lost
        reason = broken_grade(segments)
        if reason is not None:
            return _ended(task, segments, Failure(kind="grader_error", reason=reason))
        return _ended(task, segments, failure if len(segments) == 1 else None)

    # --- its parts, which other rollouts may use one by one -----------------------------------------------------------

    async def answered(self, task: Task, answer: Segment | None, sample: int, attempt: int) -> list[Segment]:
        """A graded answer, alone in its list.

        Args:
            answer: a cached one. None: it is sampled.
            sample, attempt: the number of the answer and of the attempt at it, for the seed.
        """
        graded = await self._answer(task, again(sample, attempt)) if answer is None else answer
        if graded.grade is None or graded.grade.score is None:
            graded = replace(graded, grade=await grade_of(graded, task))
        return [graded]

    async def _answer(self, task: Task, sample: int | str) -> Segment:
        return await self.actor.reply(
            self.prompts.solve_messages(task.prompt),
            prefill=self.prompts.solve_prefill,
            seed=seed_of(*self.key, "answer", task.id, sample),
            group={"task": task.id},
        )

    async def _chain(self, task: Task, answer: Segment, sample: int, index: int, attempt: int) -> list[Segment]:
        """Critique, refinement, critique, ... of one answer. Parents count within the chain; -1 is the answer."""
        chain: list[Segment] = []
        history: list[Round] = []
        current, parent = answer, -1
        for turn in range(self.num_rounds):
            which = (sample, again(index, attempt), turn)
            chain.append(await self.critiqued(task, current, history, which, parent=parent))
            if not self.refine:
                break
            shown = self.prompts.steps_onward(chain[-1].text)
            at = len(chain)
            chain += await self._refinements(task, current, shown, history, which, parent=at - 1)
            if self.keep_right and _is_right(chain[at]):
                break
            if self.history == "full":
                history.append((current.text, shown))
            current, parent = chain[at], at
        return chain

    async def _refinements(
        self,
        task: Task,
        answer: Segment,
        shown: str,
        history: Sequence[Round],
        which: Which,
        *,
        parent: int,
    ) -> list[Segment]:
        return await together(
            self.refined(task, answer, shown, history, which, number=number, parent=parent)
            for number in range(self.num_refinements)
        )

    async def refined(
        self, task: Task, answer: Segment, shown: str, history: Sequence[Round], which: Which, *,
        number: int, parent: int,
    ) -> Segment:  # fmt: skip
        """A graded refinement of an answer.

        Args:
            shown: the part of the critique that the actor sees.
            which: the critique that it follows, for the seed.
            number: its own among several, for the seed.
        """
        refinement = await self.reviser.reply(
            self.prompts.refine_messages(task.prompt, answer.text, shown, history),
            prefill=self.prompts.refine_prefill,
            seed=seed_of(*self.key, "refinement", task.id, *which, *([number] if number else [])),
            parent=parent,
            group={"task": task.id},
            follows=answer,
        )
        return replace(refinement, grade=await grade_of(refinement, task))

    async def critiqued(
        self, task: Task, answer: Segment, history: Sequence[Round], which: Which, *, parent: int
    ) -> Segment:
        """A critique of an answer, with its verdict."""
        sample, index, turn = which
        if not callable(self.critic):
            critique = await self.critic.reply(
                self.prompts.critique_messages(task.prompt, answer.text, history),
                seed=seed_of(*self.key, "critique", task.id, sample, index, turn),
                parent=parent,
                # Critiques share a baseline where they judge the same answer.
                group={"task": task.id, "answer": f"{task.id}/{sample}" + (f"/{index}/{turn}" if turn else "")},
            )
        else:
            critique = written("critic", self.critic(task, answer), parent=parent)
        verdict = parse_verdict(critique.text, **self.prompts.labels)
        return replace(critique, role="critic", parsed={**critique.parsed, "verdict": verdict})


def again(number: int | str, attempt: int) -> int | str:
    """The number of a sample in seeds, with its attempt after the first."""
    return f"{number}, attempt {attempt}" if attempt else number


def _ended(task: Task, segments: Sequence[Segment], failure: Failure | None) -> Episode:
    outcome: Outcome = "ok" if failure is None else failure.kind
    return Episode(
        task=task, segments=tuple(segments), outcome=outcome, reason="" if failure is None else failure.reason
    )


def _is_right(segment: Segment) -> bool:
    return segment.grade is not None and segment.grade.score == 1.0


def _rooted(chain: Sequence[Segment], offset: int) -> list[Segment]:
    """Parents counted within a chain (-1: the answer) become indices in the episode. Prefixes become its segments."""
    rooted: dict[int, Segment] = {}
    for segment in chain:
        parent = 0 if segment.parent == -1 else (segment.parent or 0) + offset
        rooted[id(segment)] = replace(segment, parent=parent, prefix=rooted.get(id(segment.prefix), segment.prefix))
    return list(rooted.values())
