"""DPO on critique pairs: which critiques are paired, and that the loss starts at log 2."""

from __future__ import annotations

import json
import math

import pytest

from support.sessions import STEPS, WARM, finished, session_of

ONE_UPDATE = (*STEPS, *WARM, "learning.minibatch_rows=1000")


def test_pairs_are_of_one_answer_and_the_better_comes_first():
    method = session_of("critique_dpo", *ONE_UPDATE).algorithm
    method._begin()
    batch = method._collect(1)
    bundles: dict[str, list] = {}
    for row in batch.rows:
        bundles.setdefault(row.bundle, []).append(row)
    assert bundles, "no pair was made"
    for chosen, rejected in bundles.values():
        assert (chosen.credit[0], rejected.credit[0]) == (1.0, -1.0)
        assert chosen.tokens[: chosen.trains[0]].tolist() == rejected.tokens[: rejected.trains[0]].tolist()
        assert chosen.ref_logprobs is not None
    assert batch.metrics["pair/made"] == len(bundles) / 6


def test_a_margin_leaves_close_pairs_out():
    wide = session_of("critique_dpo", *ONE_UPDATE, "margin=1.2").algorithm  # right refinement and right verdict: 1.5
    wide._begin()
    near = session_of("critique_dpo", *ONE_UPDATE).algorithm
    near._begin()
    assert len(wide._collect(1).rows) < len(near._collect(1).rows)


@pytest.mark.parametrize(("kind", "loss"), [("logistic", math.log(2)), ("ipo", (1 / (2 * 0.1)) ** 2)])
def test_the_first_loss_is_that_of_equal_policies(tmp_path, kind, loss):
    """Policy and reference are one: every margin is 0."""
    finished("critique_dpo", *ONE_UPDATE, f"kind={kind}", folder=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    first, second = (row for row in rows if row["phase"] == "train" and row["step"])
    assert first["loss/mean"] == pytest.approx(loss, rel=1e-4)
    assert first["pair/margin"] == pytest.approx(0, abs=1e-5)
    assert second["pair/margin"] != first["pair/margin"]


@pytest.mark.integration
def test_an_iterated_reference_moves_and_a_fixed_one_does_not(tmp_path):
    moved = finished("critique_dpo", *ONE_UPDATE, "num_steps=3", "iterated=1", folder=tmp_path / "iterated")
    fixed = finished("critique_dpo", *ONE_UPDATE, "num_steps=3", folder=tmp_path / "fixed")
    for session, expected in ((moved, False), (fixed, True)):
        policies = session.loop.policies
        same = all((a == b).all() for a, b in zip(policies["critic_ref"].state().values(),
                                                  policies["critic_sft"].state().values(), strict=True))  # fmt: skip
        assert same is expected
