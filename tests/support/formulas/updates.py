"""Whole updates: the sum of a method's terms over an update's rows, and its gradient, as the published loop adds up.

A case is an update of six rows. The terms are those that the method hands to the learner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from support.formulas.compared import Array, Both, Formula, Tokens, settings_of, tokens, torches, where
from whet.methods.critic.critic_gradient import CriticGradient
from whet.methods.critic.score_rl import Score
from whet.methods.critic.spc import SPC
from whet.methods.self_correct.rltf_sd import RLTF
from whet.methods.stages import updates_of
from whet.objectives import aggregation_weights
from whet.trainer import Term, policy_terms
from whet.trainer.terms import Pass

ROWS = 6
Kinds = Sequence[str]
Published = Callable[[Tokens, Array, Kinds], tuple[float, Array]]
"""(the rows, entropies, their kinds) to the update's loss, and its derivative by each token's logprob."""


def ours(terms: Sequence[Term], given: Tokens, entropies: Array, kinds: Kinds) -> Array:
    """The losses and gradients of all updates: each term averaged over the rows that it takes, as the learner does. The
    updates are one pass, as no row knows of another; what its weight multiplies is a token's loss.

    Args:
        given: the rows of one update after those of another.
    """
    policy, old, reference, credit, entropy, mask = torches(
        given.policy, given.old, given.reference, given.advantage, entropies, given.mask
    )
    policy.requires_grad_()
    losses = torch.zeros(len(kinds), dtype=torch.float64)
    for term in terms:
        weights = torch.zeros(len(kinds), dtype=torch.float64)
        for first in range(0, len(kinds), ROWS):
            rows = [row for row in range(first, first + ROWS) if term.takes(kinds[row])]
            ones = torch.ones(len(rows), dtype=torch.float64)
            counts = mask[rows].sum(1)
            weights[rows] = aggregation_weights(counts, ones, term.aggregation, constant_length=term.constant_length)
        weight = (term.weight * weights)[:, None].expand(mask.shape).clone().requires_grad_()
        seen = Pass(policy, old, reference, credit, entropy, mask & (weights > 0)[:, None], weight, {}, ())
        term.loss(seen)[0].backward()
        assert weight.grad is not None
        losses += (weight.grad * weight.detach()).sum(1)
    assert policy.grad is not None
    gradients = policy.grad.nan_to_num().numpy().reshape(len(kinds) // ROWS, -1)
    return np.concatenate([losses.numpy().reshape(-1, ROWS).sum(1, keepdims=True), gradients], 1)


def update(
    terms: Sequence[Term], published: Published, kinds: Sequence[str] = ("",)
) -> Callable[[Generator, int], Both]:  # fmt: skip
    def run(rng: Generator, cases: int) -> Both:
        given = tokens(rng, ROWS * cases, length=5)
        entropies = np.where(given.mask, rng.exponential(1, given.mask.shape), np.nan)
        every = [
            kinds[row % ROWS if row % ROWS < len(kinds) else rng.integers(len(kinds))] for row in range(ROWS * cases)
        ]
        demonstrated = np.array([kind == "sft" for kind in every])[:, None] & given.mask
        given.advantage[demonstrated] = 1.0  # what a demonstration weighs
        expected = []
        for first in range(0, ROWS * cases, ROWS):
            rows = slice(first, first + ROWS)
            loss, gradient = published(given.part(rows), entropies[rows], every[rows])
            expected.append(np.concatenate([[loss], where(given.mask[rows], gradient).reshape(-1)]))
        return ours(terms, given, entropies, every), np.array(expected)

    return run


# --- published --------------------------------------------------------------------------------------------------------


def clipped(given: Tokens, row: int, mask: Array) -> tuple[Array, Array]:
    """PPO's loss of a row's tokens, and its derivatives."""
    r, a = np.exp(given.policy[row] - given.old[row])[mask], given.advantage[row][mask]
    plain, held = -a * r, -a * np.clip(r, 0.8, 1.2)
    return np.maximum(plain, held), np.where((plain >= held) | ((r >= 0.8) & (r <= 1.2)), plain, 0.0)


def by_rows(given: Tokens, entropies: Array, kinds: Kinds, *, extra: float = 0.0) -> tuple[float, Array]:
    """Of each row the means of the clipped loss, of `extra` k3 and of -`extra` H, added up over the number of rows."""
    loss, gradient = 0.0, np.zeros(given.mask.shape)
    for row in range(ROWS):
        mask = given.mask[row]
        surrogate, slope = clipped(given, row, mask)
        x = (given.reference[row] - given.policy[row])[mask]
        k3, k3_slope = np.exp(x) - 1 - x, 1 - np.exp(x)
        loss += (surrogate.mean() + extra * k3.mean() - extra * entropies[row][mask].mean()) / ROWS
        gradient[row][mask] = (slope + extra * k3_slope) / mask.sum() / ROWS
    return loss, gradient


def verl_by_rows(given: Tokens, entropies: Array, kinds: Kinds) -> tuple[float, Array]:
    """`update_policy` with micro-batches of one, with a KL and an entropy bonus of 0.001."""
    return by_rows(given, entropies, kinds, extra=0.001)


def spc(given: Tokens, entropies: Array, kinds: Kinds) -> tuple[float, Array]:
    """`compute_loss`: the mean over games of the clipped sequence ratio, and 0.15 of the mean over demonstrations of
    minus their mean logprob."""
    num = {kind: kinds.count(kind) for kind in ("game", "sft")}
    loss, gradient = 0.0, np.zeros(given.mask.shape)
    for row, kind in enumerate(kinds):
        mask = given.mask[row]
        mean = given.policy[row][mask].mean()
        if kind == "sft":
            loss += 0.15 * -mean / num["sft"]
            gradient[row][mask] = -0.15 / mask.sum() / num["sft"]
            continue
        s, reward = np.exp(mean - given.old[row][mask].mean()), given.advantage[row][mask][0]
        inner, held = s * reward, np.clip(s, 0.8, 1.2) * reward
        loss += -min(inner, held) / num["game"]
        if inner <= held or 0.8 <= s <= 1.2:
            gradient[row][mask] = -s * reward / mask.sum() / num["game"]
    return loss, gradient


def summed(length: int) -> Published:
    """Importance sampling, summed over all tokens of all rows; ours is that over a constant."""

    def of(given: Tokens, entropies: Array, kinds: Kinds) -> tuple[float, Array]:
        each = where(given.mask, -np.exp(given.policy - given.old) * given.advantage) / (length * ROWS)
        return float(each.sum()), each

    return of


def score_stage(scored: Sequence[str]) -> Published:
    """Clipped ratios of the attempts that are paid, and k2 to the reference: 0.01 of those, 10 of a held first one."""

    def of(given: Tokens, entropies: Array, kinds: Kinds) -> tuple[float, Array]:
        loss, gradient = 0.0, np.zeros(given.mask.shape)
        num_paid = sum(kind in scored for kind in kinds)
        for row, kind in enumerate(kinds):
            mask = given.mask[row]
            x = (given.policy[row] - given.reference[row])[mask]
            coef = 0.01 if kind in scored else 10.0
            loss += coef * (x**2 / 2).mean() / kinds.count(kind)
            gradient[row][mask] = coef * x / mask.sum() / kinds.count(kind)
            if kind in scored:
                surrogate, slope = clipped(given, row, mask)
                loss += surrogate.mean() / num_paid
                gradient[row][mask] += slope / mask.sum() / num_paid
        return loss, gradient

    return of


# --- ours -------------------------------------------------------------------------------------------------------------


def gradient_terms(name: str) -> Sequence[Term]:
    """As `runs.gradient` makes them of a preset's settings."""
    config = settings_of(name)
    return policy_terms(config.loss, config.kl, config.aggregation, length=64, entropy=config.entropy_coef)


def terms_of(method: Any, name: str, policy: str, *stage: object) -> Sequence[Term]:
    """Those that a method hands to the learner at step 1."""
    config = settings_of(name)
    found: Sequence[Term] = method._updates(SimpleNamespace(config=config, at=lambda step: config), *stage, 1)[
        policy
    ].terms
    return found


def stage_terms(key: str) -> Sequence[Term]:
    """Of a stage of Critique-RL."""
    config = settings_of("critique_rl")
    return updates_of(config, key, lambda step: getattr(config, key), 1000)(1)["critic"].terms


UPDATE_FORMULAS = (
    *(
        Formula(method=f"critique_rl, {key}", formula="update: rows' means of the clipped loss",
                source="Critique-RL loss.py", run=update(stage_terms(key), by_rows))
        for key in ("stage1", "stage2")
    ),
    *(
        Formula(method=f"{kind}_{env}", formula="update: rows' means of clip + 0.001 k3 - 0.001 H",
                source="AgentGym-RL dp_actor.py", run=update(gradient_terms(f"{kind}_{env}"), verl_by_rows))
        for kind in ("agentgym_rl", "scaling_inter") for env in ("textcraft", "babyai", "sciworld")
    ),
    Formula(method="ctrl_published", formula="update: rows' means of clip + 0.001 k3 - 0.001 H",
            source="HKUNLP/critic-rl train_rl.sh",
            run=update(terms_of(CriticGradient, "ctrl_published", "critic"), verl_by_rows)),
    Formula(method="spc", formula="update: mean over games + 0.15 mean over demonstrations",
            source="chen-judge/SPC compute_loss", run=update(terms_of(SPC, "spc", "critic", 1), spc, ("game", "sft"))),
    Formula(method="rltf_sd", formula="update: sum over tokens", source="lili-chen/rltf",
            run=update(terms_of(RLTF, "rltf_sd", "policy"), summed(settings_of("rltf_sd").sampling.max_new_tokens))),
    Formula(method="score_rl, stage I", formula="update: clip of y2, hold k2 of y1, kl k2 of y2", source="2409.12917",
            run=update(terms_of(Score, "score_rl", "policy", "stage1", 1), score_stage(("second",)),
                       ("first", "second"))),
    Formula(method="score_rl, stage II", formula="update: clip of both, kl k2 of both", source="2409.12917",
            run=update(terms_of(Score, "score_rl", "policy", "stage2", 1), score_stage(("first", "second")),
                       ("first", "second"))),
)  # fmt: skip
