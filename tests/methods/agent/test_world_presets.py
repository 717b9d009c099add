"""The presets of four environments at once: what they share, and what the agent that they begin with can do."""

from __future__ import annotations

from support.sessions import session_of
from whet.config.parts import ModelConfig
from whet.config.scheduled import config_at
from whet.methods.environment_tasks import load_environment_tasks
from whet.methods.registry import preset_of

NAMES = ("agent_clone_worlds", "agent_grpo_academia", "scaling_inter_cooking", "agent_evol_worlds")


def test_all_begin_with_one_agent_and_write_and_are_measured_alike():
    clone, *others = (preset_of(name).config for name in NAMES)
    assert clone.policy == ModelConfig(path="tiny_agent_worlds")
    for config in others:
        for key in ("policy", "format", "sampling", "evaluation", "pool"):
            assert getattr(config, key) == getattr(clone, key)


def test_items_of_one_environment_are_those_of_all_four():
    """So what the clone has not seen, none of the others has: validation and test items are the same ones."""
    clone, academia, cooking, evol = (preset_of(name).config for name in NAMES)
    assert evol.data == clone.data
    assert evol.expert == clone.expert
    four = load_environment_tasks(clone.data).tasks
    assert not {task.id for task in four["train"]} & {task.id for task in (*four["validation"], *four["test"])}
    for one in (academia, cooking):
        [name] = one.data.shares
        tasks = load_environment_tasks(one.data).tasks
        for split in ("train", "validation", "test"):
            assert tasks[split] == tuple(task for task in four[split] if task.id.startswith(name))
            assert len(tasks[split]) == {"train": 300, "validation": 24, "test": 40}[split]


def test_the_horizon_in_cookingworld_grows_to_the_limit_of_its_measuring():
    config = preset_of("scaling_inter_cooking").config
    horizons = [config_at(config, step).max_turns for step in range(1, config.num_steps + 1)]
    assert horizons == [10] * 5 + [15] * 5 + [20] * 10
    assert config.evaluation.max_turns == 20
    assert config.learning.final_share == 1


def test_the_agent_that_ships_is_right_sometimes_with_tools():
    """A clone that is never or always right leaves RL nothing to compare."""
    session = session_of("agent_grpo_academia", "data.num_validation=24", "evaluation.validation_samples=2")
    metrics = session.algorithm.evaluator.validate(0).metrics
    assert metrics["n"] == 24
    assert 0.1 <= metrics["success"] <= 0.8
