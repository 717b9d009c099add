"""Critics by rule for the tiny world: what a perfect, an absent and a misleading critique would do to the actor."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from whet.seeds import seed_of
from whet.tasks.chains import (
    FULL_HELP,
    Chain,
    ChainCritique,
    Manner,
    criticise,
    critique_text,
    parse_chain,
    plant_flaws,
    write_up,
)
from whet.types import Task

RESULT = re.compile(r"^Step \d+: .* = (\d)$", re.MULTILINE)
"""What a step of an answer claims."""


def oracle(task: Task, answer: str) -> str:
    """Judges without mistakes, works on to the end and writes out every correction: all the help there is."""
    return _critique(task, answer, FULL_HELP)


def judge(task: Task, answer: str) -> str:
    """Judges without mistakes and leaves it at that: stops at the first wrong step, says nothing of what to write."""
    return _critique(task, answer, Manner(thorough=0.0, helpful=0.0, cautious=0.0))


def alarmist(task: Task, answer: str) -> str:
    """Calls every answer wrong and names no step: no judgment at all, yet the actor looks again."""
    chain = parse_chain(task.prompt)
    claimed = tuple(claimed_values(chain, answer))
    return critique_text(chain, ChainCritique(claimed, claimed, frozenset(), verdict=False))


def empty(task: Task, answer: str) -> str:
    return ""


def false(task: Task, answer: str) -> str:
    """Its own results are wrong from a random step on, and it writes out what to write instead."""
    chain = parse_chain(task.prompt)
    rng = random.Random(seed_of("false critique", task.id))
    return critique_text(chain, write_up(claimed_values(chain, answer), plant_flaws(chain, rng, 0.35), FULL_HELP, rng))


def _critique(task: Task, answer: str, manner: Manner) -> str:
    chain = parse_chain(task.prompt)
    return critique_text(chain, criticise(chain, claimed_values(chain, answer), None, manner, random.Random(0)))


def claimed_values(chain: Chain, answer: str) -> list[int]:
    """The results that an answer claims, step by step; where it lost its form, the right ones stand in."""
    found = [int(value) for value in RESULT.findall(answer)]
    return found if len(found) == len(chain.operations) else list(chain.values)


RULE_CRITICS: dict[str, Callable[[Task, str], str]] = {
    "oracle": oracle,
    "judge": judge,
    "alarmist": alarmist,
    "empty": empty,
    "false": false,
}
