"""Inference scaling: strategies that spend a question's token budget, and how each chooses the answer.

A strategy is a coroutine over `BudgetedSamples`. It asks for answers, critiques and refinements of one question until
the budget is spent, and returns one of them. It gets no reference and no score. One rule holds for all of them,
question by question: *something is begun only while fewer tokens than the budget are spent*, and what has begun, such
as an answer with its critiques, is ended. So only what begins last can exceed a budget. The samples at one budget are
the first ones at a larger budget.

Sources: AutoMathCritique (arXiv:2411.16579), section on test-time scaling, for critiques in parallel and in sequence.
Luo et al. (arXiv:2310.04815) for self-check.

Answers vote by their keys (`Samples.key`): equal keys are one answer, by their texts or by the grader's equivalence
(`12` and `12.0`). Ties go to the answer seen first; a key of None (nothing was extracted) does not vote.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import Field

from whet.config import ConfigError
from whet.config.base import Config
from whet.config.loading import of_tree, parse_override
from whet.evaluation.budgets import KINDS
from whet.evaluation.critique import vote
from whet.evaluation.strategies import STRATEGIES
from whet.rollout.driver import Rollout, together
from whet.rollout.samples import Kind, Path, Sample, Samples

T = TypeVar("T")
Key = str | None
"""An answer in a vote."""
Weight = Literal["share", "probability"]
UNREAD = 0.5
"""The weight of an answer whose critique has no readable verdict."""


class BudgetedSamples:
    """The samples of a question that one strategy uses at one budget. Each counts once, even if it existed before.

    Args:
        budget: tokens. None: another `BudgetedSamples` checks the budget, and this one is a part of it.
    """

    def __init__(self, samples: Samples, budget: int | None) -> None:
        self.samples, self.budget = samples, budget
        self.used: dict[Path, Sample] = {}

    @property
    def spent(self) -> int:
        """Tokens of all used samples."""
        return sum(sample.num_tokens for sample in self.used.values())

    @property
    def is_open(self) -> bool:
        """Whether another sample may be begun."""
        return self.budget is not None and self.spent < self.budget

    def tokens(self, kind: Kind) -> int:
        """Tokens of the used samples of one kind."""
        return sum(sample.num_tokens for sample in self.used.values() if sample.kind == kind)

    @property
    def num_calls(self) -> int:
        """Samples that a policy or an endpoint wrote."""
        return sum(sample.num_tokens > 0 for sample in self.used.values())

    # --- requests -----------------------------------------------------------------------------------------------------

    async def answer(self, index: int) -> Sample:
        """The index-th sampled answer."""
        return self._use(await self.samples.answer(index))

    async def greedy_answer(self) -> Sample:
        return self._use(await self.samples.greedy_answer())

    async def critique(self, of: Sample, index: int = 0) -> Sample:
        """The index-th critique of an answer or refinement, with its `verdict`."""
        return self._use(await self.samples.critique(of, index))

    async def refinement(self, of: Sample, index: int = 0) -> Sample:
        """The index-th refinement after a critique."""
        return self._use(await self.samples.refinement(of, index))

    async def each(
        self, make: Callable[[BudgetedSamples, int], Rollout[T]], of: Sequence[Kind] = ("answer",)
    ) -> list[T]:
        """`make(part, 0)`, `make(part, 1)`, ... while a sample may be begun; at least one.

        Those that surely fit are begun together. The result is the same as one after the other. If the latest ones ask
        for no samples but those of the ones before, no more are begun.

        Args:
            make: requests samples from its part, another `BudgetedSamples`.
            of: kinds of its samples at most, such as an answer and two critiques.
        Returns: the results of `make`, in order.
        Raises: ConfigError.
        """
        if unknown := [kind for kind in of if kind not in KINDS]:
            raise ConfigError(f"each(..., of={tuple(of)!r}): {unknown[0]!r} is none of {', '.join(KINDS)}")
        most = max(1, sum(self._limit(kind) for kind in of))
        results: list[T] = []
        asked = BudgetedSamples(self.samples, None)  # what this call asked for: some of it may have been used before
        while not results or self.is_open:
            count = 1 if self.budget is None else max(1, -(-(self.budget - self.spent) // most))
            parts = [BudgetedSamples(self.samples, None) for _ in range(count)]
            before = asked.spent
            batch = await together(make(part, len(results) + i) for i, part in enumerate(parts))
            for part, result in zip(parts, batch, strict=True):
                if results and not self.is_open:  # an endpoint may write more than it was allowed
                    break
                self.used |= part.used
                asked.used |= part.used
                results.append(result)
            if asked.spent == before:
                break
        return results

    # --- choices ------------------------------------------------------------------------------------------------------

    async def keys(self, samples: Sequence[Sample]) -> list[Key]:
        """The answers' keys in a vote."""
        return [await self.samples.key(sample) for sample in samples]

    async def chance(self, critique: Sample) -> float | None:
        """See `Samples.chance`. It generates nothing, and uses no budget."""
        return await self.samples.chance(critique)

    async def critique_score(self, critiques: Sequence[Sample], by: Weight) -> float:
        """The score of an answer by its critiques, in [0, 1].

        It is the share of critiques that call it right, or their mean probability of that. One without a readable
        verdict counts one half.
        Raises: ConfigError where there is none.
        """
        if not critiques:
            raise ConfigError("critique_score([]): give it one critique at least")
        scores = [await self.chance(critique) if by == "probability" else _share(critique) for critique in critiques]
        return sum(UNREAD if score is None else score for score in scores) / len(scores)

    def _use(self, sample: Sample) -> Sample:
        self.used[sample.path] = sample
        return sample

    def _limit(self, kind: Kind) -> int:
        rounds = self.samples.rounds
        role = {"answer": rounds.actor, "critique": rounds.critic, "refinement": rounds.reviser}[kind]
        return role.sampling.max_new_tokens if hasattr(role, "sampling") else 0


def _share(critique: Sample) -> float | None:
    return None if critique.verdict is None else float(critique.verdict == "correct")


class Strategy(Config):
    """Base of strategies; its fields are options that a user may set."""

    needs_critic: ClassVar[bool] = True
    """False: it uses no critique."""
    knows_reference: ClassVar[bool] = False
    """True: a ceiling, which reads the grades. No strategy for use does."""

    @abstractmethod
    async def choose(self, ask: BudgetedSamples) -> Sample:
        """Spends the budget and returns an answer or refinement."""


def strategy(name: str, *, says: str = "") -> Callable[[type[Strategy]], type[Strategy]]:
    """A decorator: register a strategy of yours, for `whet eval --strategy NAME`.

    Args:
        says: a description in one line. Empty: the docstring's first line.
    """

    def decorate(kind: type[Strategy]) -> type[Strategy]:
        if not (isinstance(kind, type) and issubclass(kind, Strategy)):
            raise ConfigError(f"the strategy {name!r} is {str(kind)[:60]}: decorate a class that extends whet.Strategy")
        return STRATEGIES.add(name, kind, says=says or (kind.__doc__ or "").strip().partition("\n")[0])

    return decorate


def strategies_of(text: str) -> dict[str, Strategy]:
    """The strategies in a text, by their names with options: `majority,critic_weighted:by=probability:critiques=2`.

    Raises: UnknownName, ConfigError.
    """
    strategies: dict[str, Strategy] = {}
    for spec in filter(None, (part.strip() for part in text.split(","))):
        if spec == "all":
            strategies |= {entry.name: entry.make()() for entry in STRATEGIES}
            continue
        name, *options = spec.split(":")
        kind, values = STRATEGIES.get(name), dict[str, Any]()
        try:
            for option in options:
                values |= parse_override(option)
            strategies[spec] = of_tree(kind, values)
        except ConfigError as error:
            raise ConfigError(f"--strategy {spec}: {error}") from error
    if not strategies:
        raise ConfigError(f"--strategy names none; choose of: {', '.join(STRATEGIES.names())}")
    return strategies


# --- without a critic ------------------------------------------------------------------------------------------------


class Single(Strategy):
    """One greedy answer, whatever the budget."""

    needs_critic: ClassVar[bool] = False

    async def choose(self, ask: BudgetedSamples) -> Sample:
        return await ask.greedy_answer()


async def _an_answer(part: BudgetedSamples, index: int) -> Sample:
    return await part.answer(index)


class Majority(Strategy):
    """As many answers as fit, and the majority of them (self-consistency)."""

    needs_critic: ClassVar[bool] = False

    async def choose(self, ask: BudgetedSamples) -> Sample:
        answers = await ask.each(_an_answer)
        return answers[vote(await ask.keys(answers)) or 0]


class Ceiling(Strategy):
    """As many answers as fit, and a right one if there is any: pass@K, which no vote and no choice can exceed."""

    needs_critic: ClassVar[bool] = False
    knows_reference: ClassVar[bool] = True

    async def choose(self, ask: BudgetedSamples) -> Sample:
        answers = await ask.each(_an_answer)
        return next((answer for answer in answers if is_right(answer)), answers[0])


def is_right(sample: Sample) -> bool:
    """By the grader, which compares it with the reference."""
    return sample.segment.grade is not None and sample.segment.grade.score == 1.0


# --- with refinements ------------------------------------------------------------------------------------------------

Gate = Literal["always", "verdict"]


class Parallel(Strategy):
    """Chains of answer, critique and refinement, as many as fit, and the majority of their ends."""

    gate: Gate = "always"
    """What is refined: every answer, or those that the verdict calls wrong; the others stand as they are."""

    async def choose(self, ask: BudgetedSamples) -> Sample:
        ends = await ask.each(self._chain, ("answer", "critique", "refinement"))
        return ends[vote(await ask.keys(ends)) or 0]

    async def _chain(self, part: BudgetedSamples, index: int) -> Sample:
        answer = await part.answer(index)
        critique = await part.critique(answer)
        return await part.refinement(critique) if _refines(self.gate, critique) else answer


def _refines(gate: Gate, critique: Sample) -> bool:
    """Whether an answer is refined. With the gate `verdict`, one without a readable verdict is not."""
    return gate == "always" or critique.verdict == "wrong"


class VerdictGated(Parallel):
    """As parallel, but an answer is refined only where the verdict calls it wrong."""

    gate: Gate = "verdict"


class Sequential(Strategy):
    """One answer, critiqued and refined round after round; the last refinement counts."""

    gate: Gate = "always"
    """always: on until the budget is spent. verdict: until the critic calls nothing wrong any more."""
    vote: bool = False
    """True: the majority of all refinements, and not the last one."""

    async def choose(self, ask: BudgetedSamples) -> Sample:
        chain = [await ask.answer(0)]
        while ask.is_open:
            critique = await ask.critique(chain[-1])
            if not _refines(self.gate, critique):
                break
            chain.append(await ask.refinement(critique))
        if not self.vote or len(chain) == 1:
            return chain[-1]
        return chain[1:][vote(await ask.keys(chain[1:])) or 0]


# --- with verdicts ---------------------------------------------------------------------------------------------------


class CriticFiltered(Strategy):
    """Answers with a critique each; the majority of those not judged wrong, or of all where none is left."""

    async def choose(self, ask: BudgetedSamples) -> Sample:
        pairs = await ask.each(_with_critiques(1), ("answer", "critique"))
        answers = [answer for answer, _ in pairs]
        winner = filtered_vote(await ask.keys(answers), [critiques[0].verdict for _, critiques in pairs])
        return answers[winner or 0]


class CriticWeighted(Strategy):
    """Answers with critiques; each votes with the weight that its critiques give it."""

    by: Weight = "share"
    """The weight: the share of critiques that call it right, or their mean probability of that verdict."""
    critiques: int = Field(2, ge=1, le=1000)
    """Of each answer."""

    async def choose(self, ask: BudgetedSamples) -> Sample:
        answers, weights = await _scored_answers(ask, self.critiques, self.by)
        return answers[weighted_vote(await ask.keys(answers), weights) or 0]


class BestOfN(Strategy):
    """Answers with critiques; the one that they speak for most, of equals the first."""

    by: Weight = "share"
    """As of critic_weighted; with one critique, share is its verdict."""
    critiques: int = Field(1, ge=1, le=1000)
    """Of each answer."""

    async def choose(self, ask: BudgetedSamples) -> Sample:
        answers, weights = await _scored_answers(ask, self.critiques, self.by)
        return answers[weights.index(max(weights))]


class SelfCheck(Strategy):
    """Answers; where they agree too little, those judged wrong are dropped before the vote."""

    certainty: float = Field(0.6, ge=0, le=1)
    """The share of answers that must agree for their majority to be taken unchecked."""
    share: float = Field(0.5, gt=0, le=1)
    """Of the budget, what is spent before that is looked at. The rest goes to more answers or to judging these, in
    their order; those that it does not reach stay."""

    async def choose(self, ask: BudgetedSamples) -> Sample:
        first = BudgetedSamples(ask.samples, max(1, int(self.share * (ask.budget or 0))))
        answers = await first.each(_an_answer)
        ask.used |= first.used
        keys = await ask.keys(answers)
        if certainty(keys) >= self.certainty:
            answers = await ask.each(_an_answer) if ask.is_open else answers
            return answers[vote(await ask.keys(answers)) or 0]
        verdicts: list[Key] = [None] * len(answers)
        for i, answer in enumerate(answers):
            if not ask.is_open:
                break
            verdicts[i] = (await ask.critique(answer)).verdict
        return answers[filtered_vote(keys, verdicts) or 0]


def _with_critiques(count: int) -> Callable[[BudgetedSamples, int], Rollout[tuple[Sample, list[Sample]]]]:
    """An answer with `count` critiques."""

    async def make(part: BudgetedSamples, index: int) -> tuple[Sample, list[Sample]]:
        answer = await part.answer(index)
        return answer, await together(part.critique(answer, i) for i in range(count))

    return make


async def _scored_answers(ask: BudgetedSamples, count: int, by: Weight) -> tuple[list[Sample], list[float]]:
    """As many answers with `count` critiques as fit, and each answer's `critique_score`."""
    critiques: list[Kind] = ["critique"] * count
    pairs = await ask.each(_with_critiques(count), ("answer", *critiques))
    answers = [answer for answer, _ in pairs]
    return answers, [await ask.critique_score(critiques, by) for _, critiques in pairs]


# --- votes ------------------------------------------------------------------------------------------------------------


def filtered_vote(keys: Sequence[Key], verdicts: Sequence[Key]) -> int | None:
    """The majority among answers that are not judged wrong. If none of these votes, the majority among all.

    An answer without a readable verdict stays.
    """
    unrejected = [i for i, verdict in enumerate(verdicts) if verdict != "wrong"]
    winner = vote([keys[i] for i in unrejected])
    return vote(keys) if winner is None else unrejected[winner]


def weighted_vote(keys: Sequence[Key], weights: Sequence[float]) -> int | None:
    """`vote` by weights. If all weights of voting answers are 0, the plain majority."""
    if not any(weight > 0 for key, weight in zip(keys, weights, strict=True) if key is not None):
        return vote(keys)
    return vote(keys, weights)


def certainty(keys: Sequence[Key]) -> float:
    """The share of samples with the majority's answer, in [0, 1]. 0 if no answer votes.

    Luo et al. (arXiv:2310.04815) use the answers' frequencies too; their formula was not at hand.
    """
    winner = vote(keys)
    return 0.0 if winner is None else keys.count(keys[winner]) / len(keys)
