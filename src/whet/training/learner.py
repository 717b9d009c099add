"""One policy's learner: rows in, optimiser steps out."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress

import torch
from torch import Tensor

from whet.config.parts import LearningConfig
from whet.models.policy import Policy
from whet.models.scoring import MicroBatch, micro_batches, score, token_logprobs
from whet.objectives import Aggregation, aggregation_weights
from whet.play.roles import seed_of
from whet.types import Row

LossTerm = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, dict[str, Tensor]]]
"""(policy logprobs, old logprobs, credit, loss mask, token weight), all [B, T], to a summed loss and summed metrics.
Bind a function of `whet.objectives` to its settings with `functools.partial`."""


@dataclass(frozen=True)
class UpdateRule:
    """How a policy learns from rows: the loss, how it is averaged, and the optimiser's settings."""

    loss: LossTerm
    aggregation: Aggregation
    """What a token's loss is divided by."""
    learning: LearningConfig
    num_updates: int
    """Optimiser updates in the whole phase, for the learning rate's schedule."""
    needs_old: bool = True
    """False: the loss looks at no ratio (likelihood), so old logprobs are not wanted."""
    needs_credit: bool = True
    """False: the loss has a term that a token without credit feels too (an entropy bonus, a KL), so such rows are
    computed. Else they are left out of every pass: they count in the averages of the loss, and nothing else."""


METRIC_NAMES = {
    "nll_sum": "loss/nll",
    "num_clipped_low": "clip/low",
    "num_clipped_high": "clip/high",
    "approx_kl_sum": "kl/old",
    "ratio_sum": "ratio/mean",
    "ratio_max": "ratio/max",
    "entropy_sum": "entropy",
}
"""The objectives' sums, and what they are called once divided by the number of tokens (`_max`: as they are)."""


def _has_credit(row: Row) -> bool:
    return row.weight != 0 and any(credit for credit, trains in zip(row.credit, row.loss_mask, strict=True) if trains)


def _named(sums: dict[str, float]) -> dict[str, float]:
    tokens = max(sums["num_tokens"], 1.0)
    return {
        METRIC_NAMES[name]: value if name.endswith("_max") else value / tokens
        for name, value in sums.items()
        if name in METRIC_NAMES
    }


class Learner:
    """Holds a policy's optimiser for one phase.

    The optimiser works on float32 copies where the weights are of a smaller type: a step of 5e-7 vanishes in bf16.
    """

    def __init__(self, policy: Policy, rule: UpdateRule) -> None:
        self.policy, self.rule = policy, rule
        self.parameters = [p for _, p in policy.own_parameters()]
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.masters = [p if p.dtype == torch.float32 else p.detach().float() for p in self.parameters]
        settings = rule.learning
        self.optimizer = torch.optim.AdamW(
            self.masters, lr=settings.learning_rate, betas=settings.betas, weight_decay=settings.weight_decay
        )
        self.num_updates = 0

    def update(self, rows: Sequence[Row], *, seed: int) -> dict[str, float]:
        """Learn from one step's rows: `num_epochs` passes over shuffled minibatches.

        Rows with nothing to train are dropped. Returns: metrics without prefix, over the tokens that took part in a
        pass (see `UpdateRule.needs_credit`); `rows/without_credit` is the share of rows that did not. Empty where no
        row was left.
        """
        rows = [row for row in rows if row.num_trained]
        if not rows:
            return {}
        settings = self.rule.learning
        taken = [not self.rule.needs_credit or _has_credit(row) for row in rows]
        old = self._old_logprobs(rows, taken) if self.rule.needs_old else [torch.empty(0)] * len(rows)
        sums: dict[str, float] = defaultdict(float)
        norms = []
        for epoch in range(settings.num_epochs):
            order = list(range(len(rows)))
            random.Random(seed_of(seed, epoch)).shuffle(order)
            for at in range(0, len(order), settings.minibatch_rows):
                chosen = order[at : at + settings.minibatch_rows]
                norms.append(
                    self._step([rows[i] for i in chosen], [old[i] for i in chosen], [taken[i] for i in chosen], sums)
                )
                if len(norms) == 1:  # nothing is learnt yet: what the ratio is off 1 by, engine and trainer differ by
                    drift = sums["approx_kl_sum"] / max(sums["num_tokens"], 1.0)
        return {
            "loss/mean": sums.pop("loss", 0.0) / len(norms),
            **_named(sums),
            **({"kl/sampler": drift} if self.rule.needs_old else {}),
            "optim/grad_norm": sum(norms) / len(norms),
            "optim/learning_rate": self.learning_rate(self.num_updates - 1),
            "optim/updates": float(len(norms)),
            "rows/without_credit": 1 - sum(taken) / len(taken),
        }

    def learning_rate(self, update: int) -> float:
        """Linear warm-up, then a cosine from the peak to its floor."""
        settings = self.rule.learning
        if update < settings.warmup_steps:
            return settings.learning_rate * (update + 1) / settings.warmup_steps
        span = max(1, self.rule.num_updates - settings.warmup_steps)
        progress = min(1.0, (update - settings.warmup_steps) / span)
        share = settings.final_share + (1 - settings.final_share) * 0.5 * (1 + math.cos(math.pi * progress))
        return settings.learning_rate * share

    def _old_logprobs(self, rows: Sequence[Row], taken: Sequence[bool]) -> list[Tensor]:
        """The sampler's where a row has them (the run has checked that they are the trainer's own), else scored if the
        row is taken."""
        unscored = [i for i, row in enumerate(rows) if row.logprobs is None and taken[i]]
        scores = score(self.policy, [rows[i] for i in unscored], token_budget=self.rule.learning.token_budget)
        old = [torch.tensor([p for p, m in zip(r.logprobs or (), r.loss_mask, strict=False) if m]) for r in rows]
        for i, values in zip(unscored, scores, strict=True):
            old[i] = values
        return old

    def _step(self, rows: list[Row], old: list[Tensor], taken: list[bool], sums: dict[str, float]) -> float:
        """One optimiser update on one minibatch, in as many passes as the token budget asks for."""
        counts = torch.tensor([row.num_trained for row in rows])
        weights_B = aggregation_weights(counts, torch.tensor([row.weight for row in rows]), self.rule.aggregation)
        rows, old, weights_B = list(compress(rows, taken)), list(compress(old, taken)), weights_B[taken]
        if not rows:  # the update is made all the same: its momentum, and its place in the schedule
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
        for batch in micro_batches(self.policy, rows, self.rule.learning.token_budget):
            loss, metrics = self._loss(batch, rows, old, weights_B.to(self.policy.device))
            with self.policy.active():
                loss.backward()
            sums["loss"] += loss.item()
            for name, value in metrics.items():
                sums[name] = max(sums[name], value.item()) if name.endswith("_max") else sums[name] + value.item()
        return self._apply()

    def _loss(
        self, batch: MicroBatch, rows: list[Row], old: list[Tensor], weights_B: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        mask_BT = batch.mask_BT[:, 1:]
        with self.policy.recomputing():
            logprobs_N, entropy_N = token_logprobs(self.policy, batch, entropy=True)
        blank_BT = torch.zeros(mask_BT.shape, device=mask_BT.device)
        credit_N = torch.tensor(
            [c for i in batch.index for c, m in zip(rows[i].credit, rows[i].loss_mask, strict=True) if m],
            device=mask_BT.device,
        )
        policy_BT = blank_BT.masked_scatter(mask_BT, logprobs_N)
        credit_BT = blank_BT.masked_scatter(mask_BT, credit_N)
        old_BT = policy_BT.detach()
        if self.rule.needs_old:
            old_BT = blank_BT.masked_scatter(mask_BT, torch.cat([old[i] for i in batch.index]).to(mask_BT.device))
        weight_BT = weights_B[batch.index, None].expand(mask_BT.shape)
        loss, metrics = self.rule.loss(policy_BT, old_BT, credit_BT, mask_BT, weight_BT)
        assert entropy_N is not None
        return loss, {**metrics, "entropy_sum": entropy_N.sum()}

    def _apply(self) -> float:
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            if master is not parameter:
                master.grad = None if parameter.grad is None else parameter.grad.float()
        norm = torch.nn.utils.clip_grad_norm_(self.masters, self.rule.learning.max_grad_norm)
        if not torch.isfinite(norm):
            raise FloatingPointError(
                f"the gradient of policy {self.policy.name!r} is {norm.item()} at update {self.num_updates + 1}: "
                "lower the learning rate, or look for an unbounded reward; the last checkpoint is whole"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(self.num_updates)
        self.optimizer.step()
        self.num_updates += 1
        self.policy.version += 1
        with torch.no_grad():
            for master, parameter in zip(self.masters, self.parameters, strict=True):
                if master is not parameter:
                    parameter.copy_(master)
                parameter.grad = None
        self.optimizer.zero_grad(set_to_none=True)
        return float(norm)

    def finish(self) -> None:
        """The phase is over: the policy's weights rest."""
        for parameter in self.parameters:
            parameter.requires_grad_(False)
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """The optimiser's memory as flat tensors (safetensors holds nothing else, and needs no trust)."""
        state: dict[str, Tensor] = {"num_updates": torch.tensor(self.num_updates)}
        for index, master in enumerate(self.masters):
            for name, value in self.optimizer.state.get(master, {}).items():
                state[f"{index}.{name}"] = value.detach().cpu().contiguous()
            if master is not self.parameters[index]:
                state[f"{index}.master"] = master.detach().cpu().contiguous()
        return state

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.num_updates = int(state["num_updates"])
        for index, master in enumerate(self.masters):
            names = {n.partition(".")[2]: v for n, v in state.items() if n.startswith(f"{index}.")}
            if "master" in names:
                with torch.no_grad():
                    master.copy_(names.pop("master"))
            self.optimizer.state[master] = {
                name: value if name == "step" else value.to(master.device) for name, value in names.items()
            }
