"""What BAPO's search for bounds costs, beside the update that it is made for.

    .venv/bin/python benchmarks/picker.py

In one run, in turn: updates with fixed bounds, and with bounds searched before them, on rows whose old logprobs are off
the policy's, so that the search goes through all of its ranges. Once with an update that fits one pass (its logprobs
serve the search) and once with one that takes several (its rows are scored once more). The search alone is timed inside
the updates that use it, and beside it the loop that adds up all tokens again for every candidate.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from limit import rows_of
from side_by_side import machine, policy_of, random_model, spread, timed
from study import write
from whet.config.parts import LearningConfig
from whet.models.scoring import score
from whet.models.tiny import tiny_tokenizer
from whet.objectives import PAPER_RULE, balanced_bounds, clipped_policy_loss
from whet.trainer.learner import Learner
from whet.trainer.terms import Term, Update, on_tokens
from whet.types import Row

RULE = replace(PAPER_RULE, target=0.99)
"""Out of reach, so that every search makes all of its 51 moves."""


def stale(policy: Any, rows: list[Row]) -> list[Row]:
    """The rows with old logprobs around the policy's own."""
    torch.manual_seed(0)
    found = []
    for row, own in zip(rows, score(policy, rows, token_budget=8192), strict=True):
        found.append(replace(row, logprobs=(own + 0.3 * torch.randn(len(own))).numpy()))
    return found


def slow_loop(policy_N: Tensor, old_N: Tensor, credit_N: Tensor) -> tuple[float, float]:
    """The paper's loop: all tokens are added up again for every candidate."""
    ratio = (policy_N - old_N).exp()
    lows, highs = RULE.low.values, RULE.high.values
    at_low = at_high = 0

    def share() -> float:
        positive = (ratio.clamp(max=highs[at_high]) * credit_N)[credit_N > 0].sum()
        negative = (ratio.clamp(min=lows[at_low]) * -credit_N)[credit_N < 0].sum()
        return float(positive / (positive + negative))

    while share() < RULE.target and at_low + 1 < len(lows):
        if at_high + 1 < len(highs):
            at_high += 1
        else:
            at_low += 1
    return lows[at_low], highs[at_high]


def case(size: str, num_rows: int, response: int, token_budget: int, repeats: int) -> dict[str, Any]:
    """One size of model and update."""
    model = random_model(size).requires_grad_(True)
    policy = policy_of(model, tiny_tokenizer())
    rows = stale(policy, rows_of(num_rows, 24, response, model.config.vocab_size))
    search_s: list[float] = []
    loop_s: list[float] = []

    def choose(policy_N: Tensor, old_N: Tensor, credit_N: Tensor) -> tuple[dict[str, float], dict[str, float]]:
        start = time.perf_counter()
        found = balanced_bounds(policy_N, old_N, credit_N, torch.ones_like(policy_N, dtype=torch.bool), RULE)
        search_s.append(time.perf_counter() - start)
        start = time.perf_counter()
        assert slow_loop(policy_N, old_N, credit_N) == (found.low, found.high)
        loop_s.append(time.perf_counter() - start)
        return {"low": found.low, "high": found.high}, {}

    settings = LearningConfig(learning_rate=1e-6, minibatch_rows=num_rows, token_budget=token_budget)

    def learner(term: Term) -> Learner:
        return Learner(policy, Update((term,), settings, num_updates=10**6))

    fixed = learner(Term(on_tokens(clipped_policy_loss, low=0.8, high=1.2)))
    searched = learner(Term(on_tokens(clipped_policy_loss), choose=choose))
    seconds = timed(
        {"fixed": lambda: fixed.update(rows, seed=0), "searched": lambda: searched.update(rows, seed=0)},
        repeats=repeats,
    )
    plain = sorted(seconds["fixed"])[len(seconds["fixed"]) // 2]
    both = [s - loop for s, loop in zip(seconds["searched"], loop_s[-repeats:], strict=True)]
    return {
        "size": size, "parameters": sum(p.numel() for p in model.parameters()), "tokens": num_rows * response,
        "passes": -(-num_rows * (24 + response) // token_budget), "update_ms": 1e3 * plain,
        "search_ms": {k: 1e3 * v for k, v in spread(search_s[-repeats:]).items()},
        "loop_ms": {k: 1e3 * v for k, v in spread(loop_s[-repeats:]).items()},
        "search_share": sorted(search_s[-repeats:])[repeats // 2] / plain,
        "whole_share": sorted(both)[repeats // 2] / plain - 1,
    }  # fmt: skip


def markdown(rows: list[dict[str, Any]], where: dict[str, Any]) -> str:
    lines = [
        "# What the search for BAPO's bounds costs", "",
        "Medians. *search*: the fast search alone, as a share of an update with fixed bounds. *in all*: how much",
        "longer the whole update takes, with the pass that scores its rows where they take several passes.", "",
        "| weights | trained tokens | passes | update, ms | search, ms | the loop, ms | search | in all |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in rows:
        lines.append(
            f"| {row['parameters'] / 1e6:.1f} M | {row['tokens']} | {row['passes']} | {row['update_ms']:.0f} | "
            f"{row['search_ms']['median']:.2f} | {row['loop_ms']['median']:.2f} | {100 * row['search_share']:.2f} % | "
            f"{100 * row['whole_share']:+.0f} % |"
        )
    lines += ["", f"Measured {where['date']}: `{where['command']}`. Machine: {json.dumps(where)}.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    rows = [
        case(size, num_rows, response, budget, options.repeats)
        for size, num_rows, response, budget in (
            ("0.4M", 64, 40, 16384), ("0.4M", 256, 40, 4096), ("1M", 64, 64, 16384), ("1M", 256, 64, 4096),
            ("5M", 64, 128, 16384), ("5M", 128, 128, 4096),
        )
    ]  # fmt: skip
    where = machine()
    write("picker", {"machine": where, "rows": rows}, markdown(rows, where))


if __name__ == "__main__":
    main()
