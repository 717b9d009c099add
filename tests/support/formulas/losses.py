"""Losses of single rows: a loss and its derivative by the token's own logprob, as the papers write them.

A row is a case. Ours are taken with the settings of the preset that bears the name: what a token's weight multiplies is
its loss, so the derivative by the weights gives the losses of all tokens at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from support.formulas.compared import Array, Both, Formula, Tokens, settings_of, tokens, torches, where
from whet.config import ClipLoss, DppoLoss, FixedBounds, ReinforceLoss, ToprLoss
from whet.config.losses import GspoLoss, PolicyLoss
from whet.methods.self_correct.rltf_sd import UNCLIPPED
from whet.objectives import (
    entropy_loss,
    importance_weights,
    k1,
    k2,
    k3,
    kl_loss,
    m2po_loss,
    nft_loss,
    pairwise_loss,
    row_sums,
    value_loss,
    weighted_nll,
)
from whet.trainer.losses import loss_of
from whet.trainer.terms import Pass

Pair = tuple[Array, Array]
"""Losses and derivatives of all tokens, [cases, T]."""


# --- ours -------------------------------------------------------------------------------------------------------------


def by_token(loss: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor], given: Tokens) -> Array:
    """Losses, then derivatives: (policy logprobs, mask, weights) to a weighted sum."""
    policy, mask = torches(given.policy, given.mask)
    policy.requires_grad_()
    weight = torch.ones(mask.shape, dtype=torch.float64, requires_grad=True)
    loss(policy, mask, weight).backward()
    assert policy.grad is not None
    assert weight.grad is not None
    return np.stack([weight.grad.numpy(), policy.grad.nan_to_num().numpy()], 1)


def of_settings(settings: PolicyLoss, given: Tokens, **chosen: float) -> Array:
    """The loss that these settings make, as the trainer binds it."""
    old, credit = torches(given.old, given.advantage)
    loss, _ = loss_of(settings)

    def bound(policy: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        nothing = torch.zeros_like(old)
        return loss(Pass(policy, old, None, credit, nothing, mask, weight, {}, ()), **chosen)[0]

    return by_token(bound, given)


def preset_loss(name: str) -> PolicyLoss:
    settings: PolicyLoss = settings_of(name).loss
    return settings


# --- published --------------------------------------------------------------------------------------------------------


def stacked(given: Tokens, loss: Array, gradient: Array) -> Array:
    return np.stack([where(given.mask, loss), where(given.mask, gradient)], 1)


def ratio_of(given: Tokens) -> Array:
    return np.exp(given.policy - given.old)


def ppo(given: Tokens, low: float, high: float, dual: float | None = None) -> Pair:
    """L = max(-A r, -A clip(r)); of bad tokens min(L, -A c). The gradient is -A r where the first one is the larger."""
    r, a = ratio_of(given), given.advantage
    loss = np.maximum(-a * r, -a * np.clip(r, low, high))
    inside = (r >= low) & (r <= high)
    gradient = np.where((-a * r >= -a * np.clip(r, low, high)) | inside, -a * r, 0.0)
    if dual is not None:
        capped = (a < 0) & (loss > -a * dual)
        loss, gradient = np.where(capped, -a * dual, loss), np.where(capped, 0.0, gradient)
    return loss, gradient


def cispo(given: Tokens, low: float, high: float) -> Pair:
    """L = -sg(clip(r)) A log pi."""
    weight = np.clip(ratio_of(given), low, high)
    return -weight * given.advantage * given.policy, -weight * given.advantage


def dppo(given: Tokens, divergence: str, bound: float) -> Pair:
    """L = -sg(min(r, 20)) A log pi, but 0 where A > 0 and p > q, or A < 0 and p < q, with D(q, p) past the bound:
    D = |p - q|, or the KL of two coins."""
    p, q, a = np.exp(given.policy), np.exp(given.old), given.advantage
    far = np.abs(p - q) if divergence == "tv" else q * np.log(q / p) + (1 - q) * np.log((1 - q) / (1 - p))
    keeps = ~((far > bound) & (((a > 0) & (p > q)) | ((a < 0) & (p < q))))
    weight = np.minimum(ratio_of(given), 20.0) * keeps
    return -weight * a * given.policy, -weight * a


def sapo(given: Tokens, positive: float = 1.0, negative: float = 1.05) -> Pair:
    """L = -(4 / tau) sigmoid(tau (r - 1)) A; its derivative 4 p (1 - p) r."""
    r, a = ratio_of(given), given.advantage
    tau = np.where(a > 0, positive, negative)
    p = 1 / (1 + np.exp(-tau * (r - 1)))
    return -4 / tau * p * a, -4 * p * (1 - p) * r * a


def topr(given: Tokens, level: str) -> Pair:
    """L = -sg(w) A log pi with w = 1 of good rows, min(1, r) of bad ones, r of the sequence or the token."""
    delta = where(given.mask, given.policy - given.old)
    whole = delta.sum(1, keepdims=True) if level == "sequence" else delta
    weight = np.where(given.advantage >= 0, 1.0, np.minimum(1.0, np.exp(whole)))
    return -weight * given.advantage * given.policy, -weight * given.advantage


def sequence_clip(given: Tokens, low: float, high: float) -> Pair:
    """L = max(-A s, -A clip(s)), s = exp mean_t (log pi - log old): by token sg(s) pi / sg(pi), so its derivative is
    -A s where the clip does not stop it."""
    delta = where(given.mask, given.policy - given.old)
    s = np.exp(delta.sum(1, keepdims=True) / given.mask.sum(1, keepdims=True))
    s, a = np.broadcast_to(s, delta.shape), given.advantage
    loss = np.maximum(-a * s, -a * np.clip(s, low, high))
    free = (-a * s >= -a * np.clip(s, low, high)) | ((s >= low) & (s <= high))
    return loss, np.where(free, -a * s, 0.0)


def reinforce(given: Tokens) -> Pair:
    return -given.advantage * given.policy, -given.advantage


def nft(
    given: Tokens, rate: Array, omega: str, epsilon: float, negative: float, cap: float | None = None
) -> Pair:  # fmt: skip
    """-w log R of right tokens, -w log max(q, eps) of wrong ones, q = (1 - r R) / (1 - r), straight through.

    Args:
        cap: of right tokens' log ratios, past which there is no gradient (published code: 10). None: none.
    """
    rate = np.clip(rate, 0.02, 0.98)[:, None]
    delta = given.policy - given.old
    held = np.minimum(delta, 10.0)
    ratio = np.exp(held)
    q = (1 - rate * ratio) / (1 - rate)
    weight = {"dr_grpo": 1 - rate, "grpo": np.sqrt((1 - rate) / rate), "one": np.ones_like(rate)}[omega]
    right = given.advantage > 0
    good = delta if cap is None else np.minimum(delta, cap)
    loss = np.where(right, -weight * good, -weight * negative * np.log(np.maximum(q, epsilon)))
    push = rate * ratio / ((1 - rate) * np.maximum(q, epsilon)) * (delta < 10.0)
    pull = np.ones_like(delta) if cap is None else (delta < cap) * 1.0
    return loss, np.where(right, -weight * pull, weight * negative * push)


# --- the comparisons --------------------------------------------------------------------------------------------------


def policy_loss(settings: PolicyLoss, published: Callable[[Tokens], Pair]) -> Callable[[Generator, int], Both]:
    def run(rng: Generator, cases: int) -> Both:
        given = tokens(rng, cases)
        return of_settings(settings, given), stacked(given, *published(given))

    return run


def narrow(settings: PolicyLoss, published: Callable[[Tokens], Pair]) -> Callable[[Generator, int], Both]:
    """Small drifts, which leave sequences on both sides of GSPO's narrow bounds."""

    def run(rng: Generator, cases: int) -> Both:
        given = tokens(rng, cases, drift=0.001)
        return of_settings(settings, given), stacked(given, *published(given))

    return run


def coins(settings: PolicyLoss, published: Callable[[Tokens], Pair]) -> Callable[[Generator, int], Both]:
    """Probabilities below 1, as a token's is: DPPO looks at them, and not at ratios alone."""

    def run(rng: Generator, cases: int) -> Both:
        drawn = tokens(rng, cases)
        given = replace(drawn, policy=np.minimum(drawn.policy, -0.01))
        return of_settings(settings, given), stacked(given, *published(given))

    return run


def nft_run(omega: str, *, epsilon: float = 1.0, negative: float = 1.0, cap: float | None = None, drift: float = 0.35):
    def run(rng: Generator, cases: int) -> Both:
        given = tokens(rng, cases, drift=drift)
        rate = rng.uniform(0.0, 1.0, cases)
        old, credit, rates = torches(given.old, given.advantage, rate)
        more: Any = {"omega": omega, "negative_weight": negative, "epsilon": epsilon}
        ours = by_token(lambda p, mask, w: nft_loss(p, old, credit, mask, w, rate_B=rates, **more)[0], given)
        return ours, stacked(given, *nft(given, rate, omega, epsilon, negative, cap))

    return run


def m2po_run(rng: Generator, cases: int) -> Both:
    """The loss with a limit given: -r A without a clip, 0 of the tokens past the limit that a clip could stop."""
    given = tokens(rng, cases)
    old, credit = torches(given.old, given.advantage)
    ours = by_token(lambda p, mask, w: m2po_loss(p, old, credit, mask, w, limit=0.09)[0], given)
    delta, a = given.policy - given.old, given.advantage
    dropped = (((a > 0) & (delta > 0)) | ((a < 0) & (delta < 0))) & (delta**2 > 0.09)
    loss = np.where(dropped, 0.0, -ratio_of(given) * a)
    return ours, stacked(given, loss, loss)


def nll_run(rng: Generator, cases: int) -> Both:
    given = tokens(rng, cases)
    [credit] = torches(given.advantage)
    ours = by_token(lambda p, mask, w: weighted_nll(p, credit, mask, w)[0], given)
    return ours, stacked(given, *reinforce(given))


def kl_run(estimator: str, *, clamp: float | None = None, drift: float = 0.35) -> Callable[[Generator, int], Both]:
    """Values and derivatives of a KL in the loss.

    Args:
        clamp: on the value, past which there is no gradient (verl). None: none.
    """

    def run(rng: Generator, cases: int) -> Both:
        given = tokens(rng, cases, drift=drift)
        [reference] = torches(given.reference)
        ours = by_token(lambda p, mask, w: kl_loss(p, reference, mask, w, estimator=estimator)[0], given)
        x = given.reference - given.policy
        value, slope = {
            "k1": (-x, np.ones_like(x)), "k2": (x**2 / 2, -x), "k3": (np.exp(x) - 1 - x, 1 - np.exp(x)),
        }[estimator]  # fmt: skip
        if clamp is not None:
            value, slope = np.minimum(value, clamp), np.where(value > clamp, 0.0, slope)
        return ours, stacked(given, value, slope)

    return run


def kl_values(rng: Generator, cases: int) -> Both:
    """As penalties in the reward: no gradient."""
    policy, reference = -rng.exponential(1, (cases, 5)), -rng.exponential(1, (cases, 5))
    ours = [f(*torches(policy, reference)).numpy() for f in (k1, k2, k3)]
    r = np.exp(reference - policy)
    return np.stack(ours, 1), np.stack([-np.log(r), np.log(r) ** 2 / 2, r - 1 - np.log(r)], 1)


def value_run(clip: float | None) -> Callable[[Generator, int], Both]:
    """max((V - R)^2, (clip(V) - R)^2) / 2; no gradient where the clipped one is the larger and the clip holds."""

    def run(rng: Generator, cases: int) -> Both:
        given = tokens(rng, cases)
        values = given  # the fields stand for V, the old V and the return
        old, returns = torches(values.old, values.reference)
        ours = by_token(lambda v, mask, w: value_loss(v, old, returns, mask, w, clip=clip)[0], given)
        v, r = given.policy, given.reference
        plain, gradient = (v - r) ** 2, v - r
        if clip is None:
            return ours, stacked(given, plain / 2, gradient)
        held = np.clip(v, given.old - clip, given.old + clip)
        clipped = (held - r) ** 2
        stopped = (clipped > plain) & (held != v)
        return ours, stacked(given, np.maximum(plain, clipped) / 2, np.where(stopped, 0.0, gradient))

    return run


def entropy_run(rng: Generator, cases: int) -> Both:
    """-H of each place, whatever its token."""
    given = tokens(rng, cases)
    ours = by_token(lambda h, mask, w: entropy_loss(h, mask, w)[0], given)
    return ours, stacked(given, -given.policy, -np.ones_like(given.policy))


def pair_run(kind: Any, *, smoothing: float = 0.0, robust: bool = False) -> Callable[[Generator, int], Both]:
    """Losses and derivatives of pairs, from sums (or with IPO means) of log ratios to the reference."""

    def run(rng: Generator, cases: int) -> Both:
        better, worse = tokens(rng, cases), tokens(rng, cases)
        sums = []
        for given in (better, worse):
            policy, reference, mask = torches(given.policy, given.reference, given.mask)
            sums.append(row_sums(policy - reference, mask, mean=kind == "ipo").requires_grad_())
        weight = torch.ones(cases, dtype=torch.float64, requires_grad=True)
        # The weights are numbers to the loss, so that the pairs' losses are asked for one by one.
        each = [
            pairwise_loss(c[None], r[None], w[None], kind=kind, beta=0.5, label_smoothing=smoothing)[0]
            for c, r, w in zip(*sums, weight, strict=True)
        ]
        torch.stack(each).sum().backward()
        ours = np.stack([torch.stack(each).detach().numpy(), sums[0].grad.numpy(), sums[1].grad.numpy()], 1)
        chosen, rejected = (
            np.nansum(where(g.mask, g.policy - g.reference), 1) / (g.mask.sum(1) if kind == "ipo" else 1)
            for g in (better, worse)
        )
        gap = chosen - rejected
        if kind == "ipo":
            loss, slope = (gap - 1 / (2 * 0.5)) ** 2, 2 * (gap - 1 / (2 * 0.5))
        else:
            sigmoid = 1 / (1 + np.exp(-0.5 * gap))
            right, wrong = -np.log(sigmoid), -np.log(1 - sigmoid)
            loss = (1 - smoothing) * right + smoothing * wrong
            slope = 0.5 * (-(1 - smoothing) * (1 - sigmoid) + smoothing * sigmoid)
            if robust:  # TRL's: the flipped term is subtracted, and the whole divided
                loss = ((1 - smoothing) * right - smoothing * wrong) / (1 - 2 * smoothing)
                slope = 0.5 * (-(1 - smoothing) * (1 - sigmoid) - smoothing * sigmoid) / (1 - 2 * smoothing)
        return ours, np.stack([loss, slope, -slope], 1)

    return run


def corrected(outside: Any, scope: Any, low: float, high: float) -> Callable[[Generator, int], Both]:
    """PPO's loss times the weight proximal / behaviour, which is clamped to the bounds, or 0 outside of them."""

    def run(rng: Generator, cases: int) -> Both:
        given = tokens(rng, cases)
        proximal, behaviour, mask = torches(given.old, given.reference, given.mask)
        factor = importance_weights(
            proximal, behaviour, mask, low=low, high=high, outside=outside, scope=scope
        ).numpy()  # fmt: skip
        ours = of_settings(ClipLoss(), given) * factor[:, None]
        delta = where(given.mask, given.old - given.reference)
        if scope != "token":
            delta = np.repeat(delta.sum(1, keepdims=True), delta.shape[1], 1)
            delta = delta / given.mask.sum(1, keepdims=True) if scope == "geometric" else delta
        w = np.exp(delta)
        w = np.clip(w, low, high) if outside == "clamp" else np.where((w < low) | (w > high), 0.0, w)
        loss, gradient = ppo(given, 0.8, 1.2)
        return ours, stacked(given, w * loss, w * gradient)

    return run


LOSS_FORMULAS = (
    Formula(method="grpo", formula="max(-A r, -A clip(r, 0.8, 1.2)), value and gradient",
            source="1707.06347, 2402.03300",
            run=policy_loss(preset_loss("grpo"), lambda t: ppo(t, 0.8, 1.2))),
    Formula(method="ppo", formula="max(-A r, -A clip(r, 0.8, 1.2)), value and gradient", source="1707.06347",
            run=policy_loss(preset_loss("ppo"), lambda t: ppo(t, 0.8, 1.2))),
    Formula(method="dapo", formula="max(-A r, -A clip(r, 0.8, 1.28))", source="2503.14476",
            run=policy_loss(preset_loss("dapo"), lambda t: ppo(t, 0.8, 1.28))),
    Formula(method="critique_coder", formula="max(-A r, -A clip(r, 0.8, 1.3))", source="TIGER-AI-Lab/Critique-Coder",
            run=policy_loss(preset_loss("critique_coder"), lambda t: ppo(t, 0.8, 1.3))),
    Formula(method="dual clip", formula="of A < 0: min(L, -3 A)", source="1912.09729",
            run=policy_loss(ClipLoss(dual=3.0), lambda t: ppo(t, 0.8, 1.2, 3.0))),
    Formula(method="bapo_code", formula="clip at (0.8, 2.0) with dual clip 3", source="WooooDyy/BAPO policy_loss.py",
            run=policy_loss(ClipLoss(bounds=FixedBounds(low=0.8, high=2.0), dual=3.0),
                            lambda t: ppo(t, 0.8, 2.0, 3.0))),
    Formula(method="cispo", formula="-sg(clip(r, 0, 5)) A log pi", source="2506.13585; SkyRL's bounds",
            run=policy_loss(preset_loss("cispo"), lambda t: cispo(t, 0.0, 5.0))),
    Formula(method="dppo", formula="-M sg(min(r, 20)) A log pi, M = 0 where p has moved on by more than 0.2",
            source="2602.04879; verl dppo_tv",
            run=coins(preset_loss("dppo"), lambda t: dppo(t, "tv", 0.2))),
    Formula(method="dppo, by KL", formula="the same with the KL of the token against all others",
            source="2602.04879; verl dppo_kl",
            run=coins(DppoLoss(divergence="kl", low=0.05, high=0.05), lambda t: dppo(t, "kl", 0.05))),
    Formula(method="gspo", formula="max(-A s, -A clip(s, 1 - 3e-4, 1 + 4e-4)), s = exp mean log r", source="2507.18071",
            run=narrow(preset_loss("gspo"), lambda t: sequence_clip(t, 1 - 3e-4, 1 + 4e-4))),
    Formula(method="spc", formula="min(s r, clip(s, 0.8, 1.2) r), s to the SFT policy",
            source="chen-judge/SPC trainers.py",
            run=policy_loss(GspoLoss(low=0.8, high=1.2), lambda t: sequence_clip(t, 0.8, 1.2))),
    Formula(method="sapo", formula="-(4 / tau) sigmoid(tau (r - 1)) A, tau 1.0 and 1.05", source="2511.20347",
            run=policy_loss(preset_loss("sapo"), sapo)),
    Formula(method="topr", formula="-sg(w) A log pi, w = min(1, prod r) of bad rows", source="2503.14286",
            run=policy_loss(preset_loss("topr"), lambda t: topr(t, "sequence"))),
    Formula(method="topr, by token", formula="the same with each token's ratio", source="alibaba/ROLL",
            run=policy_loss(ToprLoss(level="token"), lambda t: topr(t, "token"))),
    Formula(method="m2po", formula="-M r A, M = 0 past the limit", source="2510.01161", run=m2po_run),
    Formula(method="rloo", formula="-A log pi", source="2402.14740",
            run=policy_loss(preset_loss("rloo"), reinforce)),
    Formula(method="reinforce", formula="-A log pi", source="Williams 1992",
            run=policy_loss(ReinforceLoss(), reinforce)),
    Formula(method="rltf_sd", formula="-A pi / sg(old), no clip", source="lili-chen/rltf (importance sampling)",
            run=policy_loss(UNCLIPPED, lambda t: (-t.advantage * ratio_of(t), -t.advantage * ratio_of(t)))),
    Formula(method="nft", formula="-w log R; -w log max(1, q), w = 1 - r", source="2505.18116, NVlabs/NFT",
            run=nft_run("dr_grpo")),
    Formula(method="nft, omega grpo", formula="the same, w = sqrt((1 - r) / r)",
            source="2505.18116", run=nft_run("grpo")),
    Formula(method="nft, omega one", formula="the same, w = 1, floor 0.1", source="2505.18116",
            run=nft_run("one", epsilon=0.1)),
    Formula(method="nft, negative_weight 0", formula="-w log R of right answers alone", source="2505.18116",
            run=nft_run("dr_grpo", negative=0.0)),
    Formula(method="nft, right tokens", formula="the log ratio of right tokens held to 10", source="NVlabs/NFT",
            run=nft_run("dr_grpo", cap=10.0, drift=4.0), differs="NFT: right tokens far off"),
    Formula(method="SFT, imitation", formula="-w log pi", source="2203.14465, 2406.04151", run=nll_run),
    Formula(method="KL in the reward", formula="k1, k2, k3", source="joschu.net/blog/kl-approx.html", run=kl_values),
    Formula(method="KL in the loss, k1", formula="log pi - log ref", source="Schulman", run=kl_run("k1")),
    Formula(method="KL in the loss, k2", formula="(log pi - log ref)^2 / 2", source="Schulman", run=kl_run("k2")),
    Formula(method="KL in the loss, k3", formula="ref / pi - 1 - log(ref / pi)", source="2402.03300", run=kl_run("k3")),
    Formula(method="KL in the loss, k3 clamped", formula="the same, held to 10 a token", source="verl, AgentGym-RL",
            run=kl_run("k3", clamp=10.0, drift=0.8), differs="KL: no clamp"),
    Formula(method="value model", formula="max((V - R)^2, (clip(V, V_old, 0.5) - R)^2) / 2", source="1707.06347, verl",
            run=value_run(0.5)),
    Formula(method="value model, no clip", formula="(V - R)^2 / 2", source="1506.02438", run=value_run(None)),
    Formula(method="entropy bonus", formula="-H", source="1602.01783", run=entropy_run),
    Formula(method="critique_dpo, agent_dpo", formula="-log sigmoid(beta gap)", source="2305.18290, TRL sigmoid",
            run=pair_run("logistic")),
    Formula(method="conservative DPO", formula="-(1 - e) log sigmoid(x) - e log sigmoid(-x)",
            source="ericmitchell.ai/cdpo.pdf", run=pair_run("logistic", smoothing=0.2)),
    Formula(method="robust DPO", formula="((1 - e) L(x) - e L(-x)) / (1 - 2 e)", source="TRL robust",
            run=pair_run("logistic", smoothing=0.2, robust=True), differs="DPO: label smoothing is conservative"),
    Formula(method="IPO", formula="(gap - 1 / (2 beta))^2 of means", source="2310.12036, TRL ipo", run=pair_run("ipo")),
    Formula(method="TIS", formula="min(prox / behaviour, 2) L", source="verl, slime",
            run=corrected("clamp", "token", 0.0, 2.0)),
    Formula(method="TIS, by sequence", formula="min(prod, 2) L", source="verl, TRL",
            run=corrected("clamp", "sequence", 0.0, 2.0)),
    Formula(method="IcePop", formula="0 outside [0.5, 2]",
            source="verl, SkyRL", run=corrected("drop", "token", 0.5, 2.0)),
    Formula(method="masked by geometric mean", formula="0 outside [0.5, 2] of exp mean", source="AReaL, OpenRLHF",
            run=corrected("drop", "geometric", 0.5, 2.0)),
    Formula(method="decoupled PPO", formula="prox / behaviour L(pi / prox)", source="2505.24298",
            run=corrected("clamp", "token", 0.0, float("inf"))),
)  # fmt: skip
