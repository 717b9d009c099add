"""NFT: supervised learning from right and wrong answers, the wrong ones through an implicit negative policy.

    right:  -omega log R_t        wrong:  -omega log max(1 - r R_t, ...) / (1 - r),    R_t = policy / sampler

r is the share of a problem's replies that are right. With omega = 1 - r the gradient on policy is Dr. GRPO's, with
omega = sqrt((1 - r) / r) GRPO's. With negative_weight 0 this is online rejection fine-tuning. The loss is
`objectives.nft_loss`. This file gives it rows whose credit is a sign, each with its group's r.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from whet.credit import (
    ADVANTAGES,
    AssignedCredit,
    ScoredSegment,
    groups_of,
    outcome,
    reply_metrics,
    reply_signs,
    rewarded,
)
from whet.evaluation.protocol import is_right, share_right
from whet.methods.names import POLICY
from whet.methods.policy.nft_config import NFTConfig, NFTLoss
from whet.methods.sampling import batches_of, whole
from whet.methods.solvers import PolicyAlgorithm, reply_traces, solve_rollout, solver_spec, training_phases
from whet.objectives import nft_loss
from whet.trainer import Term, Update
from whet.trainer.loop import Batch, Phase
from whet.types import Row, Segment, as_row


class NFT(PolicyAlgorithm[NFTConfig]):
    """NFT: learning from wrong answers by likelihood, through an implicit negative policy"""

    spec = solver_spec(NFTConfig)

    def phases(self) -> Iterator[Phase]:
        headline = ("reward/correct", "loss/mean", "entropy", "group/no_signal")
        yield from training_phases(self, self.config, self._collect, self._updates, headline=headline)

    def _updates(self, step: int) -> Mapping[str, Update]:
        config = self.at(step)
        settings = {name: getattr(config.loss, name) for name in NFTLoss.model_fields}
        term = Term(
            loss=lambda seen: nft_loss(
                seen.policy, seen.old, seen.credit, seen.mask, seen.weight, rate_B=seen.extra["rate"], **settings
            ),
            aggregation=config.aggregation,
            constant_length=config.sampling.max_new_tokens if config.aggregation == "constant" else None,
        )
        rows = config.prompts_per_step * config.group_size
        return {POLICY: Update((term,), config.learning, config.num_updates(rows))}

    def _collect(self, step: int) -> Batch:
        config = self.at(step)
        tasks = self.run.next_tasks(step, config.prompts_per_step)
        batches = batches_of(tasks, self.run.tasks["train"], config.seed, step, config.resample)
        rollout = solve_rollout(self, POLICY, "train", step, sampling=config.sampling)
        teaches = has_both if config.resample else None
        sampled = whole(rollout, self.run.runtime, batches, config.group_size, teaches=teaches)
        episodes = [rewarded(group, "solver", {"outcome": outcome()}) for group in sampled.groups]
        groups = [groups_of(group, "solver", "task")[0] for group in episodes if group]
        mixed = [group for group in groups if has_both([scored.segment for scored in group])]
        mixed = mixed[: config.prompts_per_step]
        rows = [row for group in mixed for row in signed_rows(group)]
        credit = {scored.segment.seed: sign_of(scored) for group in mixed for scored in group}
        assigned = AssignedCredit(rows, of_segments=credit)
        signs = reply_signs(groups, ADVANTAGES.get("dr_grpo"), sampled.num_failed)
        metrics = {**reply_metrics(groups, config.sampling), **sampled.metrics}
        return Batch(rows, metrics, reply_traces(self.config, step, mixed, assigned), signs=[signs])


def signed_rows(group: list[ScoredSegment]) -> list[Row]:
    """Rows with credit +1 (right) or -1 (wrong), and the group's success rate."""
    return [as_row(scored.segment, sign_of(scored), extra={"rate": rate_of(group)}) for scored in group]


def has_both(replies: Sequence[Segment]) -> bool:
    """Whether some of a problem's replies are right and others wrong: else they teach nothing."""
    return 0 < share_right(replies) < 1


def rate_of(group: list[ScoredSegment]) -> float:
    """The share of a problem's replies that are right."""
    return share_right(scored.segment for scored in group)


def sign_of(scored: ScoredSegment) -> float:
    return 1.0 if is_right(scored.segment) else -1.0
