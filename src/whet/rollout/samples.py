"""The samples of one question: answers, their critiques, refinements after those, critiques of these, and so on.

Each is made at its first use, and is then the same for all strategies. A sample has a path: `(2,)` is the third answer,
`(2, 0)` the first critique of it, `(2, 0, 1)` the second refinement after that, and so on. Its seed derives from the
path, so that a strategy's samples never depend on other strategies. The i-th answer is also that of
`whet eval --samples`.

A cache of replies (`cached_round`) repeats none across processes. `chance` and `fork` give how sure a critic is of its
verdict.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from typing import Any, Literal, Protocol

from transformers import PreTrainedTokenizerBase

from whet.chat import text_ids
from whet.config.base import ConfigError
from whet.grading.verdicts import verdict_place
from whet.rollout.critique import CritiqueRound, Which, again
from whet.rollout.driver import GRADER, Ask
from whet.rollout.retries import Retries
from whet.rollout.roles import PolicyRole, Role, num_written
from whet.rollout.runtime import SCORER
from whet.rollout.services import Fault
from whet.tasks.prompts import Prompts
from whet.types import Completion, Failure, Grade, Request, Row, Segment, Task, tail_row

Path = tuple[int, ...]
Kind = Literal["answer", "critique", "refinement"]
GREEDY: Path = (-1,)
"""The path of the one greedy answer."""
RULE = "rule"
"""The policy of texts that no model wrote."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """A text about a question."""

    path: Path
    segment: Segment
    before: Sample | None = None
    """The sample that it replies to: of a critique the answer, of a refinement the critique."""

    @property
    def kind(self) -> Kind:
        """By the length of the path."""
        return "answer" if len(self.path) == 1 else "refinement" if len(self.path) % 2 else "critique"

    @property
    def num_tokens(self) -> int:
        """Tokens generated for it. 0 for a rule's; an endpoint's empty reply has an end mark, and counts 1."""
        return 0 if self.segment.policy == RULE else max(1, num_written(self.segment))

    @property
    def extracted(self) -> str | None:
        """The final answer of an answer or refinement, as the grader reads it."""
        return self.segment.grade.extracted if self.segment.grade is not None else None

    @property
    def verdict(self) -> Literal["correct", "wrong"] | None:
        """Of a critique."""
        return self.segment.parsed.get("verdict")


@dataclass(eq=False)
class Samples:
    """The samples of one question. A failure is retried under a fresh seed, and then raises `Fault`."""

    task: Task
    rounds: CritiqueRound
    """The roles, sampled."""
    greedy: CritiqueRound
    """The same roles, greedy. Only their first answer is used."""
    retries: Retries
    reading: Callable[[str, Prompts], Mapping[str, Any]]
    """Reads a critique: its verdict and other findings."""
    compares: bool = False
    """Whether the grader compares final answers with different texts."""
    _made: dict[Path, Sample] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)
    """By final answer, the first equal one seen."""
    _chances: dict[Path, float | None] = field(default_factory=dict)

    async def answer(self, index: int) -> Sample:
        """The index-th sampled answer, graded.

        Args:
            index: from 0 on.
        Raises: ConfigError for another index, and Fault.
        """
        _check_index(index)
        return await self._answer((index,), self.rounds, index)

    async def greedy_answer(self) -> Sample:
        return await self._answer(GREEDY, self.greedy, 0)

    async def critique(self, of: Sample, index: int = 0) -> Sample:
        """The index-th critique of an answer or refinement, with its verdict.

        Raises: ConfigError where `of` is a critique, and as `answer`.
        """
        _check_index(index)
        if of.kind == "critique":
            raise ConfigError("a strategy asks for a critique of a critique: critiques are of answers and refinements")
        path = (*of.path, index)
        if path not in self._made:

            async def make(attempt: int) -> list[Segment]:
                which = _which(path, attempt)
                return [await self.rounds.critiqued(self.task, of.segment, (), which, parent=0)]

            critique = await self._part(make)
            parsed = {**critique.parsed, **self.reading(critique.text, self.rounds.prompts)}
            self._made[path] = Sample(path, replace(critique, parsed=parsed), of)
        return self._made[path]

    async def refinement(self, of: Sample, index: int = 0) -> Sample:
        """The index-th refinement after a critique, graded. The actor sees the critiqued answer and the critique.

        Raises: ConfigError where `of` is no critique, and as `answer`.
        """
        _check_index(index)
        if of.before is None or of.kind != "critique":
            raise ConfigError(f"a strategy asks for a refinement after an {of.kind}: refinements are after critiques")
        path = (*of.path, index)
        answer = of.before.segment
        if path not in self._made:
            shown = self.rounds.prompts.steps_onward(of.segment.text)

            async def make(attempt: int) -> list[Segment]:
                which = _which(path[:-1], attempt)
                refined = await self.rounds.refined(self.task, answer, shown, (), which, number=index, parent=1)
                return [refined]

            self._made[path] = Sample(path, await self._part(make), of)
        return self._made[path]

    async def key(self, sample: Sample) -> str | None:
        """The key of an answer in a vote: the first final answer seen that the grader finds equal to it.

        The reference is not used.

        Returns: None where the sample has no final answer.
        Raises: Fault where the grader fails.
        """
        text = sample.extracted
        if text is None or text in self._keys:
            return None if text is None else self._keys[text]
        for key in dict.fromkeys(self._keys.values()) if self.compares else ():
            grade: Grade = await Ask(GRADER, (sample.segment.text, replace(self.task, answer=key)))
            if grade.score is None:  # without it the vote cannot be counted
                raise Fault(Failure(kind="grader_error", reason=grade.reason))
            if grade.score == 1.0:
                self._keys[text] = key
                return key
        self._keys[text] = text
        return text

    async def chance(self, critique: Sample) -> float | None:
        """The critic's probability that the answer is right, in [0, 1], of its two labels at the verdict's place.

        For a rule, 1 or 0 by its verdict.

        Returns: None where the critique has no verdict.
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
            segment = await self._part(lambda attempt: rounds.answered(self.task, None, index, attempt))
            self._made[path] = Sample(path, segment)
        return self._made[path]

    async def _part(self, make: Callable[[int], Any]) -> Segment:
        """Raises: Fault where all attempts failed."""
        part = await self.retries.part(self.task, make)
        if part.failure is not None:
            raise Fault(part.failure)
        return part.segments[0]


def _check_index(index: object) -> None:
    """Raises: ConfigError."""
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise ConfigError(f"a strategy asks for number {str(index)[:40]!r} of something: numbers are 0, 1, 2, ...")


def _which(path: Path, attempt: int) -> Which:
    """A critique's numbers for its seed, as a critique round counts them if nothing forks after its first round."""
    answer, first, *later = path
    forks = ",".join(map(str, path[1:])) if any(later) else first
    return answer, again(forks, attempt), len(later) // 2


# --- a cache of replies -----------------------------------------------------------------------------------------------


class Ledger(Protocol):
    """A cache of completions, by request."""

    def get(self, key: str) -> Completion | None: ...

    def put(self, key: str, completion: Completion) -> None: ...


@dataclass(frozen=True, kw_only=True)
class CachedRole(PolicyRole):
    """A policy role with a cache: an earlier request, of any process, is not sampled again."""

    ledger: Ledger

    async def _complete(self, request: Request) -> Completion:
        """The cached completion, or else the service's. Neither has the sampler's logprobs. Raises: Fault."""
        key = _key(self.policy, request)
        completion = self.ledger.get(key)
        if completion is None:
            completion = replace(await super()._complete(request), logprobs=())
            self.ledger.put(key, completion)
        return completion


def cached_role(role: Role, ledger: Ledger) -> Role:
    """A role whose replies are cached. An endpoint has a cache of its own."""
    if not isinstance(role, PolicyRole):
        return role
    values = {role_field.name: getattr(role, role_field.name) for role_field in fields(PolicyRole)}
    return CachedRole(**values, ledger=ledger)


def cached_round(rounds: CritiqueRound, ledger: Ledger, *key: object) -> CritiqueRound:
    """A round whose replies are cached.

    Args:
        key: separates its seeds from those of other samples of a question.
    """
    critic = rounds.critic if callable(rounds.critic) else cached_role(rounds.critic, ledger)
    actor, reviser = cached_role(rounds.actor, ledger), cached_role(rounds.reviser, ledger)
    return replace(rounds, actor=actor, critic=critic, reviser=reviser, key=(*rounds.key, *key))


def _key(policy: str, request: Request) -> str:
    identity = (policy, request.seed, request.sampling, request.context)
    return blake2b(repr(identity).encode(), digest_size=12).hexdigest()


# --- a critic's probability of its verdict ----------------------------------------------------------------------------


def chance(right: float, wrong: float) -> float:
    """p(right) / (p(right) + p(wrong)), from the two logprobs."""
    log_odds = right - wrong
    if log_odds >= 0:
        return 1 / (1 + math.exp(-log_odds))
    return math.exp(log_odds) / (1 + math.exp(log_odds))  # without overflow


def fork(tokenizer: PreTrainedTokenizerBase, prompts: Prompts, critique: Segment) -> tuple[Row, Row] | None:
    """Rows of the first tokens in which the two verdicts differ, at the place of a critique's verdict.

    Returns: the row of `right` and the row of `wrong`, each with the tokens before as context and one trained token.
        None: the critique has no place of a verdict, or its tokens cannot be separated there.
    """
    place = verdict_place(critique.text, line=prompts.verdict_line)
    if place is None:
        return None
    num_chars = [
        len(tokenizer.decode(critique.tokens[:count], skip_special_tokens=True))
        for count in range(len(critique.tokens) + 1)
    ]
    last = num_chars[bisect_right(num_chars, place) - 1]
    before = critique.tokens[: bisect_left(num_chars, last)]  # without an end token, which adds no text
    before_text = tokenizer.decode(before, skip_special_tokens=True)
    gap = critique.text[len(before_text) : place]
    if not critique.text[place:]:
        gap += " "  # cut right behind the colon
    right, wrong = (_label(tokenizer, before, before_text, gap + word) for word in (prompts.right, prompts.wrong))
    if right is None or wrong is None:
        return None
    shared = next((i for i, (a, b) in enumerate(zip(right, wrong, strict=False)) if a != b), None)
    if shared is None:  # one is the beginning of the other
        return None
    context = (*critique.context, *before, *right[:shared])
    first, second = (tail_row(critique.policy, context, [ids[shared]], 0.0) for ids in (right, wrong))
    return first, second


def _label(tokenizer: PreTrainedTokenizerBase, before: Sequence[int], before_text: str, text: str) -> list[int] | None:
    """Tokens of a text that follows others. None: the tokenizer has none that leave the others unchanged."""
    alone = text_ids(tokenizer, text)
    whole = text_ids(tokenizer, before_text + text)
    candidates = [alone] + ([whole[len(before) :]] if whole[: len(before)] == list(before) else [])
    for ids in candidates:
        if tokenizer.decode([*before, *ids], skip_special_tokens=True) == before_text + text:
            return list(ids)
    return None
