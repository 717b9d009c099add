"""The speed benchmarks run, on sizes that take seconds. Their figures are in benchmarks/results, not here."""

import json
import sys
from argparse import Namespace
from collections import Counter
from itertools import cycle
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import agent_evol_worlds
import agent_faults
import agent_step
import agents_tiny
import bapo_settled
import bapo_tiny
import critique_data_tiny
import critique_loop_worlds
import critique_rl_worlds
import critique_votes_tiny
import entropy_rule
import limit
import picker
import rollout
import scaling_inter
import side_by_side
import smollm2_grpo
import smollm2_own_mistakes
import smollm2_speed
import step
import study
from agent_world import CALLS, CHAT, TURNS, Tools, items
from agents_tiny_text import TABLES, text
from claims import SYSTEMS
from whet.config import config_at
from whet.config.parts import BasicsData
from whet.methods.agent.evolution import item_of, shown_items
from whet.methods.environment_tasks import load_environment_tasks
from whet.methods.registry import config_of
from whet.models.shipped import AGENTS
from whet.models.tiny import tiny_tokenizer
from whet.rollout.roles import render
from whet.tasks.basics import MAKERS, make_basics
from whet.tasks.prompts import find_prompts
from whet.trajectories.files import read_trajectories
from whet.types import Task


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


def test_an_agents_step_plays_every_turn_of_the_same_items(monkeypatch):
    monkeypatch.setattr(agent_step, "ITEMS", 2)
    monkeypatch.setattr(agent_step, "GROUP", 2)
    monkeypatch.setattr(agent_step, "WRITTEN", 24)
    found = agent_step.whet_side(1)
    assert found["turns"] == [2 * 2 * TURNS]
    assert 0 < found["play"][0] < found["seconds"][0]
    assert 0 < found["tokens"][0] <= 24 * found["turns"][0]
    assert found["moved"] > 0
    assert len(set(items(4))) == 4


def test_trl_is_shown_what_the_tiny_agent_reads_and_takes_its_replies_for_calls():
    words = AutoTokenizer.from_pretrained(AGENTS["tiny_agent"])
    first, reply = Tools().reset(3), "Thought:\nI need it.\n\nAction:\nget 1 oak log"
    said = [{"role": "user", "content": first}, {"role": "assistant", "content": reply}]
    ours = render(words, [*said, {"role": "user", "content": "Got 1 oak log"}])
    words.chat_template, words.response_template = CHAT, CALLS
    theirs = words.apply_chat_template([*said, {"role": "tool", "content": "Got 1 oak log"}],
                                       add_generation_prompt=True, return_dict=False)  # fmt: skip
    assert tuple(theirs) == ours
    asked = words.apply_chat_template(said[:1], add_generation_prompt=True, return_dict=False)
    [call] = words.parse_response(words.encode(f"{reply}<|end|>"), prefix=asked, tools=[Tools().act])["tool_calls"]
    assert call == {"type": "function", "function": {"name": "act", "arguments": {"reply": reply}}}


@pytest.mark.integration
def test_what_a_run_in_failing_worlds_paid_is_played_again(tmp_path, monkeypatch):
    monkeypatch.setitem(agent_faults.ARMS, "failing", 0.1)
    small = ["prompts_per_step=3", "group_size=4", "max_turns=4", "data.num_validation=2", "data.num_test=2"]
    monkeypatch.setattr(agent_faults, "DATA", {**agent_faults.DATA, "num_validation": 2, "num_test": 2})
    out = agent_faults.run(tmp_path, "failing", 5, 2, [*small, "pool.timeout_s=5", "evaluation.max_turns=2"])
    found = agent_faults.of_run(out, 5)
    assert found["wrong"] == {"rewards": [], "baselines": [], "counts": []}
    assert found["replayed"] == found["counts"]["finished"] > 0
    assert sum(found["happened"].values()) == found["counts"]["retried"] + found["counts"]["lost"] > 0
    traces = [json.loads(line) for line in (out / "traces" / "train.jsonl").read_text().splitlines()]
    episodes = [trace for trace in traces if trace["split"] == "train"]
    groups = Counter((trace["step"], trace["task"]) for trace in episodes)
    compared = next(trace for trace in episodes if groups[trace["step"], trace["task"]] > 1)
    # Turned over, not raised: credit does not change with a group's scale, so that one more for a lone success is no
    # other credit.
    compared["reward"] = 1 - compared["reward"]
    assert len(list(agent_faults.wrong_rewards(episodes, 5))) == 1
    assert list(agent_faults.wrong_credit(episodes))


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


@pytest.mark.integration
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


@pytest.mark.parametrize("world", bapo_settled.WORLDS)
def test_every_rule_that_is_to_settle_bapo_has_settings_that_say_so(world):
    method, options = bapo_settled.WORLDS[world].method, bapo_settled.WORLDS[world].settings
    losses = {
        rule: config_of(method, None, [*bapo_settled.COMMON, *options, *settings]).loss
        for rule, settings in bapo_settled.RULES.items()
    }
    assert len({repr(loss) for loss in losses.values()}) == len(losses)
    assert (losses["fixed 0.9, 3"].bounds.low, losses["fixed 0.9, 3"].bounds.high) == (0.9, 3)
    search = losses["BAPO, paper"].bounds
    assert (search.low.start, search.high.start, search.low.ceiling, search.high.ceiling) == (0.6, 1.2, 0.9, 3)
    config_of("imitation", None, bapo_settled.WRITER)


def settled_run(folder, before, after):
    """A finished run whose replies of the first steps are right so often, and those of the last."""
    folder.mkdir(parents=True)
    rows = [{"phase": "train", "step": 0}]
    rows += [
        {"phase": "train", "step": step, "reward/correct": before if step <= 8 else after, "group/no_signal": 0.25}
        | ({"balance/share_raw": 0.4} if step > 8 else {})
        for step in range(1, 33)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "summary.json").write_text("{}")
    (folder / "env.json").write_text(json.dumps({"commit": "abc"}))


def test_each_rule_to_settle_bapo_gets_its_best_rate_and_the_best_pair_is_a_rule(tmp_path, monkeypatch):
    monkeypatch.setattr(bapo_settled, "policies_of", lambda run: run)
    for seed in (*bapo_settled.TUNING_SEEDS, 400, 401):
        (tmp_path / "rambling" / f"seed{seed}" / "writer").mkdir(parents=True)
        (tmp_path / "rambling" / f"seed{seed}" / "writer" / "summary.json").write_text("{}")
        for place, rule in enumerate(bapo_settled.RULES):
            for number, rate in enumerate(bapo_settled.RATES):
                after = 0.5 + 0.01 * place + (0.1 if number == place % 3 else 0) + (seed == 401) * 0.02
                settled_run(bapo_settled.folder_of(tmp_path, "rambling", seed, rule, rate), 0.3, after)
    monkeypatch.setattr(study, "RESULTS", tmp_path / "results")
    options = sitting(tmp_path, "bapo", collect=True)
    tuning = bapo_settled.tuning_part(tmp_path, "rambling", [])
    world = study.accumulate(options, [tuning], bapo_settled.markdown)["worlds"]["rambling"]
    arms = bapo_settled.arms_in(world)
    assert arms["best fixed"] == ("fixed 0.9, 3", 3e-4)
    assert arms["clip-higher 0.8, 1.28"] == ("clip-higher 0.8, 1.28", 3e-5)
    assert arms["BAPO, paper"] == ("BAPO, paper", 1e-4)
    part = bapo_settled.arms_part(tmp_path, "rambling", arms, [400, 401, 402], [])
    result = study.accumulate(options, [part], bapo_settled.markdown)
    assert result["worlds"]["rambling"]["arms"]["seeds"] == [400, 401]  # 402 is not whole
    said = bapo_settled.markdown(result)
    assert "| BAPO, paper | 0.0001 | 30.0 ± 0.0 | 65.0 ± 12.7 | +2.0 ± 0.0 | – | 65.0 ± 12.7 |" in said
    assert "| BAPO, paper | 75.0 ± 0.0 | 40.0 ± 0.0 | – |" in said
    assert bapo_settled.arms_in({}) is None
    with pytest.raises(SystemExit, match="no seed has finished"):
        study.accumulate(options, [bapo_settled.tuning_part(tmp_path, "agents", [])], bapo_settled.markdown)


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
    steps = [{"step": 0}, {"step": 1, "kl/sampler": 0.001}, {"step": 2, "kl/sampler": 0.003}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in steps))
    found = smollm2_grpo.compared(tmp_path)
    assert found["kl/sampler"] == {"mean": 0.002, "most": 0.003}
    assert found["best"]["before"] == {"all": 0.25, "ended": 0.5, "of_ended": 0.5, "of_both": 0.5}
    assert found["best"]["after"] == {"all": 0.75, "ended": 0.75, "of_ended": 1.0, "of_both": 1.0}
    assert found["best"]["gain"] == {"all": 0.5, "ended": 0.25, "of_ended": 0.5, "of_both": 0.5}
    assert found["best"]["num_both"] == 2
    assert found["best"]["by_kind"] == {"extreme": {"before": 0.25, "after": 0.75, "n": 4}}
    assert set(found["last"]["gain"].values()) == {0.0}


@pytest.mark.parametrize("world", ["textcraft", "babyai"])
def test_further_cloning_has_as_many_updates_and_rows_as_rl(world):
    method, *settings = agents_tiny.RUNS[world]
    rl = config_of(method, None, settings)
    method, *settings = agents_tiny.RUNS[f"{world}_clone"]
    clone = config_of(method, None, settings)
    rows = rl.prompts_per_step * rl.group_size
    assert clone.rows_per_step == clone.learning.minibatch_rows == rl.learning.minibatch_rows
    assert clone.num_steps == rl.num_steps * rl.learning.updates_a_step(rows)
    assert (clone.policy.path, clone.data) == (rl.policy.path, rl.data)


def made_run(place, rows, points):
    """A run that has finished: rows by their success, and a validation after so many steps in environments each."""
    place.mkdir(parents=True)
    found = {
        name: {"success": value, "success[depth 1]": value, "n": 20, "n[depth 1]": 7} for name, value in rows.items()
    }
    (place / "summary.json").write_text(json.dumps({"rows": found, "seconds": 36}))
    (place / "env.json").write_text(json.dumps({"commit": "abc"}))
    lines = [
        {"phase": "train", "step": step, "turns/env_steps": count, "validation/success": value}
        for step, (count, value) in enumerate(points)
    ]
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_study_of_agents_reads_what_has_finished_and_says_what_has_not(tmp_path):
    for seed, gain in ((7, 0.2), (8, 0.3)):
        place = tmp_path / f"seed{seed}"
        made_run(
            place / "textcraft", {"before": 0.3, "after": 0.4 + gain, "last": 0.4}, [(0, 0.2), (60, 0.4), (60, 0.8)]
        )
        made_run(place / "textcraft_clone", {"before": 0.3, "after": 0.4, "last": 0.4}, [(0, 0.2), (0, 0.4)])
    made_run(tmp_path / "seed7" / "short", {"before": 0.3, "after": 0.3, "last": 0.3}, [(0, 0.2), (100, 0.3)])
    made_run(tmp_path / "seed7" / "long", {"before": 0.3, "after": 0.3, "last": 0.3}, [(0, 0.2), (90, 0.5)])
    result = agents_tiny.collect(tmp_path, [7, 8], "test")
    assert result["missing"]["short"] == [8]
    assert "textcraft" not in result["missing"]
    assert result["hours"]["a"] == pytest.approx(0.04)  # four runs
    assert result["hours"]["b"] == pytest.approx(0.02)  # the run that it shares with a counts there
    told = text(result, TABLES)
    assert "| RL, best validated | 65.0 ± 63.5 | 65.0 ± 63.5 | – | 2 |" in told
    assert "| RL, best validated − as many updates of cloning, best validated | success | +25.0 ± 63.5 | 2 |" in told
    assert "| | success (20) | depth 1 (7) | turns | seeds |" in told
    assert "Not finished" in told
    assert "(f)" not in told
    grown = result["horizons"]["textcraft"]["7"]
    assert (grown["env_steps"], grown["budget"]) == (120, 90)  # where the shortest ends: `long`
    assert grown["at"] == pytest.approx(0.6)  # half way from 0.4 to 0.8
    assert grown["mean"] == pytest.approx((60 * 0.3 + 30 * 0.5) / 90)
    assert result["horizons"]["short"]["7"]["at"] == pytest.approx(0.29)
    assert list(result["horizons"]["short"]) == ["7"]
    before = json.loads(json.dumps(result))
    assert agents_tiny.collect(tmp_path / "gone", [7, 8], "test", before)["runs"] == before["runs"]
    before["settings"]["textcraft"][1] = "num_steps=5"
    assert agents_tiny.collect(tmp_path / "gone", [7], "test", before)["missing"]["textcraft"] == [7]


def test_the_studys_figure_puts_steps_in_environments_across_where_horizons_differ():
    pytest.importorskip("matplotlib")
    import agents_tiny_figure

    seeds = {seed: {"curve": [(0, 0, 0.2), (1, count, 0.3)]} for seed, count in (("7", 1000), ("8", 3000))}
    figure = agents_tiny_figure.draw({"runs": {"short": seeds, "grpo": seeds}})
    assert [len(axis.lines) for axis in figure.axes] == [0, 0, 1, 1, 1]
    assert list(figure.axes[2].lines[0].get_xdata()) == [0, 2]
    assert list(figure.axes[3].lines[0].get_xdata()) == [0, 1]
    assert list(figure.axes[3].lines[0].get_ydata()) == pytest.approx([20, 30])


def test_the_majority_is_read_where_it_has_spent_as_much():
    points = [{"tokens": 100.0, "accuracy": 0.4}, {"tokens": 400.0, "accuracy": 0.6}]
    assert critique_votes_tiny.on_line(points, 200.0) == pytest.approx(0.5)  # half way, by the logarithm
    assert [critique_votes_tiny.on_line(points, tokens) for tokens in (50.0, 100.0, 400.0, 900.0)] == [
        0.4, 0.4, 0.6, 0.6
    ]  # fmt: skip


def test_each_way_of_building_data_gives_as_many_critiques_of_right_and_wrong_solutions(tmp_path):
    rows = [{"id": number, "correct": number % 2 == 0} for number in range(300)]
    file = tmp_path / "critiques.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    drawn = [json.loads(line) for line in critique_data_tiny.drawn(file, 7, only_wrong=False)]
    assert len({row["id"] for row in drawn}) == critique_data_tiny.NUM_CRITIQUES
    assert sum(row["correct"] for row in drawn) == critique_data_tiny.NUM_RIGHT
    wrong = critique_data_tiny.drawn(file, 7, only_wrong=True)
    assert len(wrong) == critique_data_tiny.NUM_CRITIQUES
    assert not any(json.loads(line)["correct"] for line in wrong)


def loop_worlds_run(folder: Path, acc: float, tokens: int, *, before: float = 0.3) -> None:
    folder.mkdir(parents=True)
    rows = {"before": {"acc": before}, "last": {"acc": acc}}
    (folder / "summary.json").write_text(json.dumps({"rows": rows}))
    found = {"tokens": tokens, "coverage": 0.8, "coverage_answers": 0.4}
    (folder / "rounds.json").write_text(json.dumps([found, found]))


def test_a_loops_lead_is_over_its_own_vanilla_run(tmp_path, monkeypatch):
    monkeypatch.setattr(critique_loop_worlds, "evaluated", lambda run, critic: {"metrics": {"acc_refine": 0.9}})
    for seed in (1, 2):
        folder = tmp_path / "stubborn" / f"seed{seed}"
        for place, name in enumerate(critique_loop_worlds.CRITICS):
            loop_worlds_run(folder / name, 0.5 + place / 10, 100)
            loop_worlds_run(folder / f"equal_{name}", 0.4 + place / 100 * seed, 104)
        critics = folder / "critique_rl"
        critics.mkdir()
        rows = {"no_critic": {"acc": 0.3}, "sft_critic": {"acc_refine": 0.35}, "stage2": {"acc_refine": 0.6}}
        (critics / "summary.json").write_text(json.dumps({"rows": rows}))
        (critics / "env.json").write_text(json.dumps({"commit": "abc"}))
    assert critique_loop_worlds.is_whole(tmp_path, "stubborn", 1)
    assert not critique_loop_worlds.is_whole(tmp_path, "stubborn_gold", 1)
    found = study.join({seed: critique_loop_worlds.measure(tmp_path, "stubborn", seed) for seed in (1, 2)}, {})
    assert critique_loop_worlds.leads(found, "oracle") == pytest.approx([0.7 - 0.42, 0.7 - 0.44])
    said = critique_loop_worlds.markdown({"worlds": {"stubborn": found}, "command": "here"})
    assert "| critic trained by Critique-RL in this world | 60.0 ± 0.0 | 41.5 ± 6.4 | +18.5 ± 6.4 | 0.2" in said
    assert "| stubborn | +10.0 ± 0.0 | +18.5 ± 6.4 | +27.0 ± 12.7 |" in said


def test_worlds_between_have_fewer_seeds_and_share_no_critics_with_others():
    assert critique_loop_worlds.seeds_of("mild", range(400, 405)) == range(400, 403)
    assert critique_loop_worlds.seeds_of("stubborn_gold", range(400, 405)) == range(400, 405)
    runs = {critique_loop_worlds.critics_run(Path(), world, 400) for world in critique_loop_worlds.WORLDS}
    assert len(runs) == len(critique_loop_worlds.CROSSOVER)


@pytest.mark.parametrize("world", critique_loop_worlds.WORLDS)
def test_settings_of_every_world_are_settings(world):
    data, originals = critique_loop_worlds.WORLDS[world]
    for _, preset, _ in critique_loop_worlds.CRITICS.values():
        config = config_of(preset, None, [*data, *originals, *critique_loop_worlds.LOOP])
        assert (config.start, config.num_rounds) == ("warm_start", 3)
    config_of("critique_rl", None, data)


def agent_run(folder: Path, rows: dict[str, float], lines: list[dict[str, object]]) -> None:
    """The files of a finished run that a study reads: success and turns of its rows, and its metrics."""
    folder.mkdir(parents=True)
    depths = {f"success[textcraft, {depth}]": 0.25 for depth in scaling_inter.DEPTHS}
    table = {row: {"success": success, "turns": 8.0, "truncated": 0.5, **depths} for row, success in rows.items()}
    (folder / "summary.json").write_text(json.dumps({"rows": table, "seconds": 60.0}))
    (folder / "env.json").write_text(json.dumps({"commit": "abc"}))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def validated(*success: float) -> list[dict[str, object]]:
    return [{"phase": "train", "step": step, "validation/success": value} for step, value in enumerate(success)]


def test_horizons_are_compared_by_their_last_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(scaling_inter, "measured", lambda run, *settings, samples=1: {"success": 0.1, "truncated": 0.9})
    last = {"short": 0.2, "long": 0.3, "growing": 0.4}
    for seed in (1, 2):
        folder = tmp_path / f"seed{seed}"
        agent_run(folder / "start", {"after": 0.2}, validated(0.0, 0.1, 0.12))
        for arm, success in last.items():
            steps = [
                {"phase": "train", "step": step, "turns/env_steps": 1000.0, "turns/mean": 5.0, "optim/updates": 4.0,
                 "reward/success": step / 10, "episodes/cut_by_horizon": 0.7, "group/no_signal": 0.5}
                for step in (1, 2, 3)
            ]  # fmt: skip
            agent_run(folder / arm, {"before": 0.15, "after": 0.9, "last": success + seed / 100}, steps)
    assert scaling_inter.is_whole(tmp_path, 1)
    assert not scaling_inter.is_whole(tmp_path, 3)
    found = study.join({seed: scaling_inter.measure(tmp_path / f"seed{seed}") for seed in (1, 2)}, {})
    assert found["training"]["long"]["env_steps"] == [3000, 3000]
    assert found["training"]["long"]["updates"] == [12, 12]
    text = scaling_inter.markdown({"found": found, "command": "here"})
    assert "| growing − short | +20.0 ± 0.0 |" in text
    assert "| growing − long | +10.0 ± 0.0 |" in text
    assert "| 20 turns | 15.0 ± 0.0 |" in text
    [claim] = [claim for system in SYSTEMS for claim in system.claims if claim.result == "scaling_inter"]
    assert [lead.values for lead in claim.leads({"found": found})] == [
        pytest.approx([0.2] * 2),
        pytest.approx([0.1] * 2),
    ]
    assert claim.premise({"found": found}).holds


def test_every_horizon_has_the_same_budget_and_nothing_else_differs():
    settings = (*scaling_inter.DATA, *scaling_inter.RL)
    short, long, growing = (
        config_of("agent_grpo_tiny", None, [*settings, *own]) for _, own in scaling_inter.ARMS.values()
    )
    assert {config.max_env_steps for config in (short, long, growing)} == {scaling_inter.ENV_STEPS}
    assert (short.max_turns, long.max_turns) == (scaling_inter.SHORT, scaling_inter.LONG)
    horizons = [config_at(growing, step).max_turns for step in range(1, 3 * scaling_inter.STAGE + 1)]
    assert horizons[:: scaling_inter.STAGE] == [scaling_inter.SHORT, scaling_inter.MIDDLE, scaling_inter.LONG]
    alike = [config.model_copy(update={"max_turns": None, "schedule": {}}) for config in (short, long, growing)]
    assert alike[0] == alike[1] == alike[2]
    assert short.learning.final_share == 1
    start = config_of("agent_clone_careless", None, [*scaling_inter.DATA, *scaling_inter.PLAY, *scaling_inter.START])
    assert start.data == short.data
    assert start.evaluation.max_turns == start.expert.max_turns == scaling_inter.LONG


def test_rounds_are_compared_with_as_many_updates_of_the_same_demonstrations(tmp_path, monkeypatch):
    monkeypatch.setattr(agent_evol_worlds, "NUM_ROUNDS", 2)
    monkeypatch.setattr(agent_evol_worlds, "greedy_metrics", lambda run, which: {"success": 0.3})
    folder = tmp_path / "seed1"
    learnt = [{"phase": name, "step": step, "loss/nll": 0.1} for name, count in (("clone", 3), ("learn_1", 4),
              ("learn_2", 5)) for step in range(1, count + 1)]  # fmt: skip
    rounds = [
        {"phase": f"explore_{number}", "step": 1, "reward/success": number / 4} for number in (1, 2)
    ] + [
        {"phase": f"merge_{number}", "step": 1, "round/kept": 7.0, "round/merged": 17.0} for number in (1, 2)
    ]  # fmt: skip
    for run in agent_evol_worlds.RUNS:
        rows = {"before": 0.2, "base": 0.21, "round_1": 0.25, "round_2": 0.3, "after": 0.35, "last": 0.3}
        agent_run(folder / run, rows, validated(0.1, 0.2) if run == "base" else [*learnt, *rounds])
    updates = agent_evol_worlds.updates_of(folder / "evol")
    assert updates == {"clone": 3, "learn_1": 4, "learn_2": 5}
    assert agent_evol_worlds.is_whole(tmp_path, 1)
    found = study.join({1: agent_evol_worlds.measure(folder)}, {})
    assert found["premise"]["round 1 explored"] == [0.25]
    text = agent_evol_worlds.markdown({"found": found, "command": "here"})
    assert "| 2 | 50.0 | 7.0 | 17.0 | 5.0 |" in text
    assert "| evol − before | +15.0 | +15.0 |" in text
    [claim] = [claim for system in SYSTEMS for claim in system.claims if claim.result == "agent_evol_worlds"]
    assert claim.premise({"found": found}).holds
    assert [lead.values for lead in claim.leads({"found": found})] == [[0.0], [0.0]]


def test_what_is_demonstrated_explored_and_validated_has_no_item_in_common(tmp_path):
    """The expert shows a part of the training items, eight times each; the same file is not written again."""
    file = agent_evol_worlds.demonstrations(tmp_path / "shown.json", 1, 0.02)
    begun = file.stat().st_mtime_ns
    shown = shown_items(read_trajectories(agent_evol_worlds.demonstrations(file, 1, 0.02)))
    assert file.stat().st_mtime_ns == begun
    data = config_of("agent_evol", None, [*agent_evol_worlds.PLAIN, *agent_evol_worlds.EVOL,
                                          f"trajectories=[{file}]"]).data  # fmt: skip
    tasks = load_environment_tasks(data).tasks
    assert shown <= {item_of(task) for task in tasks["train"]}
    assert not shown & {item_of(task) for split in ("validation", "test") for task in tasks[split]}
    assert len(shown) == 5
    assert len(read_trajectories(file)) == 5 * agent_evol_worlds.NUM_EXPERT_EPISODES
    for method, own in (("agent_clone", agent_evol_worlds.BASE), ("agent_clone", agent_evol_worlds.CLONE)):
        clone = config_of(method, None, [*agent_evol_worlds.PLAIN, *own, f"trajectories=[{file}]"])
        assert clone.data == data


def sitting(root: Path, name: str, *, collect: bool = False, again: bool = False) -> Namespace:
    return Namespace(root=root, name=name, collect=collect, again=again, processes=1, command="here")


def counting_part(root: Path, seeds: list[int], *, commit: str, settings: tuple[str, ...] = ("num_steps=2",)):
    """A part whose runs only write a file with the commit, and the seeds that it was asked to run."""
    asked: list[int] = []

    def run(seed: int) -> None:
        asked.append(seed)
        (root / f"seed{seed}").mkdir(parents=True, exist_ok=True)
        (root / f"seed{seed}" / "commit").write_text(commit)

    def measure(seed: int):
        commit = (root / f"seed{seed}" / "commit").read_text()
        return {
            "machine": {"commit": commit, "processor": f"of {commit}"},
            "success": {"rl": seed / 100},
            "made": commit,
        }

    part = study.Part(
        place=("worlds", "mild"),
        settings={"arms": settings},
        seeds=seeds,
        run=run,
        folder=lambda seed: root / f"seed{seed}",
        is_whole=lambda seed: (root / f"seed{seed}" / "commit").exists(),
        measure=measure,
    )
    return part, asked


def shown(result) -> str:
    return "\n".join(study.made_with(result["worlds"]["mild"]))


@pytest.fixture
def first_sitting(tmp_path, monkeypatch):
    """A result file with seeds 1 and 2, made at commit `old` on a machine that is lost."""
    monkeypatch.setattr(study, "RESULTS", tmp_path / "results")
    part, asked = counting_part(tmp_path / "lost", [1, 2], commit="old")
    study.accumulate(sitting(tmp_path, "try"), [part], shown)
    assert sorted(asked) == [1, 2]
    return tmp_path


def test_a_later_sitting_adds_its_seeds_and_leaves_the_earlier_ones_as_they_are(first_sitting):
    part, asked = counting_part(first_sitting / "new", [2, 3], commit="new")
    result = study.accumulate(sitting(first_sitting, "try"), [part], shown)
    assert asked == [3]  # the file has seed 2
    table = result["worlds"]["mild"]
    assert table["seeds"] == [1, 2, 3]
    assert table["made"] == ["old", "old", "new"]
    assert table["success"]["rl"] == [0.01, 0.02, 0.03]
    text = (study.RESULTS / "try.md").read_text()
    assert "seeds 1, 2: commit old; of old" in text
    assert "seeds 3: commit new; of new" in text
    assert json.loads((study.RESULTS / "try.json").read_text()) == result


def test_seeds_whose_runs_are_here_or_that_are_asked_for_again_replace_the_earlier_ones(first_sitting):
    part, _ = counting_part(first_sitting / "new", [2], commit="new")
    part.run(2)
    collected = study.accumulate(sitting(first_sitting, "try", collect=True), [part], shown)
    assert collected["worlds"]["mild"]["made"] == ["old", "new"]
    part, asked = counting_part(first_sitting / "newest", [1], commit="newest")
    again = study.accumulate(sitting(first_sitting, "try", again=True), [part], shown)
    assert asked == [1]
    assert again["worlds"]["mild"]["made"] == ["newest", "new"]


def test_a_seed_that_was_begun_here_goes_on_although_the_file_has_it(first_sitting):
    part, asked = counting_part(first_sitting / "new", [1, 2], commit="new")
    part.folder(2).mkdir(parents=True)
    result = study.accumulate(sitting(first_sitting, "try"), [part], shown)
    assert asked == [2]
    assert result["worlds"]["mild"]["made"] == ["old", "new"]


def test_seeds_of_other_settings_are_refused_before_anything_runs(first_sitting):
    before = (study.RESULTS / "try.json").read_text()
    part, asked = counting_part(first_sitting / "new", [3], commit="new", settings=("num_steps=3",))
    with pytest.raises(SystemExit, match=r"seeds 1, 2 of worlds mild were made with other settings \(arms\)"):
        study.accumulate(sitting(first_sitting, "try"), [part], shown)
    assert asked == []
    assert (study.RESULTS / "try.json").read_text() == before


def test_a_seed_is_in_the_file_before_a_later_one_fails(first_sitting):
    part, _ = counting_part(first_sitting / "new", [3, 4], commit="new")
    run = part.run

    def failing(seed: int) -> None:
        if seed == 4:
            raise RuntimeError("stopped")
        run(seed)

    object.__setattr__(part, "run", failing)
    with pytest.raises(RuntimeError, match="stopped"):
        study.accumulate(sitting(first_sitting, "try"), [part], shown)
    assert json.loads((study.RESULTS / "try.json").read_text())["worlds"]["mild"]["seeds"] == [1, 2, 3]


def test_what_join_puts_together_split_takes_apart():
    measured = {
        seed: {"machine": {"commit": "abc"}, "acc": {"rl": {"all": seed}}, "rounds": [{"tokens": seed}], "rise": None}
        for seed in (3, 1)
    }
    table = study.join(measured, {"arms": []})
    assert table["seeds"] == [1, 3]
    assert table["acc"]["rl"]["all"] == [1, 3]
    assert study.split(table) == measured


def test_seeds_of_other_numbers_are_no_table():
    measured = {1: {"machine": {}, "acc": {"rl": 0.1}}, 2: {"machine": {}, "acc": {"rl": 0.1, "sft": 0.2}}}
    with pytest.raises(SystemExit, match="some seeds have no sft"):
        study.join(measured, {})


@pytest.mark.parametrize("module", [critique_loop_worlds, critique_rl_worlds])
def test_result_files_of_earlier_sittings_take_more_seeds(module):
    result = study.read_result(module.__name__)
    for world in result["worlds"]:
        study.add_seeds(result, module.part_of(Path(), world, [400], []), {})  # refuses other settings
    assert (study.RESULTS / f"{module.__name__}.md").read_text() == module.markdown(result)


def test_smollm2_speed_measures_every_side_and_shows_their_ratios(tmp_path, monkeypatch):
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, vocab_size=40_000, max_position_embeddings=256,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    monkeypatch.setattr(smollm2_speed, "NEW", {1: 3})
    rewards = cycle([0.0, 1.0])
    monkeypatch.setattr(smollm2_speed, "reward", lambda text: next(rewards))
    policy = smollm2_speed.load(tmp_path)
    cases = [smollm2_speed.generating(policy, kind, rows, 1) for kind, rows in (("uniform", 1), ("grouped", 8))]
    assert {"whet, float32", "whet, int8", "generate"} <= set(cases[0]["per_cpu_s"])
    assert cases[0]["new_tokens"] == 3
    step = smollm2_speed.whet_step(tmp_path, 1, engine_in="int8", update_in="float32")
    assert len(step["cpu"]) == 1
    assert 0 < step["kl"][0] < 0.01
    assert step["tokens"] == [16 * 24]
    result = {
        "command": "try", "repeats": 1, "instructions": ["avx2"], "machine": {"cores": 2}, "generating": cases,
        "step": {"whet, int8": {"cpu": {"median": 1.5}, "kl": {"median": 0.001}}},
    }  # fmt: skip
    shown = smollm2_speed.text(result)
    assert "(1.00)" in shown
    assert "| whet, int8 | 1.50 |  |  |  | 1.0e-03 |" in shown
    assert "Instructions: avx2." in shown


def test_smollm2_speed_s_lengths_have_a_long_tail():
    lengths = smollm2_speed.long_tailed(64)
    assert sum(lengths) / 64 == pytest.approx(smollm2_speed.MEAN, rel=0.05)
    assert max(lengths) == smollm2_speed.LONGEST
    assert sorted(lengths)[32] < smollm2_speed.MEAN


@pytest.mark.parametrize(
    ("answer", "critique"),
    [
        ("40 + 30 = 70|7 + 8 = 15|70 + 15 = 85|The answer is 85.", "Right.|Right.|Right.|Verdict: Right"),
        (  # by its own calculation: what follows from a mistake is none
            "40 + 30 = 70|7 + 8 = 14|70 + 14 = 84|The answer is 84.",
            "Right.|Wrong. Work out 7 + 8 again.|Right.|Verdict: Wrong",
        ),
        (  # a calculation that is none of the solution's
            "40 + 30 = 70|8 + 8 = 16|70 + 16 = 86|The answer is 86.",
            "Right.|Wrong. Work out 7 + 8 again.|Right.|Verdict: Wrong",
        ),
        ("47 + 38 = 85|The answer is 85.", None),  # another layout
        ("40 + 30 = 70|7 + 8 = 15|70 + 15 = 85|The answer is 86.", None),  # does not follow from its steps
        ("40 + 30 = 70|7 + 8 = fifteen|70 + 15 = 85|The answer is 85.", None),
        ("", None),
    ],
)
def test_a_critique_of_the_actors_answer_names_its_wrong_steps(answer, critique):
    question = "What is 47 + 38?"
    task = Task(id=question, prompt=question, answer="85", info={"of": "sum"})
    found = smollm2_own_mistakes.critique_of(task, answer.replace("|", "\n"), find_prompts("steps"))
    if critique is None:
        assert found is None
        return
    lines = [f"{line}: {comment}" for line, comment in zip(answer.split("|")[:-1], critique.split("|"), strict=False)]
    text = "\n".join([*lines, critique.split("|")[-1]])
    assert found == (text, critique.endswith("Right"))
