"""The lean forward pass beside `transformers`, and the head in chunks."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from support.rows import row_of
from whet.models import scoring
from whet.models import scoring as scoring_head
from whet.models.fused import FusedDecoder
from whet.models.lean import CausalRows, LeanDecoder, RMSNorm, SwiGLU, steady_positions
from whet.models.policy import Policy
from whet.models.scoring import ChunkedLogprobs, micro_batches, token_logprobs

SIZES = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 128,
}  # fmt: skip
LENGTHS = [5, 9, 9, 2]


def model_of(family, **options):
    torch.manual_seed(0)
    sizes = {**SIZES, **({"head_dim": 16} if family == "qwen3" else {}), **options}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)  # so that attention is not flat
    return model


def texts():
    torch.manual_seed(1)
    return [torch.randint(0, 60, (length,)) for length in LENGTHS]


def lean_states(model, rows_of_ids):
    rows = CausalRows([len(ids) for ids in rows_of_ids], torch.device("cpu"))
    lean = LeanDecoder.of(model)
    assert lean is not None
    return lean(torch.cat(rows_of_ids), rows.positions_N, rows)


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_states_and_gradients_are_those_of_transformers(family):
    model = model_of(family, **({"sliding_window": None} if family == "mistral" else {}))
    decoder = model.get_decoder()
    want = torch.cat([decoder(input_ids=ids[None]).last_hidden_state[0] for ids in texts()])
    (want * want.detach().roll(1)).sum().backward()
    gradients = {name: p.grad for name, p in decoder.named_parameters()}
    decoder.zero_grad(set_to_none=True)
    got = lean_states(model, texts())
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
    (got * want.detach().roll(1)).sum().backward()
    for name, parameter in decoder.named_parameters():
        scale = gradients[name].abs().max().item()
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-4 * scale, rtol=1e-3)


def test_rows_of_one_length_need_no_padding_and_rows_do_not_see_each_other():
    model = model_of("qwen2")
    together = lean_states(model, texts())
    apart = torch.cat([lean_states(model, [ids]) for ids in texts()])
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)
    assert CausalRows([3, 3], torch.device("cpu")).own_BT is None


@pytest.mark.parametrize(
    ("family", "options"),
    [("gpt_neox", {}), ("mistral", {"sliding_window": 16}), ("qwen2", {"use_sliding_window": True, "sliding_window": 8,
                                                                       "max_window_layers": 0})],
)  # fmt: skip
def test_what_it_does_not_fit(family, options):
    assert LeanDecoder.of(model_of(family, **options)) is None


def test_the_norms_gradient_is_its_derivative():
    torch.manual_seed(0)
    x = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)  # heads are normed too
    weight = torch.randn(5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(RMSNorm.apply(x, weight, 0.1), torch.nn.functional.rms_norm(x, (5,), weight, 0.1))
    assert torch.autograd.gradcheck(lambda x, w: RMSNorm.apply(x, w, 0.1), (x, weight))


def test_swiglu_is_torchs_to_the_bit_and_its_gradient_too():
    generator = torch.Generator().manual_seed(0)
    gate, up, gradient = (torch.randn(3, 5, generator=generator) for _ in range(3))
    both = [[x.clone().requires_grad_() for x in (gate, up)] for _ in range(2)]
    ours, theirs = SwiGLU.apply(*both[0]), torch.nn.functional.silu(both[1][0]) * both[1][1]
    assert torch.equal(ours, theirs)
    ours.backward(gradient)
    theirs.backward(gradient)
    assert all(torch.equal(one.grad, other.grad) for one, other in zip(*both, strict=True))
    assert torch.autograd.gradcheck(SwiGLU.apply, [x.double().requires_grad_() for x in (gate, up)])


@pytest.mark.parametrize(
    ("family", "options"),
    [("llama", {}), ("llama", {"attention_bias": True}), ("mistral", {"sliding_window": None}), ("qwen2", {})],
)
def test_fused_products_give_the_same_states(family, options):
    model = model_of(family, **options)
    if options.get("attention_bias"):
        model.get_decoder().layers[0].self_attn.o_proj.bias = None
        model.get_decoder().layers[1].self_attn.o_proj.bias = None
    lean = LeanDecoder.of(model)
    assert FusedDecoder.fits(lean)
    fused = FusedDecoder(lean, max(LENGTHS))
    rows = CausalRows(LENGTHS, torch.device("cpu"))

    def attend(layer, heads):
        return rows(layer, *heads.split(fused.heads, dim=1)).flatten(1)

    with torch.no_grad():
        got = fused(torch.cat(texts()), rows.positions_N, attend)
        torch.testing.assert_close(got, lean_states(model, texts()), atol=1e-4, rtol=1e-4)


def test_what_is_not_fused():
    def fits(model):
        return FusedDecoder.fits(LeanDecoder.of(model))

    assert fits(model_of("llama"))
    assert not fits(model_of("llama", attention_bias=True))  # of the output projection too
    assert not fits(model_of("llama", hidden_act="gelu"))
    assert not fits(model_of("qwen3"))  # norms on queries and keys
    assert not fits(model_of("llama").bfloat16())
    assert not fits(model_of("llama", hidden_size=516, num_attention_heads=6, num_key_value_heads=2))
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    assert not fits(model_of("llama", rope_parameters=dynamic))
    adapted = get_peft_model(model_of("llama"), LoraConfig(r=2, target_modules=["q_proj"]))
    assert not fits(adapted.get_base_model())


def test_positions_end_where_a_rotary_embedding_begins_to_stretch():
    assert steady_positions(model_of("llama")) == 128
    assert steady_positions(model_of("llama", rope_parameters={"rope_type": "linear", "factor": 2.0})) == 128
    assert steady_positions(model_of("llama", rope_parameters={"rope_type": "dynamic", "factor": 2.0})) == 128
    long = {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
            "original_max_position_embeddings": 32}  # fmt: skip
    assert steady_positions(model_of("llama", rope_parameters=long)) == 32


def test_rows_of_unlike_length_attend_apart(random_policy):
    rows = CausalRows([9, 5, 8, 6, 1, 9], torch.device("cpu"))
    assert [bucket.shape for bucket in rows.buckets] == [(4, 9), (1, 5), (1, 1)]  # 9 9 8 6, at least 2/3 of 9; 5; 1
    assert all(bucket.mask is None for bucket in rows.buckets)


def test_only_what_a_row_has_of_its_own_is_attended_from():
    tokens = torch.tensor([[1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 6, 7], [1, 2, 3, 4, 6, 7], [1, 9, 0, 0, 0, 0]])
    rows = CausalRows([5, 6, 6, 2], torch.device("cpu"), tokens)
    first, second, third = rows.buckets  # of their own: 5, then 2, then 1 token; a row that is all another's has none
    assert [len(bucket.queries) for bucket in rows.buckets] == [5, 2, 1]
    assert first.mask is None
    assert second.mask[0, 0].tolist() == [[True] * 5 + [False], [True] * 6]
    assert third.mask[0, 0].tolist() == [[True] * 2]
    assert rows.flat(tokens).tolist() == [1, 2, 3, 4, 5, 6, 7, 9]
    assert second.keys.tolist() == [0, 1, 2, 3, 5, 6]
    assert rows.places_N.tolist() == list(range(8))


def rows_with(contexts_and_texts):
    return [row_of(context, text) for context, text in contexts_and_texts]


GROUPED = rows_with([
    ((1, 2, 3, 4, 5, 6), (7, 8)), ((1, 2, 3, 9), (7, 8, 7)), ((1, 2, 3, 4, 5, 6), (7, 9, 9, 9)), ((5,), (1, 1)),
    ((1, 2, 3, 4, 5, 6), (7, 8)), ((1, 2, 3, 9), (4,)),
])  # fmt: skip


def test_what_rows_have_in_common_is_computed_once(random_policy):
    policy = Policy("p", model_of("qwen2"), random_policy.tokenizer)
    [batch] = micro_batches(policy, GROUPED, 1000)
    rows = CausalRows(batch.lengths, torch.device("cpu"), batch.tokens_BT)
    beginnings = {tuple(row.tokens[: t + 1]) for row in GROUPED for t in range(len(row.tokens))}
    assert len(rows.positions_N) == len(beginnings) == 19  # of 41 tokens
    scores, gradients = [], []
    for budget in (1000, 10, 1):  # together, some together, each row alone
        policy.model.requires_grad_(True).zero_grad(set_to_none=True)
        found = [torch.empty(0)] * len(GROUPED)
        for batch in micro_batches(policy, GROUPED, budget):
            logprobs, _ = token_logprobs(policy, batch)
            parts = logprobs.split([GROUPED[i].num_trained for i in batch.index])
            for i, part in zip(batch.index, parts, strict=True):
                found[i] = part.detach()
            sum((i + 1) * part.square().sum() for i, part in zip(batch.index, parts, strict=True)).backward()
        scores.append(torch.cat(found))
        gradients.append(torch.cat([p.grad.flatten() for p in policy.model.parameters()]))
    for other in (1, 2):
        torch.testing.assert_close(scores[other], scores[0], atol=1e-5, rtol=1e-5)
        scale = gradients[0].abs().max().item()
        torch.testing.assert_close(gradients[other], gradients[0], atol=1e-5 * scale, rtol=1e-4)


def test_a_budget_counts_a_shared_context_once_and_keeps_groups_together(random_policy):
    rows = rows_with([(tuple([c] * 20), (1, 2)) for c in (3, 4) for _ in range(4)])  # two groups, 28 tokens each
    lean = Policy("p", model_of("qwen2"), random_policy.tokenizer)
    whole = Policy("p", model_of("gpt_neox"), random_policy.tokenizer)

    def indices(policy, budget):
        return [sorted(batch.index) for batch in micro_batches(policy, rows, budget)]

    assert indices(lean, 56) == [[0, 1, 2, 3, 4, 5, 6, 7]]
    assert indices(lean, 55) == [[0, 1, 2, 3, 4, 5, 6], [7]]
    assert indices(lean, 28) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert indices(lean, 1) == [[i] for i in range(8)]
    assert indices(whole, 56) == [[0, 1], [2, 3], [4, 5], [6, 7]]  # 22 tokens each


def batch_of(policy, temperature=0.7):
    rows = [row_of(ids[:1].tolist(), ids[1:].tolist(), temperature=temperature) for ids in texts()]
    [batch] = micro_batches(policy, rows, 1000)
    return batch


@pytest.mark.parametrize("head", ["plain", "with a bias"])
@pytest.mark.parametrize("family", ["qwen2", "gpt_neox"])
def test_logprobs_and_gradients_do_not_depend_on_the_chunks(family, head, random_policy, monkeypatch):
    policy = Policy("p", model_of(family), random_policy.tokenizer)
    if head == "with a bias":
        policy.causal_lm.get_output_embeddings().bias = torch.nn.Parameter(torch.randn(60))
    found, sizes = [], []
    policy.causal_lm.get_output_embeddings().register_forward_hook(lambda *given: sizes.append(given[-1].numel()))
    logits_of_a_chunk = scoring_head._logits
    monkeypatch.setattr(
        scoring_head, "_logits", lambda *given: sizes.append(given[-1].numel()) or logits_of_a_chunk(*given)
    )
    for logits in (1 << 22, 60 * 4, 60):  # all tokens at once, four at a time, one at a time
        monkeypatch.setattr(scoring, "head_chunk", lambda policy, chunk=logits // 60: chunk)
        sizes.clear()
        policy.model.zero_grad(set_to_none=True)
        logprobs, entropy = token_logprobs(policy, batch_of(policy), entropy=True, graded=True)
        (logprobs * torch.arange(len(logprobs)) + 30 * entropy).sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in policy.model.parameters() if p.grad is not None])
        found.append((logprobs.detach(), entropy.detach(), gradient))
        chunks = -(-len(logprobs) // (logits // 60))
        assert len(sizes) == (1 if chunks == 1 else 2 * chunks)  # again for the gradient
        assert max(sizes) <= logits
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            torch.testing.assert_close(one, two, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize(("vocabulary", "width", "chunk"), [(426, 160, 9845), (49_152, 576, 288), (151_936, 896, 448)])
def test_the_head_s_buffers_are_at_most_half_its_weights_or_four_million_logits(vocabulary, width, chunk):
    shape = SimpleNamespace(vocab_size=vocabulary, hidden_size=width)
    config = SimpleNamespace(get_text_config=lambda: shape)
    policy = SimpleNamespace(causal_lm=SimpleNamespace(config=config), device=torch.device("cpu"))
    assert scoring.head_chunk(policy) == chunk
    policy.device = torch.device("cuda")
    assert scoring.head_chunk(policy) == 2**27 // vocabulary


@pytest.mark.integration
def test_a_large_vocabulary_takes_no_memory_beyond_the_buffers():
    """In a process of its own: 1,000 tokens of 100,000 kinds have 400 MB of logits; the buffers hold 32 MB."""
    code = """
import resource, torch
from whet.models.scoring import ChunkedLogprobs
torch.set_num_threads(1)
weight = torch.randn(100_000, 16, requires_grad=True)
weight.grad = torch.zeros_like(weight)
hidden = torch.randn(1000, 16, requires_grad=True)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
logprobs, _ = ChunkedLogprobs.apply(hidden, weight, torch.arange(1000), torch.ones(1000), 40, False)
logprobs.sum().backward()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 150


@pytest.mark.parametrize("graded", [False, True])
def test_the_chunks_gradient_is_the_derivative(graded):
    torch.manual_seed(0)
    hidden = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    targets, temperature = torch.tensor([0, 6, 2, 2, 5]), torch.tensor([1.0, 0.5, 2.0, 1.0, 0.7])
    logprobs, entropies = ChunkedLogprobs.apply(hidden, weight, targets, temperature, 2, graded)
    every = torch.log_softmax(hidden @ weight.T / temperature[:, None], -1)
    want = every.gather(-1, targets[:, None]).squeeze(-1)
    torch.testing.assert_close(logprobs, want.float())
    of_entropy = -(every.exp() * every).sum(-1)
    torch.testing.assert_close(entropies, of_entropy.float())
    assert entropies.requires_grad == graded
    push, pull = torch.arange(1.0, 6.0), torch.tensor([3.0, -1.0, 0.0, 2.0, 5.0]) if graded else torch.zeros(5)
    (logprobs * push + entropies * pull).sum().backward()
    got = hidden.grad.clone(), weight.grad.clone()
    hidden.grad = weight.grad = None
    (want * push + of_entropy * pull).sum().backward()
    torch.testing.assert_close(got, (hidden.grad, weight.grad), atol=1e-5, rtol=1e-5)


def test_chunks_in_bfloat16_agree_with_all_at_once(random_policy, monkeypatch):
    policy = Policy("p", model_of("qwen2").bfloat16(), random_policy.tokenizer)
    found = []
    for logits in (1 << 22, 60 * 4):
        monkeypatch.setattr(scoring, "head_chunk", lambda policy, chunk=logits // 60: chunk)
        policy.model.zero_grad(set_to_none=True)
        logprobs, entropy = token_logprobs(policy, batch_of(policy), entropy=True)
        logprobs.sum().backward()
        found.append((logprobs.detach(), entropy, policy.causal_lm.model.norm.weight.grad.float()))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, atol=0.1 * float(one.abs().max()), rtol=0)
