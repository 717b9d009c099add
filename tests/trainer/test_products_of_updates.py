"""`learning.products`: what an update multiplies in, what it changes, and what is refused."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from support.rows import row_of
from whet.config.base import ConfigError
from whet.config.parts import LearningConfig
from whet.engines import products as products_module
from whet.models import scoring
from whet.models.narrow import Bfloat16Product, is_narrow, multiplying
from whet.models.scoring import micro_batches, score
from whet.objectives import clipped_policy_loss
from whet.trainer.learner import Learner
from whet.trainer.local import LocalTrainer
from whet.trainer.losses import corrected
from whet.trainer.products import check_products, gradient_error
from whet.trainer.terms import Term, Update, on_tokens

HAS = pytest.mark.usefixtures("has_bfloat16")


@pytest.fixture
def has_bfloat16(monkeypatch):
    """Torch emulates these products where the processor lacks them, slowly: tiny models are updated all the same."""
    monkeypatch.setattr(products_module, "instructions", lambda: ("amx_bf16",))


def rule(products, **settings):
    learning = LearningConfig(products=products, learning_rate=1e-3, **settings)
    return corrected(Update((Term(on_tokens(clipped_policy_loss, low=0.8, high=1.2)),), learning, num_updates=10))


def rows_for(policy):
    rows = [row_of((5, 6, 7), range(8 + i, 20 + i), policy=policy.name, credit=1.0 - i) for i in range(4)]
    scores = score(policy, rows, token_budget=500)
    return [replace(row, logprobs=logprobs.numpy()) for row, logprobs in zip(rows, scores, strict=True)]


def test_a_product_and_its_gradients_are_those_of_float32_to_bfloat16_rounding():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 32, generator=generator, requires_grad=True)
    weight = torch.randn(16, 32, generator=generator, requires_grad=True)
    push = torch.randn(2, 5, 16, generator=generator)
    exact = torch.autograd.grad((F.linear(x, weight) * push).sum(), (x, weight))
    narrow = torch.autograd.grad((Bfloat16Product.apply(x, weight) * push).sum(), (x, weight))
    for one, other in zip(narrow, exact, strict=True):
        assert one.dtype == torch.float32
        assert 0 < (one - other).norm() < 0.01 * other.norm()


def test_blocks_may_be_nested_and_end():
    layer, x = torch.nn.Linear(64, 64), torch.randn(3, 64, generator=torch.Generator().manual_seed(0))
    exact = layer(x)
    with multiplying("bfloat16"):
        narrow = layer(x)
        with multiplying("float32"):
            assert torch.equal(layer(x), exact)
            assert not is_narrow()
        assert torch.equal(layer(x), narrow)
    assert not torch.equal(narrow, exact)
    torch.testing.assert_close(narrow, exact, atol=0.02, rtol=0)
    assert torch.equal(layer(x), exact)
    assert not is_narrow()


@HAS
def test_an_update_is_near_that_in_float32_and_reports_its_error(random_policy):
    moved, metrics = {}, {}
    for products in ("float32", "bfloat16"):
        policy = random_policy.fork(f"policy_{products}")
        policy.frozen = False
        before = {name: weights.detach().clone() for name, weights in policy.trainable_parameters()}
        rows = rows_for(policy)
        learner = Learner(policy, rule(products))
        metrics[products] = learner.update(rows, seed=1)
        moved[products] = torch.cat(
            [(weights.detach() - before[name]).flatten() for name, weights in policy.trainable_parameters()]
        )
        assert all(weights.dtype == torch.float32 for _, weights in policy.trainable_parameters())
        again = learner.update(rows, seed=2)
        assert "optim/products_error" not in again, "measured once"
    assert torch.cosine_similarity(moved["bfloat16"], moved["float32"], dim=0) > 0.8
    assert not torch.equal(moved["bfloat16"], moved["float32"])
    assert 0 < metrics["bfloat16"]["optim/products_error"] < 0.05
    assert "optim/products_error" not in metrics["float32"]
    # Its ratios are to its own logprobs: the difference from the sampler is a gap, and clips nothing.
    assert 0 < metrics["bfloat16"]["kl/sampler"] < 0.01
    assert metrics["bfloat16"]["clip/low"] == metrics["bfloat16"]["clip/high"] == 0


@HAS
def test_the_gradients_error_is_that_of_the_products_alone_and_changes_nothing(random_policy):
    policy = random_policy
    parameters = [p.requires_grad_(True) for _, p in policy.trainable_parameters()]
    [batch] = micro_batches(policy, rows_for(policy), 500)
    before = [p.detach().clone() for p in parameters]
    assert gradient_error(policy, batch, parameters, "float32") == 0
    assert 0.0005 < gradient_error(policy, batch, parameters, "bfloat16") < 0.05
    assert all(p.grad is None for p in parameters)
    assert all(torch.equal(p, was) for p, was in zip(parameters, before, strict=True))


@HAS
def test_the_head_in_chunks_multiplies_in_bfloat16_too(random_policy, monkeypatch):
    rows = rows_for(random_policy)
    exact = score(random_policy, rows, token_budget=500)
    with multiplying("bfloat16"):
        whole = score(random_policy, rows, token_budget=500)
        monkeypatch.setattr(scoring, "head_chunk", lambda policy: 3)
        chunked = score(random_policy, rows, token_budget=500)
    for one, other, own in zip(chunked, whole, exact, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)
        assert 0 < (one - own).abs().max() < 0.1


def test_machines_models_and_ranks_that_cannot_are_refused_in_a_sentence(random_policy, monkeypatch):
    check_products(random_policy, "float32", num_ranks=4)
    monkeypatch.setattr(products_module, "instructions", lambda: ("avx2",))
    with pytest.raises(
        ConfigError, match=r"needs a processor with amx_bf16 or avx512_bf16, and this one has avx2: set"
    ):
        LocalTrainer(random_policy).begin(rule("bfloat16"))
    monkeypatch.setattr(products_module, "instructions", lambda: ("avx512_bf16",))
    LocalTrainer(random_policy).begin(rule("bfloat16"))
    with pytest.raises(ConfigError, match="2 ranks train the policy"):
        check_products(random_policy, "bfloat16", num_ranks=2)
    model = random_policy.model
    half = replace(random_policy, model=type(model)(model.config).bfloat16())
    with pytest.raises(ConfigError, match=r"needs a model in float32 on a CPU, and the policy is in bfloat16 on cpu"):
        check_products(half, "bfloat16")
