"""What an update does with its rows around the losses: which go together, what terms see of a pass, what adds up."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whet.models.scoring import MicroBatch
from whet.objectives import ratio_diagnostics
from whet.trainer.flat import Tokens, spread, trained
from whet.trainer.terms import Pass, Term, Update, named
from whet.types import Row


@dataclass
class Sums:
    """What a call of `Learner.update` adds up over its minibatches."""

    terms: Sequence[Term]
    loss: float = 0.0
    entropy: float = 0.0
    num_tokens: float = 0.0
    of_terms: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))

    def add(self, place: int, metrics: Mapping[str, Tensor]) -> None:
        sums = self.of_terms[place]
        for key, value in metrics.items():
            sums[key] = max(sums[key], value.item()) if key.endswith("_max") else sums[key] + value.item()

    def drift(self) -> float | None:
        """The mean KL from old weights to the policy, by the first term that takes ratios. None: none does."""
        sums = next((found for found in self.of_terms.values() if "approx_kl_sum" in found), None)
        return None if sums is None else sums["approx_kl_sum"] / max(sums["num_tokens"], 1.0)

    def named(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for place, sums in self.of_terms.items():
            name = self.terms[place].name
            own = {f"{name}.{key}" if name else key: value for key, value in named(sums).items()}
            if twice := sorted(own.keys() & found.keys()):
                raise ValueError(f"two terms of an update report {twice[0]}: give one of them a name of its own")
            found |= own
        return found


def felt(terms: Sequence[Term], rows: Sequence[Row]) -> list[bool]:
    """Which rows a term feels (see `Term.needs_credit`); of a bundle all or none."""
    found = [any(t.takes(row.kind) and (not t.needs_credit or has_credit(row)) for t in terms) for row in rows]
    bundles = {row.bundle for row, each in zip(rows, found, strict=True) if each and row.bundle}
    return [each or row.bundle in bundles for row, each in zip(rows, found, strict=True)]


def check_references(terms: Sequence[Term], rows: Sequence[Row]) -> None:
    """Else a row without them would be held to a reference that gives every token a probability of 1."""
    for term in terms:
        bare = [row for row in rows if term.needs_reference and row.ref_logprobs is None and term.takes(row.kind)]
        if bare:
            raise ValueError(
                f"a term{f' ({term.name})' if term.name else ''} needs a reference, but {len(bare)} of its rows, of "
                f"kind {bare[0].kind!r}, have no ref_logprobs: score them, or limit the term's kinds"
            )


def has_credit(row: Row) -> bool:
    return row.weight != 0 and bool(row.credit.any())


def minibatches(rows: Sequence[Row], size: int, seed: int) -> list[list[int]]:
    """Indices of the rows of each update, shuffled; those of a bundle stay together, and in order. The rows of one
    episode count as one: else a few that came in pieces would leave an update of their own for the last of them."""
    units: dict[object, list[int]] = {}
    for i, row in enumerate(rows):
        units.setdefault(row.bundle or i, []).append(i)
    order = list(units.values())
    random.Random(seed).shuffle(order)
    found: list[list[int]] = [[]]
    taken = 0
    for unit in order:
        count = max(1, round(sum(rows[i].share for i in unit)))
        if found[-1] and taken + count > size:
            found.append([])
            taken = 0
        found[-1] += unit
        taken += count
    return found


def effective_sizes(
    terms: Sequence[Term], passes: Sequence[tuple[MicroBatch, Tokens]], rows: Sequence[Row]
) -> dict[str, float]:
    """`ratio_diagnostics` of the rows whose ratio to older weights a term takes; empty where none does.

    Args:
        rows: of the minibatch.
    """
    policy, old, counts = list[Tensor](), list[Tensor](), list[int]()
    for batch, tokens in passes:
        sizes = [rows[i].num_trained for i in batch.index]
        parts = zip(batch.index, tokens.policy_N.split(sizes), tokens.old_N.split(sizes), strict=True)
        for i, policy_N, old_N in parts:
            if any(term.needs_old and term.takes(rows[i].kind) for term in terms):
                policy.append(policy_N)
                old.append(old_N)
                counts.append(len(policy_N))
    return ratio_diagnostics(torch.cat(policy), torch.cat(old), counts) if counts else {}


def taken_by(term: Term, batch: MicroBatch, tokens: Tokens, rows: Sequence[Row]) -> Tokens:
    """The tokens of the rows that a term takes."""
    if term.kinds is None:
        return tokens
    takes = [term.takes(rows[i].kind) for i in batch.index for _ in range(rows[i].num_trained)]
    chosen_N = torch.tensor(takes, device=tokens.policy_N.device)
    return Tokens(*(values[chosen_N] for values in (tokens.policy_N, tokens.old_N, tokens.credit_N, tokens.entropy_N)))


def pass_over(
    rule: Update, batch: MicroBatch, rows: Sequence[Row], logprobs_N: Tensor, entropy_N: Tensor, tokens: Tokens
) -> Pass:
    """What terms see of a pass, with token weights still 0.

    Args:
        rows: of the minibatch.
        logprobs_N: with their gradient; so are the entropies, where a term asks for it.
    """
    mask_BT = batch.mask_BT[:, 1:]
    found = [rows[i] for i in batch.index]
    reference_BT = None
    if any(term.needs_reference for term in rule.terms):
        known = [row.ref_logprobs for row in found]
        counts = [row.num_trained for row in found]
        parts = [torch.zeros(n) if own is None else trained(own) for own, n in zip(known, counts, strict=True)]
        reference_BT = spread(torch.cat(parts), batch)
    names = {name for row in found for name in row.extra}
    numbers = {name: [row.extra.get(name, math.nan) for row in found] for name in names}
    bundles: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, row in enumerate(found):
        if row.bundle:
            bundles[row.bundle].append((batch.index[at], at))
    return Pass(
        policy=spread(logprobs_N, batch),
        old=spread(tokens.old_N, batch),
        reference=reference_BT,
        credit=spread(tokens.credit_N, batch),
        entropy=spread(entropy_N, batch),
        mask=mask_BT,
        weight=torch.zeros(mask_BT.shape, device=mask_BT.device),
        extra={name: torch.tensor(values, device=mask_BT.device) for name, values in numbers.items()},
        bundles=tuple(tuple(at for _, at in sorted(each)) for each in bundles.values()),
    )


def correction(rule: Update, batch: MicroBatch, rows: Sequence[Row], tokens: Tokens, seen: Pass) -> Tensor | None:
    """[B, T] factors of the token weights; None where nothing is corrected."""
    if rule.correct is None:
        return None
    parts = tokens.old_N.split([rows[i].num_trained for i in batch.index])
    known = [rows[i].logprobs for i in batch.index]
    sampler = [part if own is None else trained(own).to(part.device) for own, part in zip(known, parts, strict=True)]
    return rule.correct(seen.old, spread(torch.cat(sampler), batch), seen.mask)
