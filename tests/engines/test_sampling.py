"""Sampling by blocks of tokens: the tokens and logprobs of sums over the whole vocabulary, for less work."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from whet.engines.sampling import BLOCK, SLACK, _draw_by_blocks, sample

ROWS = 24


def sample_slowly(logits_BV, temperature_B, top_p_B, uniform_B):
    """The same by its definition: a sum in float64 over the vocabulary, and an argmax of every row."""
    logits_BV = logits_BV.float()
    logprobs_BV = torch.log_softmax(logits_BV / torch.where(temperature_B == 0, 1.0, temperature_B)[:, None], -1)
    weights_BV = logprobs_BV.exp()
    sorted_BV, order_BV = weights_BV.sort(-1, descending=True)
    before_BV = sorted_BV.cumsum(-1, dtype=torch.float64) - sorted_BV
    cut_BV = torch.where(before_BV < top_p_B[:, None], sorted_BV, 0.0)
    cut_BV = torch.zeros_like(weights_BV).scatter(-1, order_BV, cut_BV)
    weights_BV = torch.where(top_p_B[:, None] < 1, cut_BV, weights_BV)
    ends_BV = weights_BV.cumsum(-1, dtype=torch.float64)
    drawn_B = (ends_BV <= uniform_B[:, None] * ends_BV[:, -1:]).sum(-1)
    tokens_B = torch.where(temperature_B == 0, logits_BV.argmax(-1), drawn_B)
    return tokens_B, logprobs_BV.gather(-1, tokens_B[:, None]).squeeze(-1)


def rows_of(values):
    return torch.tensor(values)[torch.arange(ROWS) % len(values)]


@pytest.mark.parametrize("num_tokens", [97, 16 * BLOCK, 5000, 5001])
@pytest.mark.parametrize("scale", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("temperatures", [[1.0], [0.7], [0.0], [0.0, 1.0, 0.6]])
@pytest.mark.parametrize("top_ps", [[1.0], [0.9], [0.3, 1.0, 0.999, 0.95]])
def test_tokens_and_logprobs_are_those_of_sums_over_the_whole_vocabulary(num_tokens, scale, temperatures, top_ps):
    generator = torch.Generator().manual_seed(num_tokens + round(10 * scale))
    logits = scale * torch.randn(ROWS, num_tokens, generator=generator)
    logits[:, 7] = -torch.inf  # a token that a constraint forbids
    uniform = torch.rand(ROWS, dtype=torch.float64, generator=generator)
    temperature, top_p = rows_of(temperatures), rows_of(top_ps)
    got = sample(
        logits,
        None if temperatures == [1.0] else temperature,
        None if top_ps == [1.0] else top_p,
        uniform,
    )
    expected = sample_slowly(logits, temperature, top_p, uniform)
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])


def test_a_draw_near_a_token_s_end_is_not_sure():
    """Halves: the first token ends at 0.5, and block sums are known to SLACK of the mass."""
    weights = torch.zeros(3, 2 * BLOCK)
    weights[:, 0] = weights[:, BLOCK] = 0.5
    uniform = torch.tensor([0.5 - SLACK / 2, 0.5 + SLACK / 2, 0.5 + 2 * SLACK], dtype=torch.float64)
    tokens, is_sure = _draw_by_blocks(weights, uniform)
    assert tokens.tolist() == [0, BLOCK, BLOCK]
    assert is_sure.tolist() == [False, False, True]


def test_a_row_without_probabilities_gives_a_logprob_that_is_none():
    logits = torch.full((2, 2000), torch.nan)
    tokens, logprobs = sample(logits, None, torch.tensor([0.9, 1.0]), torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert tokens.max() < 2000
    assert logprobs.isnan().all()


class Passes(TorchDispatchMode):
    """Notes the shapes that `argmax` reads, and the shapes of float64 results."""

    def __init__(self):
        super().__init__()
        self.argmaxes, self.doubles = [], []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.ops.aten.argmax.default:
            self.argmaxes.append(tuple(args[0].shape))
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            self.doubles.append(result.numel())
        return result


@pytest.mark.parametrize("top_p", [None, 0.9])
def test_no_float64_of_rows_times_vocabulary_and_an_argmax_of_greedy_rows_alone(top_p):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(ROWS, 50_000, generator=generator)
    logits[:, :40] += 14.0  # nearly all mass is on a few tokens, as a language model's is
    uniform = torch.full((ROWS,), 0.123, dtype=torch.float64)
    for temperature, greedy_rows in ((None, []), (rows_of([0.9]), []), (rows_of([0.0, 1.0, 1.0]), [8])):
        with Passes() as passes:
            sample(logits, temperature, None if top_p is None else rows_of([top_p]), uniform)
        assert sum(shape[0] for shape in passes.argmaxes) == sum(greedy_rows)
        assert max(passes.doubles) < ROWS * 50_000 / 10
