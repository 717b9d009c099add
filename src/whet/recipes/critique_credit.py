"""From exchanges to rows: what a critique is paid, and what credit that gives each of its tokens.

Spec section 3.1: leave-one-out over the critiques of one answer, KL per token as reward-to-go, whitening over tokens;
or, as the variant, textbook RLOO on whole sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from whet.evals.protocol import Chained, is_right, paths
from whet.models.policy import Policy
from whet.objectives import leave_one_out, reward_to_go, sequence_credit, whiten
from whet.recipes.critique_rewards import combine, direct_reward, indirect_reward, judged_right
from whet.recipes.critique_rl_config import RLConfig, Stage1Config, Stage2Config
from whet.recipes.rows import kl_to, trained_mask, with_credit
from whet.training.watch import Signs
from whet.types import Episode, Row, Segment, as_row

Pay = Mapping[str, float]
"""Reward terms of one critique, and their `total`."""


@dataclass(frozen=True)
class Credit:
    """What one step's rewards came to."""

    rows: list[Row]
    advantages: dict[tuple[str, int], float]
    """Each critique's, before KL and whitening; by (task id, index of its segment in the episode)."""
    metrics: dict[str, float]


def pay(stage: RLConfig, path: Chained) -> Pay:
    """Stage I pays the verdict (eq. 7); stage II the refinement and the verdict (eq. 4-6, 9)."""
    exchange = path.exchange
    right = judged_right(exchange.verdict, exchange.answer_correct)
    if isinstance(stage, Stage1Config):
        direct = direct_reward(exchange.verdict, exchange.answer_correct, stage.scale)
        return {"direct": direct, "total": direct}
    assert isinstance(stage, Stage2Config)
    assert exchange.refinement_correct is not None
    indirect = indirect_reward(stage.indirect, exchange.answer_correct, exchange.refinement_correct)
    total = combine(indirect, right, stage.combine, stage.weight) if stage.discrimination else indirect
    return {"indirect": indirect, "judged_right": float(right), "total": total}


def terms(paid: Pay) -> dict[str, float]:
    """The terms without their total."""
    return {name: value for name, value in paid.items() if name != "total"}


def reaches(stage: RLConfig, path: Chained) -> bool:
    """Whether a critique does what its stage pays for: a right verdict; in stage II a refinement that is right, and
    with `discrimination` the right verdict too."""
    judges = judged_right(path.exchange.verdict, path.exchange.answer_correct)
    if not isinstance(stage, Stage2Config):
        return judges
    return bool(path.exchange.refinement_correct) and (judges or not stage.discrimination)


def reward_metrics(
    stage: RLConfig, groups: Sequence[Sequence[Chained]], rewards: Sequence[Sequence[Pay]]
) -> dict[str, float]:
    """Means over all critiques, and the share of groups that teach nothing because all were paid alike; of these, those
    in which every critique reaches what is paid for, and those in which none does."""
    every = [paid for group in rewards for paid in group]
    if not every:
        return {}
    means = {f"reward/{name}": sum(paid[name] for paid in every) / len(every) for name in terms(every[0])}
    flat = [
        [reaches(stage, path) for path in group]
        for group, pays in zip(groups, rewards, strict=True)
        if len({paid["total"] for paid in pays}) == 1
    ]
    total = sum(paid["total"] for paid in every) / len(every)
    return {
        "reward/mean": total,
        **means,
        "group/no_signal": len(flat) / len(rewards),
        "group/all_right": sum(map(all, flat)) / len(rewards),
        "group/all_wrong": sum(not any(reached) for reached in flat) / len(rewards),
    }


def signs(stage: RLConfig, episodes: Sequence[Episode], rewards: Sequence[Sequence[Pay]]) -> list[Signs]:
    """What a step's critiques say about learning; then the answers that they judge, and the refinements they led to.

    Whether critiques earn credit is asked of their pay alone: the KL pulls back to the reference, and teaches nothing.

    Args:
        rewards: of the critiques of each answer, those left out whose grading failed.
    """
    every = [path for episode in episodes for path in paths(episode)]
    critiques = [path.critique for path in every if path.critique is not None]
    paid = Signs(
        what="critiques",
        holding="verdict",
        replies=len(critiques),
        right=sum(reaches(stage, path) for path in every if not path.broken),
        unread=sum(critique.parsed.get("verdict") is None for critique in critiques),
        cut=sum(critique.stop_reason == "length" for critique in critiques),
        ungraded=sum(path.broken for path in every),
        taught=any(len({each["total"] for each in group}) > 1 for group in rewards),
    )
    answers = [episode.segments[0] for episode in episodes]
    refinements = [path.refinement for path in every if path.refinement is not None]
    return [paid, _graded("answers", answers), _graded("refinements", refinements)]


def _graded(what: str, segments: Sequence[Segment]) -> Signs:
    grades = [segment.grade for segment in segments if segment.grade is not None]
    return Signs(
        what=what,
        replies=len(segments),
        right=sum(map(is_right, segments)),
        unread=sum(grade.score is not None and grade.extracted is None for grade in grades),
        cut=sum(segment.stop_reason == "length" for segment in segments),
        ungraded=sum(grade.score is None for grade in grades),
    )


def credit(
    stage: RLConfig, groups: Sequence[Sequence[Chained]], rewards: Sequence[Sequence[Pay]], reference: Policy
) -> Credit:
    """Rewards to rows with a credit on every token.

    Args:
        groups: the critiques of each answer, with what they led to.
        rewards: their pay, in the same order.
        reference: the critic that the stage's KL is measured to; not scored where `kl_coef` is 0.

    A group that lost members to a broken grader forms its baseline from the others; a lone one is dropped.
    """
    kept = [(group, paid) for group, paid in zip(groups, rewards, strict=True) if len(group) >= 2]
    critiques = [path.critique for group, _ in kept for path in group if path.critique is not None]
    indices = [path.critique_index or 0 for group, _ in kept for path in group]
    if not critiques:
        return Credit([], {}, {})
    bare = [as_row(c, [0.0] * len(c.tokens), group=c.group["answer"]) for c in critiques]
    mask_BT = trained_mask(bare)
    kl_BT = torch.zeros(mask_BT.shape)
    if stage.kl_coef:
        kl_BT = kl_to(reference, bare, token_budget=stage.learning.token_budget)
    rewards_PG = [torch.tensor([[each["total"] for each in paid]]) for _, paid in kept]
    if stage.sequence_level:
        kl_PG = kl_BT.sum(-1).split([len(group) for group, _ in kept])
        pairs = zip(rewards_PG, kl_PG, strict=True)
        scalar_B = torch.cat([sequence_credit(reward, kl[None], stage.kl_coef)[0] for reward, kl in pairs])
        credit_BT = scalar_B[:, None] * mask_BT
    else:
        scalar_B = torch.cat([leave_one_out(reward)[0] for reward in rewards_PG])
        credit_BT = whiten(reward_to_go(scalar_B, kl_BT, mask_BT, kl_coef=stage.kl_coef), mask_BT)
    rows = with_credit(bare, credit_BT)
    keys = [(c.group["task"], index) for c, index in zip(critiques, indices, strict=True)]
    metrics = {"kl/ref": float(kl_BT.sum() / mask_BT.sum())} if stage.kl_coef else {}
    return Credit(rows, dict(zip(keys, scalar_B.tolist(), strict=True)), metrics)
