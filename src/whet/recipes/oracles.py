"""Critics by rule for the tiny world: what a perfect, an absent and a misleading critique would do to the actor."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from whet.play.roles import seed_of
from whet.tasks.chains import Chain, criticise, critique_text, parse_chain, plant_flaws
from whet.types import Task

_RESULT = re.compile(r"^Step \d+: .* = (\d)$", re.MULTILINE)


def oracle(task: Task, answer: str) -> str:
    """Computes without mistakes, works on to the end."""
    chain = parse_chain(task.prompt)
    claimed = claimed_values(chain, answer)
    return critique_text(chain, claimed, criticise(chain, claimed, None, random.Random(0), thorough=True))


def brief_oracle(task: Task, answer: str) -> str:
    """Computes without mistakes, stops at the first wrong step: enough to judge, half of the help."""
    chain = parse_chain(task.prompt)
    claimed = claimed_values(chain, answer)
    return critique_text(chain, claimed, criticise(chain, claimed, None, random.Random(0), thorough=False))


def empty(task: Task, answer: str) -> str:
    return ""


def false(task: Task, answer: str) -> str:
    """Its own results are wrong from a random step on."""
    chain = parse_chain(task.prompt)
    rng = random.Random(seed_of("false critique", task.id))
    return critique_text(chain, claimed_values(chain, answer), plant_flaws(chain, rng, 0.35))


def claimed_values(chain: Chain, answer: str) -> list[int]:
    """The results that an answer claims, step by step; where it lost its form, the right ones stand in."""
    found = [int(value) for value in _RESULT.findall(answer)]
    return found if len(found) == len(chain.operations) else list(chain.values)


RULE_CRITICS: dict[str, Callable[[Task, str], str]] = {
    "oracle": oracle,
    "brief_oracle": brief_oracle,
    "empty": empty,
    "false": false,
}
