"""Code of a user's own that breaks in the middle of a run: the steps before it are saved, and the run goes on."""

from __future__ import annotations

import pytest

import whet
from support.commands import metrics
from whet.credit.advantages import AdvantageError
from whet.errors import WhetError
from whet.rewards import RewardError
from whet.trainer.checkpoint import newest_first

REWARD = """
import whet
calls = []

@whet.reward("breaks_late")
def breaks_late(episode, index):
    calls.append(index)
    return {value} if len(calls) > 2 * 4 * 2 else len(calls) % 2
"""
ADVANTAGE = """
from whet.credit.advantages import advantage
calls = []

@advantage("breaks_late")
def breaks_late(rewards, sizes, kl, mask, kl_coef):
    calls.append(sizes)
    return {value} if len(calls) > 2 else (rewards - rewards.mean())[:, None] * mask
"""
BROKEN = {
    "a reward": (REWARD, "1e308", {"rewards": {"breaks_late": 1}}, RewardError),
    "an advantage": (ADVANTAGE, "rewards", {"advantage": "breaks_late", "signed": True}, AdvantageError),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_steps_before_it_are_kept_and_the_run_goes_on(tmp_path, random_model, name):
    text, value, settings, kind = BROKEN[name]
    plugin, run = tmp_path / "late.py", tmp_path / "run"
    plugin.write_text(text.format(value=value))
    more = {
        "policy.path": str(random_model), "num_steps": 3, "prompts_per_step": 2, "group_size": 4, "num_threads": 1,
        "data.num_train": 8, "data.num_validation": 2, "data.num_test": 2, "evaluation.num_samples": 0,
        "checkpoint_every": 0, "plugins": [str(plugin)],
    }  # fmt: skip
    with pytest.raises(kind) as error:
        whet.train("grpo", out=run, progress=False, **more, **settings)
    assert isinstance(error.value, WhetError)
    assert str(plugin) in str(error.value)
    before = [row for row in metrics(run) if row["phase"] == "train"]
    assert [row["step"] for row in before if row["step"]] == [1, 2]
    assert newest_first(run)  # of the steps that were made
    plugin.write_text(text.format(value="0.0" if kind is RewardError else "rewards[:, None] * mask"))
    whet.train("grpo", out=run, progress=False, accept_changes=True, **more, **settings)
    after = [row for row in metrics(run) if row["phase"] == "train"]
    assert after[: len(before)] == before
    assert after[-1]["step"] == 3
    [resumed] = [event for event in whet.Run.open(run).events if event["event"] == "resumed"]
    assert resumed["command"]  # the report shows it
