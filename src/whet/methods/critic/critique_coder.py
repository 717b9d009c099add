"""Critique-Coder's mix: one policy solves problems and, for a fifth of every step, judges solutions with the same loss.

    solve   reward = the grader's score, 0 to 1. For code: the share of tests that pass.
    judge   reward = judge_reward where the verdict on a solution is right, else 0

The solutions to judge are the policy's, of earlier steps, from the run's store. The authors took a larger policy's, a
third of them right. A solution counts as right above a score of `right_above`. Groups whose rewards are all equal are
left out, and so are truncated replies. Clip-higher bounds, no KL.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from whet.credit import (
    ADVANTAGES,
    AssignedCredit,
    ScoredSegment,
    assign_credit,
    groups_of,
    is_mixed,
    outcome,
    rewarded,
    verdict_match,
)
from whet.credit.metrics import reply_metrics, reply_signs, reward_metrics
from whet.evaluation.protocol import measure
from whet.methods.critic.critique_coder_config import CritiqueCoderConfig
from whet.methods.evaluator import Metrics
from whet.methods.names import POLICY
from whet.methods.report_specs import load_report
from whet.methods.sampling import whole
from whet.methods.solvers import (
    PolicyAlgorithm,
    PolicyEvaluator,
    ask_policy,
    reply_traces,
    solve_rollout,
    solver_spec,
    training_phases,
)
from whet.models.prompts import Conversation, of_rounds
from whet.rollout.critique import CritiqueRound
from whet.seeds import seed_of
from whet.trainer import Update, policy_term
from whet.trainer.loop import Batch, Phase
from whet.types import Episode, Task

GRPO = ADVANTAGES.get("grpo")


class CoderEvaluator(PolicyEvaluator[CritiqueCoderConfig]):
    """The policy as solver, and as judge."""

    def measured(self, tasks: Sequence[Task], policy: str, **options: Any) -> tuple[Metrics, list[dict[str, Any]]]:
        """As solver, and as judge of its greedy answers."""
        metrics, traces = super().measured(tasks, policy, **options)
        rounds = answer_and_critique(self.algorithm, policy, self.config, ("evaluation",), greedy=True)
        episodes = [e for group in self.run.runtime.by_task(rounds, tasks) for e in group if e.segments]
        judged = measure([labelled(episode, self.config.right_above) for episode in episodes])
        return {**metrics, "acc_dis": judged["acc_dis"]}, traces


def ask_both(algorithm: CritiqueCoder) -> list[Conversation]:
    """To answer, and to judge."""
    config, run = algorithm.config, algorithm.run
    written = config.sampling.max_new_tokens + config.critique.max_new_tokens
    return ask_policy(algorithm) + of_rounds((POLICY, POLICY), run.prompts, run.questions, written)[1:]


def answer_and_critique(
    algorithm: CritiqueCoder,
    policy: str,
    config: CritiqueCoderConfig,
    key: tuple[object, ...],
    *,
    greedy: bool = False,
    **settings: Any,
) -> CritiqueRound:
    """An answer and critiques of it, by one policy."""
    run = algorithm.run
    actor = run.runtime.policy_role("actor", policy, config.sampling, greedy=greedy)
    critic = run.runtime.policy_role("critic", policy, config.critique, greedy=greedy)
    return CritiqueRound(run.prompts, actor, critic, actor, (config.seed, *key), refine=False, **settings)


class CritiqueCoder(PolicyAlgorithm[CritiqueCoderConfig]):
    """Critique-Coder's mix: solves and judges with one policy"""

    spec = solver_spec(
        CritiqueCoderConfig,
        report=load_report("critique_coder"),
        evaluator=CoderEvaluator,
        skills={POLICY: {"answer": "sampling", "critique": "critique"}},
        conversations=ask_both,
    )

    def phases(self) -> Iterator[Phase]:
        headline = ("reward/correct", "judge/right", "entropy", "group/no_signal")
        yield from training_phases(self, self.config, self._collect, self._updates, headline=headline)

    def _updates(self, step: int) -> Mapping[str, Update]:
        config = self.at(step)
        rows = config.prompts_per_step * config.group_size
        return {POLICY: Update((policy_term(config.loss, "token_mean"),), config.learning, config.num_updates(rows))}

    def _collect(self, step: int) -> Batch:
        config = self.at(step)
        queue = self.run.loop.store.episodes("solutions")
        num_judged = min(round(config.judge_share * config.prompts_per_step), len(list(queue)))
        tasks = self.run.next_tasks(step, config.prompts_per_step)
        # Drawn at random: left out at one end, always the same problems would never be solved.
        left = random.Random(seed_of(config.seed, "solve", step)).sample(range(len(tasks)), min(num_judged, len(tasks)))
        tasks = [task for place, task in enumerate(tasks) if place not in left]
        rollout = solve_rollout(self, POLICY, "train", step, sampling=config.sampling)
        sampled = whole(rollout, self.run.runtime, iter([tasks]), config.group_size)
        episodes = [rewarded(group, "solver", {"outcome": outcome()}, added=config.rewards) for group in sampled.groups]
        solved = [groups_of(group, "solver", "task")[0] for group in episodes if group]
        rng = random.Random(seed_of(config.seed, "judge", step))
        judged = self._judged(config, step, rng.sample(list(queue), num_judged))
        if len(queue) == config.kept_steps:
            queue.take()
        queue.put(str(step), [rng.choice(group).episode for group in solved if group])
        assigned = [assign_mixed_group_credit(groups) for groups in (solved, judged)]
        rewards = [scored.segment.rewards["verdict"] for group in judged for scored in group]
        metrics = {
            **reward_metrics(solved),
            **reply_metrics(solved, config.sampling),
            **sampled.metrics,
            "judge/items": float(num_judged),
            "judge/right": sum(rewards) / len(rewards) if rewards else None,
        }
        signs = [reply_signs(solved, GRPO, sampled.num_failed)]
        return Batch(
            [*assigned[0].rows, *assigned[1].rows],
            metrics,
            reply_traces(self.config, step, solved, assigned[0]),
            signs=signs,
        )

    def _judged(self, config: CritiqueCoderConfig, step: int, solutions: list[Episode]) -> list[list[ScoredSegment]]:
        """A group of critiques of each solution, rewarded for their verdicts."""
        rounds = answer_and_critique(
            self, POLICY, config, ("judge", step), num_critiques=config.group_size, retries=self.run.runtime.retries()
        )
        rollouts = [  # numbered, as two solutions of one task are no group
            partial(rounds, episode.task, answer=labelled(episode, config.right_above).segments[0], sample=number)
            for number, episode in enumerate(solutions)
        ]
        terms, reward = {"verdict": verdict_match()}, config.judge_reward
        scored = rewarded(
            self.run.runtime.roll_out(rollouts), "critic", terms, lambda v: reward * v["verdict"], added=config.rewards
        )
        return groups_of(scored, "critic", "answer")


def assign_mixed_group_credit(groups: list[list[ScoredSegment]]) -> AssignedCredit:
    """Credit of the groups whose rewards differ, without the rows of truncated replies."""
    mixed = [group for group in groups if is_mixed(group)]
    assigned = assign_credit(mixed, GRPO)
    pairs = zip(assigned.rows, (scored for group in mixed for scored in group), strict=True)
    return replace(assigned, rows=[row for row, scored in pairs if scored.segment.stop_reason != "length"])


def labelled(episode: Episode, right_above: float) -> Episode:
    """The episode with its solution's label, 1 right or 0 wrong, in place of the score."""
    solution, *others = episode.segments
    if solution.grade is None or solution.grade.score is None:
        return episode
    grade = replace(solution.grade, score=float(solution.grade.score > right_above))
    return replace(episode, segments=(replace(solution, grade=grade), *others))
