"""Critics that give scores: their words, and in the tiny world their demonstrations and the pairs of a reward model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from whet.config.base import ConfigError
from whet.tasks.chains import (
    Chain,
    answer_text,
    corrupt_chain,
    criticise,
    critique_text,
    parse_chain,
    steps_text,
    work_out,
)
from whet.tasks.demonstrations import COLLEAGUE, COLLEAGUE_MANNER, TEXTBOOK, Demonstration
from whet.tasks.oracles import RESULT
from whet.tasks.prompts import CHAINS, Message, Prompts
from whet.types import Task

LOW, HIGH = 1, 10
"""The lowest score and the highest."""


def scored(prompts: Prompts) -> Prompts:
    """The dialect with a score in place of the verdict, behind the same label.

    Raises: ConfigError where its critique does not ask for a verdict in so many words.
    """
    if prompts == CHAINS:  # its critic has seen nothing but demonstrations anyway
        return prompts
    asked = f"{prompts.verdict_line}: [{prompts.right}/{prompts.wrong}]"
    if asked not in prompts.critique:
        raise ConfigError(f"prompts: its critique has to ask for {asked!r}, in whose place a score is asked for")
    score = f"{prompts.verdict_line}: [a score from {LOW} to {HIGH}]"
    return replace(prompts, critique=prompts.critique.replace(asked, score))


def scored_demonstrations(
    tasks: Sequence[Task], count: int, prompts: Prompts, rng: random.Random
) -> list[Demonstration]:
    """Critiques by the colleague, of tasks drawn at random, that close with the share of steps found right, from 1 to
    10."""
    return [_demonstration(parse_chain(rng.choice(tasks).prompt), prompts, rng) for _ in range(count)]


def _demonstration(chain: Chain, prompts: Prompts, rng: random.Random) -> Demonstration:
    claimed = some_answer(chain, rng)
    critique = criticise(chain, claimed, COLLEAGUE, COLLEAGUE_MANNER, rng)
    found = sum(own == claim for own, claim in zip(critique.own, claimed, strict=False)) / len(claimed)
    closing = f"{prompts.verdict_line} = {LOW + round((HIGH - LOW) * found)}"
    messages = prompts.critique_messages(chain.text, answer_text(chain, claimed))
    return Demonstration("critique", tuple(messages), "", critique_text(chain, critique, closing))


def preferred_pairs(tasks: Sequence[Task], count: int, rng: random.Random) -> list[tuple[str, str, str]]:
    """Questions drawn at random, each with two answers, the one with more right results first."""
    return [_pair(parse_chain(rng.choice(tasks).prompt), rng) for _ in range(count)]


def _pair(chain: Chain, rng: random.Random) -> tuple[str, str, str]:
    while True:
        pair = sorted((some_answer(chain, rng) for _ in range(2)), key=lambda values: num_right(chain, values))
        if num_right(chain, pair[0]) < num_right(chain, pair[1]):
            return chain.text, answer_text(chain, pair[1]), answer_text(chain, pair[0])


def some_answer(chain: Chain, rng: random.Random) -> list[int]:
    """The results of an answer with no flaws, few or many: the textbook's, or with wrong values planted."""
    rate = rng.random()
    return work_out(chain, TEXTBOOK, rng) if rate < 0.3 else corrupt_chain(chain, rng, rate)


def num_right(chain: Chain, values: Sequence[int]) -> int:
    """Steps whose result is that of the reference solution."""
    return sum(own == value for own, value in zip(chain.values, values, strict=True))


def beside_reference(prompts: Prompts, question: str, answer: str) -> tuple[list[Message], str]:
    """What a reward model reads of an answer: the critic's prompt, and each step of the reference beside what the
    answer claims, as in a critique. A model so small cannot compare a result with one that is not written down.

    An answer that lost its form claims nothing right.
    """
    chain = parse_chain(question)
    found = [int(value) for value in RESULT.findall(answer)]
    claimed = found if len(found) == len(chain.operations) else [(value + 5) % 10 for value in chain.values]
    lines = [f"{step}, claimed {c}" for step, c in zip(steps_text(chain, chain.values), claimed, strict=True)]
    return prompts.critique_messages(question, answer), "\n".join(lines)
