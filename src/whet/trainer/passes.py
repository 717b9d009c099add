"""Around the losses of an update: its minibatches, the passes that terms see, and sums over the minibatches."""

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
    """Sums over the minibatches of one call of `Learner.update`."""

    terms: Sequence[Term]
    """Of the update. The sums of each are under its index."""
    loss: float = 0.0
    entropy: float = 0.0
    num_tokens: float = 0.0
    of_terms: dict[int, dict[str, float]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))

    def add(self, place: int, metrics: Mapping[str, Tensor]) -> None:
        """Add a pass's sums to those of the term with this index (`_max`: take the larger)."""
        self._add(place, {key: value.item() for key, value in metrics.items()})

    def _add(self, place: int, values: Mapping[str, float]) -> None:
        sums = self.of_terms[place]
        for key, value in values.items():
            sums[key] = max(sums[key], value) if key.endswith("_max") else sums[key] + value

    @property
    def parts(self) -> tuple[float, float, float, dict[int, dict[str, float]]]:
        """The sums alone, for `merge` in another process."""
        return self.loss, self.entropy, self.num_tokens, {place: dict(sums) for place, sums in self.of_terms.items()}

    def merge(self, parts: tuple[float, float, float, dict[int, dict[str, float]]]) -> None:
        """Add the sums of another process's passes."""
        loss, entropy, num_tokens, of_terms = parts
        self.loss, self.entropy, self.num_tokens = (
            self.loss + loss,
            self.entropy + entropy,
            self.num_tokens + num_tokens,
        )
        for place, sums in of_terms.items():
            self._add(place, sums)

    def drift(self) -> float | None:
        """KL(old || policy) in nats a token, by the first term that takes ratios. None: none does, or of no token."""
        sums = next((sums for sums in self.of_terms.values() if "approx_kl_sum" in sums), None)
        return sums["approx_kl_sum"] / sums["num_tokens"] if sums is not None and sums["num_tokens"] else None

    def named(self) -> dict[str, float]:
        """All terms' sums as metrics, under their terms' names.

        Raises: ValueError where two terms report one metric.
        """
        metrics: dict[str, float] = {}
        for place, sums in self.of_terms.items():
            term_metrics = self.terms[place].prefixed(named(sums))
            if twice := sorted(term_metrics.keys() & metrics.keys()):
                raise ValueError(f"two terms of an update report {twice[0]}: give one of them a name of its own")
            metrics |= term_metrics
        return metrics


def rows_in_passes(terms: Sequence[Term], rows: Sequence[Row]) -> list[bool]:
    """Whether each row changes some term's loss (see `Term.needs_credit`), so that a pass has to compute it.

    Of a bundle all rows do, or none.
    """
    counts = [any(t.takes(row.kind) and (not t.needs_credit or has_credit(row)) for t in terms) for row in rows]
    bundles = {row.bundle for row, is_in in zip(rows, counts, strict=True) if is_in and row.bundle}
    return [is_in or row.bundle in bundles for row, is_in in zip(rows, counts, strict=True)]


def check_references(terms: Sequence[Term], rows: Sequence[Row]) -> None:
    """Refuse rows without the reference logprobs that a term needs.

    The term would otherwise hold them to a reference that gives every token a probability of 1.

    Raises: ValueError.
    """
    for term in terms:
        bare = [row for row in rows if term.needs_reference and row.ref_logprobs is None and term.takes(row.kind)]
        if bare:
            raise ValueError(
                f"a term{f' ({term.name})' if term.name else ''} needs a reference, but {len(bare)} of its rows, of "
                f"kind {bare[0].kind!r}, have no ref_logprobs: score them, or limit the term's kinds"
            )


def has_credit(row: Row) -> bool:
    """Whether any token of the row has credit, and the row weight."""
    return row.weight != 0 and bool(row.credit.any())


def minibatches(rows: Sequence[Row], size: int, seed: int) -> list[list[int]]:
    """The indices of each update's rows, shuffled. Those of a bundle stay together, and in order.

    A row counts by its share of its episode, so an episode in pieces counts as one row. Otherwise a few such episodes
    would leave their last pieces for an update by themselves.

    Args:
        size: rows of an update. A bundle may exceed it.
        seed: of the order.
    """
    units: dict[object, list[int]] = {}
    for i, row in enumerate(rows):
        units.setdefault(row.bundle or i, []).append(i)
    order = list(units.values())
    random.Random(seed).shuffle(order)
    batches: list[list[int]] = [[]]
    num_rows = 0
    for unit in order:
        count = max(1, round(sum(rows[i].share for i in unit)))
        if batches[-1] and num_rows + count > size:
            batches.append([])
            num_rows = 0
        batches[-1] += unit
        num_rows += count
    return batches


def effective_sizes(
    terms: Sequence[Term], passes: Sequence[tuple[Sequence[int], Tokens]], rows: Sequence[Row]
) -> dict[str, float]:
    """`ratio_diagnostics` of the rows whose ratio to older weights some term takes. Empty where none does.

    Args:
        passes: of the minibatch, each as its rows' indices and its tokens.
        rows: of the minibatch.
    """
    policy, old, counts = list[Tensor](), list[Tensor](), list[int]()
    for index, tokens in passes:
        sizes = [rows[i].num_trained for i in index]
        parts = zip(index, tokens.policy_N.split(sizes), tokens.old_N.split(sizes), strict=True)
        for i, policy_N, old_N in parts:
            if any(term.needs_old and term.takes(rows[i].kind) for term in terms):
                policy.append(policy_N)
                old.append(old_N)
                counts.append(len(policy_N))
    return ratio_diagnostics(torch.cat(policy), torch.cat(old), counts) if counts else {}


def tokens_of(term: Term, index: Sequence[int], tokens: Tokens, rows: Sequence[Row]) -> Tokens:
    """The tokens of the rows that a term takes.

    Args:
        index: of the pass's rows in the minibatch.
    """
    if term.kinds is None:
        return tokens
    takes = [term.takes(rows[i].kind) for i in index for _ in range(rows[i].num_trained)]
    chosen_N = torch.tensor(takes, device=tokens.policy_N.device)
    return Tokens(*(values[chosen_N] for values in (tokens.policy_N, tokens.old_N, tokens.credit_N, tokens.entropy_N)))


def make_pass(
    rule: Update, batch: MicroBatch, rows: Sequence[Row], logprobs_N: Tensor, entropy_N: Tensor, tokens: Tokens
) -> Pass:
    """What terms see of one pass. Its token weights are still 0.

    Args:
        rows: of the minibatch.
        logprobs_N: [N], with their gradient.
        entropy_N: [N], with its gradient where a term asks for it.
        tokens: of the pass, without gradient.
    """
    mask_BT = batch.mask_BT[:, 1:]
    rows_B = [rows[i] for i in batch.index]
    reference_BT = None
    if any(term.needs_reference for term in rule.terms):
        parts = [
            torch.zeros(row.num_trained) if row.ref_logprobs is None else trained(row.ref_logprobs) for row in rows_B
        ]
        reference_BT = spread(torch.cat(parts), batch)
    names = {name for row in rows_B for name in row.extra}
    numbers = {name: [row.extra.get(name, math.nan) for row in rows_B] for name in names}
    bundles: dict[str, list[tuple[int, int]]] = defaultdict(list)  # (index in the minibatch, in this pass)
    for at, row in enumerate(rows_B):
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
        bundles=tuple(tuple(at for _, at in sorted(members)) for members in bundles.values()),
    )


def correction(rule: Update, batch: MicroBatch, rows: Sequence[Row], tokens: Tokens, seen: Pass) -> Tensor | None:
    """[B, T] factors of the token weights, by `Update.correct`. None where the update corrects nothing.

    A row without the sampler's logprobs gets its old ones in their place.

    Args:
        rows: of the minibatch.
        seen: the whole pass.
    """
    if rule.correct is None:
        return None
    old = tokens.old_N.split([rows[i].num_trained for i in batch.index])
    sampler = [
        old_N if rows[i].logprobs is None else trained(rows[i].logprobs).to(old_N.device)
        for i, old_N in zip(batch.index, old, strict=True)
    ]
    return rule.correct(seen.old, spread(torch.cat(sampler), batch), seen.mask)
