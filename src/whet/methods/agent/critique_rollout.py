"""A critic in the loop of an agent: an attempt at an item, critiques of it, and after each another attempt.

The tree of an `Episode`: the first attempt's observations and turns, then a group of critiques of its end. Under each
critique is the attempt that begins with it, in the same environment. The last segment of every attempt is graded with
whether it was a success, so that what reads graded answers and refinements reads attempts. After Reflexion
(arXiv:2303.11366), with a critic that may be trained as Critique-RL (arXiv:2510.24320) trains one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import fsum
from typing import Literal

from whet.grading.verdicts import parse_verdict
from whet.rollout.agent import Agent
from whet.rollout.driver import together
from whet.rollout.retries import Retries, part_of
from whet.rollout.roles import Role, written
from whet.seeds import seed_of
from whet.tasks.prompts import Message, Prompts
from whet.types import Episode, Grade, Segment, Task, shortened

Again = Literal["wrong", "always"]
AttemptCritic = Callable[[Task, Sequence[Segment], int], str]
"""Writes a critique by rule, from the task, the graded attempt, and the seed of its environment.

Raises: Fault.
"""


@dataclass(frozen=True)
class AgentCritique:
    """A rollout function: call it with a task. Seeds derive from the agent's `key`."""

    agent: Agent
    critic: Role | AttemptCritic
    prompts: Prompts
    """Its `critique` takes the first observation as question and the attempt as answer. A second attempt reads its
    `refine` below the first observation."""
    num_critiques: int = 1
    """Critiques of each attempt (a group); each is followed by an attempt of its own. 0: the first attempt is all."""
    again: Again = "wrong"
    """Which verdicts are followed by another attempt: those that do not call the first right, or all. Where there is
    no other, the first one stands: its end stands again below the critique."""
    retry: bool = True
    """False: stop at the critiques (a verdict's reward needs no second attempt)."""
    max_shown: int = 8000
    """Characters of an attempt that the critic reads; the middle of longer ones is left out."""
    retries: Retries | None = None
    """Retries an attempt that failed, or a critique with the attempt after it. None: a failure ends the episode."""

    async def __call__(self, task: Task, *, sample: int = 0) -> Episode:
        """Roll out one task.

        Args:
            sample: which of several first attempts at the task this is (for the seeds).
        """
        segments, failure, number = await part_of(
            self.retries, task, partial(self._first, task, sample), is_counted=not self.num_critiques
        )
        if failure is not None:
            return Episode(task=task, segments=(), outcome=failure.kind, reason=failure.reason)
        parts = await together(
            # The first chain continues the attempt's sample; the others begin one each.
            part_of(
                self.retries,
                task,
                partial(self._chain, task, tuple(segments), sample, index),
                number=None if index else number,
            )
            for index in range(self.num_critiques)
        )
        end, lost = len(segments) - 1, None
        for chain, failed, _ in parts:
            segments += _rooted(chain, end, len(segments))
            lost = lost or failed
        if lost is not None and len(segments) == end + 1:
            return Episode(task=task, segments=tuple(segments), outcome=lost.kind, reason=lost.reason)
        return Episode(task=task, segments=tuple(segments))

    async def _first(self, task: Task, sample: int, attempt: int) -> list[Segment]:
        return await self._attempted(task, sample, again=_which("first", attempt) if attempt else "")

    async def _chain(
        self, task: Task, first: Sequence[Segment], sample: int, index: int, attempt: int
    ) -> list[Segment]:
        """A critique and the attempt after it. Parents count within the chain; None is the first attempt's end."""
        which = _which(index, attempt)
        critique = await self._critique(task, first, sample, which)
        if not self.retry:
            return [critique]
        if self.again == "wrong" and critique.parsed["verdict"] == "correct":
            return [critique, replace(first[-1], parent=0)]
        told = self.prompts.refine_text(self.prompts.steps_onward(critique.text)) if critique.text else ""
        second = await self._attempted(task, sample, told=told, again=f"after {which}")
        return [critique, *_rooted(second, 0, 1)]

    async def _attempted(self, task: Task, sample: int, *, told: str = "", again: str = "") -> list[Segment]:
        """An attempt, graded at its end; the grade's reason says what it was cut by."""
        episode = await self.agent(task, sample=sample, told=told, again=again)
        *before, last = episode.segments
        reward = fsum(segment.parsed.get("reward", 0.0) for segment in episode.segments)
        won = self.agent.environment.is_success(reward)
        grade = Grade(score=float(won), reason=episode.reason)
        return [*before, replace(last, grade=grade)]

    async def _critique(self, task: Task, first: Sequence[Segment], sample: int, which: str) -> Segment:
        if callable(self.critic):
            text = self.critic(task, first, self.agent.env_seed(task, sample))
            critique = written("critic", text, group=_group(task, sample))
        else:
            critique = await self.critic.reply(
                critic_messages(self.prompts, first, self.max_shown),
                seed=seed_of(*self.agent.key, "critique", task.id, sample, which),
                group=_group(task, sample),
            )
        verdict = parse_verdict(critique.text, **self.prompts.labels)
        return replace(critique, role="critic", parsed={**critique.parsed, "verdict": verdict})


def critic_messages(prompts: Prompts, attempt: Sequence[Segment], max_shown: int) -> list[Message]:
    """What a critic reads of an attempt.

    Args:
        max_shown: characters of the first observation, and of what was done; the middle of more is left out.
    """
    opening = shortened(attempt[0].text, max_shown)
    return prompts.critique_messages(opening, shortened(attempt_text(attempt), max_shown))


def attempt_text(attempt: Sequence[Segment]) -> str:
    """What was done in an attempt and what the environment answered, a line or more each. Thoughts are left out, and
    what was proposed and not done.

    Args:
        attempt: its first observation, which is left out as well, and then turns and observations.
    """
    lines = [
        f"Action: {segment.parsed['action']}" if "action" in segment.parsed else segment.text
        for segment in attempt[1:]
        if "action" in segment.parsed or segment.role == "observation"
    ]
    return "\n".join(lines)


def _group(task: Task, sample: int) -> dict[str, str]:
    """Critiques share a baseline where they judge the same attempt."""
    return {"task": task.id, "answer": f"{task.id}/{sample}"}


def _which(index: int | str, attempt: int) -> str:
    """A part of seeds: the index among siblings, and the number of the attempt at it."""
    return f"{index}, attempt {attempt}" if attempt else str(index)


def _rooted(chain: Sequence[Segment], root: int, offset: int) -> list[Segment]:
    """Parents counted within a chain become indices in what it is added to.

    Args:
        root: the index of what the chain replies to.
        offset: the index that its first segment gets.
    """
    return [replace(segment, parent=root if segment.parent is None else segment.parent + offset) for segment in chain]
