"""DPO on critique pairs (arXiv:2305.18290): of several critiques of one answer, the best is preferred to the worst.

    L = -log sigmoid(beta [log pi/pi_ref (best) - log pi/pi_ref (worst)])

A critique's reward is that of its refinement and of its verdict. Pairs that differ by less than a margin are left out,
as in MultiCritique and DNO. With `iterated`, as in DNO, the reference is the critic at the start of each round of
steps. Else it is the warm start's throughout.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial

from whet.credit import (
    AssignedCredit,
    ScoredSegment,
    best_and_worst,
    critique_signs,
    flat_groups,
    groups_of,
    pair_rows,
    refine_outcome,
    reward_metrics,
    rewarded,
    verdict_match,
    with_reference,
)
from whet.methods.critic.critique_dpo_config import CritiqueDPOConfig
from whet.methods.critics import (
    ACC_REFINE,
    CriticAlgorithm,
    critic_spec,
    critique_traces,
    sample_critiques,
    step_metrics,
    training_phases,
)
from whet.objectives import pairwise_loss
from whet.seeds import seed_of
from whet.trainer import Term, Update, on_pairs
from whet.trainer.loop import Batch, Phase

BEST, REFERENCE = "critic_preferred", "critic_ref"


class CritiqueDPO(CriticAlgorithm[CritiqueDPOConfig]):
    """DPO on critique pairs: the critique that helped most against the one that helped least (2305.18290)"""

    spec = critic_spec(CritiqueDPOConfig, {BEST: "preferred"})

    def phases(self) -> Iterator[Phase]:
        headline = ("pair/right", "critique/acc_dis", ACC_REFINE)
        yield from training_phases(
            self, self.config, self._collect, self._updates, into=BEST, begin=self._begin, headline=headline
        )

    def _begin(self) -> None:
        self.keep_sft()
        self.run.loop.fork("critic", REFERENCE)

    def _updates(self, step: int) -> Mapping[str, Update]:
        config = self.at(step)
        loss = on_pairs(pairwise_loss, mean=config.kind == "ipo", kind=config.kind, beta=config.beta)
        term = Term(loss, needs_old=False, needs_reference=True, of_bundles=True)
        return {"critic": Update((term,), config.learning, config.num_updates(2 * config.prompts_per_step))}

    def _collect(self, step: int) -> Batch:
        config = self.at(step)
        if config.iterated and step > 1 and (step - 1) % config.iterated == 0:
            self.run.loop.fork("critic", REFERENCE)
        tasks = self.run.next_tasks(step, config.prompts_per_step)
        episodes = sample_critiques(self, ("train", step), tasks, num_critiques=config.group_size)
        terms = {"refine": refine_outcome(), "verdict": verdict_match()}
        total = partial(worth, config.verdict_weight)
        episodes = rewarded(episodes, "critic", terms, total, added=config.rewards)
        groups = groups_of(episodes, "critic", "answer")
        rng = random.Random(seed_of(config.seed, "pairs", step))
        candidates = [best_and_worst(group, rng, margin=config.margin) for group in groups]
        pairs = [pair for pair in candidates if pair is not None]
        rows = [row for i, (best, worst) in enumerate(pairs) for row in pair_rows(best, worst, f"{step}/{i}")]
        rows = with_reference(rows, self.run.loop.policies[REFERENCE], token_budget=config.learning.token_budget)
        critiques = [e.segments[i] for e in episodes for i in e.indices("critic")]
        metrics = {
            **reward_metrics(groups),
            **flat_groups(groups, reaches),
            **step_metrics(episodes),
            "pair/made": len(pairs) / max(1, len(groups)),
        }
        signs = [critique_signs(groups, critiques, reaches)]
        return Batch(
            rows, metrics, critique_traces(self.config, "train", step, episodes, AssignedCredit(rows)), signs=signs
        )


def worth(verdict_weight: float, values: Mapping[str, float]) -> float:
    return values["refine"] + verdict_weight * values["verdict"]


def reaches(scored: ScoredSegment) -> bool:
    """A right refinement after a right verdict."""
    return scored.segment.rewards["refine"] == 1.0 and scored.segment.rewards["verdict"] == 1.0
