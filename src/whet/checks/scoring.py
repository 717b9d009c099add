"""Checks of a run's grader and reward terms on a few of its own rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from whet.checks.attacks import FILLER, Scene
from whet.checks.findings import Finding, by_share, listed
from whet.checks.samples import FORMS, scenes_of
from whet.checks.scorers import FunctionScorer, Outcome
from whet.tasks.prompts import Prompts
from whet.types import Grade, Task

Grading = Callable[[Sequence[tuple[str, Task]]], Sequence[Grade]]
NUM_SAMPLES = 5
MOST_GRADED = 64
"""Rows whose reference is graded against itself."""
MOST_S = 6.0
"""Seconds of trying forms where nothing gets a score, and twice those of grading references."""
BAD_GOLD = 0.05
"""Share of references that the grader refuses, from which the run would learn from wrong signs."""
MARKS: Mapping[str, str] = {
    "\\boxed{{answer}}": "\\boxed",
    "#### {answer}": "####",
    "Answer: {answer}": "Answer:",
    "<answer>{answer}</answer>": "<answer>",
    "<think>I work it out.</think>\n<answer>{answer}</answer>": "<answer>",
    '{"answer": "{answer}"}': '"answer"',
}
"""By form of an answer, what a prompt has to hold for a model to write it."""
LEAST_LEAD = 0.1
"""Of right answers over wrong ones in mean score, in a form that the grader takes."""
SLOW_S = 0.03
"""Of a reply, among several at a time."""
TERM_LIMIT_S = 2.0
PADDING = 8


@dataclass(frozen=True, slots=True)
class Scored:
    """How the grader takes golden replies."""

    forms: tuple[str, ...]
    """Those that it takes for right."""
    num_scored: int
    """Golden replies that it gave a number for, right or not."""
    seconds: float
    """Of grading one reply, as measured."""


def gold_findings(
    grade: Grading, tasks: Sequence[Task], prompts: Prompts, tried: Sequence[str] = FORMS
) -> tuple[list[Finding], Scored]:
    """Findings about the grader on golden and wrong replies, and what it accepts.

    Args:
        tried: forms of a golden reply, with `{answer}`.
    """
    few = tasks[:NUM_SAMPLES]
    begun = time.perf_counter()
    num_scored = 0
    findings: list[Finding] = []
    leads: dict[str, float] = {}
    unscored: list[str] = []
    seconds = []
    for form in tried:
        scenes = scenes_of(few, form)
        if not num_scored and time.perf_counter() - begun > MOST_S:
            break  # it hangs, and would for each form
        rights = grade([(scene.say(scene.right), scene.task) for scene in scenes])
        wrongs_begun = time.perf_counter()  # the very first call starts processes
        wrongs = grade([(scene.say(scene.wrong), scene.task) for scene in scenes])
        seconds.append((time.perf_counter() - wrongs_begun) / len(few))
        num_scored += sum(each.score is not None for each in rights)
        unscored += [each.reason for each in rights if each.score is None]
        leads[form] = fmean((r.score or 0) - (w.score or 0) for r, w in zip(rights, wrongs, strict=True))
    # A form by which many references are refused is one all the same, unless another has twice its lead.
    forms = tuple(form for form, lead in leads.items() if lead > LEAST_LEAD and 2 * lead >= max(leads.values()))
    scored = Scored(forms, num_scored, fmean(seconds))
    if not forms:
        return [_no_winner(few[0], tried, unscored)], scored
    findings += _unasked(forms, few[0], prompts)
    most = min(MOST_GRADED, max(NUM_SAMPLES, int(MOST_S / 2 / max(scored.seconds, 1e-6))))
    findings += _refused(grade, tasks, forms, most)
    return findings, scored


def _no_winner(task: Task, tried: Sequence[str], unscored: Sequence[str]) -> Finding:
    """The finding that no right answer scored above a wrong one.

    Args:
        unscored: reasons why replies got no score.
    """
    if unscored:
        why, advice = f" (it gives no score: {unscored[0][:160]})", "run whet reward test on it, with --data"
    elif len(tried) == 1:
        why, advice = "", f"run whet reward test on it, with --data and --golden {tried[0]!r}"
    else:
        why = f", in any of {len(tried)} forms such as {tried[0].replace('{answer}', task.answer or '')!r}"
        advice = "if it reads another form, say how a right reply looks: --golden 'TEXT {answer}'"
    return Finding("fail", "reward", f"the grader scores no right answer above a wrong one{why}: {advice}")


def _unasked(forms: Sequence[str], task: Task, prompts: Prompts) -> list[Finding]:
    """Whether the prompts never ask for any form that the grader takes."""
    asked = " ".join(message["content"] for message in prompts.solve_messages(task.prompt)) + prompts.solve_prefill
    if any(form not in MARKS or MARKS[form] in asked for form in forms):
        return []
    return [
        Finding(
            "fail",
            "reward",
            f"the grader takes answers as {forms[0]!r} alone, and the prompts never ask for that: no reply would be "
            "right, so say it in the prompts (prompts=FILE.yaml) or take another grader",
        )
    ]


def _refused(grade: Grading, tasks: Sequence[Task], forms: Sequence[str], most: int) -> list[Finding]:
    """References that the grader refuses in every form, among at most so many."""
    left = list(tasks[:: max(1, len(tasks) // most)][:most])
    count = len(left)
    for form in forms:
        grades = grade([(form.replace("{answer}", task.answer or ""), task) for task in left])
        left = [task for task, each in zip(left, grades, strict=True) if (each.score or 0) < 0.5]
    if not left:
        return []
    return [
        Finding(
            by_share(len(left), count, BAD_GOLD),
            "reward",
            f"the grader refuses {len(left)} of {count} references against themselves "
            f"({listed([task.answer or '' for task in left])}): no reply can be right, so mend or drop the rows",
        )
    ]


def slow_finding(scored: Scored, replies_a_step: float, num_at_once: int) -> Iterator[Finding]:
    """Whether grading takes long beside all else in a step."""
    waiting = scored.seconds * replies_a_step
    if scored.seconds > SLOW_S:
        yield Finding(
            "warning",
            "reward",
            f"grading takes {scored.seconds:.2g} s a reply with {num_at_once} at a time, about {waiting:.0f} s of each "
            "step: make the grader faster, or cut replies before it parses them",
        )


def term_findings(weights: Mapping[str, float], tasks: Sequence[Task], form: str) -> Iterator[Finding]:
    """Findings about the reward terms that settings add."""
    scenes = scenes_of(tasks[:NUM_SAMPLES], form)
    for name, weight in weights.items():
        scorer = FunctionScorer("reward", name, TERM_LIMIT_S)
        try:
            yield from _of_term(scorer, weight, scenes)
        finally:
            scorer.close()


def _of_term(scorer: FunctionScorer, weight: float, scenes: Sequence[Scene]) -> Iterator[Finding]:
    good = [scorer.score(FILLER * PADDING + scene.say(scene.right), scene.task) for scene in scenes]
    bad = [scorer.score(scene.say(scene.wrong), scene.task) for scene in scenes]
    empty = [scorer.score("", scene.task) for scene in scenes]
    title = f"the reward term {scorer.name!r}"
    outcomes = [*good, *bad, *empty]
    if troubled := [each for each in outcomes if each.trouble]:
        yield Finding(
            "warning" if troubled[0].trouble == "no score" else "fail",
            "reward",
            f"{title} {troubled[0].reason} ({troubled[0].trouble}) on {len(troubled)} of {len(outcomes)} sample "
            "replies: mend it, as an error there ends the run and None is no reward",
        )
        return
    if len({each.value for each in outcomes}) == 1:
        yield Finding(
            "warning",
            "reward",
            f"{title} is {outcomes[0].value:g} for every sample reply, so it teaches nothing: take it out, or mend it",
        )
        return
    gain = max(weight * (_mean(others) - _mean(good)) for others in (bad, empty))
    if gain >= 1:
        yield Finding(
            "fail",
            "reward",
            f"{title} with weight {weight:g} gives a short wrong reply {gain:.2g} more than a long right one, and the "
            f"right answer adds 1 at most: lower rewards.{scorer.name} below {weight / gain:.2g}",
        )


def _mean(outcomes: Sequence[Outcome]) -> float:
    return fmean(each.value or 0.0 for each in outcomes)
