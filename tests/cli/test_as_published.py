"""`whet eval --as-published NAME` measures as a paper does, and says in one line what it set."""

from __future__ import annotations

import pytest

from support.agent_model import agent_model
from support.commands import whet
from support.sessions import session_of
from whet.cli.as_published import as_published
from whet.envs import ENVIRONMENTS
from whet.evaluation.as_published import AS_PUBLISHED
from whet.methods.evaluator import EvalSettings
from whet.methods.registry import preset_of

AGENT = ("eval", "--policy", "tiny_agent", "--critic", "policy")
FEW = ("data.num_test=1", "data.num_train=2", "data.num_validation=1")


def said(*arguments, code=0):
    done = whet(*arguments, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_what_is_set_is_said_in_a_line():
    text = said(*AGENT, *FEW, "--as-published", "maze")
    assert "as published by AgentGym (arXiv:2406.04151) for maze: greedy (temperature 0), 15 turns, react" in text
    assert "within 15 turns" in text
    assert "holds instead" not in text


def test_settings_of_your_own_hold_and_are_named(tmp_path):
    text = said(*AGENT, *FEW, "--as-published", "maze", "evaluation.max_turns=3", "--temperature", "0.5")
    assert "react; your own evaluation.max_turns, --temperature holds instead" in text
    assert "within 3 turns" in text
    assert "within 5 turns" not in text
    file = tmp_path / "own.yaml"
    file.write_text("format: plain\n")
    made = as_published("maze", [str(file)], env="", temperature=None)
    assert made.settings == ["evaluation.max_turns=15"]
    assert made.sentence.endswith("your own format holds instead")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--as-published", "chess"), "chess"),
        (("--as-published", "maze", "--env", "wordle"), "is of maze, and --env says wordle"),
        (("--as-published", "maze", "data.env=wordle"), "is of maze, and wordle is measured"),
        (("--as-published", "maze", "--samples", "4"), "would all be alike: give --temperature as well"),
        (("--as-published", "maze", "--refinements", "2"), "--refinements is not of agents"),
        (("--as-published", ""), "--as-published is empty"),
    ],
)
def test_conflicts_are_refused(arguments, says):
    assert says in said(*AGENT, *FEW, *arguments, code=2)


def test_an_episode_at_temperature_1_is_sampled():
    evaluator = session_of(
        "agent", f"policy.path={agent_model()}", "data.env=maze", *FEW, "evaluation.max_turns=2", "rules=none",
        "sampling.max_new_tokens=8",
    ).algorithm.evaluator  # fmt: skip
    greedy, zero, sampled = (
        evaluator.measure("policy", EvalSettings(temperature=temperature), of_run=False)
        for temperature in (None, 0.0, 1.0)
    )
    assert greedy.place == zero.place
    assert sampled.place == f"{greedy.place}-t1"
    assert greedy.traces == zero.traces != sampled.traces


def test_limits_of_turns_are_those_of_environments_and_presets():
    """Spec 1.8: the limits of AgentEvol's script are the environments' usual ones."""
    for entry in AS_PUBLISHED:
        protocol, name = AS_PUBLISHED.get(entry.name), entry.name
        if not name.startswith("agentgym_rl_"):
            assert protocol.max_turns == ENVIRONMENTS.get(name).max_turns
        else:
            preset = preset_of(name.replace("agentgym_rl", "scaling_inter")).config
            assert protocol.max_turns == preset.evaluation.max_turns
