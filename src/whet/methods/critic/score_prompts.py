"""Critics that give scores: their prompts and, in the tiny world, their demonstrations and a reward model's pairs."""

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
    """The prompts with a score in place of the verdict, behind the same label.

    Raises: ConfigError if the critique prompt does not ask for a verdict in exactly these words.
    """
    if prompts == CHAINS:  # its critic has seen nothing but demonstrations anyway
        return prompts
    verdict_request = f"{prompts.verdict_line}: [{prompts.right}/{prompts.wrong}]"
    if verdict_request not in prompts.critique:
        raise ConfigError(f"prompts: its critique has to ask for {verdict_request!r}, which a score replaces")
    score = f"{prompts.verdict_line}: [a score from {LOW} to {HIGH}]"
    return replace(prompts, critique=prompts.critique.replace(verdict_request, score))


def scored_demonstrations(
    tasks: Sequence[Task], count: int, prompts: Prompts, rng: random.Random
) -> list[Demonstration]:
    """Critiques by the colleague, of tasks drawn at random. They close with the share of right steps, from 1 to 10."""
    return [_demonstration(parse_chain(rng.choice(tasks).prompt), prompts, rng) for _ in range(count)]


def _demonstration(chain: Chain, prompts: Prompts, rng: random.Random) -> Demonstration:
    claimed = some_answer(chain, rng)
    critique = criticise(chain, claimed, COLLEAGUE, COLLEAGUE_MANNER, rng)
    share_right = sum(result == claim for result, claim in zip(critique.own, claimed, strict=False)) / len(claimed)
    closing = f"{prompts.verdict_line} = {LOW + round((HIGH - LOW) * share_right)}"
    messages = prompts.critique_messages(chain.text, answer_text(chain, claimed))
    return Demonstration("critique", tuple(messages), "", critique_text(chain, critique, closing))


def preferred_pairs(tasks: Sequence[Task], count: int, rng: random.Random) -> list[tuple[str, str, str]]:
    """Questions drawn at random, each with two answers: first the one with more right results."""
    return [_pair(parse_chain(rng.choice(tasks).prompt), rng) for _ in range(count)]


def _pair(chain: Chain, rng: random.Random) -> tuple[str, str, str]:
    while True:
        pair = sorted((some_answer(chain, rng) for _ in range(2)), key=lambda values: num_right(chain, values))
        if num_right(chain, pair[0]) < num_right(chain, pair[1]):
            return chain.text, answer_text(chain, pair[1]), answer_text(chain, pair[0])


def some_answer(chain: Chain, rng: random.Random) -> list[int]:
    """The results of an answer: the textbook's, or with few or many wrong values planted."""
    rate = rng.random()
    return work_out(chain, TEXTBOOK, rng) if rate < 0.3 else corrupt_chain(chain, rng, rate)


def num_right(chain: Chain, values: Sequence[int]) -> int:
    """Steps whose result is that of the reference solution."""
    return sum(expected == value for expected, value in zip(chain.values, values, strict=True))


def beside_reference(prompts: Prompts, question: str, answer: str) -> tuple[list[Message], str]:
    """What a reward model reads: the critic's prompt, then each step of the reference beside what the answer claims.

    A model so small cannot compare a result with one that is not written down. An answer in another form claims
    nothing right.
    """
    chain = parse_chain(question)
    results = [int(value) for value in RESULT.findall(answer)]
    claimed = results if len(results) == len(chain.operations) else [(value + 5) % 10 for value in chain.values]
    lines = [f"{step}, claimed {c}" for step, c in zip(steps_text(chain, chain.values), claimed, strict=True)]
    return prompts.critique_messages(question, answer), "\n".join(lines)
