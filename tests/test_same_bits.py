"""Every run that `same_bits.py` has recorded, on the machine that recorded them: the same bits still."""

from __future__ import annotations

import json

import pytest

import same_bits

RECORD = json.loads(same_bits.RECORD.read_text())


def test_the_recording_and_the_list_of_runs_are_one():
    assert RECORD["runs"].keys() == same_bits.RUNS.keys()
    assert same_bits.EVALS.keys() <= same_bits.RUNS.keys()


def test_a_difference_is_named():
    was = {"reward/mean": "a", "weights of policy": "b", "kl/ref": "c"}
    assert same_bits.differences(was, was | {"new/metric": "d"}) == []
    assert same_bits.differences(was, {"reward/mean": "a", "weights of policy": "x"}) == [
        "kl/ref (gone)",
        "weights of policy",
    ]


@pytest.mark.integration
@pytest.mark.parametrize("name", sorted(RECORD["runs"]))
def test_a_recorded_run_has_the_same_bits(name, tmp_path):
    here = same_bits.machine()
    if RECORD["machine"] != here:
        others = [f"{key} {RECORD['machine'].get(key)!r}, not {value!r}" for key, value in here.items()
                  if RECORD["machine"].get(key) != value]  # fmt: skip
        pytest.skip(f"bits were recorded elsewhere: {'; '.join(others)}")
    assert same_bits.differences(RECORD["runs"][name], same_bits.run(name, tmp_path / "run")) == []
