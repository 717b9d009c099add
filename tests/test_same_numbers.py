"""Short runs of every method give the recorded texts and numbers on any machine, and a planted change is seen."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import same_numbers
import two_versions
from same_numbers import Step, differences
from support.renamed import RENAMED, Renamed, load_renamed
from whet.config.tree import names
from whet.credit import advantages
from whet.methods import METHODS
from whet.methods.registry import config_of, preset_of
from whet.rollout import solve
from whet.trainer.learner import Learner
from whet.types import Row

RECORD = same_numbers.load()
RENAMES = Path(__file__).parents[1] / "scripts" / "renames"
SLOW = ("self_talk", "spc")
"""Runs of several seconds. The others take one or two each, of CPU time."""
PLANTED_IN = "grpo"


def marked(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.integration) if name in SLOW else name


@pytest.mark.parametrize("name", [marked(name) for name in sorted(RECORD)])
def test_a_run_gives_the_recorded_texts_and_numbers(name, tmp_path):
    assert differences(RECORD[name], same_numbers.run(name, tmp_path / "run")) == []


@pytest.mark.integration
@pytest.mark.parametrize(
    "environment",
    [same_numbers.NO_VECTORS, {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}],
    ids=["no vectors", "avx2"],
)
def test_another_order_of_floating_point_sums_is_no_difference(environment):
    names = ["grpo", "critique_rl"]
    for name, steps in zip(names, same_numbers.measured_elsewhere(names, environment), strict=True):
        assert differences(RECORD[name], steps) == [], name


# --- what the recording holds -----------------------------------------------------------------------------------------


def test_the_recording_and_the_list_of_runs_are_one():
    assert RECORD.keys() == same_numbers.RUNS.keys()
    assert set(SLOW) < RECORD.keys()


def test_every_registered_method_has_a_run():
    ran = {preset_of(RENAMED.method(settings[0])).algorithm for settings in same_numbers.RUNS.values()}
    ours = [name for name in METHODS.names() if METHODS.entry(name).origin == "whet"]  # other tests load plug-ins
    missing = {preset_of(name).algorithm.__name__ for name in ours if preset_of(name).algorithm not in ran}
    assert missing == set(), "add a run to RUNS in same_numbers.py, and record it"


@pytest.mark.parametrize("name", sorted(RECORD.keys() - {"agent", "auto_critique"}))
def test_the_recording_holds_an_update_and_what_was_written(name):
    steps = RECORD[name].values()
    assert any(metric.endswith("optim/grad_norm") for step in steps for metric in step.metrics)
    assert any(step.texts for step in steps)


def test_few_tolerances_are_wide():
    values = [(value, step.wider.get(metric)) for steps in RECORD.values() for step in steps.values()
              for metric, value in step.metrics.items()]  # fmt: skip
    wide = [(value, wider) for value, wider in values if wider is not None]
    assert len(values) > 3000
    assert len(wide) < 0.05 * len(values)


# --- what is a difference ---------------------------------------------------------------------------------------------

STEPS = {"train/1": Step("abc", {"reward/mean": 0.5, "kl/ref": 0.0, "acc": None}, {"kl/ref": 0.01})}


def test_rounding_and_new_metrics_are_no_difference():
    now = {"train/1": Step("abc", {"reward/mean": 0.50001, "kl/ref": 0.005, "acc": None, "new": 1.0})}
    assert differences(STEPS, now) == []
    assert same_numbers.new_metrics(STEPS, now) == {"new"}


@pytest.mark.parametrize(
    ("now", "line"),
    [
        ({}, "train/1: gone"),
        ({"train/1": replace(STEPS["train/1"], texts="x")}, "train/1: other texts"),
        ({"train/1": Step("abc", {"reward/mean": 0.5, "acc": None})}, "train/1: kl/ref is gone"),
        (
            {"train/1": Step("abc", {"reward/mean": 0.501, "kl/ref": 0.0, "acc": None})},
            "train/1: reward/mean was 0.5, is 0.501",
        ),
        (
            {"train/1": Step("abc", {"reward/mean": 0.5, "kl/ref": 0.02, "acc": None})},
            "train/1: kl/ref was 0.0, is 0.02",
        ),
        (
            {"train/1": Step("abc", {"reward/mean": 0.5, "kl/ref": 0.0, "acc": 0.0})},
            "train/1: acc was None, is 0.0",
        ),
        (
            {"train/1": Step("abc", {"reward/mean": float("nan"), "kl/ref": 0.0, "acc": None})},
            "train/1: reward/mean was 0.5, is nan",
        ),
    ],
)
def test_a_difference_is_named(now, line):
    assert differences(STEPS, now) == [line]


def test_a_token_may_cross_a_clip_bound():
    before = {"train/1": Step("", {"clip/low": 0.02, "kl": 0.02})}
    assert differences(before, {"train/1": Step("", {"clip/low": 0.028, "kl": 0.02})}) == []
    assert len(differences(before, {"train/1": Step("", {"clip/low": 0.031, "kl": 0.028})})) == 2
    once = {"train/1": Step("", {"clip/low": 0.028, "kl": 0.02})}
    assert list(same_numbers.recording(before, once, {})[0]) == ["train/1"]


def test_a_recording_ends_before_a_token_may_differ():
    one = {f"train/{n}": Step(f"text {n}", {"loss/mean": 1.0 + n}) for n in (1, 2, 3)}
    assert same_numbers.recording(one, one, {"train/2": 0.5}) == (one, "")
    steps, why = same_numbers.recording(one, one, {"train/3": 1e-7})
    assert list(steps) == ["train/1", "train/2"]
    assert why == "train/3: a draw is within 1e-07 of another token"
    steps, why = same_numbers.recording(one, one | {"train/2": Step("other", {"loss/mean": 3.0})}, {})
    assert list(steps) == ["train/1"]
    assert why == "train/2: the two recordings have other texts or metrics"
    steps, why = same_numbers.recording(one, one | {"train/3": Step("text 3", {"loss/mean": 4.1})}, {})
    assert list(steps) == ["train/1", "train/2"]
    assert why == "train/3: loss/mean is 4.0 in one recording and 4.1 in the other"


def test_a_recording_widens_what_rounding_moves_far():
    [steps, _] = same_numbers.recording(
        {"train/1": Step("", {"a": 1.0, "b": 1.0})}, {"train/1": Step("", {"a": 1.001, "b": 1.000001})}, {}
    )
    assert steps["train/1"].wider == {"a": pytest.approx(0.01)}


def test_a_recording_comes_back_from_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(same_numbers, "RECORD", tmp_path / "record.json")
    runs = {"run": {"train/1": Step("abc", {"a": 0.5, "b": 0.0, "c": None}, {"a": 0.1}), "table": Step()}}
    same_numbers.save(runs)
    assert same_numbers.load() == runs


def test_the_closest_draw_of_a_step_is_measured():
    draws = same_numbers.Draws()
    logits = torch.tensor([[0.25, 0.25, 0.5, 0.0], [0.3, 0.305, 0.395, 0.0]]).log() + 1  # of a size below 1
    draws.saw(logits[:1], None, None, torch.tensor([0.999999], dtype=torch.float64))
    assert draws.since == pytest.approx(0.5, abs=1e-5), "above the last token there is none"
    draws.saw(logits, None, None, torch.tensor([0.51, 0.9], dtype=torch.float64))
    draws.step_ends("train/1")
    draws.saw(logits, torch.tensor([1.0, 0.0]), None, torch.tensor([0.4, 0.5], dtype=torch.float64))
    draws.step_ends("train/2")
    draws.saw(logits[:1], None, torch.tensor([0.52]), torch.tensor([0.2], dtype=torch.float64))
    draws.step_ends("train/3")
    draws.saw(logits[:1] + 9, None, None, torch.tensor([0.51], dtype=torch.float64))
    draws.step_ends("train/4")
    near = {"train/1": 0.01, "train/2": 0.09, "train/3": 0.02, "train/4": 0.01 / float(9 + logits[0, 2])}
    assert draws.nearest == pytest.approx(near, abs=1e-6)


def test_the_draws_of_a_run_are_watched(tmp_path):
    with same_numbers.draws_watched() as draws:
        steps = same_numbers.run("imitation", tmp_path / "run")
    assert draws.nearest.keys() == steps.keys() - {"table"}
    assert 0 < draws.nearest["train/2"] < 1, "it validates"


# --- planted changes: each is seen ------------------------------------------------------------------------------------


def rate_one_percent_higher(patch: pytest.MonkeyPatch) -> None:
    """Of the optimiser alone: the logged rate stays."""
    step = torch.optim.AdamW.step

    def faster(self, *args):
        for group in self.param_groups:
            group["lr"] *= 1.01
        return step(self, *args)

    patch.setattr(torch.optim.AdamW, "step", faster)


def last_term_dropped(patch: pytest.MonkeyPatch) -> None:
    update = Learner.update

    def without(self, rows, *, seed, rule=None):
        rule = rule or self.rule
        *terms, last = rule.terms
        assert terms
        return update(self, rows, seed=seed, rule=replace(rule, terms=(*terms, replace(last, weight=0.0))))

    patch.setattr(Learner, "update", without)


def seed_labels_swapped(patch: pytest.MonkeyPatch) -> None:
    """The task and the sample change places in each reply's seed."""
    seed_of = solve.seed_of
    patch.setattr(solve, "seed_of", lambda *key: seed_of(*key[:-2], key[-1], key[-2]))


def std_over_all(patch: pytest.MonkeyPatch) -> None:
    """The advantage's std divides by n, where the recording divides by n - 1."""
    patch.setattr(advantages, "group_advantages", partial(advantages.group_advantages, correction=0))


def one_percent_hotter(patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return ("sampling.temperature=1.01",)


def mask_off_by_one(patch: pytest.MonkeyPatch) -> None:
    """Each row's last token does not train."""
    update = Learner.update

    def without_last(row: Row) -> Row:
        fields = ("trains", "credit", "logprobs", "ref_logprobs")
        return replace(row, **{name: values[:-1] for name in fields if (values := getattr(row, name)) is not None})

    def shorter(self, rows, **rest):
        return update(self, [without_last(row) for row in rows], **rest)

    patch.setattr(Learner, "update", shorter)


@pytest.mark.parametrize(
    "plant",
    [
        rate_one_percent_higher,
        last_term_dropped,
        seed_labels_swapped,
        std_over_all,
        one_percent_hotter,
        mask_off_by_one,
    ],
)
def test_a_planted_change_is_seen(plant, tmp_path, monkeypatch):
    settings = plant(monkeypatch) or ()
    changed = differences(RECORD[PLANTED_IN], same_numbers.run(PLANTED_IN, tmp_path / "run", *settings))
    assert [line for line in changed if " was " in line], "the change is to be seen by numbers"


# --- renamed ----------------------------------------------------------------------------------------------------------

TABLES = Renamed(
    metrics={"episodes": "rollouts", "reward/mean": "score/mean"},
    settings={"warm_start.rows_per_step": "sft.batch", "off_policy.kind=replay": "buffer.kind=queue", "sampling": "s"},
    phases={"train": "rl"},
    methods={"grpo": "grouped"},
)


def test_names_are_renamed_by_their_parts():
    assert TABLES.metric("validation/episodes/lost") == "validation/rollouts/lost"
    assert TABLES.metric("critic/reward/mean") == "critic/score/mean"
    assert TABLES.metric("reward/meanest") == "reward/meanest"
    assert TABLES.setting("warm_start.rows_per_step=8") == "sft.batch=8"
    assert TABLES.setting("off_policy.kind=replay") == "buffer.kind=queue"
    assert TABLES.setting("roles.sampling.top_p=0.5") == "roles.s.top_p=0.5"
    assert TABLES.place("train/1") == "rl/1"
    assert TABLES.method("grpo") == "grouped"


def test_names_go_back():
    for name in ("validation/episodes/lost", "reward/mean", "other"):
        assert TABLES.back().metric(TABLES.metric(name)) == name
    with pytest.raises(ValueError, match="two former names became one"):
        Renamed(metrics={"a": "c", "b": "c"}).back()


def test_a_name_is_former_or_new():
    with pytest.raises(ValueError, match="a is a former name and a new one"):
        Renamed(metrics={"a": "b", "c": "a"})


def test_a_recording_is_read_through_the_tables():
    before = {"train/1": Step("abc", {"reward/mean": 0.5, "episodes/lost": 0.0})}
    now = {"rl/1": Step("abc", {"score/mean": 0.5, "rollouts/lost": 0.0})}
    assert differences(before, now, TABLES) == []
    assert differences(before, now) == ["train/1: gone"]
    assert same_numbers.new_metrics(before, now, TABLES) == set()


def test_two_versions_asks_and_reads_the_other_checkout_by_its_names():
    settings = ("grouped", "buffer.kind=queue", "sft.batch=8", "seed=0")
    assert two_versions.asked_of(TABLES, settings) == (
        "grpo",
        "off_policy.kind=replay",
        "warm_start.rows_per_step=8",
        "seed=0",
    )
    row = {"phase": "train", "step": 1, "episodes/lost": 0.0, "time/rollout": 2.0}
    assert two_versions.read_from(TABLES, row) == {
        "phase": "rl",
        "step": 1,
        "rollouts/lost": 0.0,
        "time/rollout": 2.0,
    }


def test_the_tables_come_from_a_file(tmp_path):
    file = tmp_path / "renamed.json"
    file.write_text(json.dumps({"metrics": {"a": "b"}}))
    assert load_renamed(file).metric("a/c") == "b/c"
    assert not Renamed()


def test_the_file_has_todays_settings_and_methods():
    """Each new name exists today, no former one does, and the codemod made the same change."""
    config = {method: set(names(type(config_of(method)))) for method in ("grpo", "agent", "agent_clone")}
    keys = set[str]().union(*config.values())
    for former, new in RENAMED.settings.items():
        key = new.partition("=")[0]
        assert any(f".{key}." in f".{name}." for name in keys), f"{key} is no setting"
        assert "=" in former or not any(f".{former}." in f".{name}." for name in keys), f"{former} is a setting still"
    assert set(RENAMED.methods.values()) <= set(METHODS.names())
    assert not RENAMED.methods.keys() & set(METHODS.names())
    assert RENAMED.back().settings["engine.rollout"] == "engine.play"
    codemod = tomllib.loads((RENAMES / "words.toml").read_text())["strings"]
    for former, new in RENAMED.settings.items():
        assert "=" in former or codemod[re.escape(former)] == new
