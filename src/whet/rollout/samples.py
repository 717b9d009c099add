"""The samples of one question: answers, critiques of them, refinements after those, critiques of these, ... each made
when it is first asked for, and the same whoever asks.

A sample has a path: `(2,)` is the third answer, `(2, 0)` the first critique of it, `(2, 0, 1)` the second refinement
after that, and so on. Its seed derives from the path, so that what a strategy sees of a question never depends on what
others have asked for; the i-th answer is also the i-th of `whet eval --samples`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from typing import Any, Literal, Protocol

from whet.config.base import ConfigError
from whet.rollout.chances import chance, fork
from whet.rollout.critique import CritiqueRound, Which, again
from whet.rollout.driver import GRADER, Ask
from whet.rollout.retries import Retries
from whet.rollout.roles import PolicyRole, Role, num_written
from whet.rollout.runtime import SCORER
from whet.rollout.services import Fault
from whet.tasks.prompts import Prompts
from whet.types import Completion, Failure, Grade, Request, Segment, Task

Path = tuple[int, ...]
Kind = Literal["answer", "critique", "refinement"]
GREEDY: Path = (-1,)
"""The path of the one greedy answer."""
RULE = "rule"
"""The policy of what none wrote."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Something that was written about a question."""

    path: Path
    segment: Segment
    before: Sample | None = None
    """What it replies to: of a critique the answer, of a refinement the critique."""

    @property
    def kind(self) -> Kind:
        return "answer" if len(self.path) == 1 else "refinement" if len(self.path) % 2 else "critique"

    @property
    def num_tokens(self) -> int:
        """Generated for it: 0 for a rule's; an empty reply of an endpoint has its end, and counts 1."""
        return 0 if self.segment.policy == RULE else max(1, num_written(self.segment))

    @property
    def extracted(self) -> str | None:
        """Of an answer or refinement: what the grader reads as its final answer."""
        return self.segment.grade.extracted if self.segment.grade is not None else None

    @property
    def verdict(self) -> Literal["correct", "wrong"] | None:
        """Of a critique."""
        return self.segment.parsed.get("verdict")


@dataclass(eq=False)
class Samples:
    """Of one question. What fails is played again under a fresh seed, and then raises `Fault`."""

    task: Task
    rounds: CritiqueRound
    """Who sits where, sampled."""
    greedy: CritiqueRound
    """The same, greedy: of its first answer only."""
    retries: Retries
    reading: Callable[[str, Prompts], Mapping[str, Any]]
    """What a critique says."""
    compares: bool = False
    """Whether final answers of different texts are held against each other by the grader."""
    _made: dict[Path, Sample] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    """By final answer, the first one seen that it is equal to."""
    _chances: dict[Path, float | None] = field(default_factory=dict)

    async def answer(self, index: int) -> Sample:
        """The index-th sampled answer, graded."""
        _check_index(index)
        return await self._answer((index,), self.rounds, index)

    async def greedy_answer(self) -> Sample:
        return await self._answer(GREEDY, self.greedy, 0)

    async def critique(self, of: Sample, index: int = 0) -> Sample:
        """The index-th critique of an answer or refinement, with its verdict."""
        _check_index(index)
        if of.kind == "critique":
            raise ConfigError("a strategy asks for a critique of a critique: critiques are of answers and refinements")
        path = (*of.path, index)
        if path not in self._made:

            async def make(attempt: int) -> list[Segment]:
                which = _which(path, attempt)
                return [await self.rounds.critiqued(self.task, of.segment, (), which, parent=0)]

            critique = await self._part(make)
            read = self.reading(critique.text, self.rounds.prompts)
            self._made[path] = Sample(path, replace(critique, parsed={**critique.parsed, **read}), of)
        return self._made[path]

    async def refinement(self, of: Sample, index: int = 0) -> Sample:
        """The index-th refinement after a critique, graded. Of all that was said before, the actor sees the answer that
        was critiqued and the critique."""
        _check_index(index)
        if of.before is None or of.kind != "critique":
            raise ConfigError(f"a strategy asks for a refinement after an {of.kind}: refinements are after critiques")
        path = (*of.path, index)
        answer = of.before.segment
        if path not in self._made:
            shown = self.rounds.prompts.steps_onward(of.segment.text)

            async def make(attempt: int) -> list[Segment]:
                which = _which(path[:-1], attempt)
                found = await self.rounds.refined(self.task, answer, shown, (), which, number=index, parent=1)
                return [found]

            self._made[path] = Sample(path, await self._part(make), of)
        return self._made[path]

    async def key(self, sample: Sample) -> str | None:
        """What a vote counts an answer as: the first final answer seen that the grader finds equal to it. The reference
        has no part in it. None: it has no final answer."""
        text = sample.extracted
        if text is None or text in self._keys:
            return None if text is None else self._keys[text]
        for seen in dict.fromkeys(self._keys.values()) if self.compares else ():
            grade: Grade = await Ask(GRADER, (sample.segment.text, replace(self.task, answer=seen)))
            if grade.score is None:  # a vote that does not know what is equal is none
                raise Fault(Failure(kind="grader_error", reason=grade.reason))
            if grade.score == 1.0:
                self._keys[text] = seen
                return seen
        self._keys[text] = text
        return text

    async def chance(self, critique: Sample) -> float | None:
        """How likely its critic finds it that the answer is right: of its own two labels, at the place of the verdict.
        Of a rule, which has no doubts, what its verdict says. None: the critique comes to no verdict.

        Raises: ConfigError where an endpoint wrote it.
        """
        if critique.segment.policy == RULE:
            return None if critique.verdict is None else float(critique.verdict == "correct")
        if critique.path not in self._chances:
            critic = self.rounds.critic
            if not isinstance(critic, PolicyRole):
                raise ConfigError(
                    "an endpoint does not tell how probable a verdict is that it did not write: weigh its answers by "
                    "the share of several critiques (by=share)"
                )
            rows = fork(critic.tokenizer, self.rounds.prompts, critique.segment)
            scores = [] if rows is None else [(await Ask(SCORER, row))[0] for row in rows]
            self._chances[critique.path] = chance(*scores) if scores else None
        return self._chances[critique.path]

    async def _answer(self, path: Path, rounds: CritiqueRound, index: int) -> Sample:
        if path not in self._made:
            made = await self._part(lambda attempt: rounds.answered(self.task, None, index, attempt))
            self._made[path] = Sample(path, made)
        return self._made[path]

    async def _part(self, make: Callable[[int], Any]) -> Segment:
        """Raises: Fault where it failed, and again when it was played again."""
        segments, failure = await self.retries.part(self.task, make)
        if failure is not None:
            raise Fault(failure)
        return segments[0]


def _check_index(index: object) -> None:
    """Raises: ConfigError."""
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise ConfigError(f"a strategy asks for number {str(index)[:40]!r} of something: numbers are 0, 1, 2, ...")


def _which(path: Path, attempt: int) -> Which:
    """Of a critique, what its seed derives from: as a critique round counts, where nothing forks after its first."""
    answer, first, *later = path
    forks = ",".join(map(str, path[1:])) if any(later) else first
    return answer, again(forks, attempt), len(later) // 2


# --- what has been written is kept -----------------------------------------------------------------------------------


class Ledger(Protocol):
    """Completions that were paid for once, by what was asked."""

    def get(self, key: str) -> Completion | None: ...

    def put(self, key: str, completion: Completion) -> None: ...


@dataclass(frozen=True, kw_only=True)
class CachedRole(PolicyRole):
    """A policy's seat whose replies are kept: what was asked before, by whichever process, is not sampled again."""

    ledger: Ledger

    async def reply(self, messages: Any, *, prefill: str = "", seed: int, **more: Any) -> Segment:
        """As `Role.reply`. The sampler's logprobs are not kept, and so not given."""
        empty = self.begin(messages, prefill=prefill, seed=seed, **more)
        request = self.request(empty)
        key = _key(self.policy, request)
        completion = self.ledger.get(key)
        if completion is None:
            completion = replace(await Ask(self.policy, request), logprobs=())
            self.ledger.put(key, completion)
        return self.extended(empty, completion, prefill=prefill)


def kept(role: Role, ledger: Ledger) -> Role:
    """A seat whose replies are kept. An endpoint keeps its own."""
    if not isinstance(role, PolicyRole):
        return role
    return CachedRole(**{each.name: getattr(role, each.name) for each in fields(PolicyRole)}, ledger=ledger)


def kept_round(rounds: CritiqueRound, ledger: Ledger, *key: object) -> CritiqueRound:
    """A round whose replies are kept.

    Args:
        key: what sets its seeds apart from those of other samples of a question.
    """
    critic = rounds.critic if callable(rounds.critic) else kept(rounds.critic, ledger)
    actor, reviser = kept(rounds.actor, ledger), kept(rounds.reviser, ledger)
    return replace(rounds, actor=actor, critic=critic, reviser=reviser, key=(*rounds.key, *key))


def _key(policy: str, request: Request) -> str:
    asked = (policy, request.seed, request.sampling, request.context)
    return blake2b(repr(asked).encode(), digest_size=12).hexdigest()
