"""How far an engine's logprobs and a trainer's may lie apart: worked numbers, and what rounding does by itself."""

import random
from dataclasses import replace

import pytest
import torch

from whet.engines.agreement import AGREEMENT, FEWEST, REPEATED, apart
from whet.engines.local import LocalEngine
from whet.engines.vllm_probe import Answers, check_probe, new_probe
from whet.engines.vllm_server import ServerError
from whet.models.scoring import score_here
from whet.types import tail_row


def off_by(*differences):
    """Two sides whose tokens differ so, in rows of two."""
    wanted = torch.tensor(differences, dtype=torch.float64)
    zeros = torch.zeros_like(wanted)
    return list(wanted.split(2)), list(zeros.split(2))


@pytest.mark.parametrize(
    ("differences", "largest", "mean"),
    [
        ((), 0.0, 0.0),
        ((0.5,), 0.5, 0.5 / FEWEST),  # one token is no mean
        ((0.1, -0.3), 0.3, 0.4 / FEWEST),
        ((0.1,) * 15 + (-0.9,) * 5, 0.9, (1.5 + 4.5) / 20),
    ],
)
def test_the_largest_difference_and_the_mean_of_enough_tokens(differences, largest, mean):
    one, other = off_by(*differences)
    assert apart(one, other, "largest") == pytest.approx(largest)
    assert apart(one, other, "mean") == pytest.approx(mean)


def test_what_is_no_number_is_never_near():
    for which in ("largest", "mean"):
        assert not apart([torch.tensor([0.0, float("nan")])], [torch.zeros(2)], which) <= 1e9


def test_checks_that_come_again_and_again_go_by_means():
    assert AGREEMENT[torch.float32] == ("largest", 1e-4)
    assert {which for which, _ in REPEATED.values()} == {"mean"}


@pytest.fixture
def answered(random_policy):
    """A probe, and what an honest server answers."""
    probe = new_probe(random_policy, random.Random(0))
    engine = LocalEngine(random_policy)
    rows = [tail_row("policy", prompt[:1], prompt[1:], 0.0) for prompt in probe.prompts]
    scores = [row.tolist() for row in score_here(random_policy, rows, token_budget=4096)]
    return probe, Answers(scores, [engine.generate([request])[0] for request in probe.requests])


def test_one_token_that_rounding_moved_is_no_fault_of_a_server_and_all_of_them_are(random_policy, answered):
    probe, answers = answered
    check_probe(random_policy, probe, answers, "it", "1")
    answers.scores[0][3] += 3e-4
    first = answers.completions[0]
    answers.completions[0] = replace(first, logprobs=(*first.logprobs[:-1], first.logprobs[-1] - 3e-4))
    check_probe(random_policy, probe, answers, "it", "1")
    for scores in answers.scores:
        scores[:] = [each + 3e-4 for each in scores]
    with pytest.raises(ServerError, match=r"differ by 0\.0003 nats \(mean; allowed 5e-05\)"):
        check_probe(random_policy, probe, answers, "it", "1")
