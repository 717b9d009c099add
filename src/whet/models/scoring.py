"""Logprobs of tokens under a policy: the one place where logits become logprobs, for trainer and engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from whet.models.group import ALONE, Group
from whet.models.lean import CausalRows, lean_decoder
from whet.models.narrow import is_narrow
from whet.models.policy import Policy
from whet.types import Row

LOGITS = {"cpu": 1 << 22, "cuda": 1 << 27}
"""Logits that exist at one time, in the forward pass and in the backward pass, by kind of device (16 and 512 MiB of
float32), but for `head_chunk`. The head works on chunks of as many tokens as have so many. Several chunks are computed
again for the gradient (`ChunkedLogprobs`)."""
ID_BYTES = 4
"""Of a token's id in a row."""
UNSHARED = 4
"""Most tokens of a micro-batch with its shared contexts counted for each row, as a multiple of the token budget."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows of one forward pass, padded on the right to one length. B rows, T tokens; position t holds the token that
    t-1 predicts."""

    index: list[int]
    """Of these rows in the whole list."""
    tokens_BT: Tensor
    lengths: list[int]
    """Tokens of each row; padding follows."""
    mask_BT: Tensor
    """True where the token trains."""
    temperature_B: Tensor


def micro_batches(policy: Policy, rows: Sequence[Row], token_budget: int) -> Iterator[MicroBatch]:
    """Put rows with one context together (it is computed once), then rows of like length. The longest come first, so
    that running out of memory happens at once or never. Rows of one bundle are always in one batch.

    Args:
        token_budget: tokens of a batch, a shared context counted once. A row or bundle that has more is a batch by
            itself. Where the model goes through `transformers`, padding counts and nothing is shared.
    """
    for index in _packed(rows, token_budget, is_lean=lean_decoder(policy) is not None):
        yield _micro_batch(policy, rows, index)


def _packed(rows: Sequence[Row], token_budget: int, *, is_lean: bool) -> Iterator[list[int]]:
    """The indices of each micro-batch's rows."""
    groups: dict[bytes | str, list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(row.bundle or _context(row), []).append(i)
    longest = {key: max(len(rows[i].tokens) for i in group) for key, group in groups.items()}
    index: list[int] = []
    tokens = unshared = width = 0
    for key in sorted(groups, key=lambda key: -longest[key]):
        shared = 0 if isinstance(key, str) else len(key) // ID_BYTES
        units = [groups[key]] if isinstance(key, str) else [[i] for i in groups[key]]
        for place, unit in enumerate(units):
            length = sum(len(rows[i].tokens) for i in unit)
            widest = max(len(rows[i].tokens) for i in unit)
            added = length - shared if place and index else length
            if is_lean:
                over = tokens + added > token_budget or unshared + length > UNSHARED * token_budget
            else:
                over = max(width, widest) * (len(index) + len(unit)) > token_budget
            if index and over:
                yield index
                index, tokens, unshared, width, added = [], 0, 0, 0, length
            index += unit
            tokens, unshared, width = tokens + added, unshared + length, max(width, widest)
    if index:
        yield index


@dataclass(frozen=True, slots=True)
class Share:
    """The passes of one process of a group."""

    batches: list[MicroBatch]
    """As many as each other process has."""
    num_own: int
    """The first of them are its own. The others only keep it in step: nothing that they compute is used."""


def share_of(policy: Policy, rows: Sequence[Row], token_budget: int, group: Group) -> Share:
    """This process's part of the rows' micro-batches. A process alone has all of them.

    The micro-batches of several processes are as even as rows allow: the rows of a small minibatch are spread too.

    Args:
        token_budget: as in `micro_batches`.
    """
    if group.size == 1:
        batches = list(micro_batches(policy, rows, token_budget))
        return Share(batches, len(batches))
    is_lean = lean_decoder(policy) is not None

    def packed(budget: int) -> list[list[int]]:
        return list(_packed(rows, budget, is_lean=is_lean))

    indices = packed(token_budget)
    num_passes = -(-len(indices) // group.size)
    least, most = 0, token_budget  # the smallest budget that needs no more passes makes the most even batches
    while most - least > 1:
        middle = (least + most) // 2
        tried = packed(middle)
        if len(tried) > num_passes * group.size:
            least = middle
        else:
            indices, most = tried, middle
    own = [_micro_batch(policy, rows, index) for index in indices[group.rank :: group.size]]
    filling = [_micro_batch(policy, rows, indices[-1][:1])] * (num_passes - len(own)) if indices else []
    return Share([*own, *filling], len(own))


def _context(row: Row) -> bytes:
    """The tokens before the first trained one."""
    return row.tokens[: row.trains[0] if row.num_trained else None].tobytes()


def _micro_batch(policy: Policy, rows: Sequence[Row], index: list[int]) -> MicroBatch:
    index = sorted(index, key=lambda i: rows[i].tokens.tolist())  # so that equal beginnings lie side by side
    lengths = [len(rows[i].tokens) for i in index]
    tokens = torch.full((len(index), max(lengths)), policy.tokenizer.pad_token_id or 0, dtype=torch.long)
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    for place, i in enumerate(index):
        tokens[place, : lengths[place]] = torch.tensor(rows[i].tokens)
        mask[place, torch.tensor(rows[i].trains, dtype=torch.long)] = True
    temperature = torch.tensor([rows[i].temperature for i in index], dtype=torch.float32)
    device = policy.device
    return MicroBatch(index, tokens.to(device), lengths, mask.to(device), temperature.to(device))


def token_logprobs(
    policy: Policy, batch: MicroBatch, *, entropy: bool = False, graded: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Logprobs of the batch's trained tokens under `softmax(logits / temperature)`.

    Args:
        entropy: return entropies too.
        graded: the entropies carry a gradient.
    Returns: [N] float32 in the order of `batch.mask_BT` flattened (N trained tokens), and their distributions'
    entropies [N] or None. Causal attention with padding on the right needs no attention mask.
    Of a value model: the values of the states in which the tokens were sampled, and entropies of 0.
    """
    with policy.active():
        # With shards, the model's own method gathers the weights first: see `whet.models.sharding`.
        compute = getattr(policy.model, "gathered_logprobs", compute_logprobs)
        return compute(policy, batch, entropy, graded)


def compute_logprobs(policy: Policy, batch: MicroBatch, entropy: bool, graded: bool) -> tuple[Tensor, Tensor | None]:
    """As `token_logprobs`, in a process that has the policy's whole weights at hand."""
    predicting_BT = batch.mask_BT[:, 1:]
    hidden_NH = _predicting_states(policy, batch)
    if policy.is_value:
        values_N = policy.causal_lm.score(hidden_NH).float().squeeze(-1).clone()  # FSDP wants no view
        return values_N, torch.zeros_like(values_N) if entropy else None
    targets_N = batch.tokens_BT[:, 1:][predicting_BT]
    temperature_N = batch.temperature_B[:, None].expand(predicting_BT.shape)[predicting_BT]
    chunk = head_chunk(policy)
    plain = _plain_head(policy)
    if len(targets_N) > chunk and plain is not None:
        if is_narrow():
            hidden_NH, plain = hidden_NH.bfloat16(), plain.bfloat16()
        logprobs_N, entropies_N = ChunkedLogprobs.apply(hidden_NH, plain, targets_N, temperature_N, chunk, graded)  # type: ignore[no-untyped-call]
        return logprobs_N, entropies_N if entropy else None
    parts = [
        (hidden_NH[at : at + chunk], targets_N[at : at + chunk], temperature_N[at : at + chunk])
        for at in range(0, len(targets_N), chunk)
    ]
    again = len(parts) > 1 and hidden_NH.requires_grad
    chunks = [
        checkpoint(_of_chunk, policy, *part, entropy, graded, use_reentrant=False)
        if again
        else _of_chunk(policy, *part, entropy, graded)
        for part in parts
    ]
    empty = hidden_NH.new_zeros(0, dtype=torch.float32)
    logprobs_N = torch.cat([empty, *(logprobs for logprobs, _ in chunks)])
    return logprobs_N, torch.cat([empty, *(entropies for _, entropies in chunks)]) if entropy else None


def head_chunk(policy: Policy) -> int:
    """Tokens whose logits exist at one time.

    On a CPU a buffer of them may be half as large as the head's weights, which an update holds several times anyway.
    Products of fewer tokens are slower there: an update of SmolLM2's head takes a quarter longer with 85 than with 288.
    """
    shape = policy.causal_lm.config.get_text_config()
    kind = policy.device.type
    return max(1, LOGITS[kind] // shape.vocab_size, shape.hidden_size // 2 if kind == "cpu" else 0)


def _plain_head(policy: Policy) -> Tensor | None:
    """The head's weights, where it is only a product with them."""
    output = policy.causal_lm.get_output_embeddings()
    is_plain = not policy.full_logits and type(output) is torch.nn.Linear and output.bias is None
    return output.weight if is_plain else None


def _of_chunk(
    policy: Policy, hidden_NH: Tensor, targets_N: Tensor, temperature_N: Tensor, entropy: bool, graded: bool
) -> tuple[Tensor, Tensor]:
    """Logprobs of the targets, and entropies (empty without `entropy`)."""
    every_NV = torch.log_softmax(head(policy, hidden_NH) / temperature_N[:, None], dim=-1)
    logprobs_N = every_NV.gather(-1, targets_N[:, None]).squeeze(-1)
    every_NV = every_NV if graded else every_NV.detach()
    return logprobs_N, -(every_NV.exp() * every_NV).sum(-1) if entropy else logprobs_N.new_zeros(0)


def _predicting_states(policy: Policy, batch: MicroBatch) -> Tensor:
    """[N, H] last hidden states at the places that predict a trained token. [N, V] logits where the head cannot be
    applied separately."""
    predicting_BT = F.pad(batch.mask_BT[:, 1:], (0, 1))
    lean = lean_decoder(policy)
    if lean is not None:
        rows = CausalRows(batch.lengths, batch.tokens_BT.device, batch.tokens_BT)
        hidden_MH = lean(rows.flat(batch.tokens_BT), rows.positions_N, rows)
        return hidden_MH.index_select(0, rows.sources_BT[predicting_BT])
    model = policy.causal_lm
    if policy.full_logits:
        return model(input_ids=batch.tokens_BT, use_cache=False).logits[predicting_BT]
    return model.get_decoder()(input_ids=batch.tokens_BT, use_cache=False).last_hidden_state[predicting_BT]


def head(policy: Policy, hidden: Tensor) -> Tensor:
    """Float32 logits of hidden states (or of logits, see `Policy.full_logits`)."""
    return (hidden if policy.full_logits else policy.causal_lm.get_output_embeddings()(hidden)).float()


def score(policy: Policy, rows: Sequence[Row], *, token_budget: int) -> list[Tensor]:
    """Logprobs of each row's trained tokens, [N_row] on the CPU, without gradient. The ranks compute them where the
    policy has some."""
    if policy.scored_by is not None:
        return policy.scored_by(rows, token_budget)
    return score_here(policy, rows, token_budget=token_budget)


@torch.no_grad()
def score_here(policy: Policy, rows: Sequence[Row], *, token_budget: int, group: Group = ALONE) -> list[Tensor]:
    """As `score`, with the weights that this process has of the policy."""
    share = share_of(policy, rows, token_budget, group)
    own: dict[int, Tensor] = {}
    for number, batch in enumerate(share.batches):
        logprobs, _ = token_logprobs(policy, batch)
        counts = batch.mask_BT[:, 1:].sum(-1).tolist()
        if number < share.num_own:
            own |= zip(batch.index, logprobs.cpu().split(counts), strict=True)
    scored = {i: part for scores in group.gather(own) for i, part in scores.items()}
    return [scored[i] for i in range(len(rows))]


# --- logprobs in chunks of tokens -------------------------------------------------------------------------------------


class ChunkedLogprobs(torch.autograd.Function):
    """`log_softmax(hidden @ weight.T / temperature)` at the targets, and the entropies.

    It works in chunks of tokens, with two reused buffers, where the logits of all tokens would not fit. The backward
    pass computes each chunk's logits again and adds up the head's gradient in place. So neither pass holds more than
    the buffers, the weights and their gradient.

    Args:
        hidden: [N, H].
        weight: [V, H], the head's.
        targets: [N] token ids.
        temperature: [N].
        chunk: tokens at once.
        graded: whether entropies carry a gradient. It takes one more buffer.
    Returns: logprobs [N] and entropies [N], float32.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, temperature: Tensor, chunk: int, graded: bool
    ) -> tuple[Tensor, Tensor]:
        shape = (min(chunk, len(hidden)), len(weight))
        products, weights = hidden.new_empty(shape), hidden.new_empty(shape, dtype=torch.float32)
        logprobs, entropies, norms = (hidden.new_empty(len(hidden), dtype=torch.float32) for _ in range(3))
        for part in _parts(len(hidden), chunk):
            logits = _logits(hidden[part], weight, temperature[part], products)
            highest = logits.amax(-1, keepdim=True)
            of_part = weights[: len(logits)]
            total = torch.exp(logits.sub_(highest), out=of_part).sum(-1)
            logprobs[part] = logits.gather(-1, targets[part, None]).squeeze(-1) - total.log()
            entropies[part] = total.log() - of_part.mul_(logits).sum(-1) / total
            norms[part] = highest.squeeze(-1) + total.log()
        ctx.save_for_backward(hidden, weight, targets, temperature, norms, entropies)
        ctx.chunk, ctx.graded = chunk, graded
        if not graded:
            ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(
        ctx: Any, gradient: Tensor, of_entropies: Tensor
    ) -> tuple[Tensor, Tensor | None, None, None, None, None]:
        hidden, weight, targets, temperature, norms, entropies = ctx.saved_tensors
        of_hidden = torch.empty_like(hidden)
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        products = hidden.new_empty(min(ctx.chunk, len(hidden)), len(weight))
        for part in _parts(len(hidden), ctx.chunk):
            logits = _logits(hidden[part], weight, temperature[part], products)
            push = (gradient[part] / temperature[part])[:, None]
            logprobs = logits.sub_(norms[part, None])
            by_entropy = logprobs + entropies[part, None] if ctx.graded else None
            # Gradient of a logprob by its logits: one at the target, less the probabilities.
            probs = logprobs.exp_()
            if by_entropy is not None:  # gradient of an entropy by its logits: -p (log p + H)
                by_entropy.mul_(probs).mul_(-(of_entropies[part] / temperature[part])[:, None])
            of_logits = probs.mul_(-push)
            of_logits.scatter_add_(-1, targets[part, None], push)
            if by_entropy is not None:
                of_logits.add_(by_entropy)
            of_logits = of_logits.to(hidden.dtype)
            torch.mm(of_logits, weight, out=of_hidden[part])
            if of_weight is not None:
                of_weight.addmm_(of_logits.T, hidden[part])
        return of_hidden, of_weight, None, None, None, None


def _logits(hidden: Tensor, weight: Tensor, temperature: Tensor, buffer: Tensor) -> Tensor:
    """Float32, over the buffer where that is its type."""
    return torch.mm(hidden, weight.T, out=buffer[: len(hidden)]).float().div_(temperature[:, None])


def _parts(count: int, chunk: int) -> Iterator[slice]:
    return (slice(at, at + chunk) for at in range(0, count, chunk))
