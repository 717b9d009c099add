"""Policy gradient and its presets: settings, off-policy regimes, and what a run leaves."""

from __future__ import annotations

import json
import math

import pytest

from support.benches import method_of
from support.commands import Quiet, config_of
from whet.config import ConfigError, check_all_read
from whet.methods import METHODS
from whet.methods.policy.policy_gradient import PolicyGradient
from whet.methods.registry import preset_of
from whet.run import launch, session
from whet.run_folder.folder import RunFolder

REPLAY = ("off_policy.kind=replay", "off_policy.staleness=1")
SMALL = (
    "num_threads=1", "data.num_train=40", "data.num_validation=4", "data.num_test=4", "num_steps=3",
    "prompts_per_step=4", "group_size=4", "validate_every=2", "evaluation.num_samples=2", "checkpoint_every=0",
    "learning.minibatch_rows=8", "probe_every=1",
)  # fmt: skip
PRESETS = [
    entry.name for entry in METHODS if entry.origin == "whet" and preset_of(entry.name).algorithm is PolicyGradient
]


def small(preset, *settings):
    return config_of(preset, *SMALL, *settings)


@pytest.fixture
def method(tmp_path):
    """The method on the shipped model, with a run that has not begun."""
    return lambda preset="grpo", *settings: method_of(small(preset, *settings), tmp_path / "run")


def go(preset, out, *settings):
    begun = launch.start(small(preset, "data.max_steps=3", *settings), out, Quiet())
    assert isinstance(begun, session.Session)
    summary = begun.go()
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return summary, [row for row in rows if row["phase"] == "train"]


# --- presets and settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_runs_learns_and_reads_its_settings(preset, tmp_path):
    sizes = ["num_steps=2", *(["value.warmup_updates=1"] if preset == "ppo" else [])]
    summary, steps = go(preset, tmp_path / "run", *sizes)
    assert list(summary["rows"]) == ["before", "best", "last"]
    assert all(row["n"] == 4 and row["k"] == 2 for row in summary["rows"].values())
    assert {row["validation/n"] for row in steps if "validation/acc" in row} == {4}
    trained = [row for row in steps if "optim/grad_norm" in row]
    assert trained, "no step trained"
    assert all(math.isfinite(row["loss/mean"]) for row in trained)
    if preset.startswith("bapo"):
        assert all("bounds/in_reach" in row for row in trained)
        acting = [row for row in trained if "bounds/low" in row]
        assert all(0.6 <= row["bounds/low"] <= 0.9 and 1.2 <= row["bounds/high"] <= 3 for row in acting)
        assert all("balance/share" in row and "entropy/measured" in row for row in trained)
        assert all("entropy/predicted" in row and "optim/grad_norm_max" in row for row in trained)
    if preset == "ppo":
        assert "value_model.value/error" in steps[1]


def test_presets_are_what_they_are_called():
    assert len(PRESETS) == 18
    assert preset_of("policy_gradient").config == preset_of("grpo").config
    assert preset_of("bapo_code").config.loss.dual == 3.0
    dapo = preset_of("dapo").config
    assert (dapo.loss.bounds.low, dapo.loss.bounds.high) == (0.8, 1.28)
    assert (dapo.signed, dapo.overlong, dapo.resample) == (True, 16, 3)


@pytest.mark.parametrize(
    ("preset", "settings", "sentence"),
    [
        ("grpo", ["group_size=1"], "compares the replies of a group"),
        ("grpo", ["sampling.temperature=0"], "all replies to a problem equal"),
        ("grpo", ["correction.high=2"], "correction needs proximal"),
        ("grpo", ["data.kind=reasoning_gym", "data.dataset=chain_sum"], "does not fit data.kind"),
        ("dapo", ["off_policy.kind=partial"], "unfinished groups cannot be replaced"),
        ("grpo", ["off_policy.kind=replay", "off_policy.staleness=9", "num_steps=9"], "nothing would ever be trained"),
        ("grpo", ["off_policy.kind=partial", "sampling.stop=[x]"], "might fall on a seam"),
        (
            "grpo",
            ["off_policy.kind=partial", "schedule.sampling.temperature={kind: steps, values: [1.0, 0.5], at: [2]}"],
            "two samplings",
        ),
        ("bapo", ["loss.bounds.target=1.5"], "is no share"),
        ("bapo", ["loss.bounds.low.start=0.95"], "is above low.ceiling"),
        ("bapo", ["loss.bounds.high.start=0.9"], "a ratio of 1 is no drift"),
        ("ppo", ["value.warmup_updates=3"], "the policy never learns"),
        ("reinforce", ["group_size=1", "resample=2"], "group_size has to be 2"),
        ("bapo", ["loss.bounds.high.step=1e-9"], "more than 10,000 steps"),
        ("bapo", ["loss.bounds.high.ceiling=inf"], "loss.bounds.high.ceiling"),
        ("grpo", ["learning.betas=[1.5,0.9]"], "learning.betas"),
        ("grpo", ["learning.learning_rate=inf"], "learning.learning_rate"),
        ("grpo", ["loss.kind=clap"], "there is no policy loss 'clap'; did you mean 'clip'"),
        ("grpo", ["loss.budget=3"], "loss.budget"),
        ("grpo", ["loss.kind=cispo", "loss.bounds.kind=bapo", "loss.bounds.contribution=gradient"], "has no meaning"),
    ],
)
def test_settings_that_make_no_sense_are_refused(preset, settings, sentence, tmp_path):
    """By the config, or once the plug-ins and the data are there: before any work is done."""
    with pytest.raises(ConfigError, match=sentence):
        session.prepare(small(preset, *settings), Quiet(), RunFolder(tmp_path))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("setting", ["value.gamma=0.9", "kl.estimator=k2"])
def test_settings_without_effect_stop_the_run(setting, tmp_path):
    config = small("grpo", setting)
    session.prepare(config, Quiet(), RunFolder(tmp_path))
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        check_all_read(config)


# --- off-policy -------------------------------------------------------------------------------------------------------


def test_staleness_is_exact(tmp_path):
    """Two updates a step: a batch that waited two steps is 4 updates old at the first of them and 5 at the second."""
    _, steps = go("grpo", tmp_path / "run", "num_steps=6", "off_policy.kind=replay", "off_policy.staleness=2")
    ages = [(row.get("staleness/mean"), row.get("staleness/max"), row.get("staleness/share")) for row in steps[1:]]
    assert ages[:2] == [(None, None, None)] * 2  # filling the queue
    assert ages[2] == (0.5, 1.0, 0.5)  # sampled before anything was learnt
    assert ages[3] == (2.5, 3.0, 1.0)
    assert ages[4:] == [(4.5, 5.0, 1.0)] * 2


def test_more_problems_a_step_than_there_are_is_refused(method):
    with pytest.raises(ConfigError, match="more than the 3 training problems"):
        method("grpo", "data.num_train=3")


# --- rules ------------------------------------------------------------------------------------------------------------


def test_a_token_budget_changes_nothing_about_the_bounds(tmp_path):
    """One search over all of an update's tokens, however many passes they take."""
    settings = [*REPLAY, "num_steps=4", "learning.learning_rate=3e-3"]
    _, whole = go("bapo", tmp_path / "whole", *settings, "learning.token_budget=100000")
    _, split = go("bapo", tmp_path / "split", *settings, "learning.token_budget=64")
    names = ("bounds/low", "bounds/high", "bounds/moves", "balance/share", "optim/grad_norm")
    pairs = [(a[n], b[n]) for a, b in zip(whole[:3], split[:3], strict=True) for n in names if n in a]
    assert pairs
    assert all(a == pytest.approx(b, rel=2e-3) for a, b in pairs)


@pytest.mark.parametrize(
    "settings",
    [
        ["proximal=true", "correction.high=2"],
        ["proximal=true", "correction.low=0.5", "correction.outside=drop", *REPLAY],
        ["kl.coef=0.05"],
        ["kl.coef=0.05", "kl.where=reward", "kl.estimator=k1"],
        ["aggregation=constant", "loss.dual=3"],
        ["loss.kind=cispo", "loss.bounds.kind=bapo"],
        ["off_policy.kind=partial", "off_policy.budget=12", "num_steps=5"],
    ],
)  # fmt: skip
def test_variants_are_settings(settings, tmp_path):
    _, steps = go("grpo", tmp_path / "run", *settings)
    last = steps[-1]
    assert math.isfinite(last["loss/mean"])
    if "kl.coef=0.05" in settings:
        assert last["kl/ref"] != 0
    if "loss.kind=cispo" in settings:
        assert last["bounds/in_reach"] in (0, 0.5, 1)


def test_parts_of_replies_keep_the_groups_that_they_were_begun_in(method):
    """Groups of four that are done when groups have six by now are groups of four of one problem each."""
    made = method("grpo", "off_policy.kind=partial", "off_policy.budget=20", "prompts_per_step=3",
                  "group_size=4", "sampling.max_new_tokens=60",
                  "schedule.group_size={kind: steps, values: [4, 6], at: [2]}")  # fmt: skip
    sizes = []
    for step in range(1, 6):
        for group in made._sampled(made.at(step), step).groups:
            assert len({episode.task.id for episode in group}) == 1
            sizes.append(len(group))
    assert 4 in sizes
    assert set(sizes) <= {4, 6}


def updates(made, step=1):
    return made.gradient.updates(made.at(step))


def test_updates_are_planned_over_the_sizes_that_steps_will_have(method):
    """Two problems a step in minibatches of 8: one update a step with groups of 4, three with groups of 12."""
    made = method("grpo", "prompts_per_step=2", "group_size=4", "num_steps=6", "learning.minibatch_rows=8",
                  "learning.num_epochs=1", "schedule.group_size={kind: steps, values: [4, 12], at: [4]}")  # fmt: skip
    assert {updates(made, step)["policy"].num_updates for step in range(1, 7)} == {3 * 1 + 3 * 3}


def test_rows_that_were_replayed_are_held_to_a_kl_that_came_later(tmp_path):
    _, steps = go("grpo", tmp_path / "run", *REPLAY, "num_steps=5", "off_policy.staleness=2",
                  "schedule.kl.coef={kind: steps, values: [0.0, 0.1], at: [3]}")  # fmt: skip
    assert [row["kl/ref"] is not None for row in steps[2:] if "kl/ref" in row] == [True] * 3


@pytest.mark.parametrize(
    ("preset", "settings", "idle"),
    [
        ("grpo", ["learning.minibatch_rows=128"], True),
        ("grpo", [], False),
        ("cispo", ["learning.minibatch_rows=128", *REPLAY], False),
        ("bapo", ["learning.minibatch_rows=128", "learning.num_epochs=1", "proximal=true", *REPLAY], True),
        ("reinforce", ["learning.minibatch_rows=128"], False),
    ],
)
def test_the_plan_says_where_a_loss_has_nothing_to_act_on(preset, settings, idle, method):
    assert any("no bound, gate or weight" in line for line in method(preset, *settings).gradient.plan()) == idle


@pytest.mark.parametrize(
    ("preset", "settings", "line"),
    [
        ("bapo", [], "target 40.0%, never from below 21.1%; measured at step 1"),
        ("bapo", REPLAY, "target 40.0%, never from below 21.1%; measured at step 2"),
        ("bapo_gradient", [], "target 40.0%, from any start; measured at step 1"),
        ("grpo", ["loss.kind=cispo", "loss.bounds.kind=bapo"], "target 40.0%, never from below 21.1%; measured at"),
        ("bapo", ["advantage=gae", "value.warmup_updates=2"], "measured in training"),
        ("bapo", ["schedule.loss.bounds.target={kind: steps, values: [0.4, 0.3], at: [2]}", *REPLAY], "target 30.0%"),
        ("bapo", ["loss.bounds.kind=fixed"], None),
        ("dppo", REPLAY, None),
        ("gspo", REPLAY, None),
    ],
)
def test_the_plan_tells_the_reach_of_a_search(preset, settings, line, method):
    lines = [found for found in method(preset, *settings).gradient.plan() if "reach" in found]
    assert len(lines) == (line is not None)
    assert all(line in found and len(found) <= 80 for found in lines)


@pytest.mark.parametrize(
    ("preset", "settings", "steps"),
    [
        ("bapo", [], [1]),
        ("bapo", ["num_steps=5", "off_policy.kind=replay", "off_policy.staleness=2"], [3, 4]),
        ("bapo", ["num_steps=5", "off_policy.kind=replay", "off_policy.staleness=2", "proximal=true"], [3]),
        ("bapo", ["num_steps=5", "off_policy.kind=replay", "off_policy.staleness=2", "engine.products=int8"], [3]),
        ("cispo", ["loss.bounds.kind=bapo", *REPLAY], [2, 3]),
        ("bapo", ["loss.bounds.kind=fixed", *REPLAY], []),
        ("dppo", REPLAY, []),
    ],
)
def test_a_run_tells_the_reach_on_its_first_fresh_and_its_first_old_batch(preset, settings, steps, tmp_path):
    """Replay trains first on what the weights as they are have sampled; the next batch is the first of older ones."""
    go(preset, tmp_path / "run", *settings)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    told = {each["step"]: each["message"] for each in events if each["event"] == "reach"}
    assert list(told) == steps
    assert all(f"train step {step}: search reaches" in text for step, text in told.items())
    for step in steps[1:]:
        assert "all ratios are 1" not in told[step]


@pytest.mark.parametrize(("settings", "reads"), [((), True), (("kl.coef=0.1",), False)])
def test_rows_without_credit_are_asked_for_where_they_count(settings, reads, method):
    terms = updates(method("dr_grpo", *settings))["policy"].terms
    assert all(term.needs_credit for term in terms) == reads
    assert [term.constant_length for term in terms] == [96] * len(terms)


def test_the_learning_rate_counts_the_updates_that_are_made(method):
    """Replay's first steps only fill the queue, and PPO's policy waits for its value model."""
    assert updates(method("grpo", "num_steps=6"))["policy"].num_updates == 6 * 2
    assert updates(method("grpo", "num_steps=6", *REPLAY))["policy"].num_updates == 5 * 2
    found = updates(method("ppo", "num_steps=6", "value.warmup_updates=2"))
    assert found["value_model"].num_updates == 6
    assert found["policy"].num_updates == (6 - 2) * 2


def test_a_misspelt_rate_is_taken_for_the_policys_and_not_for_the_value_models():
    with pytest.raises(ConfigError, match=r"unknown key lerning_rate: did you mean learning.learning_rate or "):
        config_of("grpo", "lerning_rate=1")
