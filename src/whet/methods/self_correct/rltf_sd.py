"""RLTF-SD: text feedback while training only. What the second attempt gained by it is distilled into the first.

    y0 ~ policy(x0);  where y0 is wrong:  c ~ critic(x0, y0);  y1 ~ policy(x1),  x1 = (x0, y0, c).
    turns           advantage of y0: (r0 + gamma r1) - mean,  of y1: r1 - mean of its turn, each within its problem
    distillation    y1 as an answer to x0, with advantage mix (r1 - mean r0)

The distilled rows are the same tokens *retargeted* to the plain question. The policy scores them there before the
update, so their ratio starts at 1. Tokens too unlikely there have advantage 0. Nothing is divided by a standard
deviation, and no ratio is clipped. The loss is a sum over tokens (over a constant, which Adam does not see).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from whet.config import ConfigError
from whet.config.losses import ClipLoss, FixedBounds
from whet.credit import (
    ADVANTAGES,
    ScoredSegment,
    assign_credit,
    groups_of,
    outcome,
    reply_metrics,
    reply_signs,
    reward_metrics,
    rewarded,
)
from whet.credit.metrics import failures
from whet.evaluation.protocol import is_right
from whet.methods.base import RunContext
from whet.methods.names import POLICY
from whet.methods.self_correct.rltf_sd_config import RLTFConfig
from whet.methods.solvers import PolicyAlgorithm, ask_policy, reply_traces, solver_spec, training_phases
from whet.models.prompts import Conversation, of_rounds
from whet.models.scoring import score
from whet.rollout.critique import CritiqueRound
from whet.tasks.oracles import RULE_CRITICS
from whet.trainer import Update, policy_term
from whet.trainer.loop import Batch, Phase
from whet.types import Episode, Floats, Row, as_row

UNCLIPPED = ClipLoss(bounds=FixedBounds(low=0.0, high=1e6))


def ask_both(algorithm: RLTF) -> list[Conversation]:
    """The policy and its critic."""
    config, run = algorithm.config, algorithm.run
    written = 2 * config.sampling.max_new_tokens + config.critique.max_new_tokens
    return ask_policy(algorithm) + of_rounds((POLICY, "critic"), run.prompts, run.questions, written)


class RLTF(PolicyAlgorithm[RLTFConfig]):
    """RLTF-SD: learns in one turn what text feedback made possible in two"""

    spec = solver_spec(RLTFConfig, roles=(POLICY, "critic"), conversations=ask_both)

    def __init__(self, config: RLTFConfig, run: RunContext) -> None:
        super().__init__(config, run)
        if config.feedback != "critic" and config.data.kind != "chains":
            raise ConfigError(f"feedback = {config.feedback!r} knows the tiny world only: take critic")

    def phases(self) -> Iterator[Phase]:
        headline = ("reward/correct", "feedback/mended", "entropy", "group/no_signal")
        yield from training_phases(self, self.config, self._collect, self._updates, headline=headline)

    def _updates(self, step: int) -> Mapping[str, Update]:
        config = self.at(step)
        rows = 3 * config.prompts_per_step * config.group_size  # at most: first, second, distilled
        term = policy_term(UNCLIPPED, "constant", length=config.sampling.max_new_tokens)
        return {POLICY: Update((term,), config.learning, config.num_updates(rows))}

    def _collect(self, step: int) -> Batch:
        config = self.at(step)
        tasks = self.run.next_tasks(step, config.prompts_per_step)
        episodes = self.run.runtime.by_task(self._rounds(config, step), tasks, num_samples=config.group_size)
        whole = [e for group in episodes for e in group if e.outcome == "ok"]
        scored = rewarded(whole, "actor", {"outcome": outcome()}, added=config.rewards)
        first, second = turns(scored, config.discount)
        advantage = ADVANTAGES.get("dr_grpo")
        assigned = assign_credit(first, advantage)
        distilled = self._distilled(config, first, second) if config.distil else []
        mended = [is_right(scored.segment) for group in second for scored in group]
        metrics = {
            **reward_metrics(first),
            **reply_metrics(first, config.sampling),
            **failures(e for g in episodes for e in g),
            "feedback/asked": len(mended) / max(1, len(whole)),
            "feedback/mended": sum(mended) / len(mended) if mended else None,
            "rows/distilled": float(len(distilled)),
        }
        signs = [reply_signs(first, advantage, sum(map(len, episodes)) - len(whole))]
        rows = [*assigned.rows, *assign_credit(second, advantage).rows, *distilled]
        return Batch(rows, metrics, reply_traces(self.config, step, first, assigned), signs=signs)

    def _rounds(self, config: RLTFConfig, step: int) -> CritiqueRound:
        """Answer; where that is wrong feedback, and another answer."""
        role = self.run.runtime.policy_role("actor", POLICY, config.sampling)
        seat_role = RULE_CRITICS.get(config.feedback) or self.run.runtime.role("critic", "critic", config.critique)
        return CritiqueRound(self.run.prompts, role, seat_role, role, (config.seed, "train", step), keep_right=True)

    def _distilled(
        self, config: RLTFConfig, first: Sequence[Sequence[ScoredSegment]], second: Sequence[Sequence[ScoredSegment]]
    ) -> list[Row]:
        """Second answers as answers to the plain question, held against the first answers' mean."""
        rows = []
        for answers, again in zip(first, second, strict=True):
            mean = fmean(scored.segment.rewards["outcome"] for scored in answers) if again else 0.0
            for scored in again:
                gained = config.distil * (scored.segment.rewards["outcome"] - mean)
                rows.append(as_row(scored.segment, gained, context=scored.episode.segments[0].context))
        scores = score(self.run.loop.policies[POLICY], rows, token_budget=config.learning.token_budget)
        return [floored(row, logprobs.numpy(), config.floor) for row, logprobs in zip(rows, scores, strict=True)]


def turns(episodes: Sequence[Episode], discount: float) -> tuple[list[list[ScoredSegment]], list[list[ScoredSegment]]]:
    """First and second answers by problem; the first's reward takes the discounted second's in. Episodes with an
    answer that has no reward are left out."""
    scored = []
    for episode in episodes:
        first, *later = (episode.segments[i] for i in episode.indices("actor"))
        if not all(segment.rewards for segment in (first, *later)):
            continue
        total = first.rewards["total"] + discount * sum(segment.rewards["total"] for segment in later)
        first = replace(first, rewards={**first.rewards, "total": total})
        scored.append(replace(episode, segments=(first, *episode.segments[1:])))
    groups = groups_of(scored, "actor", "task")
    return [[p for p in g if p.index == 0] for g in groups], [[p for p in g if p.index > 0] for g in groups]


def floored(row: Row, logprobs: Floats, floor: float) -> Row:
    """The row with these logprobs, and credit 0 on the trained tokens that are less likely than the floor."""
    return replace(row, credit=np.where(logprobs >= floor, row.credit, 0.0), logprobs=logprobs)
