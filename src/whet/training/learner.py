"""One policy's learner: rows in, optimiser steps out."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress

import torch
from torch import Tensor

from whet.models.policy import Policy
from whet.models.scoring import MicroBatch, micro_batches, score, token_logprobs
from whet.objectives import aggregation_weights
from whet.play.roles import seed_of
from whet.training.files import RunError
from whet.training.flat import Tokens, ages_of, drift_of, joined, pushes, spread, trained
from whet.training.rule import UpdateRule, means_of, named
from whet.types import Row


def _has_credit(row: Row) -> bool:
    return row.weight != 0 and any(credit for credit, trains in zip(row.credit, row.loss_mask, strict=True) if trains)


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
        updates: list[dict[str, float]] = []
        for epoch in range(settings.num_epochs):
            order = list(range(len(rows)))
            random.Random(seed_of(seed, epoch)).shuffle(order)
            for at in range(0, len(order), settings.minibatch_rows):
                chosen = order[at : at + settings.minibatch_rows]
                updates.append(
                    self._step([rows[i] for i in chosen], [old[i] for i in chosen], [taken[i] for i in chosen], sums)
                )
                if len(updates) == 1:  # nothing is learnt yet: by what the ratio is off 1, sampler and trainer differ
                    drift = sums.get("approx_kl_sum", 0.0) / max(sums["num_tokens"], 1.0)
        if self.rule.proximal:
            drift = drift_of(list(compress(rows, taken)), list(compress(old, taken)))
        return {
            "loss/mean": sums.pop("loss", 0.0) / len(updates),
            **named(sums),
            **means_of(updates),
            **({"kl/sampler": drift} if "approx_kl_sum" in sums or self.rule.proximal else {}),
            "optim/learning_rate": self.learning_rate(self.num_updates - 1),
            "optim/updates": float(len(updates)),
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
        """Of every row, the sampler's logprobs, or this policy's as it is now where the rule or the row asks for that
        (only if the row is taken)."""
        unscored = [i for i, row in enumerate(rows) if taken[i] and (self.rule.proximal or row.logprobs is None)]
        scores = score(self.policy, [rows[i] for i in unscored], token_budget=self.rule.learning.token_budget)
        old = [trained(row, row.logprobs) for row in rows]
        for i, values in zip(unscored, scores, strict=True):
            old[i] = values
        return old

    def _step(self, rows: list[Row], old: list[Tensor], taken: list[bool], sums: dict[str, float]) -> dict[str, float]:
        """One optimiser update on one minibatch, in as many passes as the token budget asks for."""
        rule = self.rule
        counts = torch.tensor([row.num_trained for row in rows])
        ages = ages_of(rows, self.policy.version)
        weights_B = aggregation_weights(
            counts, torch.tensor([row.weight for row in rows]), rule.aggregation, constant_length=rule.constant_length
        ).to(self.policy.device)
        rows, old, weights_B = list(compress(rows, taken)), list(compress(old, taken)), weights_B[taken]
        batches = list(micro_batches(self.policy, rows, rule.learning.token_budget))
        found: dict[str, float] = {}
        chosen: Mapping[str, float] = {}
        if rule.choose is not None and len(batches) > 1:
            chosen, found = self._chosen([self._scored(batch, rows, old) for batch in batches])
        seen = []
        for batch in batches:
            with self.policy.recomputing():
                logprobs_N, entropy_N = token_logprobs(self.policy, batch, entropy=True)
            assert entropy_N is not None
            tokens = self._tokens(batch, rows, old, logprobs_N.detach(), entropy_N)
            if rule.choose is not None and len(batches) == 1:
                chosen, found = self._chosen([tokens])
            loss, metrics = self._loss(batch, rows, logprobs_N, tokens, weights_B, chosen)
            if rule.observe is not None:
                tokens = replace(tokens, push_N=pushes(loss, logprobs_N, batch, weights_B))
            if rule.leash is not None:
                kl, more = self._leashed(batch, rows, logprobs_N, weights_B)
                loss, metrics = loss + kl, metrics | more
            with self.policy.active():
                loss.backward()
            sums["loss"] += loss.item()
            for name, value in metrics.items():
                sums[name] = max(sums[name], value.item()) if name.endswith("_max") else sums[name] + value.item()
            seen.append(tokens)
        if not rows:  # the update is made all the same: its momentum, and its place in the schedule
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
        if rule.observe is not None and seen:
            pushes_N = torch.cat([tokens.push_N for tokens in seen if tokens.push_N is not None])
            found |= rule.observe(*joined(seen), pushes_N, **chosen)
        found |= ages
        found["optim/grad_norm"] = self._apply()
        if rule.probe_every and seen and self.num_updates % rule.probe_every == 0:
            found |= self._probed(batches, seen, found)
        elif rule.probe_every:  # a prediction stands beside the measurement of the same update, or nowhere
            found.pop("entropy/predicted", None)
        return found

    def _chosen(self, passes: Sequence[Tokens]) -> tuple[Mapping[str, float], dict[str, float]]:
        assert self.rule.choose is not None
        policy_N, old_N, credit_N, _ = joined(passes)
        if not (policy_N - old_N).isfinite().all():
            raise self._diverged("ratios are NaN or infinite")
        chosen, metrics = self.rule.choose(policy_N, old_N, credit_N)
        return chosen, dict(metrics)

    def _diverged(self, how: str) -> RunError:
        return RunError(
            f"policy {self.policy.name!r} has diverged, its {how} at update {self.num_updates + 1}: lower the learning "
            "rate, or look for an unbounded reward; the last checkpoint is whole"
        )

    def _scored(self, batch: MicroBatch, rows: list[Row], old: list[Tensor]) -> Tokens:
        with torch.no_grad():
            logprobs_N, entropy_N = token_logprobs(self.policy, batch, entropy=True)
        assert entropy_N is not None
        return self._tokens(batch, rows, old, logprobs_N, entropy_N)

    def _probed(
        self, batches: Sequence[MicroBatch], seen: Sequence[Tokens], found: Mapping[str, float]
    ) -> dict[str, float]:
        """What the update did to the entropy of its own rows, beside what the Entropy-Clip Rule predicts."""
        with torch.no_grad():
            after = torch.cat([token_logprobs(self.policy, batch, entropy=True)[1] for batch in batches])  # type: ignore[misc]
        measured = float(after.double().mean() - joined(seen)[3].double().mean())
        shown = {"entropy/measured": measured, "entropy/falls": float(measured < 0)}
        if "entropy/predicted" in found:
            shown["entropy/rule_agrees"] = float(found["entropy/predicted"] * measured > 0)
        return shown

    def _tokens(
        self, batch: MicroBatch, rows: list[Row], old: list[Tensor], logprobs_N: Tensor, entropy_N: Tensor
    ) -> Tokens:
        credit_N = torch.cat([trained(rows[i], rows[i].credit) for i in batch.index]).to(logprobs_N.device)
        old_N = torch.cat([old[i] for i in batch.index]).to(logprobs_N.device) if self.rule.needs_old else logprobs_N
        return Tokens(logprobs_N, old_N, credit_N, entropy_N)

    def _loss(
        self,
        batch: MicroBatch,
        rows: list[Row],
        logprobs_N: Tensor,
        tokens: Tokens,
        weights_B: Tensor,
        chosen: Mapping[str, float],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        mask_BT = batch.mask_BT[:, 1:]
        weight_BT = weights_B[batch.index, None].expand(mask_BT.shape)
        old_BT = spread(tokens.old_N, batch)
        if self.rule.correct is not None:
            known = [trained(rows[i], rows[i].logprobs) if rows[i].logprobs is not None else None for i in batch.index]
            parts = tokens.old_N.split([rows[i].num_trained for i in batch.index])
            sampler = [part if own is None else own.to(part.device) for own, part in zip(known, parts, strict=True)]
            weight_BT = weight_BT * self.rule.correct(old_BT, spread(torch.cat(sampler), batch), mask_BT)
        credit_BT = spread(tokens.credit_N, batch)
        loss, metrics = self.rule.loss(spread(logprobs_N, batch), old_BT, credit_BT, mask_BT, weight_BT, **chosen)
        return loss, metrics if self.policy.is_value else {**metrics, "entropy_sum": tokens.entropy_N.sum()}

    def _leashed(
        self, batch: MicroBatch, rows: list[Row], logprobs_N: Tensor, weights_B: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        assert self.rule.leash is not None
        mask_BT = batch.mask_BT[:, 1:]
        ref_BT = spread(torch.cat([trained(rows[i], rows[i].ref_logprobs) for i in batch.index]), batch)
        weight_BT = weights_B[batch.index, None].expand(mask_BT.shape)
        return self.rule.leash(spread(logprobs_N, batch), ref_BT, mask_BT, weight_BT)

    def _apply(self) -> float:
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            if master is not parameter:
                master.grad = None if parameter.grad is None else parameter.grad.float()
        norm = torch.nn.utils.clip_grad_norm_(self.masters, self.rule.learning.max_grad_norm)
        if not torch.isfinite(norm):
            raise self._diverged(f"gradient is {norm.item()}")
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
