"""Self-correction from an actor and a critic. The actor answers, and the critic comments step by step. From the first
step found wrong the actor goes on anew and the critic comments again. This ends once the answer is right and no step is
found wrong.

The result is the chain of steps and comments, smoothed: a `SelfCorrection`. After arXiv:2411.16579, whose section could
not be read; `docs/self-talk.md` says what was decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from whet.methods.self_correct.records import (
    Form,
    Piece,
    SelfCorrection,
    as_record,
    find_problems,
    response_pieces,
    smoothed,
    smoothing_messages,
    with_text,
)
from whet.methods.self_correct.step_comments import Label, Solution, Words, aligned, solution_of
from whet.rollout.critique import RuleCritic
from whet.rollout.roles import Role, written
from whet.rollout.services import Fault
from whet.rollout.solve import grade_of
from whet.seeds import seed_of
from whet.tasks.prompts import Prompts
from whet.types import Episode, Failure, Segment, Task

Fate = Literal["repaired", "clean", "missed", "limit", "unread", "cut", "flawed", "long"]
"""What became of a chain. Kept: `repaired`, and `clean`, which was right at once. Dropped: `missed` (the critic finds
no step of a wrong answer wrong), `limit` (not right after the last round). `unread` (comments and steps do not match),
`cut` (the first answer reached its limit). `flawed` (a record that breaks a condition), `long` (longer than the learner
may write; the rollout has no such limit)."""
KEPT: tuple[Fate, ...] = ("repaired", "clean")
FATES: tuple[Fate, ...] = get_args(Fate)
TALK = "self_talk"
"""Role of an episode's last segment, by rule: `parsed` has its `fate`, and the `self_corrections` where it is kept."""


@dataclass(frozen=True)
class _Version:
    """An answer and the comments on it."""

    segment: Segment
    critique: Segment
    solution: Solution
    checks: Sequence[Piece | None]
    """By step; None where no comment on it can be read."""

    @property
    def leading_checks(self) -> list[Piece]:
        """Those of the steps before the first without one, so that the n-th is of the n-th step."""
        found: list[Piece] = []
        for check in self.checks:
            if check is None:
                break
            found.append(check)
        return found

    @property
    def is_right(self) -> bool:
        return self.segment.grade is not None and self.segment.grade.score == 1.0

    def heard(self, start: int, *, is_fix: bool) -> _Heard:
        """Steps and checks in turn, up to and including the first that is found wrong.

        Args:
            start: the first step; what is before it was found right earlier.
            is_fix: whether that one is written anew.
        """
        pieces: list[Piece] = []
        for at in range(start, len(self.solution.steps)):
            check = self.checks[at]
            if check is None:
                return _Heard(pieces, None, is_read=False)
            pieces += [Piece(kind="fix" if is_fix and at == start else "step", text=self.solution.steps[at]), check]
            if check.label == "Wrong":
                return _Heard(pieces, at)
        return _Heard(pieces, None)


@dataclass(frozen=True)
class _Heard:
    pieces: Sequence[Piece]
    wrong: int | None
    """The step found wrong."""
    is_read: bool = True


@dataclass(frozen=True)
class SelfTalk:
    """A rollout function: call it with a task. All seeds derive from `key`."""

    prompts: Prompts
    words: Words
    actor: Role
    reviser: Role
    """The actor when it goes on from a prefix of its steps, and reads the critique."""
    critic: Role | RuleCritic
    key: tuple[object, ...]
    max_rounds: int = 4
    """Times that the actor may write on from a step found wrong."""
    forms: Sequence[Form] = ("step",)
    """The records that are made of a chain."""
    smoother: Role | None = None
    """Smooths further what the rule has smoothed. None: the rule alone."""
    source: Mapping[str, str] = field(default_factory=dict)
    """The models behind `actor`, `critic` and `smoother`, for the records."""

    async def __call__(self, task: Task, *, sample: int = 0) -> Episode:
        """Roll out one task.

        Returns: an episode of all replies, with a last segment by rule (`TALK`).
        Raises: Fault, also where a grading failed.
        """
        segments: list[Segment] = []
        fate, self_corrections = await self._chain(task, sample, segments)
        parsed = {"fate": fate, "talks": [as_record(talk) for talk in self_corrections]}
        text = self_corrections[0].text if self_corrections else ""
        summary = written(TALK, text, parent=len(segments) - 1, parsed=parsed, group={"task": task.id})
        return Episode(task=task, segments=(*segments, summary))

    async def _chain(self, task: Task, sample: int, segments: list[Segment]) -> tuple[Fate, list[SelfCorrection]]:
        answer = await self.actor.reply(
            self.prompts.solve_messages(task.prompt),
            prefill=self.prompts.solve_prefill,
            seed=seed_of(*self.key, "answer", task.id, sample),
            group={"task": task.id},
        )
        if answer.stop_reason == "length":
            segments.append(answer)
            return "cut", []
        first = last = await self._judged(task, answer, self.prompts.solve_prefill, (sample, "first"), segments)
        heard = first.heard(0, is_fix=False)
        pieces, rounds = [*heard.pieces], 0
        for attempt in range(self.max_rounds):
            if heard.wrong is None:
                break
            revised = await self._revised(task, last, heard.wrong, (sample, attempt), segments)
            if revised is not None:
                heard, last = revised.heard(heard.wrong, is_fix=True), revised
                pieces, rounds = [*pieces, *heard.pieces], rounds + 1
        if not heard.is_read or not pieces:
            return "unread", []
        if heard.wrong is not None:
            return "limit", []
        if not last.is_right:
            return "missed", []
        closing = [Piece(kind="step", text=last.solution.closing)] if last.solution.closing else []
        response = response_pieces(first.solution, first.leading_checks, last.solution)
        made = {"step": (*pieces, *closing), "response": response}
        self_corrections = [await self._talk(task, form, made[form], rounds, sample) for form in self.forms]
        whole = [talk for talk in self_corrections if talk is not None]
        if len(whole) < len(self_corrections):
            return "flawed", []
        return "repaired" if rounds else "clean", whole

    async def _judged(
        self, task: Task, answer: Segment, prefill: str, which: tuple[object, ...], segments: list[Segment]
    ) -> _Version:
        """Grades and critiques the answer. Several comments on a step are one check, wrong where any is."""
        grade = await grade_of(answer, task)
        if grade.score is None:
            raise Fault(Failure(kind="grader_error", reason=grade.reason))
        answer = replace(answer, grade=grade)
        segments.append(answer)
        body = answer.text.removeprefix(prefill)
        if callable(self.critic):
            critique = written("critic", self.critic(task, answer), parent=len(segments) - 1)
        else:
            critique = await self.critic.reply(
                self.prompts.critique_messages(task.prompt, body),
                seed=seed_of(*self.key, "critique", task.id, *which),
                parent=len(segments) - 1,
                group={"task": task.id},
            )
        segments.append(critique)
        solution = solution_of(body)
        checks: list[Piece | None] = []
        for comments in aligned(self.words.comments(critique.text), solution):
            labels = [comment.label for comment in comments]
            text = " ".join(comment.text for comment in comments)
            label: Label = "Wrong" if "Wrong" in labels else "Correct"
            checks.append(Piece(kind="check", text=text, label=label) if comments else None)
        return _Version(answer, critique, solution, checks)

    async def _revised(
        self, task: Task, last: _Version, wrong: int, which: tuple[object, ...], segments: list[Segment]
    ) -> _Version | None:
        """The actor goes on from the steps before the wrong one. None: it was cut, changed those steps, or wrote the
        same step again. Then nothing was mended, and the next round tries anew."""
        prefix, prefill = last.solution.steps[:wrong], self.prompts.refine_prefill
        shown = self.prompts.steps_onward(last.critique.text)
        segment = await self.reviser.reply(
            self.prompts.refine_messages(task.prompt, last.segment.text, shown),
            prefill=prefill + "\n".join(prefix),
            seed=seed_of(*self.key, "revision", task.id, *which),
            parent=len(segments) - 1,
            group={"task": task.id},
        )
        steps = solution_of(segment.text.removeprefix(prefill)).steps
        is_mended = steps[:wrong] == prefix and len(steps) > wrong and steps[wrong] != last.solution.steps[wrong]
        if segment.stop_reason == "length" or not is_mended:
            segments.append(segment)
            return None
        return await self._judged(task, segment, prefill, which, segments)

    async def _talk(
        self, task: Task, form: Form, pieces: Sequence[Piece], rounds: int, sample: int
    ) -> SelfCorrection | None:
        """The record, smoothed by rule, and by the smoother where its text is valid. None: it breaks a condition."""
        talk = SelfCorrection(
            qid=task.id,
            question=task.prompt,
            gold_answer=task.answer or "",
            form=form,
            segments=tuple(pieces),
            rounds=rounds if form == "step" else min(rounds, 1),
            text=smoothed(pieces, self.words),
            final_answer="",
            source={**self.source, "smoother": "rule"},
        )
        if self.smoother is not None:
            seed = seed_of(*self.key, "smoothing", task.id, sample, form)
            messages = smoothing_messages(task.prompt, talk.text)
            reply = await self.smoother.reply(messages, seed=seed, group={"task": task.id})
            other = with_text(talk, reply.text.strip(), self.source.get("smoother", self.smoother.policy))
            if reply.stop_reason != "length" and (whole := await self._whole(task, other)) is not None:
                return whole
        return await self._whole(task, talk)

    async def _whole(self, task: Task, talk: SelfCorrection) -> SelfCorrection | None:
        """The record with its final answer, where nothing is wrong with it."""
        grade = await grade_of(written(TALK, self.prompts.solve_prefill + talk.text), task)
        if grade.score is None:
            raise Fault(Failure(kind="grader_error", reason=grade.reason))
        if find_problems(talk, is_right=grade.score == 1.0):
            return None
        return replace(talk, final_answer=grade.extracted or talk.segments[-1].text)
