"""Logprobs of given tokens under a policy: the one place where logits become logprobs, for trainer and engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whet.models.policy import Policy
from whet.types import Row

HEAD_CHUNK = 1024
"""Trained tokens whose logits are computed at one time. Without gradient no more than these exist; with it, the
backward pass keeps each chunk's, so `token_budget` bounds memory there."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows padded on the right to one length. B rows, T tokens; position t holds the token that t-1 predicts."""

    index: list[int]
    """Which rows of the whole list these are."""
    tokens_BT: Tensor
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
        yield MicroBatch(index, tokens.to(device), mask.to(device), temperature.to(device))


def token_logprobs(policy: Policy, batch: MicroBatch, *, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
    """Logprobs of the batch's trained tokens under `softmax(logits / temperature)`.

    Returns: [N] float32 in the order of `batch.mask_BT` flattened (N trained tokens), and their distributions'
    entropies [N] (detached) if asked for. Causal attention with padding on the right needs no attention mask.
    """
    with policy.active():
        predicting_BT = batch.mask_BT[:, 1:]
        hidden_NH = _hidden(policy, batch.tokens_BT)[:, :-1][predicting_BT]
        targets_N = batch.tokens_BT[:, 1:][predicting_BT]
        temperature_N = batch.temperature_B[:, None].expand(predicting_BT.shape)[predicting_BT]
        logprobs, entropies = [], []
        for at in range(0, len(targets_N), HEAD_CHUNK):
            part = slice(at, at + HEAD_CHUNK)
            logits = head(policy, hidden_NH[part]) / temperature_N[part, None]
            every = torch.log_softmax(logits, dim=-1)
            logprobs.append(every.gather(-1, targets_N[part, None]).squeeze(-1))
            if entropy:
                entropies.append(-(every.detach().exp() * every.detach()).sum(-1))
        empty = hidden_NH.new_zeros(0, dtype=torch.float32)
        return torch.cat([empty, *logprobs]), torch.cat([empty, *entropies]) if entropy else None


def _hidden(policy: Policy, tokens_BT: Tensor) -> Tensor:
    """[B, T, H] last hidden states, or [B, T, V] logits where the head cannot be applied on its own."""
    model = policy.causal_lm
    if policy.full_logits:
        return model(input_ids=tokens_BT, use_cache=False).logits
    return model.get_decoder()(input_ids=tokens_BT, use_cache=False).last_hidden_state


def head(policy: Policy, hidden: Tensor) -> Tensor:
    """Float32 logits of hidden states (or logits themselves, see `_hidden`)."""
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
