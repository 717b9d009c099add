"""The speed benchmarks run, on sizes that take seconds. Their figures are in benchmarks/results, not here."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import bapo_tiny
import entropy_rule
import limit
import picker
import rollout
import side_by_side
import smollm2_grpo
import step
from whet.config.parts import BasicsData
from whet.tasks.basics import MAKERS, make_basics


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setitem(side_by_side.SHAPES, "0.4M", (32, 2))
    monkeypatch.setattr(rollout, "LONGEST", 16)
    monkeypatch.setattr(rollout, "MEAN", 4)
    monkeypatch.setattr(rollout, "UNIFORM", 5)
    monkeypatch.setattr(step, "PROMPTS", 4)
    monkeypatch.setattr(step, "LONGEST", 8)


@pytest.mark.parametrize("kind", ["grouped", "uniform"])
def test_rollout_measures_both_sides_on_the_same_work(kind):
    row = rollout.case("0.4M", kind, 16, 1, with_continuous=False)
    assert row["same_greedy_text"] == 1
    assert set(row["tokens_per_s"]) == {"whet", "generate, dynamic cache", "generate, static cache"}
    assert all(found["min"] > 0 for found in row["times_faster"].values())
    where = side_by_side.machine()
    assert "| " + f"{row['parameters'] / 1e6:.1f} M | {kind} | 16 |" in rollout.markdown([row], where)


def test_long_tailed_lengths_have_the_mean_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(rollout, "LONGEST", 256)
    monkeypatch.setattr(rollout, "MEAN", 40)
    lengths = rollout.long_tailed(1000, rollout.random.Random(0))
    assert sum(lengths) == pytest.approx(40_000, rel=0.01)
    assert max(lengths) == 256
    assert sorted(lengths)[500] < 30  # half of them are short


def test_step_learns_from_what_it_sampled():
    found = step.whet_side("0.4M", 2)
    assert len(found["seconds"]) == len(found["tokens"]) == 2
    assert found["moved"] > 0


def test_limit_compares_a_pass_with_its_products():
    model = side_by_side.random_model("0.4M")
    linear = sum(2 * n * inputs * outputs for n, inputs, outputs in limit.products(model, 1))
    weights = sum(p.numel() for p in model.parameters() if p.dim() == 2)  # the head is the embedding, tied
    assert linear == 2 * weights
    row = limit.shares("0.4M", 1)
    assert all(share > 0 for share in row["share"].values())  # no bound above: other work on the machine moves it
    case = limit.shared_prompt(8, 4, 1)  # asserts that both give the same
    assert min(case["copied_us"], case["stored_once_us"]) > 0


def test_the_search_for_bounds_is_timed_against_its_update():
    row = picker.case("0.4M", 8, 6, 100, 2)  # asserts that fast search and loop find the same bounds
    assert row["passes"] == 3
    assert 0 < row["search_share"] < 1
    assert "0.0 M" in picker.markdown([row], side_by_side.machine())


CELLS = (("fixed", "fresh"), ("fixed", "stale1"), ("bapo", "stale1"))


@pytest.mark.slow
def test_the_study_of_clip_rules_runs_goes_on_and_reads_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setitem(bapo_tiny.REGIMES_OF, "high", ("fresh", "stale1"))
    monkeypatch.setattr(bapo_tiny, "cells", lambda: [("high", m, r) for m, r in CELLS])
    small = ["num_steps=4", "data.num_train=64", "data.num_validation=8", "data.num_test=8", "prompts_per_step=4"]
    small += ["validate_every=2", "probe_every=1", "evaluation.num_samples=2", "learning.minibatch_rows=16"]
    bapo_tiny.run_all(tmp_path, [0], small)
    result = bapo_tiny.collect(tmp_path, [0, 1], "test")
    assert len(result["missing"]) == 3
    assert set(result["cells"]) == {f"high/{m}/{r}" for m, r in CELLS}
    assert result["cells"]["high/bapo/stale1"]["mean"]["high"][0] >= 1.2
    [row] = [r for r in result["questions"] if r["left"] == "high/bapo/stale1" and r["metric"] == "last"]
    values = result["cells"]
    assert row["mean"] == pytest.approx(
        100 * (values["high/bapo/stale1"]["values"]["last"][0] - values["high/fixed/stale1"]["values"]["last"][0])
    )
    text = bapo_tiny.markdown(result)
    assert "Not finished" in text
    assert "BAPO, paper" in text
    before = (tmp_path / "seed0" / "high-bapo-stale1" / "metrics.jsonl").stat().st_mtime_ns
    bapo_tiny.run_one(tmp_path, 0, ("high", "bapo", "stale1"), small)  # finished: read, not run again
    assert (tmp_path / "seed0" / "high-bapo-stale1" / "metrics.jsonl").stat().st_mtime_ns == before


def test_the_entropy_rule_is_held_against_its_base_rate():
    found = entropy_rule.of_run([(-1.0, -0.2), (1.0, 0.2), (2.0, -0.1), (-3.0, -0.4)])
    assert (found["agrees"], found["falls"], found["predicted_falls"]) == (0.75, 0.75, 0.5)
    assert found["rank_correlation"] == pytest.approx(0.8)  # ranks 1 2 3 0 and 1 3 2 0


def test_learning_to_end_a_reply_is_told_from_knowing_more(tmp_path):
    """Four problems: right and ended on both sides, cut and then right, cut twice, wrong and then right."""
    mix = {kind: float(kind == "extreme") for kind in MAKERS}
    tasks, _ = make_basics(BasicsData(mix=mix), {"test": 4})
    before = [(1, "eos"), (0, "length"), (0, "length"), (0, "eos")]
    after = [(1, "eos"), (1, "eos"), (0, "length"), (1, "eos")]
    (tmp_path / "traces").mkdir()
    (tmp_path / "config.yaml").write_text(f"data: {{kind: basics, mix: {json.dumps(mix)}, num_test: 4}}")
    for phase, rows in (("before", {"before": before}), ("after", {"best": after, "last": before})):
        lines = [
            {"task": task.id, "policy": policy, "answer_score": float(score), "stop": {"answer": stop}}
            for policy, replies in rows.items()
            for task, (score, stop) in zip(tasks["test"], replies, strict=True)
        ]
        (tmp_path / "traces" / f"{phase}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = smollm2_grpo.compared(tmp_path)
    assert found["best"]["before"] == {"all": 0.25, "ended": 0.5, "of_ended": 0.5, "of_both": 0.5}
    assert found["best"]["after"] == {"all": 0.75, "ended": 0.75, "of_ended": 1.0, "of_both": 1.0}
    assert found["best"]["gain"] == {"all": 0.5, "ended": 0.25, "of_ended": 0.5, "of_both": 0.5}
    assert found["best"]["num_both"] == 2
    assert found["best"]["by_kind"] == {"extreme": {"before": 0.25, "after": 0.75, "n": 4}}
    assert set(found["last"]["gain"].values()) == {0.0}
