"""One policy's learner: rows in, optimiser steps out.

Whether an update moved the weights, by looking at some of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import compress

import torch
from torch import Tensor

from whet.errors import RunError
from whet.models.policy import Policy
from whet.models.scoring import MicroBatch, micro_batches, score, token_logprobs
from whet.objectives import aggregation_weights
from whet.seeds import seed_of
from whet.trainer.flat import Tokens, ages_of, drift_of, joined, trained
from whet.trainer.passes import (
    Sums,
    check_references,
    correction,
    effective_sizes,
    felt,
    minibatches,
    pass_over,
    taken_by,
)
from whet.trainer.terms import Term, Update, means_of
from whet.types import Row


class Learner:
    """Holds a policy's optimiser for one phase.

    The optimiser works on float32 copies where the weights are of a smaller type: a step of 5e-7 vanishes in bf16.
    """

    def __init__(self, policy: Policy, rule: Update) -> None:
        self.policy, self.rule = policy, rule
        self.parameters = [p for _, p in policy.trainable_parameters()]
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.masters = [p if p.dtype == torch.float32 else p.detach().float() for p in self.parameters]
        settings = rule.learning
        self.optimizer = torch.optim.AdamW(
            self.masters, lr=settings.learning_rate, betas=settings.betas, weight_decay=settings.weight_decay
        )
        self.num_updates = 0

    def update(self, rows: Sequence[Row], *, seed: int, rule: Update | None = None) -> dict[str, float]:
        """Learn from one step's rows: `num_epochs` passes over shuffled minibatches.

        Rows with nothing to train are dropped, and so are those that no term takes.

        Args:
            rule: this step's, where it differs from the one before.
        Returns: metrics without prefix, over the tokens that took part in a pass (see `Term.needs_credit`);
            `rows/without_credit` is the share of rows that did not. Empty where no row was left.
        """
        self.rule = rule or self.rule
        terms = self.rule.terms
        rows = [row for row in rows if row.num_trained and any(term.takes(row.kind) for term in terms)]
        if not rows:
            return {}
        settings = self.rule.learning
        check_references(terms, rows)
        taken = felt(terms, rows)
        old = self._old_logprobs(rows, taken)
        sums = Sums(terms)
        updates: list[dict[str, float]] = []
        drift: float | None = None
        before = some_weights(self.parameters)
        for epoch in range(settings.num_epochs):
            for chosen in minibatches(rows, settings.minibatch_rows, seed_of(seed, epoch)):
                updates.append(
                    self._step([rows[i] for i in chosen], [old[i] for i in chosen], [taken[i] for i in chosen], sums)
                )
                if (
                    len(updates) == 1 and self.rule.from_sampler
                ):  # nothing is learnt yet: by what the ratio is off 1, sampler and trainer differ
                    drift = sums.drift()
        if self.rule.proximal:
            drift = drift_of(list(compress(rows, taken)), list(compress(old, taken)))
        return {
            "loss/mean": sums.loss / len(updates),
            **sums.named(),
            **means_of(updates),
            **({} if drift is None else {"kl/sampler": drift}),
            **(
                {}
                if self.policy.is_value or not sums.of_terms
                else {"entropy": sums.entropy / max(sums.num_tokens, 1.0)}
            ),
            "optim/learning_rate": self.learning_rate(self.num_updates - 1),
            "optim/updates": float(len(updates)),
            "optim/moved": moved_share(before, self.parameters),
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
        """Of every row that a ratio is taken of, the sampler's logprobs, or this policy's as it is now where the update
        or the row asks for that (only if the row is taken). Of the others: none."""
        asked = [any(term.needs_old and term.takes(row.kind) for term in self.rule.terms) for row in rows]
        unscored = [
            i for i, row in enumerate(rows) if asked[i] and taken[i] and (self.rule.proximal or row.logprobs is None)
        ]
        scores = score(self.policy, [rows[i] for i in unscored], token_budget=self.rule.learning.token_budget)
        old = [trained(row.logprobs) if wanted else torch.empty(0) for row, wanted in zip(rows, asked, strict=True)]
        for i, values in zip(unscored, scores, strict=True):
            old[i] = values
        return old

    def _step(self, rows: list[Row], old: list[Tensor], taken: list[bool], sums: Sums) -> dict[str, float]:
        """One optimiser update on one minibatch, in as many passes as the token budget asks for."""
        ages = ages_of(rows, self.policy.version)
        weights = [self._weights(term, rows)[taken] for term in self.rule.terms]
        rows, old = list(compress(rows, taken)), list(compress(old, taken))
        batches = list(micro_batches(self.policy, rows, self.rule.learning.token_budget))
        observers = [make() for make in self.rule.observers]
        graded = any(term.needs_entropy for term in self.rule.terms)
        chosen: list[Mapping[str, float]] = [{} for _ in self.rule.terms]
        found: dict[str, float] = {}
        passes: list[tuple[MicroBatch, Tokens]] = []
        if len(batches) > 1 and any(term.choose for term in self.rule.terms):
            chosen, found = self._chosen([(batch, self._scored(batch, rows, old)) for batch in batches], rows)
        for batch in batches:
            with self.policy.recomputing():
                logprobs_N, entropy_N = token_logprobs(self.policy, batch, entropy=True, graded=graded)
            assert entropy_N is not None
            tokens = self._tokens(batch, rows, old, logprobs_N.detach(), entropy_N.detach())
            passes.append((batch, tokens))
            if len(batches) == 1 and any(term.choose for term in self.rule.terms):
                chosen, found = self._chosen([(batch, tokens)], rows)
            first, loss = self._losses(batch, rows, logprobs_N, entropy_N, tokens, weights, chosen, sums)
            for observer in observers:
                observer.saw(tokens, batch, first, logprobs_N, self.rule.terms[0].weight * weights[0])
            with self.policy.active():
                loss.backward()
            sums.loss += loss.item()
        if not rows:  # the update is made all the same: its momentum, and its place in the schedule
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
        if not self.policy.is_value:
            found |= effective_sizes(self.rule.terms, passes, rows)
        for observer in observers:
            found |= observer.before(chosen[0])
        found |= ages
        found["optim/grad_norm"] = self._apply()
        for observer in observers:
            found |= observer.after(self.policy, self.num_updates)
        return found

    def _weights(self, term: Term, rows: Sequence[Row]) -> Tensor:
        """[B] of each token of the minibatch's rows; 0 where the term does not take the row."""
        takes_B = torch.tensor([term.takes(row.kind) for row in rows])
        weight_B = torch.tensor([row.weight for row in rows])
        counts_B = torch.where(takes_B, torch.tensor([row.num_trained for row in rows]), 0)
        if term.of_bundles:
            bundles = {row.bundle for row in rows if term.takes(row.kind)}
            return torch.where(takes_B, weight_B / max(1, len(bundles)), 0.0).to(self.policy.device)
        shares = [row.share for row in rows]
        weights_B = aggregation_weights(
            counts_B, weight_B, term.aggregation, constant_length=term.constant_length,
            share_B=torch.tensor(shares) if any(share != 1 for share in shares) else None,
        )  # fmt: skip
        return weights_B.to(self.policy.device)

    def _chosen(
        self, passes: Sequence[tuple[MicroBatch, Tokens]], rows: Sequence[Row]
    ) -> tuple[list[Mapping[str, float]], dict[str, float]]:
        """What each term has to choose before its loss, from the tokens of its rows."""
        chosen: list[Mapping[str, float]] = []
        found: dict[str, float] = {}
        for term in self.rule.terms:
            if term.choose is None:
                chosen.append({})
                continue
            policy_N, old_N, credit_N, _ = joined([taken_by(term, *each, rows) for each in passes])
            if not len(policy_N):
                chosen.append({})
                continue
            if not (policy_N - old_N).isfinite().all():
                raise self._diverged("ratios are NaN or infinite")
            settings, metrics = term.choose(policy_N, old_N, credit_N)
            chosen.append(settings)
            found |= {f"{term.name}.{key}" if term.name else key: value for key, value in metrics.items()}
        return chosen, found

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

    def _tokens(
        self, batch: MicroBatch, rows: list[Row], old: list[Tensor], logprobs_N: Tensor, entropy_N: Tensor
    ) -> Tokens:
        credit_N = torch.cat([trained(rows[i].credit) for i in batch.index]).to(logprobs_N.device)
        parts = logprobs_N.detach().split([rows[i].num_trained for i in batch.index])
        # Where no ratio is taken, the old logprobs are the policy's own.
        of_rows = [old[i].to(own.device) if len(old[i]) else own for i, own in zip(batch.index, parts, strict=True)]
        return Tokens(logprobs_N, torch.cat(of_rows), credit_N, entropy_N)

    def _losses(
        self, batch: MicroBatch, rows: list[Row], logprobs_N: Tensor, entropy_N: Tensor, tokens: Tokens,
        weights: Sequence[Tensor], chosen: Sequence[Mapping[str, float]], sums: Sums,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The first term's loss, and the sum of all."""
        seen = pass_over(self.rule, batch, rows, logprobs_N, entropy_N, tokens)
        correction_BT = correction(self.rule, batch, rows, tokens, seen)
        losses: list[Tensor] = []
        for place, (term, weights_B, settings) in enumerate(zip(self.rule.terms, weights, chosen, strict=True)):
            own = [at for at, i in enumerate(batch.index) if term.takes(rows[i].kind)]
            if not own:
                losses.append(logprobs_N[:0].sum())  # 0, and an observer can still ask for its derivative
                continue
            weight_BT = weights_B[batch.index, None].expand(seen.mask.shape)
            if term.corrected and not term.of_bundles and correction_BT is not None:
                weight_BT = weight_BT * correction_BT
            of_term = seen.weighted(weight_BT)
            if len(own) < len(batch.index):
                of_term = of_term.of(own)
            loss, metrics = term.loss(of_term, **settings)
            sums.add(place, metrics | {"num_tokens": of_term.mask.sum()})
            losses.append(term.weight * loss)
        sums.entropy += tokens.entropy_N.sum().item()
        sums.num_tokens += len(tokens.entropy_N)
        return losses[0], sum(losses[1:], losses[0])

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

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.num_updates = int(state["num_updates"])
        for index, master in enumerate(self.masters):
            names = {n.partition(".")[2]: v for n, v in state.items() if n.startswith(f"{index}.")}
            if "master" in names:
                with torch.no_grad():
                    master.copy_(names.pop("master"))
            self.optimizer.state[master] = {
                name: value if name == "step" else value.to(master.device) for name, value in names.items()
            }


# --- how far weights moved --------------------------------------------------------------------------------------------


LOOKED_AT = 256
"""Weights of each tensor, evenly spread: enough to see any update, and next to no work."""


def some_weights(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Copies of at most so many weights of each tensor."""
    flat = [parameter.detach().reshape(-1) for parameter in parameters]
    return [each[:: max(1, -(-len(each) // LOOKED_AT))].clone() for each in flat]


def moved_share(before: Sequence[Tensor], parameters: Sequence[Tensor]) -> float:
    """Share of the weights looked at that are others now, in [0, 1].

    Args:
        before: what `some_weights` gave of the same parameters.
    """
    after = some_weights(parameters)
    counts = [(was != now).sum() for was, now in zip(before, after, strict=True)]
    return float(torch.stack([count.cpu() for count in counts]).sum()) / max(1, sum(map(len, before)))
