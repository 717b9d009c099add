"""Logprobs of given tokens under a policy: the one place where logits become logprobs, for trainer and engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whet.models.lean import CausalRows, LeanDecoder
from whet.models.policy import Policy
from whet.types import Row

LOGITS = 1 << 22
"""Logits that exist at one time, in the forward pass and in the backward pass (16 MiB of float32): the head works on
as many tokens at once as have so many, and where there are more, on chunks that are computed again for the gradient."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows padded on the right to one length. B rows, T tokens; position t holds the token that t-1 predicts."""

    index: list[int]
    """Which rows of the whole list these are."""
    tokens_BT: Tensor
    lengths: list[int]
    mask_BT: Tensor
    """True where the token trains."""
    temperature_B: Tensor


def micro_batches(rows: Sequence[Row], pad_id: int, device: torch.device, token_budget: int) -> Iterator[MicroBatch]:
    """Rows of like length together, each batch within `token_budget` tokens, padding included. The longest come
    first, so that running out of memory happens at once or never."""
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i].tokens))
    while order:
        longest = len(rows[order[0]].tokens)
        take = max(1, token_budget // longest)
        index, order = order[:take], order[take:]
        tokens = torch.full((len(index), longest), pad_id, dtype=torch.long)
        mask = torch.zeros((len(index), longest), dtype=torch.bool)
        for place, i in enumerate(index):
            count = len(rows[i].tokens)
            tokens[place, :count] = torch.tensor(rows[i].tokens)
            mask[place, :count] = torch.tensor(rows[i].loss_mask)
        mask[:, 0] = False  # nothing predicts the first token
        temperature = torch.tensor([rows[i].temperature for i in index], dtype=torch.float32)
        lengths = [len(rows[i].tokens) for i in index]
        yield MicroBatch(index, tokens.to(device), lengths, mask.to(device), temperature.to(device))


def token_logprobs(policy: Policy, batch: MicroBatch, *, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
    """Logprobs of the batch's trained tokens under `softmax(logits / temperature)`.

    Returns: [N] float32 in the order of `batch.mask_BT` flattened (N trained tokens), and their distributions'
    entropies [N] (detached) if asked for. Causal attention with padding on the right needs no attention mask.
    """
    with policy.active():
        predicting_BT = batch.mask_BT[:, 1:]
        hidden_NH = _predicting_states(policy, batch)
        targets_N = batch.tokens_BT[:, 1:][predicting_BT]
        temperature_N = batch.temperature_B[:, None].expand(predicting_BT.shape)[predicting_BT]
        vocabulary = policy.causal_lm.config.get_text_config().vocab_size
        chunk = max(1, LOGITS // vocabulary)
        parts = [
            (hidden_NH[at : at + chunk], targets_N[at : at + chunk], temperature_N[at : at + chunk])
            for at in range(0, len(targets_N), chunk)
        ]
        again = len(parts) > 1 and hidden_NH.requires_grad
        found = [
            checkpoint(_of_chunk, policy, *part, entropy, use_reentrant=False)
            if again
            else _of_chunk(policy, *part, entropy)
            for part in parts
        ]
        empty = hidden_NH.new_zeros(0, dtype=torch.float32)
        logprobs_N = torch.cat([empty, *(logprobs for logprobs, _ in found)])
        return logprobs_N, torch.cat([empty, *(each for _, each in found)]) if entropy else None


def _of_chunk(
    policy: Policy, hidden_NH: Tensor, targets_N: Tensor, temperature_N: Tensor, entropy: bool
) -> tuple[Tensor, Tensor]:
    """Logprobs of the targets, and entropies (empty if not asked for)."""
    every_NV = torch.log_softmax(head(policy, hidden_NH) / temperature_N[:, None], dim=-1)
    logprobs_N = every_NV.gather(-1, targets_N[:, None]).squeeze(-1)
    every_NV = every_NV.detach()
    return logprobs_N, -(every_NV.exp() * every_NV).sum(-1) if entropy else logprobs_N.new_zeros(0)


def _predicting_states(policy: Policy, batch: MicroBatch) -> Tensor:
    """[N, H] last hidden states at the places that predict a trained token, or [N, V] logits where the head cannot be
    applied on its own."""
    model = policy.causal_lm
    predicting_BT = F.pad(batch.mask_BT[:, 1:], (0, 1))
    lean = None if policy.full_logits else LeanDecoder.of(model)
    if lean is not None:
        rows = CausalRows(batch.lengths, batch.tokens_BT.device)
        hidden_MH = lean(rows.flat(batch.tokens_BT), rows.positions_N, rows)
        return hidden_MH[rows.flat(predicting_BT)]
    if policy.full_logits:
        return model(input_ids=batch.tokens_BT, use_cache=False).logits[predicting_BT]
    return model.get_decoder()(input_ids=batch.tokens_BT, use_cache=False).last_hidden_state[predicting_BT]


def head(policy: Policy, hidden: Tensor) -> Tensor:
    """Float32 logits of hidden states (or of logits, see `Policy.full_logits`)."""
    return (hidden if policy.full_logits else policy.causal_lm.get_output_embeddings()(hidden)).float()


@torch.no_grad()
def score(policy: Policy, rows: Sequence[Row], *, token_budget: int) -> list[Tensor]:
    """Logprobs of each row's trained tokens, [N_row] on the CPU, without gradient."""
    scores: list[Tensor] = [torch.empty(0)] * len(rows)
    for batch in micro_batches(rows, policy.tokenizer.pad_token_id or 0, policy.device, token_budget):
        logprobs, _ = token_logprobs(policy, batch)
        counts = batch.mask_BT[:, 1:].sum(-1).tolist()
        for i, part in zip(batch.index, logprobs.cpu().split(counts), strict=True):
            scores[i] = part
    return scores
