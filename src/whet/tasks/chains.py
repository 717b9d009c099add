"""The tiny world: chains of last-digit arithmetic, and the careless textbook that its tiny models are pretrained on.

A problem is a start digit and a chain of operations. They are worked from left to right, and only the last digit stays:
`7 + 5 * 3` is `7 + 5 = 2`, `2 * 3 = 6`, so the answer is 6. Multipliers are 3, 7 or 9, so that every operation is a
bijection of the digits. One wrong step therefore always makes the final answer wrong, and no verdict depends on luck.
The one exception is two slips that cancel; the verifier looks at the final answer.

The *careless textbook* makes the models weak in a lasting way. Its author knows most facts but holds a misconception
about some of them: one fixed wrong value a fact, written with a fixed probability. Pretraining on it to convergence
gives an actor that errs where the author erred, at a rate that does not depend on when one stops. Critics written by
the same author share those misconceptions, and training a critic has to overcome them.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Literal

Split = Literal["train", "validation", "test"]
Operation = tuple[str, int]
"""An operator (`+`, `-`, `*`) and its right operand, a digit."""

OPERATIONS: tuple[Operation, ...] = (
    *(("+", b) for b in range(1, 10)),
    *(("-", b) for b in range(1, 10)),
    *(("*", b) for b in (3, 7, 9)),
)
_OPERATION_TEXTS = {(op, b): f"{op} {b}" for op in "+-*" for b in range(10)}
MAX_STEPS = 12
"""Of a problem; the tiny tokenizer has a piece for each `Step N: `."""
VERDICT_LINE = "Correctness of the final answer"
ANSWER_LINE = "The answer is"


@dataclass(frozen=True, slots=True)
class Chain:
    """A problem: a start digit and the operations to apply to it in turn."""

    start: int
    operations: tuple[Operation, ...]

    @property
    def text(self) -> str:
        return " ".join([str(self.start), *map(_OPERATION_TEXTS.__getitem__, self.operations)])

    @property
    def values(self) -> tuple[int, ...]:
        """The right result of each step; the last one is the answer."""
        return tuple(itertools.accumulate(self.operations, apply, initial=self.start))[1:]

    @property
    def split(self) -> Split:
        """The one split this problem can ever be in: a function of its text, so splits are disjoint by construction."""
        return _split_of(self.text)


def _split_of(text: str) -> Split:
    bucket = int.from_bytes(sha256(text.encode()).digest()[:4], "big") % 10
    return "test" if bucket == 9 else "validation" if bucket == 8 else "train"


def apply(a: int, operation: Operation) -> int:
    """The last digit of `a op b`."""
    op, b = operation
    return (a + b if op == "+" else a - b if op == "-" else a * b) % 10


def parse_chain(text: str) -> Chain:
    """The inverse of `Chain.text`.

    Raises: ValueError where the text is no chain.
    """
    words = text.split()
    operations = tuple((op, int(b)) for op, b in zip(words[1::2], words[2::2], strict=False) if b.isdigit())
    is_whole = len(words) == 1 + 2 * len(operations) and words[0] in set("0123456789")
    if not is_whole or not operations or not set(operations) <= set(OPERATIONS):
        raise ValueError(f"{text!r} is not a chain such as '7 + 5 * 3'")
    return Chain(int(words[0]), operations)


def sample_chains(split: Split, seed: int, *, min_steps: int, max_steps: int) -> Iterator[Chain]:
    """An endless stream of different problems of one split. The seed is hashed with the split's name, so that
    neighbouring seeds do not overlap in anything but chance repeats."""
    rng = random.Random(f"chains/{split}/{seed}")
    seen: set[str] = set()
    while True:
        count = rng.randint(min_steps, max_steps)
        chain = Chain(rng.randrange(10), tuple(rng.choice(OPERATIONS) for _ in range(count)))
        text = chain.text
        if _split_of(text) == split and text not in seen:
            seen.add(text)
            yield chain


# --- the careless textbook ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Carelessness:
    """How an author errs: which facts are misconceived, and how often the wrong value is written.

    The textbook misconceives a fact `a op b` with probability `share`, decided once, by a hash of the fact. Its author
    then writes the fact's one wrong value with a probability drawn once between `low` and `high`. Every other fact
    gets a random wrong value with probability `slip`.
    """

    share: float
    low: float
    high: float
    slip: float
    adopted: float = 1.0
    """Of the textbook's misconceptions, those that this author holds too: the same facts, the same wrong values."""
    own: float = 0.0
    """Of the facts that the textbook has right, those that this author misconceives."""

    def write(self, a: int, operation: Operation, rng: random.Random) -> int:
        """What this author writes after `a op b =`."""
        right = apply(a, operation)
        rank, level, wrong = misconception(a, operation, "textbook")
        held = rank < self.share * self.adopted
        if rank >= self.share and self.own:
            rank, level, wrong = misconception(a, operation, "own")
            held = rank < self.own
        if held:
            return wrong if rng.random() < self.low + (self.high - self.low) * level else right
        return (right + rng.randrange(1, 10)) % 10 if rng.random() < self.slip else right


@cache
def misconception(a: int, operation: Operation, whose: str) -> tuple[float, float, int]:
    """The fact's rank and level in [0, 1), and its one wrong value."""
    rng = random.Random(f"misconception/{whose}/{a}{operation[0]}{operation[1]}")
    return rng.random(), rng.random(), (apply(a, operation) + rng.randrange(1, 10)) % 10


def work_out(chain: Chain, author: Carelessness | None, rng: random.Random, *, given: Sequence[int] = ()) -> list[int]:
    """The results an author writes, step by step, each from the one before. `author=None` makes no mistakes.

    Args:
        given: results of the first steps, taken over unchecked.
    """
    values = list(given)
    value = values[-1] if values else chain.start
    for operation in chain.operations[len(values) :]:
        value = apply(value, operation) if author is None else author.write(value, operation, rng)
        values.append(value)
    return values


def corrupt_chain(chain: Chain, rng: random.Random, rate: float) -> list[int]:
    """A solution with at least one wrong value: each step's is wrong with probability `rate`; what follows is right
    from there on."""
    count = len(chain.operations)
    corrupted = {step for step in range(count) if rng.random() < rate} or {rng.randrange(count)}
    values: list[int] = []
    for step, operation in enumerate(chain.operations):
        right = apply(values[-1] if values else chain.start, operation)
        values.append((right + rng.randrange(1, 10)) % 10 if step in corrupted else right)
    return values


# --- texts ----------------------------------------------------------------------------------------------------------


def steps_text(chain: Chain, values: Sequence[int]) -> list[str]:
    befores = [chain.start, *values[:-1]]
    lines = zip(befores, chain.operations, values, strict=False)
    return [f"Step {n}: {a} {op} {b} = {c}" for n, (a, (op, b), c) in enumerate(lines, 1)]


def answer_text(chain: Chain, values: Sequence[int], *, ramble: int = 0) -> str:
    """A worked solution, one step a line, then `The answer is N`.

    Args:
        ramble: how many times a wrong step is written again, as it is, before the next one. 0: none.
    """
    lines: list[str] = []
    befores = [chain.start, *values[:-1]]
    steps = zip(steps_text(chain, values), befores, chain.operations, values, strict=False)
    for line, before, operation, value in steps:
        lines += [line] * (1 if value == apply(before, operation) else 1 + ramble)
    return "\n".join([*lines, f"{ANSWER_LINE} {values[-1]}"])


def critique_text(chain: Chain, critique: ChainCritique, closing: str = "") -> str:
    """A critique that computes before it compares. Each step gets the critic's result, the claimed one and a verdict;
    a wrong step may get a correction. The verdict on the final answer comes last.

    Args:
        closing: the line of that verdict, where the prompts word it in another way.
    """
    lines = []
    looked_at = zip(steps_text(chain, critique.own), critique.own, critique.claimed, strict=False)
    for index, (step, value, claim) in enumerate(looked_at):
        correction = f", so write {value}" if index in critique.corrected else ""
        lines.append(f"{step}, claimed {claim}: {'Correct' if value == claim else 'Wrong'}{correction}")
    return "\n".join([*lines, closing or f"{VERDICT_LINE}: {'Correct' if critique.verdict else 'Wrong'}"])


# --- critics and what their critiques do ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChainCritique:
    """A critic's results, and which corrections the critique states."""

    claimed: tuple[int, ...]
    """The answer's result of each step."""
    own: tuple[int, ...]
    """The critic's result of each step that it looked at; fewer than the answer's where it stopped early."""
    corrected: frozenset[int]
    """The steps found wrong (from 0) for which the critique says what to write instead."""
    verdict: bool
    """On the final answer."""

    @property
    def wrong(self) -> list[int]:
        """The steps found wrong, from 0."""
        return [index for index, value in enumerate(self.own) if value != self.claimed[index]]


@dataclass(frozen=True, slots=True)
class Manner:
    """How a critic writes down its results: judging takes none of `thorough` and `helpful`, helping takes both."""

    thorough: float
    """Share of its critiques that continue to the end after a wrong step, from the critic's values."""
    helpful: float
    """Share of the steps it finds wrong for which it says what to write instead."""
    cautious: float
    """Share of its critiques without a wrong step that call the answer wrong all the same: look again."""


FULL_HELP = Manner(thorough=1.0, helpful=1.0, cautious=0.0)


def criticise(
    chain: Chain, claimed: Sequence[int], author: Carelessness | None, manner: Manner, rng: random.Random
) -> ChainCritique:
    """A critique by an author who errs as they do in answers. `author=None` makes no mistakes."""
    results: list[int] = []
    thorough = rng.random() < manner.thorough
    for index in range(len(chain.operations)):
        results = work_out(Chain(chain.start, chain.operations[: index + 1]), author, rng, given=results)
        if not thorough and results[-1] != claimed[index]:
            break
    return write_up(claimed, results, manner, rng)


def write_up(claimed: Sequence[int], own: Sequence[int], manner: Manner, rng: random.Random) -> ChainCritique:
    """The critique that follows from the critic's own results."""
    wrong = [index for index, value in enumerate(own) if value != claimed[index]]
    corrected = frozenset(index for index in wrong if rng.random() < manner.helpful)
    # The last step looked at decides: two errors may cancel on the way to a right final answer.
    finds_right = own[-1] == claimed[len(own) - 1]
    verdict = finds_right and not (not wrong and rng.random() < manner.cautious)
    return ChainCritique(tuple(claimed), tuple(own), corrected, verdict)


def refine(chain: Chain, critique: ChainCritique, author: Carelessness, care: float, rng: random.Random) -> list[int]:
    """The results that an author writes after a critique, step by step.

    A correction is adopted, right or wrong. A step that was found wrong without one gets a second look. So does every
    step of an answer that was called wrong though no step was. A step that was found right stays, unless the value it
    starts from has changed: then the author works it out as in any answer.

    Args:
        care: share of the second looks that make no mistakes; the others are as careless as ever.
    """
    wrong = critique.wrong
    nothing_named = not wrong and not critique.verdict
    values: list[int] = []
    for index, operation in enumerate(chain.operations):
        before = values[-1] if values else chain.start
        is_as_claimed = index == 0 or before == critique.claimed[index - 1]
        if index in critique.corrected:
            value = critique.own[index]
        elif not is_as_claimed:
            value = author.write(before, operation, rng)
        elif index in wrong or nothing_named:
            value = apply(before, operation) if rng.random() < care else author.write(before, operation, rng)
        else:
            value = critique.claimed[index]
        values.append(value)
    return values
