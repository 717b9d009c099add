"""Critics by rule, which show what a perfect, an absent and a misleading critique do to the actor. All are of the tiny
world but `by_reference`, which knows no more than the reference answer."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence

from whet.config.parts import BasicsData, ChainData, FileData, GymData
from whet.seeds import seed_of
from whet.tasks.chains import (
    FULL_HELP,
    Chain,
    ChainCritique,
    Manner,
    corrupt_chain,
    criticise,
    critique_text,
    parse_chain,
    write_up,
)
from whet.tasks.demonstrations import solution_steps
from whet.tasks.prompts import Prompts
from whet.types import Segment, Task

RESULT = re.compile(r"^Step \d+: .* = (\d)$", re.MULTILINE)
"""The result that a step of an answer claims."""


def oracle(task: Task, answer: Segment) -> str:
    """Judges without mistakes, works on to the end and writes out every correction: all the help there is."""
    return _critique(task, answer, FULL_HELP)


def judge(task: Task, answer: Segment) -> str:
    """Judges without mistakes and leaves it at that: stops at the first wrong step, says nothing of what to write."""
    return _critique(task, answer, Manner(thorough=0.0, helpful=0.0, cautious=0.0))


def alarmist(task: Task, answer: Segment) -> str:
    """Calls every answer wrong and names no step: no judgment at all, yet the actor looks again."""
    chain = parse_chain(task.prompt)
    claimed = tuple(claimed_values(chain, answer.text))
    return critique_text(chain, ChainCritique(claimed, claimed, frozenset(), verdict=False))


def empty(task: Task, answer: Segment) -> str:
    return ""


def false(task: Task, answer: Segment) -> str:
    """Its own results are wrong from a random step on, and it writes out what to write instead."""
    chain = parse_chain(task.prompt)
    claimed, rng = claimed_values(chain, answer.text), random.Random(seed_of("false critique", task.id))
    return critique_text(chain, write_up(claimed, corrupt_chain(chain, rng, 0.35), FULL_HELP, rng))


def _critique(task: Task, answer: Segment, manner: Manner) -> str:
    chain = parse_chain(task.prompt)
    return critique_text(chain, criticise(chain, claimed_values(chain, answer.text), None, manner, random.Random(0)))


def claimed_values(chain: Chain, answer: str) -> list[int]:
    """The results that an answer claims, step by step; where it lost its form, the right ones stand in."""
    values = [int(value) for value in RESULT.findall(answer)]
    return values if len(values) == len(chain.operations) else list(chain.values)


def trivial_critics(prompts: Prompts) -> dict[str, Callable[[Task, Segment], str]]:
    """Critics that look at nothing: they say that an answer is right, that it is wrong, or what a coin says. They are
    the baselines for whatever goes by verdicts."""
    right, wrong = prompts.closing(right=True), prompts.closing(right=False)

    def tossed(task: Task, answer: Segment) -> str:
        coin = random.Random(seed_of("random critic", task.id, answer.seed, answer.text))
        return right if coin.random() < 0.5 else wrong

    return {"always_correct": lambda task, answer: right, "always_wrong": lambda task, answer: wrong, "random": tossed}


TRIVIAL_CRITICS = ("always_correct", "always_wrong", "random")
RULE_CRITICS: dict[str, Callable[[Task, Segment], str]] = {
    "oracle": oracle,
    "judge": judge,
    "alarmist": alarmist,
    "empty": empty,
    "false": false,
}


def rule_critics(data: str, prompts: Prompts) -> Mapping[str, Callable[[Task, Segment], str]]:
    """The critics that a kind of data allows: those of `RULE_CRITICS` that know its problems, and those that need to
    know nothing."""
    critics = RULE_CRITICS if data == "chains" else {"oracle": by_reference(prompts)}
    return {**critics, **trivial_critics(prompts)}


def has_chains(data: ChainData | FileData | GymData | BasicsData, tasks: Sequence[Task]) -> bool:
    """Whether all questions are the tiny world's: generated, or of a file that is graded so."""
    if not isinstance(data, FileData):
        return data.kind == "chains"
    if data.grader != "chains" or not tasks:
        return False
    try:
        return all(map(parse_chain, (task.prompt for task in tasks)))
    except ValueError:
        return False


def by_reference(prompts: Prompts) -> Callable[[Task, Segment], str]:
    """The oracle of any set with references. It says whether the answer is right, as the grader finds. If it is wrong,
    it shows the reference, with its worked solution where the set has one."""

    def critique(task: Task, answer: Segment) -> str:
        if answer.grade is not None and answer.grade.score == 1.0:
            return f"The solution is right.\n\n{prompts.closing(right=True)}"
        steps = solution_steps(task) if task.info.get("solution") else []
        shown = "\n".join(["The solution is wrong. This is a right one:", *steps, f"The answer is {task.answer}."])
        return f"{shown}\n\n{prompts.closing(right=False)}"

    return critique
