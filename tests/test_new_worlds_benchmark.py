"""The study of four environments: what it reads of its runs, and that its arms share what they should."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import new_worlds
import study
from claims import SYSTEMS
from whet.methods.registry import config_of


def finished_run(folder: Path, rows: dict[str, dict[str, float]], lines: list[dict[str, object]]) -> None:
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"rows": rows, "seconds": 60.0}))
    (folder / "env.json").write_text(json.dumps({"commit": "abc"}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def in_worlds(*success: float) -> dict[str, float]:
    by_world = {f"success[{world}]": value for world, value in zip(new_worlds.WORLDS, success, strict=True)}
    return {**by_world, "success": 0.9, "turns": 5.0, "pass@1": 0.3, "pass@2": 0.4, "pass@4": 0.5}


def seed_folder(root: Path, seed: int, gain: float) -> None:
    start = in_worlds(0.2, 0.4, 0.3, 0.5)
    learnt = [{"phase": phase, "step": step, "loss/nll": 0.1} for phase, count in (("clone", 3), ("learn_1", 4))
              for step in range(1, count + 1)]  # fmt: skip
    merge = {"phase": "merge_1", "step": 1, "round/kept": 7.0, "round/merged": 17.0, "round/kept[maze]": 2.0}
    explored = [{"phase": "explore_1", "step": step, "reward/success": step / 4} for step in (1, 2)]
    better = in_worlds(0.2 + gain, 0.4, 0.3, 0.5)
    finished_run(root / "evol", {"before": start, "after": better, "last": better}, [*learnt, *explored, merge])
    rising = [{"phase": "train", "step": step, "validation/success": step / 10} for step in (1, 2, 4)]
    finished_run(root / "start", {"before": start}, rising)
    finished_run(root / "more", {"before": start, "after": start, "last": start}, [])
    rewards = [
        {"phase": "train", "step": step, "turns/env_steps": 1000.0, "turns/mean": 4.0, "reward/success": step / 10,
         "group/no_signal": 0.5, "group/all_wrong": 0.25}
        for step in range(1, 11)
    ]  # fmt: skip
    rows = {"before": 0.3, "more_cloning": 0.25, "after": 0.4, "last": 0.45}
    finished_run(root / "rl", {row: {**start, "success": value} for row, value in rows.items()}, rewards)


def test_each_environment_counts_alike_and_arms_are_paired_by_seed(tmp_path):
    """The four are 20, 40, 30 and 50 %: 35 % on average, whatever the number of items. A gain of 8 or 16 points in one
    of them is 2 or 4 points of the mean."""
    for seed, gain in ((400, 0.08), (401, 0.16)):
        seed_folder(tmp_path / f"seed{seed}", seed, gain)
    assert new_worlds.is_whole(tmp_path, 400)
    assert not new_worlds.is_whole(tmp_path, 402)
    found = study.join({seed: new_worlds.measure(tmp_path / f"seed{seed}") for seed in (400, 401)}, {})
    assert found["worlds"]["before"]["mean"] == pytest.approx([0.35, 0.35])
    assert found["worlds"]["evol"]["mean"] == pytest.approx([0.37, 0.39])
    assert found["updates"]["evol"] == [7, 7]
    assert found["start_last_rise"] == pytest.approx([0.2, 0.2])
    assert found["training"]["env_steps"] == [10_000, 10_000]
    assert found["training"]["first reward/success"] == pytest.approx([0.3, 0.3])
    assert found["training"]["last reward/success"] == pytest.approx([0.8, 0.8])
    text = new_worlds.markdown({"found": found, "command": "here"})
    assert "| evol − more, mean | +3.0 ± 12.7 | +2.0, +4.0 |" in text
    assert "| after − more_cloning | +15.0 ± 0.0 | +15.0, +15.0 |" in text
    assert "| 1 | 37.5 ± 0.0 | 7.0 ± 0.0 | 17.0 ± 0.0 |" in text
    claims = [claim for system in SYSTEMS for claim in system.claims if claim.result == "new_worlds"]
    assert [claim.premise({"found": found}).holds for claim in claims] == [True, True]
    assert [lead.values for claim in claims for lead in claim.leads({"found": found})] == [
        pytest.approx([0.15, 0.15]),
        pytest.approx([0.02, 0.04]),
    ]


def test_rounds_and_more_cloning_have_the_same_items_and_play():
    evol, more = (
        config_of("agent_evol_worlds", None, new_worlds.EVOL),
        config_of("agent_clone_worlds", None, new_worlds.MORE),
    )
    assert evol.data == more.data
    assert evol.expert == more.expert
    assert evol.learning == more.learning
    assert evol.rows_per_step == more.rows_per_step
    assert evol.evaluation == more.evaluation
    start = config_of("agent_clone_worlds", None, new_worlds.START)
    assert start.data.model_copy(update={"num_test": more.data.num_test}) == more.data
    tools = config_of("agent_grpo_academia", None, new_worlds.RL)
    assert tools.data.num_test == new_worlds.NUM_TOOLS
    assert set(tools.data.shares) < set(more.data.shares)
