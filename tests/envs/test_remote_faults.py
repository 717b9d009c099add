"""Faults of a server in the middle of episodes: a light form of `benchmarks/env_faults.py`, which has the figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from env_faults import CASES, problems, run_case

FAILURES = {"killed": "Lost", "half_open": "TooSlow", "slow": "TooSlow", "garbage": "BadAnswer", "full": "Full"}
LIGHT = ("killed", "half_open", "garbage")


@pytest.mark.parametrize(
    "name", [name if name in LIGHT else pytest.param(name, marks=pytest.mark.integration) for name in CASES]
)
def test_faults_are_failures_with_a_name_and_never_rewards(name):
    result = run_case(CASES[name], 30)
    assert problems(CASES[name], result) == []
    assert 0 < result["whole"] <= 30
    if name in FAILURES:
        assert any(FAILURES[name] in kind for kind in result["failed"]), result["failed"]
