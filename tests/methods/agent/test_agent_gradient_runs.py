"""Whole runs of agents: a horizon that grows, every advantage and loss, replay, a KL, the published settings."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from math import isfinite
from statistics import fmean, stdev

import pytest

import whet
from support.agent_model import agent_model
from support.commands import Quiet, config_of
from whet.api.run import Run
from whet.config import ConfigError
from whet.methods.agent.base import AgentEvaluator
from whet.run.launch import resume, start
from whet.trainer.checkpoint import load_state, newest_first
from whet.trainer.loop import Stopped


@pytest.fixture(scope="module")
def settings():
    return {
        "policy": {"path": str(agent_model())}, "data": {"env": {"maze": 3, "counting": 1}, "num_test": 2,
        "num_validation": 2}, "prompts_per_step": 4, "group_size": 3, "num_steps": 3, "num_threads": 1,
        "rules": "none", "sampling": {"max_new_tokens": 8}, "evaluation": {"max_turns": 2}, "progress": False,
        "schedule": {"max_turns": {"kind": "steps", "values": [1, 2, 3], "every": 1}},
    }  # fmt: skip


@pytest.fixture(scope="module")
def counting(tmp_path_factory):
    """A world of a user's own: two turns and it is over."""
    file = tmp_path_factory.mktemp("worlds") / "counting.py"
    file.write_text(
        "import whet\n"
        "@whet.env('counting', splits={'train': range(20), 'test': range(20, 24)}, max_turns=4, parser='plain')\n"
        "class Counting:\n"
        "    def reset(self, item, *, seed=0):\n"
        "        self.left = 2\n"
        "        return 'go', {}\n"
        "    def step(self, action):\n"
        "        self.left -= 1\n"
        "        return 'on', len(action) / 1000, self.left == 0, False, {}\n"
    )
    return file


def test_a_run_mixes_worlds_and_its_horizon_grows(tmp_path, settings, counting):
    run = whet.train("agent_grpo", out=tmp_path / "run", plugins=[counting], **settings)
    rows = [row for row in run.metrics_of("train") if row["step"]]
    assert [row["turns/horizon"] for row in rows] == [1, 2, 3]
    assert all(row["turns/mean"] <= row["turns/horizon"] for row in rows)
    assert rows[0]["turns/mean"] == 1
    assert rows[0]["episodes/cut"] == rows[0]["episodes/cut_by_horizon"] == 1
    assert rows[0]["episodes/cut_by_context"] == 0
    envs = Counter(trace["task"].partition("_")[0] for trace in run.traces if trace["phase"] == "train")
    assert {"reward/success[maze]", "reward/success[counting]"} <= rows[0].keys()
    assert envs
    assert run.table["before"]["n"] == 4


@pytest.mark.parametrize("name", ["agent_ppo", "agent_rloo", "agent_reinforce_pp", "agent_bapo", "agent_gigpo"])
def test_the_others_run_too(tmp_path, settings, counting, name):
    own = {**settings, "data": {"env": "counting", "num_test": 2, "num_validation": 2}, "num_steps": 1}
    if name == "agent_ppo":
        own["value"] = {"warmup_updates": 0}
    run = whet.train(name, out=tmp_path / "run", plugins=[counting], **(own | {"schedule": {}, "max_turns": 2}))
    [row] = [row for row in run.metrics_of("train") if row["step"]]
    assert row["reward/mean"] > 0
    assert ("value/explained" in row) == (name == "agent_ppo")


def steps_of(out, settings, counting, **own):
    """The steps of a short run in one world, each with a single update."""
    least = {
        "data": {"env": "counting", "num_test": 2, "num_validation": 2}, "num_steps": 1, "schedule": {}, "max_turns": 2,
        "learning": {"learning_rate": 1e-3, "minibatch_rows": 12},
    }  # fmt: skip
    run = whet.train("agent_grpo", out=out, plugins=[counting], **(settings | least | own))
    return [row for row in run.metrics_of("train") if row["step"]]


@pytest.fixture(scope="module")
def norms_of(settings, counting, tmp_path_factory):
    """What the gradient of a loss is long in each of two updates on the same episodes, and the metrics of the step."""

    def of(kind):
        learning = {"learning_rate": 1e-3, "minibatch_rows": 12, "num_epochs": 2}
        places = tmp_path_factory.mktemp(kind)
        [one] = steps_of(places / "one", settings, counting, loss={"kind": kind})
        [both] = steps_of(places / "both", settings, counting, loss={"kind": kind}, learning=learning)
        return one["optim/grad_norm"], 2 * both["optim/grad_norm"] - one["optim/grad_norm"], both

    return of


@pytest.fixture(scope="module")
def of_reinforce(norms_of):
    return norms_of("reinforce")


@pytest.mark.parametrize("kind", ["clip", "gspo", "cispo", "sapo", "topr", "m2po", "dppo"])
def test_every_loss_learns_from_episodes(kind, norms_of, of_reinforce):
    """At a ratio of 1 each of them has REINFORCE's gradient; in a second update the ratios, and it, are others."""
    first, second, row = norms_of(kind)
    assert first > 0
    assert first == pytest.approx(of_reinforce[0], rel=1e-4)
    assert second != pytest.approx(of_reinforce[1], rel=1e-3)
    assert isfinite(row["loss/mean"])
    assert row["ratio/q10"] < 0.99 < 1.01 < row["ratio/q90"]
    # GSPO's bounds lie within 0.0004 of 1: after one step of Adam each row is past the bound that its credit pushes to.
    assert (second < 1e-6) == (kind == "gspo")


@pytest.mark.integration
def test_replayed_episodes_are_held_against_the_weights_that_they_are_told_to(tmp_path, settings, counting):
    """Two steps fill the buffer. What is then trained on is two steps old, of which none changed the weights before the
    first update, and one before the second."""
    own = {"num_steps": 4, "off_policy": {"kind": "replay", "staleness": 2}}
    bare, proximal, corrected = (
        steps_of(tmp_path / name, settings, counting, **own, **more)
        for name, more in {
            "bare": {}, "proximal": {"proximal": True},
            "corrected": {"proximal": True, "correction": {"low": 2.0, "high": 3.0}},
        }.items()
    )  # fmt: skip
    for rows in (bare, proximal, corrected):
        assert [row["buffer/batches"] for row in rows] == [1, 2, 2, 2]
        assert [row.get("optim/updates") for row in rows] == [None, None, 1, 1]
        assert [row["staleness/mean"] for row in rows[2:]] == [0, 1]
        assert all(row["optim/grad_norm"] > 0 for row in rows[2:])
    assert [bare[2]["ratio/max"], proximal[2]["ratio/max"]] == pytest.approx([1, 1], abs=1e-4)
    assert bare[3]["ratio/max"] > 1.01
    assert proximal[3]["ratio/max"] == pytest.approx(1, abs=1e-4)
    assert proximal[3]["kl/sampler"] > 1e-4  # what the ratio no longer tells
    # The sampler's weights are still those of the update, so each token's weight of 1 is raised to 2.
    assert corrected[2]["optim/grad_norm"] == pytest.approx(2 * proximal[2]["optim/grad_norm"], rel=1e-4)


def test_a_kl_to_the_first_weights_stands_in_the_loss_or_the_reward(tmp_path, settings, counting):
    """Nothing in the first step, as policy and reference are one; so all three play the same second one."""
    without, in_loss, in_reward = (
        steps_of(tmp_path / name, settings, counting, num_steps=2, kl=kl)
        for name, kl in {
            "without": {}, "loss": {"coef": 0.1, "where": "loss"}, "reward": {"coef": 0.1, "where": "reward"},
        }.items()
    )  # fmt: skip
    assert [rows[0]["kl/ref"] for rows in (in_loss, in_reward)] == pytest.approx([0, 0], abs=1e-6)
    assert in_loss[0]["optim/grad_norm"] == pytest.approx(without[0]["optim/grad_norm"], rel=1e-4)
    assert len({rows[1]["reward/mean"] for rows in (without, in_loss, in_reward)}) == 1
    assert in_loss[1]["kl/ref"] > 1e-3
    assert in_reward[1]["kl/ref"] == pytest.approx(in_loss[1]["kl/ref"], rel=1e-3)
    gained = in_loss[1]["loss/mean"] - without[1]["loss/mean"]
    assert gained == pytest.approx(0.1 * in_loss[1]["kl/ref"], rel=1e-2)
    assert in_reward[1]["loss/mean"] != pytest.approx(without[1]["loss/mean"], rel=1e-2)
    assert "kl/ref" not in without[1]


@pytest.mark.parametrize("env", ["textcraft", "babyai", pytest.param("sciworld", marks=pytest.mark.integration)])
@pytest.mark.parametrize("kind", ["agentgym_rl", "scaling_inter"])
def test_a_published_setting_runs(kind, env, tmp_path):
    """Shrunken. An agent that says nothing readable learns from no reward; what is left is the bonus for entropy."""
    if env == "babyai":
        pytest.importorskip("minigrid")
    if env == "sciworld":
        pytest.importorskip("scienceworld")
        if shutil.which("java") is None:
            pytest.skip("there is no java here")
    grows = kind == "scaling_inter"
    small = {"schedule": {"max_turns": {"kind": "steps", "values": [1, 2], "every": 1}}} if grows else {"max_turns": 2}
    run = whet.train(
        f"{kind}_{env}", out=tmp_path / "run", policy={"path": str(agent_model())}, num_steps=1 + grows,
        data={"num_test": 1, "num_validation": 1}, prompts_per_step=2, group_size=2, sampling={"max_new_tokens": 12},
        evaluation={"max_turns": 1}, num_threads=1, progress=False, **small,
    )  # fmt: skip
    rows = [row for row in run.metrics_of("train") if row["step"]]
    assert [row["turns/mean"] for row in rows] == ([1, 2] if grows else [2])
    for row in rows:
        assert row["group/no_signal"] == 1
        assert row["loss/mean"] == pytest.approx(-0.001 * row["entropy"], rel=1e-3)
        assert row["kl/ref"] == pytest.approx(0, abs=1e-6)
        assert (row["optim/updates"], row["optim/learning_rate"]) == (1, 1e-6)
        assert row["optim/grad_norm"] > 0
    assert run.table["after"]["n"] == 1


def test_single_episodes_cannot_be_compared(tmp_path, settings, counting):
    own = {**settings, "data": {"env": "counting"}, "group_size": 1}
    with pytest.raises(ConfigError, match="compares the episodes of a group"):
        whet.train("agent_grpo", out=tmp_path / "run", plugins=[counting], **own)


@pytest.mark.parametrize("advantage", ["reinforce_pp", "reward"])
def test_states_are_compared_by_what_compares_in_groups(tmp_path, settings, advantage):
    """By others a turn's return would be whitened over the batch, or counted whole a second time."""
    own = {**settings, "data": {"env": "maze"}, "credit": {"per": "gigpo"}, "advantage": advantage}
    with pytest.raises(ConfigError, match=f"compares turns within a group, and advantage = '{advantage}' does not"):
        whet.train("agent_gradient", out=tmp_path / "run", **own)


def test_a_model_to_compare_with_has_a_row_of_its_own(tmp_path, settings, counting):
    """And it is not trained: it plays as it does where it is the policy."""
    own = {**settings, "data": {"env": "counting", "num_test": 2, "num_validation": 2}, "num_steps": 1, "schedule": {},
           "max_turns": 2}  # fmt: skip
    other = {"path": "tiny_agent_early"}
    run = whet.train("agent_grpo", out=tmp_path / "run", plugins=[counting], **own, cloned=other)
    assert list(run.table) == ["before", "after", "last", "cloned"]
    alone = whet.train("agent_grpo", out=tmp_path / "alone", plugins=[counting], **{**own, "policy": other})
    assert run.table["cloned"]["reward"] == alone.table["before"]["reward"] != run.table["before"]["reward"]


@pytest.mark.parametrize(("rate", "measured"), [(1e-30, ["before", "after"]), (1e-3, ["before", "after", "last"])])
def test_rows_of_equal_weights_are_measured_once(tmp_path, settings, counting, monkeypatch, rate, measured):
    """Every validation succeeds alike, so the first one chooses the best weights; the lower rate changes none."""
    asked, measure = [], AgentEvaluator.measured

    def watched(self, *args, label, **options):
        asked.append(label)
        return measure(self, *args, label=label, **options)

    monkeypatch.setattr(AgentEvaluator, "measured", watched)
    own = {**settings, "data": {"env": "counting", "num_test": 2, "num_validation": 2}, "num_steps": 2, "schedule": {},
           "max_turns": 2, "learning": {"learning_rate": rate}}  # fmt: skip
    run = whet.train("agent_grpo", out=tmp_path / "run", plugins=[counting], **own)
    assert [label for label in asked if label != "training"] == measured
    assert list(run.table) == ["before", "after", "last"]
    if "last" not in measured:
        assert run.table["after"] == run.table["last"]
        traces = [trace for trace in run.traces if trace["phase"] == "after"]
        assert [(trace["policy"], trace["step"]) for trace in traces] == [("after", 1)] * 2 + [("last", 2)] * 2


@pytest.mark.integration
def test_models_beside_have_rows_and_the_lead_over_them_is_paired(tmp_path, settings):
    """The policy itself, untrained, leads itself by nothing; the interval is of the items' differences."""
    data = {"env": "textcraft", "groups": ["depth 1"], "num_train": 4, "num_test": 4, "num_validation": 1,
            "settings": {"textcraft": {"max_distractors": 4}}}  # fmt: skip
    own = {**settings, "data": data, "num_steps": 1, "schedule": {}, "max_turns": 2, "validate_every": 5,
           "policy": {"path": "tiny_agent_careless"}, "evaluation": {"max_turns": 8, "num_samples": 2},
           "format": "plain", "sampling": {"max_new_tokens": 24}}  # fmt: skip
    beside = {"more_cloning": {"path": "tiny_agent", "random_weights": 1}, "same": own["policy"]}
    run = whet.train("agent_grpo", out=tmp_path / "run", **own, beside=beside)
    assert list(run.table) == ["before", "after", "last", "more_cloning", "same"]
    shares = {}
    for phase in ("before", "after"):
        for line in (run.folder / "traces" / f"{phase}.jsonl").read_text().splitlines():
            trace = json.loads(line)
            shares.setdefault(trace["policy"], []).append(trace["share"])
    for name in ("before", "more_cloning", "same"):
        differences = [a - b for a, b in zip(shares["after"], shares[name], strict=True)]
        row = run.table[name]
        assert row["lead"] == pytest.approx(fmean(differences))
        assert row["lead"] == pytest.approx(run.table["after"]["success"] - row["success"])
        n, alike = len(differences), len(set(differences)) == 1
        half = 1.96**2 / (n + 1.96**2) if alike else 1.96 * stdev(differences) / n**0.5
        assert row["lead_high"] == pytest.approx(min(1, row["lead"] + half))
    assert run.table["same"]["success"] == run.table["before"]["success"] != run.table["more_cloning"]["success"]
    [closing] = json.loads((run.folder / "summary.json").read_text())["closing"]
    assert "more cloning" in closing
    assert f"{100 * run.table['more_cloning']['lead']:+.1f} points" in closing
    card = (whet.export(run.folder, tmp_path / "export", "same") / "README.md").read_text()
    assert "# same, which a run of agent_gradient holds and has not trained" in card
    assert "as training left them" not in card


def test_the_lead_is_there_for_greedy_episodes_too(tmp_path, settings):
    """One episode an item, whose trace has a score and no share."""
    data = {"env": "textcraft", "groups": ["depth 1"], "num_train": 4, "num_test": 4, "num_validation": 1,
            "settings": {"textcraft": {"max_distractors": 4}}}  # fmt: skip
    own = {**settings, "data": data, "num_steps": 1, "schedule": {}, "max_turns": 1, "validate_every": 5,
           "policy": {"path": "tiny_agent_careless"}, "evaluation": {"max_turns": 8}, "format": "plain",
           "sampling": {"max_new_tokens": 24}}  # fmt: skip
    run = whet.train("agent_grpo", out=tmp_path / "run", **own, beside={"none": {"path": "tiny", "random_weights": 1}})
    assert run.table["after"]["success"] > 0
    assert run.table["none"]["lead"] == run.table["after"]["success"] - run.table["none"]["success"]
    [closing] = json.loads((run.folder / "summary.json").read_text())["closing"]
    assert "paired over 4 items" in closing


@pytest.mark.parametrize("name", ["last", "constant"])
def test_a_model_beside_may_not_take_the_name_of_a_row(tmp_path, settings, name):
    with pytest.raises(ConfigError, match=rf"beside\.{name} has a name that a run needs for itself"):
        whet.train("agent_grpo", out=tmp_path / "run", **settings, beside={name: {"path": "tiny_agent"}})


def test_episodes_that_are_cut_before_their_first_turn_count_and_are_no_failures(tmp_path, settings):
    """Of a room too small for any first prompt: nothing is paid, nothing has failed, and the run says what to do."""
    own = {**settings, "data": {"env": "maze", "num_train": 4, "num_test": 2, "num_validation": 2}, "num_steps": 1,
           "schedule": {}, "max_turns": 2, "max_context": 16}  # fmt: skip
    run = whet.train("agent_grpo", out=tmp_path / "run", **own)
    [row] = [row for row in run.metrics_of("train") if row["step"]]
    assert (row["reward/mean"], row["reward/success"], row["turns/mean"]) == (0, 0, 0)
    assert (row["episodes/cut"], row["episodes/cut_by_context"], row["grader/errors"]) == (1, 1, 0)
    said = [event["message"] for event in run.events if event["event"] == "no_turns"]
    assert said == ["train step 1: no episode came to a turn, as they begin with more than max_context = 16 tokens; "
                    "raise it"]  # fmt: skip
    assert not [event for event in run.events if "grading" in event["message"]]


def test_each_world_has_an_item_in_a_step(tmp_path, settings, counting):
    with pytest.raises(ConfigError, match="prompts_per_step = 1 leaves none for some of the 2"):
        whet.train("agent_grpo", out=tmp_path / "run", plugins=[counting], **(settings | {"prompts_per_step": 1}))
    told = r"prompts_per_step = 24 takes 18 items of maze a step, which has \d+ to train on: lower it"
    with pytest.raises(ConfigError, match=told):
        whet.train("agent_grpo", out=tmp_path / "run", plugins=[counting], **(settings | {"prompts_per_step": 24}))


def budgeted(out, settings, counting, **own):
    """Episodes of counting take two turns, and a step has twelve episodes: the second step is the one that reaches 40.

    Returns: the settings, and the run.
    """
    own = {**settings, "data": {"env": "counting", "num_test": 2, "num_validation": 2}, "schedule": {}, "max_turns": 2,
           "num_steps": 6, "max_env_steps": 40, "validate_every": 5, **own}  # fmt: skip
    return own, whet.train("agent_grpo", out=out, plugins=[counting], **own)


def env_steps(folder):
    return [row["turns/env_steps"] for row in Run.open(folder).metrics_of("train") if row["step"]]


def test_training_ends_with_the_step_that_reaches_its_budget(tmp_path, settings, counting):
    own, run = budgeted(tmp_path / "run", settings, counting)
    assert env_steps(run.folder) == [24, 24]
    assert "validation/success" in run.metrics_of("train")[-1]
    [event] = [each for each in run.events if each["event"] == "budget_spent"]
    assert event["message"] == "train ends: turns/env_steps has come to 48 of 40"
    with pytest.raises(ConfigError, match="max_env_steps = 12 ends training with its first step, which rolls out 12"):
        whet.train("agent_grpo", out=tmp_path / "none", plugins=[counting], **(own | {"max_env_steps": 12}))


class StopAt(Quiet):
    """Ctrl-C at one step of training."""

    def __init__(self, step):
        self.place, self.phase = ("train", step), ""

    def begin(self, phase, done, total):
        self.phase = phase

    def step(self, step, shown):
        if (self.phase, step) == self.place:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("step", [1, 2])
def test_what_a_budget_has_spent_outlives_the_process(tmp_path, settings, counting, step):
    """Stopped before the end or at it, the run goes on to the same end; and more steps leave it nothing to spend."""
    with pytest.raises(Stopped):
        budgeted(tmp_path, settings, counting, progress=StopAt(step))
    assert load_state(newest_first(tmp_path)[0])["spent"] == 24 * step
    resume(tmp_path, Quiet()).go()
    assert env_steps(tmp_path) == [24, 24]
    resume(tmp_path, Quiet(), overrides=["num_steps=8"]).go()
    assert env_steps(tmp_path) == [24, 24]


def test_states_of_turns_survive_a_stop_while_episodes_wait(tmp_path):
    """GiGPO asks which turns began in an equal state, of episodes that a checkpoint held too."""

    class StopsAtOne(Quiet):
        phase = ""

        def begin(self, phase, done, total):
            self.phase = phase

        def step(self, step, shown):
            if (self.phase, step) == ("train", 1):
                signal.raise_signal(signal.SIGINT)

    log = tmp_path / "taken.jsonl"
    log.write_text('{"step": 1, "units": [[0, 1], [1, 1]]}\n{"step": 2, "units": [[2, 1], [3, 1]]}\n')
    settings = ("data.env=textcraft", "off_policy.kind=async", f"off_policy.log={log}", "checkpoint_every=1",
                "num_steps=2", "prompts_per_step=2", "group_size=2", "max_turns=2", "num_threads=1", "data.num_test=1",
                "data.num_validation=1", "evaluation.max_turns=1")  # fmt: skip
    with pytest.raises(Stopped):
        start(config_of("agent_gigpo", *settings), tmp_path / "run", StopsAtOne()).go()
    assert list(newest_first(tmp_path / "run")[0].glob("store/episodes/*.jsonl")), "nothing waited"
    resume(tmp_path / "run", Quiet()).go()
    assert (tmp_path / "run" / "summary.json").exists()
