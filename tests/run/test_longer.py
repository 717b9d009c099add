"""A run is given more steps than it was begun with, on its way or when it has ended."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from support.commands import Quiet, config_of, events, metrics
from whet.config import ConfigError
from whet.errors import RunError
from whet.run import launch
from whet.run.launch import saved_config
from whet.run.provenance import changed_access
from whet.trainer.checkpoint import load_state, newest_first
from whet.trainer.phase import Progress

SETTINGS = (
    "data.num_train=16", "data.num_validation=4", "data.num_test=4", "prompts_per_step=2", "group_size=2",
    "validate_every=2", "evaluation.num_samples=0", "sampling.max_new_tokens=12", "advantage=reward", "signed=true",
)  # fmt: skip
STEADY = "learning.final_share=1.0"


@pytest.fixture
def begun(random_model: Path, tmp_path: Path):
    def begin(name: str, *settings: str) -> Path:
        config = config_of("grpo", f"policy.path={random_model}", *SETTINGS, *settings)
        launch.start(config, tmp_path / name, Quiet()).go()
        return tmp_path / name

    return begin


def longer(run: Path, *overrides: str, progress: Progress | None = None) -> None:
    launch.resume(run, progress or Quiet(), overrides=overrides).go()


def rows(run: Path) -> list[dict[str, object]]:
    return [row for row in metrics(run) if row["phase"] == "train"]


def test_with_a_steady_rate_a_run_made_longer_is_the_longer_run(begun):
    """Nothing but the learning rate's schedule knows how long a run is."""
    short, whole = begun("short", STEADY, "num_steps=2"), begun("whole", STEADY, "num_steps=4")
    longer(short, "num_steps=4")
    assert metrics(short) == metrics(whole)
    assert saved_config(short) == saved_config(whole)
    assert (short / "summary.json").exists()
    assert launch.resume(short, Quiet())["rows"] == launch.resume(whole, Quiet())["rows"]


def test_a_falling_rate_is_spread_over_the_longer_run_and_that_is_said(begun):
    run = begun("run", "num_steps=2")
    before = rows(run)[-1]["optim/learning_rate"]
    longer(run, "num_steps=8")
    third = rows(run)[3]
    assert third["step"] == 3
    said = events(run, "longer")
    assert re.search(
        rf"spread over all of it, goes on at {third['optim/learning_rate']:.3g}, where it was {before:.3g}", said[0]
    )
    assert third["optim/learning_rate"] > before


def test_killed_after_it_was_made_longer_it_goes_on_as_the_longer_one(begun):
    class Killed(Exception):
        pass

    class KillAtOnce(Quiet):
        def step(self, step, shown):
            raise Killed

    run = begun("run", STEADY, "num_steps=2")
    with pytest.raises(Killed):
        longer(run, "num_steps=4", progress=KillAtOnce())
    launch.resume(run, Quiet()).go()
    assert [row["step"] for row in rows(run)] == [0, 1, 2, 3, 4]
    assert (run / "summary.json").exists()


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("num_steps=1", "num_steps = 1 is less than the run's 2"),
        ("num_steps=2", "these are what it has already"),
        ("group_size=4", "other trackers and callbacks (track=[tensorboard]), not group_size: 2 -> 4"),
        ("num_setps=3", "did you mean num_steps"),
    ],
)
def test_what_no_run_can_be_given(begun, override, says):
    run = begun("run", "num_steps=2")
    before = (run / "config.yaml").read_text()
    with pytest.raises(ConfigError, match=re.escape(says)):
        launch.resume(run, Quiet(), overrides=[override])
    assert (run / "config.yaml").read_text() == before
    assert (run / "summary.json").exists()


def test_the_end_of_training_outlives_the_checkpoints_of_the_test(begun):
    """The two newest are of phases that only measure."""
    run = begun("run", "num_steps=2", "checkpoint_every=1")
    assert len(newest_first(run)) == 3
    longer(run, "num_steps=3")
    assert [row["step"] for row in rows(run)] == [0, 1, 2, 3]


def test_without_the_checkpoint_of_the_phases_end_nothing_is_lost(begun):
    run = begun("run", "num_steps=2")
    shutil.rmtree(newest_first(run)[1])
    with pytest.raises(RunError, match="no checkpoint is left of the end of the phase that is to go on"):
        launch.resume(run, Quiet(), overrides=["num_steps=4"])
    assert (run / "summary.json").exists()


def test_train_says_how_a_run_is_made_longer(begun, random_model, tmp_path):
    run = begun("my run", "num_steps=2")
    config = config_of("grpo", f"policy.path={random_model}", *SETTINGS, "num_steps=6")
    with pytest.raises(RunError, match=rf"`whet resume '{re.escape(str(run))}' num_steps=6` makes the run longer"):
        launch.start(config, run, Quiet())


def test_weights_that_did_not_change_are_on_the_disk_once(begun):
    run = begun("run", "num_steps=2", "checkpoint_every=1")
    newest, before, _ = newest_first(run)
    assert load_state(newest)["forks"] == {"policy_best": "policy"}
    for folder in ("policy", "policy_best"):
        files = [each / "policies" / folder / "model.safetensors" for each in (newest, before)]
        assert files[0].samefile(files[1])  # the last phase only measures
        assert files[0].stat().st_nlink == 3


def test_the_way_to_an_endpoint_may_change_and_who_is_there_may_not():
    actor = {"kind": "endpoint", "url": "http://a/v1", "model": "m", "retries": 4, "more": {}}
    before = {"actor": actor, "seed": 0, "critic": {"kind": "model", "url": "x"}}
    moved = {**before, "actor": {**actor, "url": "http://b/v1", "retries": 9}}
    assert changed_access(before, moved) == {"actor.url", "actor.retries"}
    assert changed_access(before, {**before, "actor": {**actor, "model": "other"}, "critic": {"url": "y"}}) == set()


def test_a_run_without_a_checkpoint_keeps_the_steps_that_it_is_given(begun):
    run = begun("run", "num_steps=2")
    for name in ("checkpoints", "summary.json", "metrics.jsonl"):
        shutil.rmtree(run / name) if name == "checkpoints" else (run / name).unlink()
    launch.resume(run, Quiet(), overrides=["num_steps=3"]).close()
    assert saved_config(run).num_steps == 3
