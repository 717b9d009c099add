"""What is chosen from, or averaged over, a whole update: bounds, limits, aggregation; and the entropy rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from support.formulas.compared import Array, Both, Formula, settings_of, torches
from whet.config.losses import BalancedBounds, ClipLoss
from whet.objectives import (
    Aggregation,
    aggregation_weights,
    balanced_bounds,
    predicted_entropy_change,
    sampled_entropy_change,
    second_moment_limit,
)
from whet.trainer.losses import bounds_rule

NUM_TOKENS = 24


def update(rng: Generator) -> tuple[Array, Array, Array]:
    """Policy and old logprobs, advantages of an update's tokens; now and then of one sign alone."""
    old = -rng.exponential(1.0, NUM_TOKENS)
    policy = old + rng.normal(0, 0.5, NUM_TOKENS)
    advantage = rng.normal(rng.choice([-0.7, 0.0, 0.7]), 1, NUM_TOKENS)
    return policy, old, np.abs(advantage) * rng.choice([-1, 1]) if rng.random() < 0.03 else advantage


# --- BAPO -------------------------------------------------------------------------------------------------------------


def sums(r: Array, a: Array, w: Array, low: float, high: float, *, gradient: bool) -> tuple[float, float]:
    """P and N at these bounds, all tokens added up anew."""
    good, bad = a > 0, a < 0
    if gradient:
        return float((w * r * a)[good & (r < high)].sum()), float((w * r * -a)[bad & (r > low)].sum())
    return float((w * np.minimum(r, high) * a)[good].sum()), float((w * np.maximum(r, low) * -a)[bad].sum())


def share(p: float, n: float) -> float:
    return p / (p + n) if p + n else 0.0


def paper_search(r: Array, a: Array, w: Array, target: float, *, gradient: bool) -> tuple[float, float]:
    """Algorithm 1 with whole numbers of steps: the upper bound to its end, then the lower one."""
    i, j = 0, 0  # 1.2 + 0.05 i up to 3.0, 0.6 + 0.02 j up to 0.9
    while share(*sums(r, a, w, 0.6 + 0.02 * j, 1.2 + 0.05 * i, gradient=gradient)) < target and j < 15:
        if i < 36:
            i += 1
        else:
            j += 1
    return 0.6 + 0.02 * j, 1.2 + 0.05 * i


def code_search(r: Array, a: Array, w: Array, target: float, *, gradient: bool) -> tuple[float, float]:
    """policy_loss.py at 7287044: the lower bound first, both onto their ceilings, odds P / (N + 1e-8)."""
    low, high = 0.6, 1.2

    def odds() -> float:
        p, n = sums(r, a, w, low, high, gradient=gradient)
        return float("inf") if not (a < 0).any() else p / (n + 1e-8)

    while odds() < target and low < 0.8:
        low = min(low + 0.05, 0.8)
    while odds() < target and high < 2.0:
        high = min(high + 0.05, 2.0)
    return low, high


def bounds_run(
    name: str, search: Callable[..., tuple[float, float]], *, weighted: bool = False, target: float | None = None
) -> Callable[[Generator, int], Both]:
    """The bounds that the preset of that name would find."""
    loss = settings_of(name).loss
    assert isinstance(loss, ClipLoss)
    assert isinstance(loss.bounds, BalancedBounds)
    bounds = loss.bounds if target is None else loss.bounds.model_copy(update={"target": target})
    rule, gradient = bounds_rule(bounds), bounds.contribution == "gradient"

    def run(rng: Generator, cases: int) -> Both:
        both = []
        for _ in range(cases):
            policy, old, advantage = update(rng)
            mask = np.ones(NUM_TOKENS, bool)
            weight = np.exp(old) if weighted else np.ones(NUM_TOKENS)
            given = torches(policy, old, advantage, mask)
            found = balanced_bounds(*given, rule, token_weight=torches(weight)[0] if weighted else None)
            expected = search(np.exp(policy - old), advantage, weight, bounds.target, gradient=gradient)
            both.append(((found.low, found.high), expected))
        return np.array([each for each, _ in both]), np.array([each for _, each in both])

    return run


# --- M2PO, aggregation ------------------------------------------------------------------------------------------------


def m2po_run(rng: Generator, cases: int) -> Both:
    """Which tokens are masked: the largest squares that a clip could stop, until their mean is 0.04 at most."""
    both = []
    for _ in range(cases):
        policy, old, advantage = update(rng)
        old = policy + (old - policy) * rng.choice([0.1, 0.5, 1.0])
        delta = policy - old
        critique_score = ((advantage > 0) & (delta > 0)) | ((advantage < 0) & (delta < 0))
        kept = list(np.flatnonzero(critique_score))
        while kept and np.mean(delta[kept] ** 2) > 0.04:
            kept.remove(max(kept, key=lambda i: delta[i] ** 2))
        limit = second_moment_limit(*torches(policy, old, advantage, np.ones(NUM_TOKENS, bool)))
        masked = critique_score & (delta**2 > limit)
        expected = critique_score.copy()
        expected[kept] = False
        both.append((masked, expected))
    return np.array([each for each, _ in both]), np.array([each for _, each in both])


def aggregated(mode: Aggregation) -> Callable[[Generator, int], Both]:
    """The minibatch's loss from token losses of ragged rows, some without a trained token."""

    def run(rng: Generator, cases: int) -> Both:
        both = []
        for _ in range(cases):
            counts = rng.integers(0, 8, 5)
            counts[0] += 1
            losses = [rng.normal(0, 1, n) for n in counts]
            weights = aggregation_weights(
                torch.from_numpy(counts), torch.ones(5, dtype=torch.float64), mode, constant_length=8
            ).numpy()  # fmt: skip
            ours = sum(weight * part.sum() for weight, part in zip(weights, losses, strict=True))
            there = [part for part in losses if len(part)]
            expected = {
                "token_mean": np.concatenate(there).mean(),
                "sequence_mean": np.mean([part.mean() for part in there]),
                "constant": np.mean([part.sum() / 8 for part in there]),
            }[mode]
            both.append((ours, expected))
        return np.array([each for each, _ in both]), np.array([each for _, each in both])

    return run


def micro_batches_of_one(rng: Generator, cases: int) -> Both:
    """AgentGym-RL's `update_policy`: the masked mean of each micro-batch of one episode, over their number."""
    both = []
    for _ in range(cases):
        counts = rng.integers(1, 9, 6)
        losses = [rng.normal(0, 1, n) for n in counts]
        mode: Any = settings_of("agentgym_rl_textcraft").aggregation
        weights = aggregation_weights(torch.from_numpy(counts), torch.ones(6, dtype=torch.float64), mode).numpy()
        total = 0.0
        for part in losses:
            total += part.mean() / len(losses)
        both.append((sum(w * part.sum() for w, part in zip(weights, losses, strict=True)), total))
    return np.array([each for each, _ in both]), np.array([each for _, each in both])


# --- the Entropy-Clip Rule --------------------------------------------------------------------------------------------


def entropy_rule(*, natural: bool) -> Callable[[Generator, int], Both]:
    """-eta Cov[log pi, A X + C] (eq. 6), or with pi in it (proposition 1)."""

    def run(rng: Generator, cases: int) -> Both:
        logits = rng.normal(0, 1, (cases, 6))
        logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        pi, survives = np.exp(logprobs), rng.random((cases, 6)) < 0.7
        advantage = rng.normal(0, 1, (cases, 6))
        advantage -= (pi * advantage).sum(1, keepdims=True)
        given = torches(logprobs, advantage, survives)
        ours = predicted_entropy_change(*given, step_size=0.01, natural=natural).numpy()
        c = np.where(survives, 0.0, pi * advantage).sum(1, keepdims=True)
        moved = (advantage * survives + c) * (1.0 if natural else pi)
        mean = lambda x: (pi * x).sum(1)  # noqa: E731
        covariance = mean(logprobs * moved) - mean(logprobs) * mean(moved)
        return ours * 1e3, -0.01 * covariance * 1e3  # in thousandths, as they are small

    return run


def sampled_rule(rng: Generator, cases: int) -> Both:
    """-mean[(log pi + H) A X] over sampled tokens."""
    logprobs, entropies, pushes = (rng.normal(0, 1, (cases, 9)) for _ in range(3))
    ours = [float(sampled_entropy_change(*torches(*row))) for row in zip(logprobs, entropies, pushes, strict=True)]
    return np.array(ours), -((logprobs + entropies) * pushes).mean(1)


CLIPPING_FORMULAS = (
    Formula(method="bapo", formula="bounds: P / (P + N) >= 0.4, upper bound first", source="2510.18927, algorithm 1",
            run=bounds_run("bapo", paper_search)),
    Formula(method="bapo, target 0.6", formula="the same where both bounds move", source="2510.18927",
            run=bounds_run("bapo", paper_search, target=0.6)),
    Formula(method="bapo, token_weight old", formula="the same, tokens weighed by the old policy",
            source="2510.18927, eq. 8",
            run=bounds_run("bapo", paper_search, weighted=True)),
    Formula(method="bapo_code", formula="bounds: P / (N + 1e-8) >= 1, lower bound first, onto the ceilings",
            source="WooooDyy/BAPO policy_loss.py", run=bounds_run("bapo_code", code_search)),
    Formula(method="bapo_gradient", formula="the paper's search over what has a gradient", source="2510.18927, prose",
            run=bounds_run("bapo_gradient", paper_search)),
    Formula(method="m2po", formula="largest squares masked until their mean is 0.04",
            source="2510.01161", run=m2po_run),
    Formula(method="token_mean", formula="sum of token losses / sum of tokens", source="2503.14476",
            run=aggregated("token_mean")),
    Formula(method="sequence_mean", formula="mean of rows' means",
            source="2402.03300", run=aggregated("sequence_mean")),
    Formula(method="constant", formula="mean of rows' sums / length", source="2503.20783", run=aggregated("constant")),
    Formula(method="agentgym_rl_*, scaling_inter_*", formula="mean of micro-batches of one episode",
            source="AgentGym-RL dp_actor.py", run=micro_batches_of_one),
    Formula(method="Entropy-Clip Rule", formula="-eta Cov[log pi, A X + C]", source="2510.18927, eq. 6",
            run=entropy_rule(natural=True)),
    Formula(method="Entropy-Clip Rule, vanilla", formula="-eta Cov[log pi, pi (A X + C)]",
            source="2510.18927, proposition 1", run=entropy_rule(natural=False)),
    Formula(method="Entropy-Clip Rule, sampled", formula="-mean (log pi + H) A X",
            source="2510.18927", run=sampled_rule),
)  # fmt: skip
