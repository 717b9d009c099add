"""Drafts by prompt lookup: replies are the same tokens, in fewer passes."""


import pytest
import torch

from whet.engines.local import LocalEngine
from whet.types import Request, Sampling

TEXTS = ["Solve: 7 + 5", "Solve: 1 + 2 * 3 - 4 + 5 * 7", "Critique: 3", "Solve: 9 - 9 - 9 - 9 - 9 - 9 - 9 - 9"]


def requests_for(policy, texts=TEXTS, *, per_text=3, **sampling):
    settings = Sampling(**{"max_new_tokens": 30, **sampling})
    return [
        Request(context=tuple(policy.tokenizer.encode(text)), sampling=settings, seed=1000 * i + j)
        for i, text in enumerate(texts)
        for j in range(per_text)
    ]


def told(completions):
    return [(done.tokens, done.stop_reason) for done in completions]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.7, 1.0), (0.8, 0.6), (0.0, 1.0)])
@pytest.mark.parametrize("rows", [1, 4])
def test_replies_are_the_same_tokens(random_policy, temperature, top_p, rows):
    requests = requests_for(random_policy, temperature=temperature, top_p=top_p)
    plain = LocalEngine(random_policy, max_rows=rows).generate(requests)
    drafted = LocalEngine(random_policy, max_rows=rows, draft=7).generate(requests)
    assert told(drafted) == told(plain)
    for one, other in zip(drafted, plain, strict=True):
        torch.testing.assert_close(torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=1e-4, rtol=0)
