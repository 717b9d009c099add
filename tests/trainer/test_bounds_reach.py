"""What is said of a search's reach: by the settings alone, and on the first rows that are trained on."""

from __future__ import annotations

import numpy as np

from whet.config.losses import BalancedBounds
from whet.config.parts import LearningConfig
from whet.models.scoring import score
from whet.objectives import reinforce_loss
from whet.trainer import reach
from whet.trainer.learner import Learner
from whet.trainer.terms import Term, Update, on_tokens
from whet.types import Row, tail_row


def rows_of(policy, *, good: int, bad: int, drift: float = 0.0, version: int | None = None) -> list[Row]:
    """A good and a bad reply of so many tokens, whose ratios are exp(drift) and exp(-drift)."""
    version = policy.version if version is None else version
    rows = []
    for size, sign in ((good, 1.0), (bad, -1.0)):
        row = tail_row(policy.name, (5, 6, 7), [8] * size, sign)
        [logprobs] = score(policy, [row], token_budget=1000)
        old = np.asarray(logprobs) - sign * drift
        rows.append(tail_row(policy.name, (5, 6, 7), [8] * size, sign, logprobs=old, versions=((version, size),)))
    return rows


def told(policy, rows, *, at_start: bool = False, **bounds):
    return reach.measured(BalancedBounds(**bounds), rows, policy, at_start=at_start, token_budget=1000)


def test_what_the_settings_say():
    text = reach.in_advance(BalancedBounds(), 9)
    assert text == "reach of the search: target 40.0%, never from below 21.1%; measured at step 9"
    assert len(text) < 80
    assert "from any start; measured in training" in reach.in_advance(BalancedBounds(contribution="gradient"), None)


def test_fresh_rows_have_one_share_and_lengths_say_why(random_policy):
    rows = rows_of(random_policy, good=3, bad=9, drift=0.7)  # of these weights: ratios are 1 by definition
    assert reach.is_fresh(rows, random_policy)
    assert told(random_policy, rows) == [
        "search reaches 25.0% to 25.0%, target 40.0%: out of reach",
        "all ratios are 1; good tokens 25.0%, 3 a reply (bad: 9)",
    ]


def test_old_rows_are_scored(random_policy):
    rows = rows_of(
        random_policy, good=3, bad=9, drift=0.7, version=random_policy.version - 1
    )  # ratios of 2.01 and 0.497
    assert not reach.is_fresh(rows, random_policy)
    # 3 * 1.2 to 3 * 2.01 of good tokens, beside 9 * 0.6 of bad ones
    assert told(random_policy, rows, target=0.5) == ["search reaches 40.0% to 52.8%, target 50.0%: within reach"]
    assert told(random_policy, rows, target=0.6) == [
        "search reaches 40.0% to 52.8%, target 60.0%: out of reach",
        "past a bound 100.0%; good tokens 25.0%, 3 a reply (bad: 9)",
    ]
    assert told(random_policy, rows, at_start=True)[0].startswith("search reaches 25.0% to 25.0%")


def test_a_start_that_meets_the_target_needs_no_reason(random_policy):
    assert told(random_policy, rows_of(random_policy, good=5, bad=5)) == [
        "search reaches 50.0% to 50.0%, target 40.0%: it stays"
    ]


def test_without_credit_nothing_is_said(random_policy):
    row = tail_row(random_policy.name, (5,), [8], 0.0, logprobs=[-1.0], versions=((random_policy.version, 1),))
    assert told(random_policy, [row]) == []


def test_every_ratio_loss_tells_its_effective_samples(random_policy):
    """Also one without the observer of clip losses; by the rows' own sampler, two tokens with a ratio of 1 and 2."""
    learner = Learner(random_policy, Update((Term(on_tokens(reinforce_loss)),), LearningConfig(learning_rate=1e-9), 1))
    rows = []
    for drift in (0.0, float(np.log(2))):
        row = tail_row(random_policy.name, (5, 6), [7], 1.0)
        [logprobs] = score(random_policy, [row], token_budget=1000)
        rows.append(
            tail_row(random_policy.name, (5, 6), [7], 1.0, logprobs=np.asarray(logprobs) - drift, versions=((0, 1),))
        )
    metrics = learner.update(rows, seed=0)
    assert abs(metrics["ratio/effective_samples"] - 9 / (2 * 5)) < 1e-5
    assert abs(metrics["ratio/effective_rows"] - 9 / (2 * 5)) < 1e-5
