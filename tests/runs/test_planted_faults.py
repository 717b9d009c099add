"""Runs with one thing wrong: each is stopped or said, before the first step or in it, in its own sentence."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import planted_faults
from planted_faults import FAULTS


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_with_its_sentence(name, tmp_path):
    fault = FAULTS[name]
    result = planted_faults.found(fault, tmp_path)
    said = [" ".join(text.split()) for text in result.texts]
    assert any(re.search(fault.sentence, text) for text in said), said
    assert result.stopped == fault.stops, said


def test_the_same_runs_without_a_fault_are_told_nothing(tmp_path):
    """Their environment, and the replies that they sample, are otherwise as they should be."""
    for method, settings in (
        ("grpo", planted_faults.solve()),
        ("grpo", planted_faults.model()),
        ("agent_grpo", planted_faults.environment("planted_nothing")),
    ):
        place = tmp_path / str(len(list(tmp_path.iterdir())))
        place.mkdir()
        fault = planted_faults.Fault("nothing", "never said", method, settings)
        result = planted_faults.found(fault, place)
        assert not result.stopped
        expected = [] if method == "grpo" else [r"all 16 episodes are wrong|0% of the groups"]  # it pays nothing
        others = [t for t in result.texts if "starts at" not in t]
        assert all(any(re.search(e, t) for e in expected) for t in others), others
