"""The files of docs/plugins.md, as they stand there: what they register, and that their methods train."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.agent_model import agent_model
from support.commands import logged
from support.commands import whet as command

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
TWO_WAYS = """
import whet


@whet.env("two_ways", splits={"train": range(20), "test": range(20, 24)}, max_turns=2, parser="plain")
class TwoWays:
    \"\"\"The item alone says whether an episode succeeds.\"\"\"

    def reset(self, item, *, seed=0):
        self.reward = float(REWARD)
        return "go", {}

    def step(self, action):
        return "done", self.reward, True, False, {}
"""


@pytest.fixture
def page(tmp_path) -> dict[str, Path]:
    """The page's files by name."""
    blocks = re.findall(r"```(?:python|yaml)\n(# (\w+\.(?:py|yaml))\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    files = {name: tmp_path / name for _, name in blocks}
    for code, name in blocks:
        files[name].write_text(code, "utf-8")
    assert {"mine.py", "mine.yaml", "short.yaml", "filtered.py", "agent_filtered.py"} <= files.keys()
    return files


def test_the_parts_of_the_page_are_listed(page):
    files = [f"--plugins={page[name]}" for name in ("mine.py", "filtered.py", "agent_filtered.py")]
    listed = " ".join(command("list", *files).stdout.split())
    for line in (
        "last_word Right where the last word is the answer. mine.py",
        "brief 1 for a reply of one token, less the longer it is. mine.py",
        "half_mean Less half of the group's mean. mine.py",
        "filtered Imitation of one's own right replies (2304.06767) filtered.py",
        "agent_filtered Imitation of an agent's own successful episodes agent_filtered.py",
    ):
        assert line in listed


@pytest.mark.parametrize(("reward", "learns"), [("item % 2", True), ("0.9", False)])
def test_the_agent_method_of_the_page_learns_from_successes_alone(page, tmp_path, reward, learns):
    env = tmp_path / "two_ways.py"
    env.write_text(TWO_WAYS.replace("REWARD", reward))
    command(
        "train", "agent_filtered", f"plugins=[{page['agent_filtered.py']}, {env}]", "data.env=two_ways",
        f"policy.path={agent_model()}", "rules=false", "num_steps=1", "prompts_per_step=6", "group_size=2",
        "data.num_test=2", "data.num_validation=2", "sampling.max_new_tokens=8", "num_threads=1",
        "--out", tmp_path / "run",
    )  # fmt: skip
    [row] = [row for row in logged(tmp_path / "run") if row["phase"] == "train" and row["step"] == 1]
    assert (0 < row["reward/success"] < 1) == learns
    assert row["reward/mean"] > 0
    assert (row.get("loss/nll", 0) > 0) == (row.get("optim/moved", 0) > 0) == learns


@pytest.mark.integration
def test_the_other_parts_of_the_page_train(page, tmp_path, random_model):
    small = [
        f"policy.path={random_model}", "num_steps=1", "prompts_per_step=4", "group_size=2", "evaluation.num_samples=0",
        "evaluation.num_validation=4", "evaluation.num_test=4", "data.num_train=16", "num_threads=1",
    ]  # fmt: skip
    command("train", "filtered", f"plugins=[{page['filtered.py']}]", *small, "--out", tmp_path / "filtered")
    mine = [f"plugins=[{page['mine.py']}]", "rewards={brief: 0.1}", "advantage=half_mean"]
    command("train", "grpo", *mine, f"prompts={page['mine.yaml']}", *small, "--out", tmp_path / "mine")
    [row] = [row for row in logged(tmp_path / "mine") if row["phase"] == "train" and row["step"] == 1]
    assert 0 < row["reward/brief"] <= 1
