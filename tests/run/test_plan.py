"""The plan of a run: what it would do and need, and what would stop it later."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from support.commands import Quiet, config_of
from whet.cli import app
from whet.config.base import Config
from whet.config.parts import LearningConfig
from whet.models.policy import Policy
from whet.models.prompts import Lengths
from whet.models.tiny import tiny_tokenizer
from whet.run.launch import start
from whet.run.plan import (
    _cache_bytes,
    _checkpoint_bytes,
    _learning_bytes,
    _updates_by_phase,
    disk_warning,
    step_sizes,
)
from whet.trainer import Update
from whet.trainer.losses import nll_term, preference_term

TINY_RUN = (
    "num_steps=2", "prompts_per_step=2", "group_size=2", "sampling.max_new_tokens=4", "evaluation.num_samples=0",
    "advantage=reward", "signed=true", "checkpoint_every=1", "validate_every=1", "data.num_train=8",
    "data.num_validation=2", "data.num_test=2",
)  # fmt: skip
FEW = ("data.num_train=32", "data.num_validation=4", "data.num_test=4")


def planned(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["train", *map(str, arguments), "--dry-run"])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


def test_the_plan_of_every_update_and_the_longest_conversation():
    shown = planned("critique_rl", *FEW)
    assert "policy critic: 310,464 weights, on cpu; prompts of at most 18 tokens, and 176 that models may" in shown
    # 40 steps, 32 answers x 4 critiques = 128 rows in minibatches of 64, twice
    assert (
        "stage1 trains critic: 160 updates in 40 steps, each of at most 64 rows, 2 passes over a step's rows" in shown
    )
    assert "may not fit" not in shown


def test_the_parts_of_the_memory_add_up():
    """Playing and learning take turns, so that the larger of them counts, and not their sum."""
    shown = planned("grpo", *FEW)
    size = r"([\d.]+) (GiB|MiB)"
    line = re.search(
        rf"at most about {size} \({size} weights, then {size} learning, or in turn {size} the engine's keys and values"
        ", whichever is more",
        shown,
    )
    assert line is not None, shown
    numbers = [float(line[i]) * (1024 if line[i + 1] == "GiB" else 1) for i in (1, 3, 5, 7)]
    most, weights, learning, playing = numbers
    assert most == pytest.approx(weights + max(learning, playing), abs=0.1 * 1024)


def test_a_run_that_does_not_fit_is_told_so():
    shown = planned("grpo", *FEW, "engine.max_rows=100000000")
    assert "this may not fit on cpu: lower learning.token_budget, engine.max_rows" in shown


@pytest.mark.parametrize("lora", [(), ("policy.lora={rank: 4}",)])
def test_checkpoints_take_the_disk_that_the_plan_says(tmp_path, random_model, monkeypatch, lora):
    session = start(config_of("grpo", *TINY_RUN, f"policy.path={random_model}", *lora), tmp_path / "run", Quiet())
    each, once = _checkpoint_bytes(session.loop.policies, _updates_by_phase(session))
    disk = SimpleNamespace(free=once + 3 * each)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: disk)
    assert disk_warning(session) is None
    disk.free -= 1
    assert "choose another --out, or train an adapter" in str(disk_warning(session))
    session.go()
    [trained, *_] = sorted((tmp_path / "run" / "checkpoints").glob("step_*"))
    sizes = {file.stat().st_ino: file.stat().st_size for file in trained.rglob("*.safetensors")}
    assert each == pytest.approx(sum(sizes.values()), rel=0.15)


def test_bfloat16_on_a_cpu_is_told():
    assert "the policy is in bfloat16 on a CPU" in planned("grpo", *FEW, "policy.dtype=bf16")
    assert "bfloat16" not in planned("grpo", *FEW)


def test_a_learning_rate_that_breaks_a_large_model_is_told(monkeypatch):
    assert "may break it" not in planned("grpo", *FEW)  # 0.3 million weights take it
    monkeypatch.setattr("whet.run.plan.MANY_WEIGHTS", 300_000)
    assert "the policy: a learning rate of 0.0003 is high for all of 310,464 weights" in planned("grpo", *FEW)
    assert "may break it" not in planned("grpo", *FEW, "learning.learning_rate=1e-5")
    assert "may break it" not in planned("grpo", *FEW, "policy.lora.rank=4")


def test_memory_by_hand(random_model: Path):
    """[V 64 or so, H hidden, L layers]: the formula with its numbers put in."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(random_model)
    policy, shape = Policy("p", model, tiny_tokenizer()), model.config
    lengths, learning = Lengths(prompt=20, written=30), LearningConfig(token_budget=1000, minibatch_rows=10)
    head = shape.hidden_size // shape.num_attention_heads
    assert (
        _cache_bytes(policy, lengths, 7) == 7 * 50 * 2 * shape.num_hidden_layers * shape.num_key_value_heads * head * 4
    )
    weights = sum(p.numel() for p in model.parameters())
    a_layer = 10 * shape.hidden_size + 4 * shape.intermediate_size
    # 10 rows of 50 tokens are fewer than the budget
    passes = 500 * a_layer * (shape.num_hidden_layers + 1) * 4
    fixed = weights * (4 + 8) + 3 * 2**22 * 4
    assert _learning_bytes(policy, lengths, Update((nll_term(),), learning, 1)) == fixed + passes
    # A row that is longer than the budget is a pass, and so are a pair of them.
    small = learning.model_copy(update={"token_budget": 40})
    assert _learning_bytes(policy, lengths, Update((nll_term(),), small, 1)) == fixed + passes // 10
    assert _learning_bytes(policy, lengths, Update((preference_term(),), small, 1)) == fixed + passes // 5


def test_an_agents_turns_begin_with_as_many_tokens_as_max_context_allows():
    few = ("data.env=textcraft", "data.num_train=16", "data.num_validation=2", "data.num_test=2", "engine.max_rows=8")
    shown = planned("agent_grpo", *few, "max_context=904", "sampling.max_new_tokens=96")
    assert "prompts of at most 904 tokens, and 96 that models may write" in shown
    # 8 rows of 1,000 tokens; of each a key and a value of 2 heads of 32 numbers in each of 5 layers, in float32
    assert f"{8 * 1000 * 2 * 2 * 32 * 5 * 4 / 2**20:.0f} MiB the engine's keys and values and 1.0 GiB" in shown
    assert "turns that follow" not in planned("agent_grpo", *few, "engine.rollout=lockstep")


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (
            {"critique": "It holds. Correctness of the final answer: Correct"},
            "no rows to imitate of kind 'solve'",
        ),
        ({"correct": True}, "no rows to imitate of kind 'refine'"),
    ],
)
def test_a_warm_start_without_rows_to_imitate_stops_the_run_before_it_begins(tmp_path, row, says):
    rows = [{"question": "7 + 5", "answer": "Step 1: 7 + 5 = 2\nThe answer is 2", **row}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    assert says in planned("critique_rl", *FEW, f"warm_start.file={tmp_path / 'rows.jsonl'}", code=2)


def test_a_set_without_worked_solutions_stops_the_warm_start_before_it_begins(tmp_path, small_model):
    rows = "".join(json.dumps({"question": f"What is {n} + {n}?", "answer": str(2 * n)}) + "\n" for n in range(60))
    (tmp_path / "data.jsonl").write_text(rows)
    settings = ["data.kind=file", f"data.path={tmp_path / 'data.jsonl'}", "prompts=english"]
    models = [f"actor.path={small_model}", f"critic.path={small_model}"]
    lengths = [f"roles.{role}.max_new_tokens=32" for role in ("answer", "critique", "refinement")]
    assert "worked solution" in planned("critique_rl", *settings, *models, *lengths, code=2)


@pytest.mark.parametrize(
    ("schedule", "says"),
    [
        ("{kind: steps, values: [5, 10], every: 100}",
         "max_turns: 5, 10 from step 101; the run trains for 2 steps, so that it stays at its first value"),
        ("{kind: steps, values: [5, 10, 15], at: [2, 9]}",
         "max_turns: 5, 10 from step 2, 15 from step 9; the run trains for 2 steps, and does not come to its end"),
        ("{kind: steps, values: [5, 10], at: [3]}",
         "max_turns: 5, 10 from step 3; the run trains for 2 steps, so that it stays at its first value"),
        ("{kind: linear, start: 2, end: 4, over: 1}", "max_turns: from 2 to 4 over 1 steps after step 1 train trains"),
        ("{kind: gated, values: [2, 4], metric: reward/success, above: 0.5, patience: 3}",
         "max_turns: 2, then 4, each next one after reward/success was above 0.5, 3 times in a row train trains"),
    ],
)  # fmt: skip
def test_what_goes_with_the_step_and_what_a_run_is_too_short_for(schedule, says):
    """One step before training, two of it, two measurements after it."""
    asked = ("data.env={maze: 3, textcraft: 1}", "num_steps=2", "prompts_per_step=4", f"schedule.max_turns={schedule}")
    shown = planned("agent_grpo", *asked)
    assert says in shown
    assert "items of a step: 3 of maze, 1 of textcraft" in shown


def test_a_budget_of_steps_in_environments_is_said():
    asked = ("data.env=maze", "num_steps=2", "prompts_per_step=4", "max_turns=5", "max_env_steps=100")
    assert "training ends with the step that reaches 100 steps in environments" in planned("agent_grpo", *asked)


class Step(Config):
    prompts_per_step: int = 2
    group_size: int = 3


class Phase(Config):
    step: Step = Step()


class Deep(Config):
    prompts_per_step: int = 4
    phase: Phase = Phase()


def test_the_sizes_of_steps_are_found_at_any_depth():
    assert list(step_sizes(Deep())) == [(4, 1), (2, 3)]
    assert list(step_sizes(Config())) == []
