"""Corrupted solutions: AutoMathCritique's three ways to make them (arXiv:2411.16579, stage 1), and their first mistake.

RG1 samples whole solutions. RG2 samples one, keeps the steps before a place drawn at random, and goes on hot. RG3 takes
the steps before a place, has the step there written with a mistake, and goes on. The last segment of each is the
solution, graded; its `parsed` has what is known of it.

`FirstErrors` completes a solution from after each of its steps. It goes wrong at the first step from which hardly any
completion is right (Math-Shepherd, arXiv:2312.08935).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from whet.methods.critique_data.hints import corrupt_messages, go_on_messages
from whet.methods.critique_data.mistakes import comes_out, mutated, recomputed
from whet.rollout.driver import Rollout, together
from whet.rollout.retries import Retries, broken_grade
from whet.rollout.roles import EndpointRole, Role, written
from whet.rollout.services import Fault
from whet.rollout.solve import grade_of
from whet.seeds import seed_of
from whet.tasks.prompts import Prompts
from whet.tasks.steps import StepsBy, judged_steps, split_steps
from whet.types import Episode, Segment, Task

NO_SOURCE = "no_source"
"""In the `parsed` of a last segment that is no solution: why there is none."""


async def continued(
    role: Role, prompts: Prompts, task: Task, begun: str, *, seed: int, parent: int | None = None
) -> Segment:
    """A solution that begins with given steps. Its text is all of it, without the prompts' prefill.

    A role that cannot be made to begin a turn in a given way is asked in words to go on. A model may then begin anew,
    which `keeps` detects.
    """
    prefill = prompts.solve_prefill
    if begun and isinstance(role, EndpointRole) and not role.prefills:
        reply = await role.reply(go_on_messages(prompts, task.prompt, begun), seed=seed, parent=parent)
        text = reply.text if reply.text.startswith(begun) else f"{begun}\n{reply.text.strip()}"
        return replace(reply, text=text)
    reply = await role.reply(
        prompts.solve_messages(task.prompt),
        prefill=prefill + begun,
        seed=seed,
        parent=parent,
        group={"task": task.id},
    )
    return replace(reply, text=reply.text.removeprefix(prefill))


def keeps(text: str, steps: Sequence[str], by: StepsBy) -> bool:
    """Whether a solution's first steps are these, to the letter but for white space at their ends."""
    first = split_steps(text, by)[: len(steps)]
    return [step.strip() for step in first] == [step.strip() for step in steps]


@dataclass(frozen=True)
class Corruption:
    """The three rollout functions. Each takes a task, and by name the index of the sample."""

    prompts: Prompts
    actor: Role
    hot: Role
    """The actor once it is diverted."""
    key: tuple[object, ...]
    """The seeds' first part. Each way adds its name, the task and the sample, so that no batch changes a seed."""
    by: StepsBy = "lines"
    corrupter: Role | None = None
    """Writes a step with a mistake. None: the catalogue's rules do."""
    mistakes: Sequence[str] = ()
    """Of the catalogue, those that are planted."""
    reference: Callable[[Task], Sequence[str]] | None = None
    """The right solution's steps, for RG3 to begin with. None: the actor's own, where it is right."""
    rest: Literal["actor", "recomputed"] = "actor"
    """What comes after the planted mistake."""
    only_way: Callable[[Task], Sequence[str]] | None = None
    """The right steps, where no others are right. Without, a step is trusted whose calculation comes out."""

    async def rg1(self, task: Task, *, sample: int) -> Episode:
        answer = await self._solved(self.actor, task, "", "rg1", sample)
        return _episode(task, [answer])

    async def rg2(self, task: Task, *, sample: int) -> Episode:
        source = await self._solved(self.actor, task, "", "rg2 source", sample)
        steps = judged_steps(source.text, self.by)
        rng = random.Random(seed_of(*self.key, "rg2 place", task.id, sample))
        at = rng.randrange(1, len(steps)) if len(steps) > 1 else 0
        return _episode(task, [source, await self._pushed_on(self.hot, task, steps[:at], "rg2", sample, at=at)])

    async def rg3(self, task: Task, *, sample: int) -> Episode:
        source = await self._source(task, sample)
        pieces = split_steps(source.text, self.by)
        steps = judged_steps(source.text, self.by)
        if source.grade is None or source.grade.score != 1.0 or not steps:
            return _episode(task, [replace(source, parsed={NO_SOURCE: "its first steps may be wrong already"})])
        rng = random.Random(seed_of(*self.key, "rg3 place", task.id, sample))
        planted = await self._planted(task, steps, rng, sample)
        if planted is None:
            return _episode(task, [replace(source, parsed={NO_SOURCE: "no step has room for a mistake"})])
        at, mistake, wrong = planted
        facts = {"error_step": at, "mistake": mistake, "prefix_len": at + 1}
        if self.rest == "recomputed":
            text = "".join(recomputed(pieces, at, wrong.text))
            made = written("actor", text, policy="rule", parent=1, parsed=facts)
            return _episode(task, [source, wrong, replace(made, grade=await grade_of(made, task))])
        answer = await self._pushed_on(self.actor, task, [*steps[:at], wrong.text], "rg3", sample, at=at, parent=1)
        return _episode(task, [source, wrong, replace(answer, parsed={**answer.parsed, **facts})])

    # --- pieces -------------------------------------------------------------------------------------------------------

    async def _solved(
        self, role: Role, task: Task, begun: str, name: str, sample: int, parent: int | None = None
    ) -> Segment:
        seed = seed_of(*self.key, name, task.id, sample)
        answer = await continued(role, self.prompts, task, begun, seed=seed, parent=parent)
        return replace(answer, grade=await grade_of(answer, task))

    async def _pushed_on(
        self, role: Role, task: Task, steps: Sequence[str], name: str, sample: int, *, at: int, parent: int = 0
    ) -> Segment:
        answer = await self._solved(role, task, "".join(steps).rstrip(), name, sample, parent)
        facts: dict[str, Any] = {"error_step": at, "prefix_len": len(steps)}
        if not keeps(answer.text, steps, self.by):
            facts[NO_SOURCE] = "it did not go on from the steps that it was given"
        return replace(answer, parsed=facts)

    async def _source(self, task: Task, sample: int) -> Segment:
        """A right solution to begin with."""
        if self.reference is None:
            return await self._solved(self.actor, task, "", "rg3 source", sample)
        made = written("reference", "".join(self.reference(task)))
        return replace(made, grade=await grade_of(made, task))

    async def _planted(
        self, task: Task, steps: Sequence[str], rng: random.Random, sample: int
    ) -> tuple[int, str, Segment] | None:
        """The step's index, the mistake, and the step with it."""
        places = list(range(self._num_trusted(task, steps)))
        rng.shuffle(places)
        for at in places:
            for mistake in rng.sample(list(self.mistakes), len(self.mistakes)):
                if self.corrupter is None:
                    changed = mutated(steps[at], mistake, rng)
                    wrong = None if changed is None else written("corrupter", changed, parent=0)
                else:
                    wrong = await self._corrupted(self.corrupter, task, steps, at, mistake, sample)
                if wrong is not None:
                    return at, mistake, wrong
        return None

    def _num_trusted(self, task: Task, steps: Sequence[str]) -> int:
        """Steps before the first that is wrong already. A right answer may be luck, and a mistake that is planted
        behind another one is not the first."""
        right = self.only_way(task) if self.only_way is not None else ()
        for place, step in enumerate(steps):
            as_it_is = [line.strip() for line in right[place : place + 1]]
            if as_it_is != [step.strip()] if self.only_way is not None else not comes_out(step):
                return place
        return len(steps)

    async def _corrupted(
        self, corrupter: Role, task: Task, steps: Sequence[str], at: int, mistake: str, sample: int
    ) -> Segment | None:
        """None: what was written is not one step, or the step as it was."""
        reply = await corrupter.reply(
            corrupt_messages(task.prompt, steps[:at], steps[at], mistake),
            seed=seed_of(*self.key, "corrupted", task.id, sample, at, mistake),
            parent=0,
        )
        text = reply.text.strip()
        if len(split_steps(text, self.by)) != 1 or text == steps[at].strip():
            return None
        end = steps[at][len(steps[at].rstrip()) :]
        return replace(reply, text=text + end)


def _episode(task: Task, segments: Sequence[Segment]) -> Episode:
    reason = broken_grade(segments)
    return Episode(
        task=task, segments=tuple(segments), outcome="ok" if reason is None else "grader_error", reason=reason or ""
    )


@dataclass(frozen=True)
class FirstErrors:
    """Completions from after each step of a solution. A rollout function: call it with the task and the solution."""

    prompts: Prompts
    actor: Role
    key: tuple[object, ...]
    num_completions: int
    retries: Retries
    """Retries what failed: an endpoint or a grader that breaks says nothing of a step."""
    by: StepsBy = "lines"

    async def __call__(self, task: Task, response: str, *, name: str) -> list[float]:
        """The share of right completions from after each step. It ends with the first share of 0, as the first mistake
        is not later.

        Args:
            name: the solution's, for the seeds.
        Raises: Fault where a completion, or its grading, failed again.
        """
        steps, rates = judged_steps(response, self.by), list[float]()
        for at in range(len(steps)):
            begun = "".join(steps[: at + 1]).rstrip()
            rights = await together(self._one(task, begun, name, at, i) for i in range(self.num_completions))
            rates.append(sum(rights) / len(rights))
            if rates[-1] == 0:
                break
        return rates

    def _one(self, task: Task, begun: str, name: str, at: int, sample: int) -> Rollout[bool]:
        async def completed(attempt: int) -> list[Segment]:
            seed = seed_of(*self.key, "completion", name, at, sample + attempt * self.num_completions)
            answer = await continued(self.actor, self.prompts, task, begun, seed=seed)
            return [replace(answer, grade=await grade_of(answer, task))]

        async def rollout() -> bool:
            part = await self.retries.part(task, completed)
            if part.failure is not None:
                raise Fault(part.failure)
            grade = part.segments[0].grade
            return grade is not None and grade.score == 1.0

        return rollout()


def first_error(rates: Sequence[float], threshold: float = 0.0) -> int:
    """The first step from which the share of right completions is at most the threshold; -1 where none is."""
    return next((place for place, rate in enumerate(rates) if rate <= threshold), -1)
