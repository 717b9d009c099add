"""SCoRe (2409.12917): a policy learns to mend its own answer, in two attempts of one conversation without feedback.

    y1 ~ policy(x);  y2 ~ policy(x, y1, "look again").

    stage I    maximise E[r(y2)] - hold KL(first attempts)                            - kl KL(second attempts)
    stage II   maximise E[r(y1) + r(y2) + bonus (r(y2) - r(y1))]                      - kl KL(both)

    gradient   sum over attempts of (R - mean of the others' R) d log policy(attempt),
               R(y1) = r(y1) (stage II only),  R(y2) = r(y2) + bonus (r(y2) - r(y1)).

y1 gets no credit for y2: less than the objective's gradient. Stage I keeps the first attempt, to have something to
mend. The bonus keeps y2 from being a copy of y1. No published code was found. Ours are the gradient, clipped ratios,
KLs as terms of the loss (k2), the prompts, and a hold that suffices in the tiny world.

The prompts of a second attempt without feedback: the policy looks at its answer again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from whet.config import ClipLoss, KLConfig, PerStep, PolicyRunConfig, TrainingConfig
from whet.config.acts import ActsIf, ActsWhen
from whet.credit import (
    ADVANTAGES,
    assign_credit,
    groups_of,
    outcome,
    reply_metrics,
    reply_signs,
    reward_metrics,
    rewarded,
)
from whet.credit.assignment import with_reference
from whet.credit.metrics import failures
from whet.evaluation.protocol import measure
from whet.methods.base import RunContext
from whet.methods.evaluator import Metrics
from whet.methods.report_specs import load_report
from whet.methods.solvers import BEST, POLICY, PolicyAlgorithm, PolicyEvaluator, ask_policy, reply_traces, solver_spec
from whet.models.prompts import Conversation, of_rounds
from whet.rollout.critique import CritiqueRound
from whet.tasks.prompts import CHAINS, Prompts
from whet.trainer import Update, kl_term, policy_term
from whet.trainer.loop import Batch, Phase, Selection
from whet.types import Episode, Segment, Task

REFERENCE, ATTEMPTS = "policy_ref", ("first", "second")
MENDED = ("acc_refine", "delta", "c2i", "i2c")
"""Metrics of what the second attempt makes of the first."""


class ScoreConfig(TrainingConfig, PolicyRunConfig):
    """SCoRe: reinforcement learning of self-correction in two stages."""

    method: Literal["score_rl"] = "score_rl"
    num_steps: int = Field(80, ge=1, le=10**9)
    """Of both stages."""
    first_stage: int = Field(40, ge=0)
    """Of these, steps of stage I."""
    group_size: int = Field(4, ge=2)
    """Pairs of attempts at each problem."""
    bonus: Annotated[
        PerStep[float],
        ActsIf(
            lambda settings: settings["first_stage"] < settings["num_steps"],
            when="first_stage is below num_steps",
            fact="first_stage takes all of num_steps, so there is no stage II",
        ),
    ] = Field(10.0, ge=0)
    """Alpha: weight of the second attempt's gain over the first, in stage II."""
    hold: Annotated[PerStep[float], ActsWhen("first_stage")] = Field(10.0, ge=0)
    """Beta_2: weight of the KL that keeps the first attempt in stage I; of a real model 0.1 may do."""
    kl: PerStep[float] = Field(0.01, ge=0)
    """Beta_1: weight of every other KL."""
    loss: PerStep[ClipLoss] = ClipLoss()


class ScoreEvaluator(PolicyEvaluator[ScoreConfig]):
    """Measures both attempts."""

    def measured(self, tasks: Sequence[Task], policy: str, **options: Any) -> tuple[Metrics, list[dict[str, Any]]]:
        """The first attempt as any answer, and what the second makes of it. Both are greedy."""
        metrics, traces = super().measured(tasks, policy, **options)
        rounds = two_attempts(self.algorithm, policy, ("evaluation",), self.config, greedy=True)
        pairs = measure([e for group in self.run.runtime.by_task(rounds, tasks) for e in group if e.segments])
        return {**metrics, **{key: pairs[key] for key in MENDED}}, traces


def ask_twice(algorithm: Score) -> list[Conversation]:
    run, written = algorithm.run, 2 * algorithm.config.sampling.max_new_tokens
    return ask_policy(algorithm) + of_rounds((POLICY, POLICY), algorithm.again, run.questions, written)[:1]


def two_attempts(
    algorithm: Score, policy: str, key: tuple[object, ...], config: ScoreConfig, *, greedy: bool = False
) -> CritiqueRound:
    """Two attempts; the critic is a rule that says nothing."""
    role = algorithm.run.runtime.policy_role("actor", policy, config.sampling, greedy=greedy)
    return CritiqueRound(algorithm.again, role, nothing, role, (config.seed, *key))


class Score(PolicyAlgorithm[ScoreConfig]):
    """SCoRe: learns to mend its own answer in a second attempt, without feedback"""

    spec = solver_spec(ScoreConfig, report=load_report("score_rl"), evaluator=ScoreEvaluator, conversations=ask_twice)

    def __init__(self, config: ScoreConfig, run: RunContext) -> None:
        super().__init__(config, run)
        self.again = second_look(self.run.prompts)
        self.run.loop.freeze(POLICY, REFERENCE)

    def phases(self) -> Iterator[Phase]:
        held = min(self.config.first_stage, self.config.num_steps)
        yield self.evaluator.before()
        for stage, num_steps in (("stage1", held), ("stage2", self.config.num_steps - held)):
            yield Phase(
                stage, num_steps, partial(self._collect, stage), partial(self._updates, stage, num_steps),
                validate=partial(self.evaluator.validate, phase=stage), validate_every=self.config.validate_every,
                main=POLICY, select=Selection(POLICY, BEST, "validation/acc_refine"),
                headline=("attempt/first", "attempt/second", "entropy", "group/no_signal"),
            )  # fmt: skip
        yield self.evaluator.after()

    def _updates(self, stage: str, num_steps: int, step: int) -> Mapping[str, Update]:
        config = self.at(step)
        scored = ATTEMPTS if stage == "stage2" else ATTEMPTS[1:]
        terms = [policy_term(config.loss, "sequence_mean", kinds=frozenset(scored))]
        for kind in ATTEMPTS:
            kl = KLConfig(coef=config.kl if kind in scored else config.hold, estimator="k2")
            terms += [kl_term(kl, "sequence_mean", kinds=frozenset({kind}), name=kind)] if kl.coef else []
        rows = 2 * config.prompts_per_step * config.group_size
        return {POLICY: Update(tuple(terms), config.learning, num_steps * config.learning.updates_a_step(rows))}

    def _collect(self, stage: str, step: int) -> Batch:
        config = self.at(step)
        before = self.config.first_stage * config.prompts_per_step if stage == "stage2" else 0
        tasks = self.run.next_tasks(step, config.prompts_per_step, first=before)
        rounds = two_attempts(self, POLICY, (stage, step), config)
        episodes = [
            e for group in self.run.runtime.by_task(rounds, tasks, num_samples=config.group_size) for e in group
        ]
        whole = [e for e in episodes if e.outcome == "ok"]
        bonus, terms = config.bonus if stage == "stage2" else 0.0, {"outcome": outcome(), "gain": gain}
        scored = rewarded(whole, "actor", terms, lambda v: v["outcome"] + bonus * v["gain"], added=config.rewards)
        groups, advantage = groups_of(scored, "actor", "task"), ADVANTAGES.get("rloo")
        attempts = [[[p for p in group if bool(p.index) == later] for group in groups] for later in (False, True)]
        assigned = [
            assign_credit(attempt_groups, advantage, kind=kind)
            for kind, attempt_groups in zip(ATTEMPTS, attempts, strict=True)
        ]
        rows = [row for credit in assigned for row in credit.rows]
        rows = with_reference(rows, self.run.loop.policies[REFERENCE], token_budget=config.learning.token_budget)
        first, second = (reply_metrics(attempt_groups, config.sampling) for attempt_groups in attempts)
        right = {"attempt/first": first.get("reward/correct"), "attempt/second": second.get("reward/correct")}
        metrics = {**second, **reward_metrics(groups), **right, **failures(episodes)}
        signs = [reply_signs(attempts[1], advantage, len(episodes) - len(whole))]
        return Batch(rows, metrics, reply_traces(self.config, step, attempts[1], assigned[1], phase=stage), signs=signs)


def gain(episode: Episode, index: int) -> float | None:
    """The score of the attempt at `index` less the first's: 0 for the first. None: a score is missing."""
    grades = [episode.segments[0].grade, episode.segments[index].grade]
    scores = [grade.score for grade in grades if grade is not None and grade.score is not None]
    return scores[1] - scores[0] if len(scores) == 2 else None


_AGAIN = (
    "There may be a mistake in your solution, or none. Go through it once more, mend what is wrong, keep what is "
    "right, and write the whole solution anew, closing with the answer in the same form.{critique}"
)


def second_look(prompts: Prompts) -> Prompts:
    """The prompts with that request in place of a critique. The tiny world's have no words for it: they stay, and an
    empty critique asks."""
    return prompts if prompts == CHAINS else replace(prompts, refine=_AGAIN, refine_prefill=prompts.solve_prefill)


def nothing(task: Task, answer: Segment) -> str:
    """The critic's role as a rule: no feedback."""
    return ""
