"""The learner: turns one policy's rows into optimiser steps, under an update's terms."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from itertools import compress

import torch
from torch import Tensor

from whet.errors import RunError
from whet.models.group import ALONE, Group, own_part, whole
from whet.models.lean import lean_decoder
from whet.models.narrow import multiplying
from whet.models.policy import Policy
from whet.models.scoring import MicroBatch, micro_batches, score_here, share_of, token_logprobs
from whet.objectives import aggregation_weights
from whet.seeds import seed_of
from whet.trainer.flat import Tokens, ages_of, drift_in_passes, drift_of, joined, trained
from whet.trainer.passes import (
    Sums,
    check_references,
    correction,
    effective_sizes,
    make_pass,
    minibatches,
    rows_in_passes,
    tokens_of,
)
from whet.trainer.process import exact_kernels
from whet.trainer.products import gradient_error
from whet.trainer.terms import Term, Update, means_of
from whet.types import Row


class Learner:
    """Holds a policy's optimiser for one phase.

    Where the weights are of a smaller type, the optimiser works on float32 copies: a step of 5e-7 vanishes in bf16.

    Args:
        group: the processes that train the policy together. Each has a learner, is given all rows, and makes its share
            of the passes. The loss is a sum, so gradients add up. Choices, sums and observers see all tokens.
    """

    def __init__(self, policy: Policy, rule: Update, group: Group = ALONE) -> None:
        self.policy, self.rule, self.group = policy, rule, group
        self.parameters = [p for _, p in policy.trainable_parameters()]
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.masters = [p if p.dtype == torch.float32 else p.detach().float() for p in self.parameters]
        settings = rule.learning
        # torch chooses a loop over tensors on a CPU. Its fused kernel takes a quarter of the time, and no memory.
        is_on_cpu = all(master.device.type == "cpu" for master in self.masters)
        self.optimizer = torch.optim.AdamW(
            self.masters,
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=is_on_cpu or None,
        )
        self.num_updates = 0

    def update(self, rows: Sequence[Row], *, seed: int, rule: Update | None = None) -> dict[str, float]:
        """Learn from one step's rows: `num_epochs` passes over shuffled minibatches.

        Rows with nothing to train are dropped, and so are those that no term takes.

        Args:
            seed: of the order of the rows.
            rule: this step's. None: the rule of the step before.
        Returns: metrics without prefix, over the tokens that took part in a pass (see `Term.needs_credit`).
            `rows/without_credit` is the share of rows that did not. Empty where no row is left.
        Raises: RunError where a gradient or a ratio is NaN or infinite. ValueError where a row lacks the reference
            logprobs that a term needs, or two terms report one metric.
        """
        self.rule = rule or self.rule
        with multiplying(self.rule.learning.products):
            return self._update(rows, seed)

    def _update(self, rows: Sequence[Row], seed: int) -> dict[str, float]:
        terms = self.rule.terms
        rows = [row for row in rows if row.num_trained and any(term.takes(row.kind) for term in terms)]
        if not rows:
            return {}
        settings = self.rule.learning
        check_references(terms, rows)
        taken = rows_in_passes(terms, rows)
        batches = [minibatches(rows, settings.minibatch_rows, seed_of(seed, n)) for n in range(settings.num_epochs)]
        in_pass = self.rule.scored_in_pass and sum(map(len, batches)) == 1
        old = [torch.empty(0) for _ in rows] if in_pass else self._old_logprobs(rows, taken)
        sums = Sums(terms)
        error = self._gradient_error([row for row, is_in in zip(rows, taken, strict=True) if is_in])
        updates: list[dict[str, float]] = []
        drift: float | None = None
        before = some_weights(self.parameters)
        for index in itertools.chain.from_iterable(batches):
            updates.append(
                self._step([rows[i] for i in index], [old[i] for i in index], [taken[i] for i in index], sums)
            )
            # In the first update the weights are still the sampler's: ratios off 1 are the engine's difference.
            if len(updates) == 1 and self.rule.from_sampler:
                drift = sums.drift()
        if in_pass:
            drift = updates[0].pop("kl/sampler", None)
        elif self.rule.proximal:
            drift = drift_of(list(compress(rows, taken)), list(compress(old, taken)))
        metrics = {"loss/mean": sums.loss / len(updates), **sums.named(), **means_of(updates)}
        if drift is not None:
            metrics["kl/sampler"] = drift
        if sums.of_terms and not self.policy.is_value:
            metrics["entropy"] = sums.entropy / max(sums.num_tokens, 1.0)
        return (
            metrics
            | error
            | {
                "optim/learning_rate": self.rule.learning_rate(self.num_updates - 1),
                "optim/updates": float(len(updates)),
                "optim/moved": moved_share(before, self.parameters, self.group),
                "rows/without_credit": 1 - sum(taken) / len(taken),
            }
        )

    def _gradient_error(self, rows: Sequence[Row]) -> dict[str, float]:
        """The error of the gradient's products, on one pass before the phase's first update. Empty: not measured."""
        settings = self.rule.learning
        if settings.products == "float32" or self.num_updates or not rows:
            return {}
        batch = next(iter(micro_batches(self.policy, rows, settings.token_budget)))
        return {"optim/products_error": gradient_error(self.policy, batch, self.parameters, settings.products)}

    def _old_logprobs(self, rows: Sequence[Row], taken: Sequence[bool]) -> list[Tensor]:
        """[N_row] for each row: the logprobs of the ratio's denominator. Empty where no term takes the row's ratio.

        They are the sampler's. With `Update.proximal`, or where the row has none, they are this policy's as it is now.
        Only rows that take part in a pass are scored.
        """
        needs_old = [any(term.needs_old and term.takes(row.kind) for term in self.rule.terms) for row in rows]
        unscored = [
            i
            for i, row in enumerate(rows)
            if needs_old[i] and taken[i] and (self.rule.proximal or row.logprobs is None)
        ]
        budget = self.rule.learning.token_budget
        scores = score_here(self.policy, [rows[i] for i in unscored], token_budget=budget, group=self.group)
        old = [trained(row.logprobs) if needs else torch.empty(0) for row, needs in zip(rows, needs_old, strict=True)]
        for i, logprobs in zip(unscored, scores, strict=True):
            old[i] = logprobs
        return old

    def _step(self, rows: list[Row], old: list[Tensor], taken: list[bool], sums: Sums) -> dict[str, float]:
        """One optimiser update on one minibatch, in as many passes as the token budget needs.

        Args:
            taken: whether each row takes part in a pass. The others count in the averages of the loss alone.
            sums: of the call of `update`; this step adds to them.
        Returns: the update's metrics.
        """
        ages = ages_of(rows, self.policy.version)
        weights = [self._weights(term, rows)[taken] for term in self.rule.terms]
        rows, old = list(compress(rows, taken)), list(compress(old, taken))
        share = share_of(self.policy, rows, self.rule.learning.token_budget, self.group)
        observers = [make() for make in self.rule.observers]
        graded = any(term.needs_entropy for term in self.rule.terms)
        has_choices = any(term.choose for term in self.rule.terms)
        chosen: list[Mapping[str, float]] = [{} for _ in self.rule.terms]
        metrics: dict[str, float] = {}
        passes: list[Seen] = []
        step_sums = sums if self.group.size == 1 else Sums(self.rule.terms)
        if has_choices and len(share.batches) > 1:
            scored = [self._score(batch, rows, old) for batch in share.batches][: share.num_own]
            chosen, metrics = self._choose(self._gathered(scored), rows)
        for number, batch in enumerate(share.batches):
            with self.policy.recomputing():
                logprobs_N, entropy_N = token_logprobs(self.policy, batch, entropy=True, graded=graded)
            assert entropy_N is not None
            # Of shards, the result's own gradient gathers weights: an observer asks for that of this copy.
            logprobs_N = logprobs_N.view_as(logprobs_N)
            tokens = self._tokens(batch, rows, old, logprobs_N.detach(), entropy_N.detach())
            is_own = number < share.num_own
            if is_own:
                passes.append((batch.index, tokens))
            if has_choices and len(share.batches) == 1:
                chosen, metrics = self._choose(self._gathered(passes), rows)
            if is_own:
                first_loss, loss = self._losses(batch, rows, logprobs_N, entropy_N, tokens, weights, chosen, step_sums)
                for observer in observers:
                    observer.saw(tokens, batch, first_loss, logprobs_N, self.rule.terms[0].weight * weights[0])
            else:
                loss = 0.0 * logprobs_N.sum()
            with self.policy.active():
                self._backward(loss, logprobs_N, entropy_N)
            step_sums.loss += loss.item()
        if not rows:  # an update without gradient still counts: momentum moves on, and so does the schedule
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter)
        if self.group.size > 1:
            for part in self.group.gather(step_sums.parts):
                sums.merge(part)
            for observer, others in zip(observers, zip(*self.group.gather(observers), strict=True), strict=True):
                observer.join(others)
        if not self.policy.is_value:
            metrics |= effective_sizes(self.rule.terms, self._gathered(passes), rows)
        if self.rule.scored_in_pass and not any(map(len, old)):
            drift = drift_in_passes(self._gathered(passes), rows)
            metrics |= {} if drift is None else {"kl/sampler": drift}
        for observer in observers:
            metrics |= observer.before(chosen[0])
        metrics |= ages
        metrics["optim/grad_norm"] = self._apply()
        for observer in observers:
            metrics |= observer.after(self.policy, self.num_updates)
        return metrics

    def _backward(self, loss: Tensor, logprobs_N: Tensor, entropy_N: Tensor) -> None:
        """Add the loss's gradient to the weights'.

        On a GPU the model's part of it takes deterministic kernels alone, where the model is one whose operations we
        know to have them. A loss of the user's may use others.
        """
        if logprobs_N.device.type != "cuda" or lean_decoder(self.policy) is None:
            loss.backward()
        else:
            backward_through(loss, [logprobs_N, entropy_N])
        self._add_to_masters()

    def _add_to_masters(self) -> None:
        """Add the gradients of weights in a narrower type to those of their float32 copies: a sum over many passes
        would be rounded at each of them."""
        for master, parameter in zip(self.masters, self.parameters, strict=True):
            if master is parameter or parameter.grad is None:
                continue
            gradient = parameter.grad.float()
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            parameter.grad = None

    def _gathered(self, passes: list[Seen]) -> list[Seen]:
        """The passes of all processes of the group."""
        return [seen for of_process in self.group.gather(passes) for seen in of_process]

    def _weights(self, term: Term, rows: Sequence[Row]) -> Tensor:
        """[B] of the minibatch's rows: the weight of each token of the row. 0 where the term does not take it."""
        takes_B = torch.tensor([term.takes(row.kind) for row in rows])
        weight_B = torch.tensor([row.weight for row in rows])
        counts_B = torch.where(takes_B, torch.tensor([row.num_trained for row in rows]), 0)
        if term.of_bundles:
            bundles = {row.bundle for row in rows if term.takes(row.kind)}
            return torch.where(takes_B, weight_B / max(1, len(bundles)), 0.0).to(self.policy.device)
        shares = [row.share for row in rows]
        weights_B = aggregation_weights(
            counts_B,
            weight_B,
            term.aggregation,
            constant_length=term.constant_length,
            share_B=torch.tensor(shares) if any(share != 1 for share in shares) else None,
        )
        return weights_B.to(self.policy.device)

    def _choose(
        self, passes: Sequence[Seen], rows: Sequence[Row]
    ) -> tuple[list[Mapping[str, float]], dict[str, float]]:
        """Each term's settings that depend on all tokens of its rows, and metrics (see `Term.choose`)."""
        chosen: list[Mapping[str, float]] = []
        metrics: dict[str, float] = {}
        for term in self.rule.terms:
            if term.choose is None:
                chosen.append({})
                continue
            policy_N, old_N, credit_N, _ = joined([tokens_of(term, index, tokens, rows) for index, tokens in passes])
            if not len(policy_N):
                chosen.append({})
                continue
            if not (policy_N - old_N).isfinite().all():
                raise self._diverged("ratios are NaN or infinite")
            settings, term_metrics = term.choose(policy_N, old_N, credit_N)
            chosen.append(settings)
            metrics |= term.prefixed(term_metrics)
        return chosen, metrics

    def _diverged(self, how: str) -> RunError:
        return RunError(
            f"policy {self.policy.name!r} has diverged, its {how} at update {self.num_updates + 1}: lower the learning "
            "rate, or look for an unbounded reward; the last checkpoint is whole"
        )

    def _score(self, batch: MicroBatch, rows: list[Row], old: list[Tensor]) -> Seen:
        with torch.no_grad():
            logprobs_N, entropy_N = token_logprobs(self.policy, batch, entropy=True)
        assert entropy_N is not None
        return batch.index, self._tokens(batch, rows, old, logprobs_N, entropy_N)

    def _tokens(
        self, batch: MicroBatch, rows: list[Row], old: list[Tensor], logprobs_N: Tensor, entropy_N: Tensor
    ) -> Tokens:
        """The trained tokens of one pass, from the logprobs and entropies that it computed."""
        credit_N = torch.cat([trained(rows[i].credit) for i in batch.index]).to(logprobs_N.device)
        logprobs = logprobs_N.detach().split([rows[i].num_trained for i in batch.index])
        # Where no term takes a row's ratio, the new logprobs stand in for the old ones.
        old = [old[i].to(new.device) if len(old[i]) else new for i, new in zip(batch.index, logprobs, strict=True)]
        return Tokens(logprobs_N, torch.cat(old), credit_N, entropy_N)

    def _losses(
        self,
        batch: MicroBatch,
        rows: list[Row],
        logprobs_N: Tensor,
        entropy_N: Tensor,
        tokens: Tokens,
        weights: Sequence[Tensor],
        chosen: Sequence[Mapping[str, float]],
        sums: Sums,
    ) -> tuple[Tensor, Tensor]:
        """The first term's loss on one pass, and the sum of all terms' losses.

        Args:
            logprobs_N, entropy_N: [N], with their gradient. `tokens` holds them without.
            weights: [B] for each term, of the minibatch's rows that take part in passes.
            chosen: for each term, the settings that `_choose` gave.
        """
        everything = make_pass(self.rule, batch, rows, logprobs_N, entropy_N, tokens)
        correction_BT = correction(self.rule, batch, rows, tokens, everything)
        losses: list[Tensor] = []
        for place, (term, weights_B, settings) in enumerate(zip(self.rule.terms, weights, chosen, strict=True)):
            taken = [at for at, i in enumerate(batch.index) if term.takes(rows[i].kind)]
            if not taken:
                losses.append(logprobs_N[:0].sum())  # 0, and an observer can still ask for its derivative
                continue
            weight_BT = weights_B[batch.index, None].expand(everything.mask.shape)
            if term.corrected and not term.of_bundles and correction_BT is not None:
                weight_BT = weight_BT * correction_BT
            seen = everything.weighted(weight_BT)
            if len(taken) < len(batch.index):
                seen = seen.of(taken)
            loss, metrics = term.loss(seen, **settings)
            sums.add(place, metrics | {"num_tokens": seen.mask.sum()})
            losses.append(term.weight * loss)
        sums.entropy += tokens.entropy_N.sum().item()
        sums.num_tokens += len(tokens.entropy_N)
        return losses[0], sum(losses[1:], losses[0])

    def _apply(self) -> float:
        """Make the optimiser's step from the parameters' gradients.

        Returns: the gradient's norm before it was clipped.
        Raises: RunError where the norm is NaN or infinite; the weights are unchanged then.
        """
        self._add_to_masters()
        norm = whole(torch.nn.utils.clip_grad_norm_(self.masters, self.rule.learning.max_grad_norm))
        if not torch.isfinite(norm):
            raise self._diverged(f"gradient is {norm.item()}")
        for group in self.optimizer.param_groups:
            group["lr"] = self.rule.learning_rate(self.num_updates)
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
        """End the phase: the policy's weights no longer train."""
        for parameter in self.parameters:
            parameter.requires_grad_(False)
            parameter.grad = None

    def state(self) -> dict[str, Tensor]:
        """The optimiser's state as flat tensors: safetensors holds nothing else, and loading it runs no code.

        All processes of a group have to call it. Rank 0 gets it, and the others get the number of updates alone: no
        machine has memory for a state in each."""
        state: dict[str, Tensor] = {"num_updates": torch.tensor(self.num_updates)}

        def add(name: str, value: Tensor) -> None:
            gathered = whole(value.detach())
            if self.group.rank == 0:
                state[name] = gathered.cpu().contiguous()

        for index, master in enumerate(self.masters):
            for name, value in self.optimizer.state.get(master, {}).items():
                add(f"{index}.{name}", value)
            if master is not self.parameters[index]:
                add(f"{index}.master", master)
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from what `state` gave. In a group: from this process's parts of it.

        See `whet.models.sharding.spread_like`.
        """
        self.num_updates = int(state["num_updates"])
        for index, master in enumerate(self.masters):
            values = {name.partition(".")[2]: value for name, value in state.items() if name.startswith(f"{index}.")}
            if "master" in values:
                with torch.no_grad():
                    master.copy_(values.pop("master"))
            self.optimizer.state[master] = {
                name: value if name == "step" else value.to(master.device) for name, value in values.items()
            }


def backward_through(loss: Tensor, outputs: Sequence[Tensor]) -> None:
    """`loss.backward()` in two parts: from the loss to a model's outputs, and from there on by deterministic kernels.

    Args:
        outputs: the loss depends on weights through these alone. Those without a gradient are left out.
    """
    outputs = [output for output in outputs if output.requires_grad]
    slopes = torch.autograd.grad(loss, outputs, allow_unused=True)
    reached = [(output, slope) for output, slope in zip(outputs, slopes, strict=True) if slope is not None]
    with exact_kernels(loss.device):
        torch.autograd.backward([output for output, _ in reached], [slope for _, slope in reached])


Seen = tuple[list[int], Tokens]
"""The rows of a pass, by their indices in the minibatch, and their trained tokens."""
NUM_WATCHED = 256
"""Weights of each tensor that are compared, evenly spread: enough to see any update, and next to no work."""


def some_weights(parameters: Sequence[Tensor]) -> list[Tensor]:
    """Copies of at most `NUM_WATCHED` weights of each tensor, or of this process's part of it."""
    flat = [own_part(parameter.detach()).reshape(-1) for parameter in parameters]
    return [weights[:: max(1, -(-len(weights) // NUM_WATCHED))].clone() for weights in flat]


def moved_share(before: Sequence[Tensor], parameters: Sequence[Tensor], group: Group = ALONE) -> float:
    """Share of the watched weights that have changed, in [0, 1].

    Args:
        before: from `some_weights`, of the same parameters.
    """
    after = some_weights(parameters)
    counts = [(was != now).sum() for was, now in zip(before, after, strict=True)]
    num_moved = float(torch.stack([count.cpu() for count in counts]).sum())
    moved, watched = zip(*group.gather((num_moved, sum(map(len, before)))), strict=True)
    return sum(moved) / max(1, sum(watched))
