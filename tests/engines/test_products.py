"""Engines that multiply in a smaller type, on a packed copy of the weights: what they give, keep, drop and refuse."""

import weakref
from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from support.commands import Quiet, config_of
from support.rows import row_of
from whet.config.base import ConfigError
from whet.config.parts import EngineConfig, LoraConfig, ModelConfig
from whet.engines import products as products_module
from whet.engines.building import engine_of
from whet.engines.local import LocalEngine
from whet.engines.products import BFLOAT16, Shape, chosen, instructions, packing_of, shape_of, timing
from whet.engines.runners import PackedRunner
from whet.models.packed import FEW_ROWS, PRODUCTS
from whet.models.policy import Policy, load_policies
from whet.models.scoring import score
from whet.run.data import with_products
from whet.types import Request, Sampling

HAS_BFLOAT16 = any(name in instructions() for name in BFLOAT16)
KINDS = [
    pytest.param("bfloat16", marks=pytest.mark.skipif(not HAS_BFLOAT16, reason=f"no {' or '.join(BFLOAT16)} here")),
    "int8",
]
TEXTS = ["Solve: 7 + 5", "Solve: 1 + 2 * 3 - 4 + 5 * 7", "Critique: 3"]


def requests_for(policy, per_text=4, **sampling):
    settings = Sampling(**{"max_new_tokens": 12, **sampling})
    return [
        Request(context=tuple(policy.tokenizer.encode(text)), sampling=settings, seed=100 * i + j)
        for i, text in enumerate(TEXTS)
        for j in range(per_text)
    ]


def differences(policy, requests, completions):
    """[N] the sampler's logprobs less the trainer's."""
    rows = [row_of(r.context, c.tokens, policy=policy.name) for r, c in zip(requests, completions, strict=True)]
    sampled = torch.cat([torch.tensor(c.logprobs) for c in completions])
    return sampled - torch.cat(score(policy, rows, token_budget=4000))


def streamed(engine, requests):
    for ticket, request in enumerate(requests):
        engine.submit(ticket, request)
    ended = {}
    while engine.num_open:
        ended |= dict(engine.advance())
    return [ended[ticket] for ticket in range(len(requests))]


@pytest.mark.parametrize("kind", KINDS)
def test_logprobs_are_near_the_trainers_and_not_equal(random_policy, kind):
    requests = requests_for(random_policy)
    engine = LocalEngine(random_policy, products=kind)
    assert type(engine.runner) is PackedRunner
    apart = differences(random_policy, requests, engine.generate(requests)).abs()
    assert 0 < apart.mean() < 0.01
    exact = differences(random_policy, requests, LocalEngine(random_policy).generate(requests)).abs()
    assert exact.max() < 1e-4 < apart.max()


@pytest.mark.parametrize("kind", KINDS)
def test_scoring_stays_the_trainers(random_policy, kind):
    engine = LocalEngine(random_policy, products=kind)
    rows = [row_of((1, 2), (3, 4, 5), policy="policy")]
    assert torch.equal(engine.score(rows)[0], score(random_policy, rows, token_budget=100)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_calls_give_the_same_bits_whatever_the_copy_went_through(random_policy, kind):
    requests = requests_for(random_policy)
    engine = LocalEngine(random_policy, products=kind)
    first = engine.generate(requests)
    assert engine.generate(requests) == first
    copy = weakref.ref(engine.packing.weights())
    engine.rest()
    assert copy() is None
    assert engine.generate(requests) == first
    assert streamed(engine, requests) == streamed(LocalEngine(random_policy, products=kind), requests)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reply_depends_on_its_request_alone(random_policy, kind):
    requests = requests_for(random_policy)
    engine = LocalEngine(random_policy, products=kind)
    together = engine.generate(requests)
    for request, completion in zip(requests, together, strict=True):
        [alone] = engine.generate([request])
        if alone.tokens == completion.tokens:  # else a draw lay within rounding of another token
            assert alone.logprobs == pytest.approx(completion.logprobs, abs=0.02)
    assert sum(engine.generate([r])[0].tokens == c.tokens for r, c in zip(requests, together, strict=True)) >= 11


@pytest.mark.parametrize("kind", KINDS)
def test_new_weights_are_packed_anew(random_policy, kind):
    requests = requests_for(random_policy)
    engine = LocalEngine(random_policy, products=kind)
    before = engine.generate(requests)
    with torch.no_grad():
        for _, weights in random_policy.trainable_parameters():
            weights.mul_(1.5)
    engine.update_weights(random_policy.version + 1, random_policy)
    after = engine.generate(requests)
    assert after != before
    assert differences(random_policy, requests, after).abs().mean() < 0.05


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2"])
def test_families_with_and_without_biases_and_grouped_heads(random_policy, kind, family):
    torch.manual_seed(1)
    config = AutoConfig.for_model(
        family, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=len(random_policy.tokenizer), sliding_window=None, tie_word_embeddings=False,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            weights.normal_(1.0 if "norm" in name else 0.0, 0.1)
    policy = Policy("policy", model, random_policy.tokenizer, stop_ids=random_policy.stop_ids)
    requests = requests_for(policy)
    apart = differences(policy, requests, LocalEngine(policy, products=kind).generate(requests)).abs()
    assert 0 < apart.mean() < 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_an_adapter_is_merged_into_the_copy(random_model, kind):
    policies = load_policies({name: ModelConfig(path=str(random_model), lora=LoraConfig(rank=2)) for name in "ab"})
    with torch.no_grad():
        for policy in policies.values():
            for name, weights in policy.trainable_parameters():
                torch.manual_seed(len(name) + ord(policy.name))
                weights.normal_(0.0, 0.2)
    engines = {name: LocalEngine(policy, products=kind) for name, policy in policies.items()}
    replies = {}
    for name in "aba":
        requests = requests_for(policies[name])
        replies[name] = engines[name].generate(requests)
        assert differences(policies[name], requests, replies[name]).abs().mean() < 0.06
    assert replies["a"] != replies["b"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_product_is_that_of_the_weights_to_the_types_rounding(kind):
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(96, 64, generator=generator), torch.randn(96, generator=generator)
    product = PRODUCTS[kind](weight, bias)
    for rows in (1, FEW_ROWS, FEW_ROWS + 1, 200):
        x = torch.randn(rows, 64, generator=generator)
        expected = torch.nn.functional.linear(x, weight, bias)
        assert (product(x).float() - expected).norm() < 0.02 * expected.norm()


@pytest.mark.parametrize("inputs", [1, 8, 24, 100, 172, 577])
@pytest.mark.parametrize("kind", KINDS)
def test_a_product_takes_any_number_of_inputs(kind, inputs):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(7, inputs, generator=generator)
    for rows in (1, FEW_ROWS + 1):
        x = torch.randn(rows, inputs, generator=generator)
        assert (PRODUCTS[kind](weight, None)(x).float() - x @ weight.T).norm() < 0.02 * (x @ weight.T).norm()


def test_a_row_of_zeros_in_8_bits_stays_zero():
    product = PRODUCTS["int8"](torch.zeros(4, 32), None)
    assert torch.equal(product(torch.ones(2, 32)), torch.zeros(2, 4))


# --- what is refused, and what auto chooses ---------------------------------------------------------------------------


def test_a_machine_without_the_instructions_is_refused(random_policy, monkeypatch):
    monkeypatch.setattr(products_module, "instructions", lambda: ("avx2",))
    with pytest.raises(ConfigError, match=r"needs a processor with amx_bf16 or avx512_bf16, and this one has avx2"):
        LocalEngine(random_policy, products="bfloat16")
    assert packing_of(random_policy, "int8") is not None
    assert packing_of(random_policy, "float32") is None


def test_a_model_that_cannot_be_packed_is_refused(random_policy):
    config = AutoConfig.for_model("gpt2", n_embd=32, n_layer=1, n_head=2, vocab_size=64)
    other = Policy("other", AutoModelForCausalLM.from_config(config).eval(), random_policy.tokenizer)
    half = replace(random_policy, model=AutoModelForCausalLM.from_config(random_policy.causal_lm.config).bfloat16())
    for policy, what in ((other, "has the type 'gpt2'"), (half, "is in bfloat16 on cpu")):
        with pytest.raises(ConfigError, match=rf"with products in int8 needs a model .* {what}: take float32"):
            LocalEngine(policy, products="int8")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"hidden_act": "gelu"}, "has hidden_act 'gelu'"),
        ({"attention_bias": True}, "has biases beside those of queries, keys and values"),
        ({"mlp_bias": True}, "has biases beside those of queries, keys and values"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "rotary embedding 'dynamic'"),
    ],
)
def test_auto_takes_float32_for_what_bfloat16_is_refused_for(tmp_path, random_policy, monkeypatch, change, what):
    monkeypatch.setattr(products_module, "instructions", lambda: ("amx_bf16",))
    config = AutoConfig.for_model(
        "llama", hidden_size=576, intermediate_size=64, num_hidden_layers=1, num_attention_heads=9,
        num_key_value_heads=9, vocab_size=len(random_policy.tokenizer), **change,
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    policy = Policy("odd", model, random_policy.tokenizer, stop_ids=random_policy.stop_ids)
    with pytest.raises(ConfigError, match=rf"plain Llama shape .* policy odd .*{what}: take float32"):
        LocalEngine(policy, products="bfloat16")
    assert chosen([shape_of(policy)]) == "float32"
    run = config_of("grpo", f"policy.path={tmp_path}", "policy.device=cpu", "engine.products=auto")
    assert with_products(run, Quiet()).engine.products == "float32"
    assert LocalEngine(policy).generate(requests_for(policy, per_text=1, max_new_tokens=2))


def test_auto_goes_by_instructions_width_and_what_can_be_packed(random_policy, monkeypatch):
    wide = Shape(576, packs=True)
    for has in BFLOAT16:
        monkeypatch.setattr(products_module, "instructions", lambda has=has: (has, "avx2"))
        assert chosen([wide]) == "bfloat16"
    assert chosen([wide]) == chosen([wide, wide]) == "bfloat16"
    for other in (replace(wide, width=512), replace(wide, packs=False)):
        assert chosen([wide, other]) == "float32"
    assert chosen([]) == "float32"
    monkeypatch.setattr(products_module, "instructions", lambda: ("avx512_vnni", "avx2"))
    assert chosen([wide]) == "float32"
    assert shape_of(random_policy) == Shape(random_policy.causal_lm.config.hidden_size, packs=True)


def test_settings_choose_the_engine_s_products(random_policy):
    engine = engine_of(random_policy, EngineConfig(products="int8"))
    assert engine.packing.kind == "int8"
    assert engine_of(random_policy, EngineConfig(products="auto")).packing is None  # as narrow as it is
    assert engine_of(random_policy, EngineConfig()).packing is None


@pytest.mark.skipif(not HAS_BFLOAT16, reason="bfloat16 is timed where it can be chosen")
def test_a_timing_names_its_products():
    assert timing(64, rows=4).startswith("4 x 64 by 64 x 192: ")
