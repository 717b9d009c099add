"""The solve recipe: presets, pay, credit, off-policy regimes, and what a run of it leaves."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from test_critique_rl import Quiet
from whet.config import ConfigError, check_all_read, load
from whet.grading import make_grader
from whet.models.policy import load_policies
from whet.recipes import opening, session
from whet.recipes.names import METHODS, RECIPES
from whet.recipes.solve import SolveRecipe
from whet.recipes.solve_config import PRESETS, SolveConfig
from whet.recipes.solve_credit import Paid, advantages, credit, pay, reward_metrics
from whet.recipes.solve_rollouts import has_signal
from whet.recipes.solve_rule import bounds_rule, policy_rule
from whet.training.buffers import ReplayQueue, UnfinishedQueue
from whet.training.folder import RunFolder
from whet.training.loop import Run
from whet.types import Grade, Row, Segment

REPLAY = ("off_policy.kind=replay", "off_policy.staleness=1")
SMALL = (
    "num_threads=1", "data.num_train=40", "data.num_validation=8", "data.num_test=8", "num_steps=3",
    "prompts_per_step=4", "group_size=4", "validate_every=2", "evaluation.num_samples=2", "checkpoint_every=1",
    "learning.minibatch_rows=8", "probe_every=1",
)  # fmt: skip


def config_of(preset, *settings):
    return load(SolveConfig, None, [*SMALL, *settings], base=PRESETS[preset])


@pytest.fixture
def recipe(tmp_path):
    """A recipe on the shipped model, with a run that has not begun."""

    def make(preset="grpo", *settings) -> SolveRecipe:
        config = config_of(preset, *settings)
        tasks, _ = session.load_tasks(config.data)
        policies = load_policies({"policy": config.policy})
        run = Run(policies, RunFolder(tmp_path), config.seed, 0, Quiet())
        return SolveRecipe(config, run, tasks, make_grader("chains").grade)

    return make


def a_segment(tokens=(5, 6, 7), *, score=1.0, task="t", stop="eos", version=0):
    return Segment(
        role="solver", policy="policy", context=(1, 2), tokens=tuple(tokens), logprobs=(-0.5,) * len(tokens),
        versions=((version, len(tokens)),), text="x", stop_reason=stop, temperature=1.0, seed=1, parent=None,
        group={"task": task}, grade=Grade(score=score),
    )  # fmt: skip


def go(preset, out, *settings):
    begun = opening.start(config_of(preset, *settings), out, Quiet())
    assert isinstance(begun, session.Session)
    summary = begun.go()
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return summary, [row for row in rows if row["phase"] == "train"]


# --- presets and settings --------------------------------------------------------------------------------------------


def test_every_method_has_a_preset_and_a_line_of_help():
    assert PRESETS.keys() == METHODS.keys()
    assert RECIPES.keys() == {"critique_rl", *METHODS}


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_runs_learns_and_reads_its_settings(preset, tmp_path):
    summary, steps = go(preset, tmp_path / "run", *(["value.warmup_updates=1"] if preset == "ppo" else []))
    assert list(summary["rows"]) == ["before", "best", "last"]
    assert all(row["n"] == 8 and row["k"] == 2 for row in summary["rows"].values())
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
    bapo = bounds_rule(PRESETS["bapo"].loss.bounds)
    assert (bapo.target, bapo.target_as, bapo.order, bapo.contribution) == (0.4, "share", "high_first", "value")
    assert (len(bapo.low.values), len(bapo.high.values)) == (16, 37)
    code = bounds_rule(PRESETS["bapo_code"].loss.bounds)
    assert (code.target, code.target_as, code.order, PRESETS["bapo_code"].loss.dual) == (1.0, "odds", "low_first", 3.0)
    assert (len(code.low.values), len(code.high.values)) == (5, 17)
    dapo = PRESETS["dapo"].loss.bounds
    assert (dapo.low, dapo.high) == (0.8, 1.28)
    assert pay(PRESETS["dapo"], a_segment(range(96))) == 0.0  # right, and as long as can be
    assert pay(PRESETS["dapo"], a_segment(score=0.0)) == -1.0


@pytest.mark.parametrize(
    ("preset", "settings", "sentence"),
    [
        ("grpo", ["group_size=1"], "compares the replies of a group"),
        ("grpo", ["sampling.temperature=0"], "all replies to a problem equal"),
        ("grpo", ["correction.high=2"], "correction needs proximal"),
        ("grpo", ["dialect=english"], "does not fit data.kind"),
        ("dapo", ["off_policy.kind=partial"], "unfinished groups cannot be replaced"),
        ("grpo", ["off_policy.kind=replay", "off_policy.staleness=9", "num_steps=9"], "nothing would ever be trained"),
        ("grpo", ["off_policy.kind=partial", "sampling.stop=[x]"], "might fall on a seam"),
        ("bapo", ["loss.bounds.target=1.5"], "is no share"),
        ("bapo", ["loss.bounds.low.start=0.95"], "is above low.ceiling"),
        ("bapo", ["loss.bounds.high.start=0.9"], "a ratio of 1 is no drift"),
        ("ppo", ["value.warmup_updates=3"], "the policy never learns"),
        ("reinforce", ["group_size=1", "resample=2"], "group_size has to be 2"),
        ("bapo", ["loss.bounds.high.step=1e-9"], "more than 10,000 steps"),
        ("bapo", ["loss.bounds.high.ceiling=inf"], "loss.bounds.high.ceiling"),
        ("grpo", ["learning.betas=[1.5,0.9]"], "learning.betas"),
        ("grpo", ["learning.learning_rate=inf"], "learning.learning_rate"),
        ("grpo", ["loss.kind=clap"], "loss.kind"),
        ("grpo", ["loss.budget=3"], "loss.budget"),
        ("grpo", ["loss.kind=cispo", "loss.bounds.kind=bapo", "loss.bounds.contribution=gradient"], "has no meaning"),
    ],
)
def test_settings_that_make_no_sense_are_refused(preset, settings, sentence):
    with pytest.raises(ConfigError, match=sentence):
        config_of(preset, *settings)


@pytest.mark.parametrize("setting", ["value.gamma=0.9", "kl.estimator=k2"])
def test_settings_without_effect_stop_the_run(setting, tmp_path):
    config = config_of("grpo", setting)
    session.prepare(config, Quiet(), RunFolder(tmp_path))
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        check_all_read(config)


# --- pay and credit ---------------------------------------------------------------------------------------------------


def test_pay_by_hand():
    config = config_of("grpo", "sampling.max_new_tokens=10", "overlong=4")
    assert pay(config, a_segment(range(6))) == 1.0
    assert pay(config, a_segment(range(8))) == 0.5
    assert pay(config, a_segment(range(10), score=0.0)) == -1.0
    signed = config_of("grpo", "signed=true")
    assert (pay(signed, a_segment(score=1.0)), pay(signed, a_segment(score=0.0))) == (1.0, -1.0)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("grpo", [1.499997, -0.499999]),
        ("dr_grpo", [0.75, -0.25]),
        ("rloo", [1.0, -1 / 3]),
        ("reinforce_pp", [2.173067, -0.434613]),
        ("reinforce_pp_baseline", [2.173067, -0.434613]),
        ("reward", [1.0, 0.0]),
    ],
)
def test_spec_f7_advantages(kind, expected):
    config = config_of("grpo", f"advantage={kind}")
    rewards = torch.tensor([1.0, 0, 0, 0])
    mask = torch.arange(6) < torch.tensor([[3], [5], [4], [6]])
    found = advantages(config, rewards, [4], torch.zeros(4, 6), mask)
    assert found[0, 0].item() == pytest.approx(expected[0], abs=2e-6)
    for row, length in zip(found[1:], (5, 4, 6), strict=True):
        assert row[:length].tolist() == pytest.approx([expected[1]] * length, abs=2e-6)
        assert (row[length:] == 0).all()


def test_the_kl_is_part_of_the_reward():
    config = config_of("grpo", "advantage=dr_grpo", "kl.coef=0.5", "kl.where=reward")
    mask = torch.ones(2, 2, dtype=torch.bool)
    kl = torch.tensor([[0.2, 0.2], [0.0, 0.0]])  # costs the first reply 0.2 in all
    assert_rows = advantages(config, torch.tensor([1.0, 0.0]), [2], kl, mask)
    assert assert_rows[:, 0].tolist() == pytest.approx([0.4, -0.4])
    config = config_of("grpo", "advantage=reward", "kl.coef=0.5", "kl.where=reward")
    found = advantages(config, torch.tensor([1.0, 0.0]), [2], kl, mask)
    assert found.tolist() == [pytest.approx([0.8, 0.9]), pytest.approx([0.0, 0.0])]


def test_a_failed_grading_is_no_reward_and_a_lone_reply_has_no_baseline():
    config = config_of("grpo")
    group = [Paid(a_segment((5, i), score=s), s) for i, s in enumerate((1.0, 0.0))]
    earned = credit(config, [group, [Paid(a_segment(task="alone"), 1.0)]], None, None)
    assert [row.group for row in earned.rows] == ["t", "t"]
    assert earned.rows[0].credit[-1] == pytest.approx(-earned.rows[1].credit[-1])
    assert credit(config, [], None, None).rows == []
    assert reward_metrics([[]], config.sampling) == {}


def test_reward_metrics_by_hand():
    groups = [[Paid(a_segment((1, 2), score=1.0), 1.0), Paid(a_segment((1, 2, 3, 4), score=0.0), 0.0)]]
    groups += [[Paid(a_segment(score=0.0), 0.0), Paid(a_segment(score=0.0, stop="length"), 0.0)]]
    found = reward_metrics(groups, config_of("grpo").sampling)
    assert found["reward/mean"] == found["reward/correct"] == 0.25
    assert found["group/no_signal"] == 0.5
    assert (found["group/all_right"], found["group/all_wrong"]) == (0, 0.5)
    assert (found["length/mean"], found["length/good"], found["length/bad"]) == (3, 2, 4)
    assert found["length/truncated"] == 0.25
    assert found["entropy/sampled"] == pytest.approx(0.5)
    assert "entropy/sampled" not in reward_metrics(groups, config_of("grpo", "sampling.top_p=0.9").sampling)
    assert "group/no_signal" not in reward_metrics([[Paid(a_segment(), 1.0)]], config_of("grpo").sampling)
    assert (
        not {"length/good", "length/bad"}
        & reward_metrics([[Paid(a_segment(score=0.1), 0.1)] * 3], config_of("grpo").sampling).keys()
    )  # the mean of three times 0.1 is not 0.1


def test_a_group_has_a_signal_where_scores_differ_whatever_lengths_cost():
    wrong = [a_segment(range(n), score=0.0) for n in (90, 96)]
    config = config_of("dapo")
    assert pay(config, wrong[0]) != pay(config, wrong[1])
    assert not has_signal(wrong)
    assert has_signal([*wrong, a_segment(score=1.0)])


# --- off-policy -------------------------------------------------------------------------------------------------------


def a_row(number, **changes):
    row = Row(
        policy="policy", tokens=(1, 2, number), loss_mask=(False, True, True), credit=(0.0, 0.1 * number, 1 / 3),
        logprobs=(0.0, -math.pi * number, -1e-9), group=f"g{number}", versions=((number, 1), (number + 1, 1)),
    )  # fmt: skip
    return replace(row, **changes)


def test_the_replay_queue_lags_exactly_and_comes_back_from_disk(tmp_path):
    queue = ReplayQueue(2)
    batches = [[a_row(n), a_row(n, logprobs=None, ref_logprobs=(0.0, 1.5, 0.1), versions=())] for n in range(6)]
    given = [queue.exchange(rows) for rows in batches[:4]]
    assert given == [None, None, batches[0], batches[1]]
    queue.save(tmp_path)
    again = ReplayQueue(2)
    again.load(tmp_path)
    assert list(again.batches) == batches[2:4]
    assert [again.exchange(rows) for rows in batches[4:]] == [queue.exchange(rows) for rows in batches[4:]]


def test_an_empty_batch_keeps_its_place_in_the_queue(tmp_path):
    queue = ReplayQueue(1)
    queue.exchange([])
    queue.save(tmp_path)
    queue.load(tmp_path)
    assert queue.exchange([a_row(1)]) == []


def test_unfinished_replies_come_back_from_disk(tmp_path):
    queue = UnfinishedQueue()
    two = (replace(a_segment(version=4), text="a\u2028b"), a_segment())
    queue.groups["3/7 + 5"] = [replace(segment, grade=None) for segment in two]
    queue.save(tmp_path)
    again = UnfinishedQueue()
    again.load(tmp_path)
    assert again.groups == queue.groups


def test_partial_rollout_writes_what_an_unbroken_one_would(recipe):
    """As long as the weights stay as they are; only the seams differ."""
    whole = recipe("grpo").rollouts.whole(1)
    rollouts, queue = recipe("grpo").rollouts, UnfinishedQueue()
    train = rollouts.tasks_of
    rollouts.tasks_of = lambda step: train(1) if step == 1 else []  # nothing new after step 1
    parts = {}
    for step in range(1, 15):
        sampled = rollouts.in_parts(step, queue, budget=7)
        parts |= {task.id: group for task, group in sampled.groups}
    assert sampled.metrics["buffer/unfinished"] == sampled.num_tokens == 0
    assert parts.keys() == {task.id for task, _ in whole.groups}
    for task, group in whole.groups:
        for one, other in zip(group, parts[task.id], strict=True):
            assert (one.tokens, one.text, one.stop_reason) == (other.tokens, other.text, other.stop_reason)
            assert one.versions == other.versions  # one run, as one version wrote it all
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_partial_rollout_keeps_the_version_of_every_token(recipe):
    made, queue = recipe("grpo", "prompts_per_step=2"), UnfinishedQueue()
    done = []
    for step in range(1, 10):
        done += [s for _, group in made.rollouts.in_parts(step, queue, budget=7).groups for s in group]
        made.run.policies["policy"].version += 1
    assert done
    for segment in done:
        assert sum(count for _, count in segment.versions) == len(segment.tokens)
        assert all(count == 7 for _, count in segment.versions[:-1])
        versions = [version for version, _ in segment.versions]
        assert versions == list(range(versions[0], versions[0] + len(versions)))


@pytest.mark.slow
def test_staleness_is_exact(tmp_path):
    """Two updates a step: a batch that waited two steps is 4 updates old at the first of them and 5 at the second."""
    _, steps = go("grpo", tmp_path / "run", "num_steps=6", "off_policy.kind=replay", "off_policy.staleness=2")
    ages = [(row.get("staleness/mean"), row.get("staleness/max"), row.get("staleness/share")) for row in steps[1:]]
    assert ages[:2] == [(None, None, None)] * 2  # filling the queue
    assert ages[2] == (0.5, 1.0, 0.5)  # sampled before anything was learnt
    assert ages[3] == (2.5, 3.0, 1.0)
    assert ages[4:] == [(4.5, 5.0, 1.0)] * 2


@pytest.mark.slow
def test_dynamic_sampling_keeps_groups_with_a_signal(recipe):
    made = recipe("dapo", "resample=5")
    batch = made._collect(1)
    groups = {}
    for row in batch.rows:
        groups.setdefault(row.group, []).append(row)
    assert 0 < len(groups) <= 4
    assert all(any(row.credit[-1] for row in rows) for rows in groups.values())
    assert batch.metrics["group/sampled"] >= len(groups)


def test_dynamic_sampling_never_asks_a_problem_twice_in_a_step(recipe):
    settings = ("resample=50", "data.num_train=10", "prompts_per_step=4", "group_size=2")
    rollouts = recipe("dapo", *settings).rollouts
    names = [task.id for task, _ in rollouts.whole(3).groups]
    assert len(names) == len(set(names)) <= 10
    begun = [task.id for step in range(1, 6) for task in rollouts.tasks_of(step)]
    assert {begun.count(name) for name in begun} == {2}  # 20 places, 10 problems: twice round
    drawn = [[t.id for t in batch] for batch in rollouts.batches_of(2)]
    assert drawn == [[t.id for t in batch] for batch in rollouts.batches_of(2)]
    names = [name for batch in drawn for name in batch]
    assert len(set(names)) == len(names) == 10


def test_more_problems_a_step_than_there_are_is_refused(recipe):
    with pytest.raises(ConfigError, match="more than the 3 training problems"):
        recipe("grpo", "data.num_train=3")


# --- rules ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_token_budget_changes_nothing_about_the_bounds(tmp_path):
    """One search over all of an update's tokens, however many passes they take."""
    settings = [*REPLAY, "num_steps=4", "learning.learning_rate=3e-3"]
    _, whole = go("bapo", tmp_path / "whole", *settings, "learning.token_budget=100000")
    _, split = go("bapo", tmp_path / "split", *settings, "learning.token_budget=64")
    names = ("bounds/low", "bounds/high", "bounds/moves", "balance/share", "optim/grad_norm")
    pairs = [(a[n], b[n]) for a, b in zip(whole[:3], split[:3], strict=True) for n in names if n in a]
    assert pairs
    assert all(a == pytest.approx(b, rel=2e-3) for a, b in pairs)


@pytest.mark.slow
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


def chosen_by(preset, ratios, credit, *settings):
    choose = policy_rule(config_of(preset, *settings), 1).choose
    return choose(torch.tensor(ratios).log(), torch.zeros(len(ratios)), torch.tensor(credit))


def test_searches_that_can_reach_no_token_are_not_counted():
    bounds, metrics = chosen_by("bapo", [1.1, 0.95, 1.19], [1.0, -3.0, -1.0])
    assert (bounds["low"], bounds["high"]) == (0.9, 3.0)  # it ran out, to no effect
    assert metrics == {"bounds/in_reach": 0.0}
    _, metrics = chosen_by("bapo", [1.1, 0.89, 1.19], [1.0, -3.0, -1.0])
    assert (metrics["bounds/in_reach"], metrics["bounds/exhausted"], metrics["bounds/settled"]) == (1, 1, 0)
    _, metrics = chosen_by("bapo", [1.5, 0.89], [1.0, -2.0])  # 1.2 / 2.98 = 0.403: met where it starts
    assert (metrics["bounds/moves"], metrics["bounds/exhausted"], metrics["bounds/settled"]) == (0, 0, 0)
    _, metrics = chosen_by("bapo", [1.5, 0.89], [1.0, -2.2])  # 1.3 / (1.3 + 1.958) = 0.399, and 1.35 is enough
    assert (metrics["bounds/moves"], metrics["bounds/exhausted"], metrics["bounds/settled"]) == (3, 0, 1)


def test_tokens_can_weigh_by_their_probability():
    choose = policy_rule(config_of("bapo", "loss.bounds.token_weight=old"), 1).choose
    old = torch.tensor([0.5, 0.1]).log()
    _, metrics = choose(old + torch.tensor([1.5, 0.89]).log(), old, torch.tensor([1.0, -2.2]))
    assert metrics["bounds/start_share"] == pytest.approx(1.2 * 0.5 / (1.2 * 0.5 + 0.89 * 2.2 * 0.1))


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
def test_the_plan_says_where_a_loss_has_nothing_to_act_on(preset, settings, idle, recipe):
    assert any("no bound, gate or weight" in line for line in recipe(preset, *settings).plan()) == idle


def test_the_rule_asks_for_rows_without_credit_only_where_they_count():
    assert policy_rule(config_of("grpo"), 1).needs_credit
    assert not policy_rule(config_of("grpo", "kl.coef=0.1"), 1).needs_credit
    assert policy_rule(config_of("dr_grpo"), 1).constant_length == 96
