"""SCoRe (2409.12917): a policy learns to mend its own answer, in two attempts of one conversation without feedback.

    y1 ~ policy(x);  y2 ~ policy(x, y1, "look again").

    stage I    maximise E[r(y2)] - hold KL(first attempts)                            - kl KL(second attempts)
    stage II   maximise E[r(y1) + r(y2) + bonus (r(y2) - r(y1))]                      - kl KL(both)

    gradient   sum over attempts of (R - mean of the others' R) d log policy(attempt),
               R(y1) = r(y1) (stage II only),  R(y2) = r(y2) + bonus (r(y2) - r(y1)).

y1 gets no credit for y2: less than the objective's gradient. Stage I keeps the first attempt, to have something to
mend. The bonus keeps y2 from being a copy of y1. No published code was found. Ours are the gradient, clipped ratios,
KLs as terms of the loss (k2), the prompts, and a hold that suffices in the tiny world.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from whet.config import KLConfig
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
from whet.methods.critic.score_rl_config import ScoreConfig
from whet.methods.evaluator import Metrics
from whet.methods.names import BEST, POLICY
from whet.methods.report_specs import load_report
from whet.methods.solvers import PolicyAlgorithm, PolicyEvaluator, ask_policy, reply_traces, solver_spec
from whet.models.prompts import Conversation, of_rounds
from whet.rollout.critique import CritiqueRound
from whet.tasks.prompts import CHAINS, Prompts
from whet.trainer import Update, kl_term, policy_term
from whet.trainer.loop import Batch, Phase, Selection
from whet.types import Episode, Segment, Task

REFERENCE, ATTEMPTS = "policy_ref", ("first", "second")
SECOND_ATTEMPT = ("acc_refine", "delta", "c2i", "i2c")
"""Metrics of the second attempt beside the first."""


class ScoreEvaluator(PolicyEvaluator[ScoreConfig]):
    """Measures both attempts."""

    def measured(self, tasks: Sequence[Task], policy: str, **options: Any) -> tuple[Metrics, list[dict[str, Any]]]:
        """Metrics of the first attempt, as of any answer, and those of the second. Both are greedy."""
        metrics, traces = super().measured(tasks, policy, **options)
        rounds = two_attempts(self.algorithm, policy, ("evaluation",), self.config, greedy=True)
        groups = self.run.runtime.by_task(rounds, tasks)
        both = measure([episode for group in groups for episode in group if episode.segments])
        return {**metrics, **{name: both[name] for name in SECOND_ATTEMPT}}, traces


def ask_both(algorithm: Score) -> list[Conversation]:
    run, written = algorithm.run, 2 * algorithm.config.sampling.max_new_tokens
    return ask_policy(algorithm) + of_rounds((POLICY, POLICY), algorithm.prompts, run.questions, written)[:1]


def two_attempts(
    algorithm: Score, policy: str, key: tuple[object, ...], config: ScoreConfig, *, greedy: bool = False
) -> CritiqueRound:
    """The rollout function of two attempts. The critic is a rule without feedback."""
    role = algorithm.run.runtime.policy_role("actor", policy, config.sampling, greedy=greedy)
    return CritiqueRound(algorithm.prompts, role, no_feedback, role, (config.seed, *key))


class Score(PolicyAlgorithm[ScoreConfig]):
    """SCoRe: learns to mend its own answer in a second attempt, without feedback"""

    spec = solver_spec(ScoreConfig, report=load_report("score_rl"), evaluator=ScoreEvaluator, conversations=ask_both)

    def __init__(self, config: ScoreConfig, run: RunContext) -> None:
        super().__init__(config, run)
        self.prompts = second_look(self.run.prompts)
        self.run.loop.freeze(POLICY, REFERENCE)

    def phases(self) -> Iterator[Phase]:
        num_first = min(self.config.first_stage, self.config.num_steps)
        yield self.evaluator.before()
        for stage, num_steps in (("stage1", num_first), ("stage2", self.config.num_steps - num_first)):
            yield Phase(
                stage,
                num_steps,
                partial(self._collect, stage),
                partial(self._updates, stage, num_steps),
                validate=partial(self.evaluator.validate, phase=stage),
                validate_every=self.config.validate_every,
                main=POLICY,
                select=Selection(POLICY, BEST, "validation/acc_refine"),
                headline=("attempt/first", "attempt/second", "entropy", "group/no_signal"),
            )
        yield self.evaluator.after()

    def _updates(self, stage: str, num_steps: int, step: int) -> Mapping[str, Update]:
        config = self.at(step)
        rewarded_attempts = ATTEMPTS if stage == "stage2" else ATTEMPTS[1:]
        terms = [policy_term(config.loss, "sequence_mean", kinds=frozenset(rewarded_attempts))]
        for kind in ATTEMPTS:
            kl = KLConfig(coef=config.kl if kind in rewarded_attempts else config.hold, estimator="k2")
            terms += [kl_term(kl, "sequence_mean", kinds=frozenset({kind}), name=kind)] if kl.coef else []
        rows = 2 * config.prompts_per_step * config.group_size
        return {POLICY: Update(tuple(terms), config.learning, num_steps * config.learning.updates_a_step(rows))}

    def _collect(self, stage: str, step: int) -> Batch:
        config = self.at(step)
        before = self.config.first_stage * config.prompts_per_step if stage == "stage2" else 0
        tasks = self.run.next_tasks(step, config.prompts_per_step, first=before)
        rounds = two_attempts(self, POLICY, (stage, step), config)
        sampled = self.run.runtime.by_task(rounds, tasks, num_samples=config.group_size)
        episodes = [episode for group in sampled for episode in group]
        whole = [episode for episode in episodes if episode.outcome == "ok"]
        bonus, terms = config.bonus if stage == "stage2" else 0.0, {"outcome": outcome(), "gain": gain}
        whole = rewarded(whole, "actor", terms, lambda v: v["outcome"] + bonus * v["gain"], added=config.rewards)
        groups, advantage = groups_of(whole, "actor", "task"), ADVANTAGES.get("rloo")
        first, second = (
            [[scored for scored in group if (scored.index > 0) == is_second] for group in groups]
            for is_second in (False, True)
        )
        assigned = [assign_credit(first, advantage, kind="first"), assign_credit(second, advantage, kind="second")]
        rows = [row for credit in assigned for row in credit.rows]
        rows = with_reference(rows, self.run.loop.policies[REFERENCE], token_budget=config.learning.token_budget)
        metrics: dict[str, float | None] = {**reply_metrics(second, config.sampling), **reward_metrics(groups)}
        metrics["attempt/first"] = reply_metrics(first, config.sampling).get("reward/correct")
        metrics["attempt/second"] = metrics.get("reward/correct")
        signs = [reply_signs(second, advantage, len(episodes) - len(whole))]
        traces = reply_traces(self.config, step, second, assigned[1], phase=stage)
        return Batch(rows, metrics | failures(episodes), traces, signs=signs)


def gain(episode: Episode, index: int) -> float | None:
    """The score of the attempt at `index` less the first's: 0 for the first. None: a score is missing."""
    first, second = episode.segments[0].grade, episode.segments[index].grade
    if first is None or first.score is None or second is None or second.score is None:
        return None
    return second.score - first.score


_AGAIN = (
    "There may be a mistake in your solution, or none. Go through it once more, mend what is wrong, keep what is "
    "right, and write the whole solution anew, closing with the answer in the same form.{critique}"
)


def second_look(prompts: Prompts) -> Prompts:
    """The prompts with `_AGAIN` in place of a critique. The tiny world's have no words for it and stay: there an empty
    critique asks."""
    return prompts if prompts == CHAINS else replace(prompts, refine=_AGAIN, refine_prefill=prompts.solve_prefill)


def no_feedback(task: Task, answer: Segment) -> str:
    """The critic's role as a rule: an empty critique."""
    return ""
