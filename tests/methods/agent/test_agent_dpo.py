"""DPO of an agent: which episodes make a pair, on which tokens, and what the first update sees."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest

from support.commands import config_of
from support.sessions import finished, session_of
from whet.config import ConfigError, check_all_read
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.textcraft.environment import TextCraft
from whet.methods.agent import cloning
from whet.methods.environment_tasks import rules_of
from whet.models.places import OURS
from whet.rollout.roles import PolicyRole
from whet.tasks.files import DataError
from whet.trajectories.experts import expert_trajectories
from whet.trajectories.masks import sft_row
from whet.trajectories.preferences import preference_pairs, write_pairs
from whet.trajectories.records import FIRST_OBSERVATION, Trajectory

SMALL = (
    "data.env=textcraft", "data.num_train=12", "data.num_validation=2", "data.num_test=2", "evaluation.max_turns=3",
    "max_turns=4", "num_threads=1", "items_per_step=8", "num_explored=8", "group_size=3", "num_epochs=1",
    "pairs_per_step=50", "validate_every=100", "learning.minibatch_rows=100",
)  # fmt: skip

EVOL = (*SMALL[:8], "num_explored=3", "group_size=2", "rows_per_step=16", "num_epochs=1", "validate_every=100")


def collected(*more):
    """The pairs of a step of exploring, and its metrics."""
    method = session_of("agent_dpo", *SMALL, *more).algorithm
    batch = method._explore(1, 1)
    return method, list(method.pairs.batches.values()), batch.metrics


def test_an_experts_episode_and_the_policys_own_begin_alike_and_the_better_one_is_first():
    method, pairs, metrics = collected()
    assert len(pairs) >= 4
    assert metrics["pair/made"] == len(pairs) / 24
    assert metrics["pair/made"] == pytest.approx(1 - metrics["reward/success"])  # a success beside a success is no pair
    tokenizer = method.run.loop.policies["policy"].tokenizer
    for better, worse in pairs:
        assert (better.credit[0], worse.credit[0]) == (1, -1)
        assert np.array_equal(better.tokens[: better.trains[0]], worse.tokens[: worse.trains[0]])
        last = tokenizer.decode(better.tokens[-20:])
        assert "Crafted" in last  # the expert's episode ends where the goal is made
        assert better.ref_logprobs is not None
        assert len(better.ref_logprobs) == better.num_trained


def test_an_episode_that_trains_as_several_rows_makes_a_pair(monkeypatch):
    """Where the history is written anew after each turn, as some chat templates do: nothing is left out, and a side's
    log ratio is the sum over all that the agent wrote."""
    _, whole, _ = collected()
    plain = PolicyRole.begin

    def anew(*given, **more):
        found = plain(*given, **more)
        return replace(found, prefix=None, added=found.context)

    monkeypatch.setattr(PolicyRole, "begin", anew)
    _, broken, metrics = collected()
    assert metrics["turns/broken"] == 1
    assert len(broken) == len(whole)
    assert max(map(len, broken)) > 2
    for one, pieces in zip(whole, broken, strict=True):
        better, worse = one
        assert np.array_equal(pieces[0].tokens, better.tokens)
        assert sum(row.num_trained for row in pieces[1:]) == worse.num_trained
        assert sum(row.share for row in pieces[1:]) == pytest.approx(1)
        total = sum(float(row.ref_logprobs.sum()) for row in pieces[1:])
        assert total == pytest.approx(float(worse.ref_logprobs.sum()), abs=1e-3)


def test_of_its_own_episodes_the_best_is_held_against_the_worst():
    _, pairs, metrics = collected("against=own", "group_size=6")
    assert 0 < len(pairs) <= 8
    assert metrics["pair/made"] == len(pairs) / 8


def test_no_pair_is_better_than_nothing_below_the_threshold():
    _, pairs, metrics = collected("against=own", "max_turns=1", "data.env=textcraft", "threshold=1", "reward_gap=1")
    assert all(len(pair) == 2 for pair in pairs)
    assert metrics["pair/made"] <= metrics["reward/success"] * 3  # at least one success of three in each


def test_at_the_first_update_policy_and_reference_are_one(tmp_path):
    """So the loss of every pair is -log sigmoid(0) = log 2. In a further round, too: what explores is its reference."""
    finished("agent_dpo", *SMALL, "num_rounds=2", "against=own", "threshold=0", folder=tmp_path)
    first, second = learnt(tmp_path)
    for row in (first, second):
        assert row["loss/mean"] == pytest.approx(math.log(2), abs=1e-4)
        assert row["pair/margin"] == pytest.approx(0, abs=1e-3)
    assert (first["phase"], second["phase"]) == ("learn_1", "learn_2")
    assert first["optim/grad_norm"] > 0


def test_each_pair_is_learnt_as_often_as_any(tmp_path):
    """Six pairs in batches of four, three times: four steps and a half, so five; in each of them whole pairs."""
    write_pairs(tmp_path / "pairs.json", textcraft_pairs())
    files = (f"pairs=[{tmp_path / 'pairs.json'}]", "pairs_per_step=4", "num_epochs=3")
    session = finished("agent_dpo", *of_files(), *files, folder=tmp_path / "run")
    assert len(learnt(tmp_path / "run")) == 5
    drawn = [session.algorithm._drawn("learn", step).rows for step in (1, 2, 3)]
    seen = Counter(row.tokens.tobytes() for rows in drawn for row in rows)
    assert set(seen.values()) == {2}
    for rows in drawn:
        assert [row.bundle for row in rows[::2]] == [row.bundle for row in rows[1::2]]
        assert {row.credit[0] for row in rows[::2]} == {1}
        assert {row.credit[0] for row in rows[1::2]} == {-1}


@pytest.mark.integration
@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("agent_dpo", (*SMALL, "num_rounds=2", "num_explored=3")),
        ("agent_dpo", (*SMALL, "against=own", "group_size=6", "num_explored=3")),
        ("agent_evol", (*EVOL, "num_rounds=2", "merge=cumulative")),
        ("agent_evol", (*EVOL, "num_rounds=2", "merge=previous", "keep=first")),
    ],
)
def test_phases_come_to_no_more_steps_than_the_plan_says(method, more, tmp_path):
    session = finished(method, *more, folder=tmp_path)
    most = {phase.name: phase.num_steps for phase in session.algorithm.later()}
    done = {phase.name: phase.num_steps for phase in session.loop.done if phase.name in most}
    assert len(done) == len(most)
    for name, num_steps in done.items():
        if name.startswith("learn"):
            assert 0 < num_steps <= most[name]
        else:
            assert num_steps == most[name]


def test_where_no_pair_is_made_the_agent_stays_as_it_is(tmp_path):
    finished("agent_dpo", *SMALL, "against=own", "reward_gap=1", "max_turns=1", "num_explored=1", folder=tmp_path)
    assert learnt(tmp_path) == []
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["phase"] for event in events if event["event"] == "no_pairs"] == ["explore_1"]
    table = json.loads((tmp_path / "summary.json").read_text())["rows"]
    assert table["after"] == table["before"]


def learnt(run):
    """The metrics of its steps of training."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["phase"].startswith("learn") and row["step"] > 0]


def of_files():
    """`SMALL` without what is of play."""
    episodes = ("max_turns", "group_size", "items_per_step", "num_explored", "num_epochs", "pairs_per_step")
    return [setting for setting in SMALL if setting.split("=")[0] not in episodes]


def textcraft_pairs(num=6):
    """The expert's episode of items, and its first reply alone."""
    info = ENVIRONMENTS.get("textcraft")
    made = expert_trajectories(info, info.splits()["train"], rules=rules_of(info).text, seed=0)
    experts = list(islice((each for each in made if len(each.messages) > 6), num))  # of two replies and more
    worse = [
        Trajectory(item_id=each.item_id, messages=(*each.messages[:4], *each.messages[-1:]), reward=0.0)
        for each in experts
    ]
    return preference_pairs(experts, worse)


def test_pairs_of_files_are_learnt_on_the_mask_of_cloning(tmp_path):
    made = textcraft_pairs()
    write_pairs(tmp_path / "pairs.json", made)
    files = (f"pairs=[{tmp_path / 'pairs.json'}]", "pairs_per_step=6", "num_epochs=6", "learning.learning_rate=1e-4")
    session = finished("agent_dpo", *of_files(), *files, folder=tmp_path / "run")
    method, policy = session.algorithm, session.loop.policies["policy"]
    assert len(method.given) == len(made) == 6
    for ((chosen,), _), pair in zip(method.given, made, strict=True):
        run = pair.runs()[0]
        shown = Trajectory(item_id=run.item_id, messages=run.messages[FIRST_OBSERVATION:])
        mask = sft_row(shown, policy.tokenizer).mask
        assert np.flatnonzero(mask).tolist() == chosen.trains.tolist()
    rows = learnt(tmp_path / "run")
    assert rows[0]["pair/margin"] == pytest.approx(0, abs=1e-5)
    assert rows[-1]["pair/margin"] > 0.01
    assert rows[-1]["pair/right"] == 1


def test_the_better_episodes_may_be_learnt_for_themselves(tmp_path):
    """With no preference to speak of (beta near 0), the likelihood alone is left: it grows, and by its own weight."""
    write_pairs(tmp_path / "pairs.json", textcraft_pairs())
    more = (f"pairs=[{tmp_path / 'pairs.json'}]", "pairs_per_step=6", "num_epochs=4", "learning.learning_rate=1e-4")
    session = finished("agent_dpo", *of_files(), *more, "beta=1e-6", "likelihood=0.5", folder=tmp_path / "run")
    rows = learnt(tmp_path / "run")
    better = [pair[0] for pair in session.algorithm.pairs.batches.values()]
    first = -np.concatenate([row.ref_logprobs for row in better]).mean()  # of the model as it was
    assert rows[0]["better.loss/nll"] == pytest.approx(first, rel=1e-3)
    assert rows[0]["loss/mean"] == pytest.approx(math.log(2) + 0.5 * first, abs=1e-5)
    assert rows[-1]["better.loss/nll"] < 0.99 * first


def test_a_file_whose_pairs_are_all_too_long_is_refused(tmp_path):
    write_pairs(tmp_path / "pairs.json", textcraft_pairs(2))
    with pytest.raises(DataError, match="no pair of episodes of at most max_context = 20 tokens"):
        session_of("agent_dpo", *of_files(), f"pairs=[{tmp_path / 'pairs.json'}]", "max_context=20")


def test_a_pair_of_which_nothing_trains_is_refused(tmp_path):
    [pair] = textcraft_pairs(1)
    silent = replace(pair, chosen=tuple(replace(message, loss=False) for message in pair.chosen))
    write_pairs(tmp_path / "pairs.json", [silent])
    with pytest.raises(DataError, match=f"the pair of {pair.item_id}: in one of its episodes nothing trains"):
        session_of("agent_dpo", *of_files(), f"pairs=[{tmp_path / 'pairs.json'}]")


def test_a_file_without_pairs_is_refused_and_equal_episodes_are_told(tmp_path):
    (tmp_path / "none.json").write_text("[]")
    with pytest.raises(DataError, match=r"none\.json: no pair of episodes to learn from"):
        session_of("agent_dpo", *of_files(), f"pairs=[{tmp_path / 'none.json'}]")
    [pair] = textcraft_pairs(1)
    write_pairs(tmp_path / "same.json", [replace(pair, rejected=pair.chosen)])
    method = session_of("agent_dpo", *of_files(), f"pairs=[{tmp_path / 'same.json'}]").algorithm
    assert "in 1 pairs both episodes are the same, which teaches nothing" in method.run.warnings


def test_a_template_that_takes_no_experts_episode_is_refused_before_anything_is_played(tmp_path):
    """One that drops what was thought in earlier turns: the expert's episode cannot be one row of what a turn read."""
    place = shutil.copytree(OURS["tiny_agent_early"], tmp_path / "drops")
    template = (place / "chat_template.jinja").read_text()
    assert "message['content']" in template
    (place / "chat_template.jinja").write_text(template.replace("message['content']", "message['content'][-40:]"))
    with pytest.raises(ConfigError, match=r"against = expert: .* in other words than its own; .* or set against = own"):
        session_of("agent_dpo", *SMALL, f"policy.path={place}")
    session_of("agent_dpo", *SMALL, f"policy.path={place}", "against=own")


def test_a_world_without_an_expert_is_refused_before_anything_is_played(tmp_path):
    file = tmp_path / "silent.py"
    file.write_text(WORLD)
    with pytest.raises(ConfigError, match="against = expert, and silent has no scripted expert: set against = own"):
        session_of("agent_dpo", f"plugins=[{file}]", "data.env=silent", "num_threads=1")


WORLD = (
    "import whet\n"
    "@whet.env('silent', splits={'train': range(20), 'test': range(20, 24)}, max_turns=2, parser='plain')\n"
    "class Silent:\n"
    "    def reset(self, item, *, seed=0):\n"
    "        return 'go', {}\n"
    "    def step(self, action):\n"
    "        return 'on', 1.0, True, False, {}\n"
)


def test_an_expert_whose_world_fails_makes_no_pair(monkeypatch):
    """And the others do, in a new world; that of the policy is another, which goes on."""
    plain, num, most = TextCraft.reset, [], 6  # three items, each begun again once

    def failing(self, item, *, seed=0):
        if getattr(self, "is_experts", False) and len(num) < most:
            num.append(item)
            raise OSError("no room left")
        return plain(self, item, seed=seed)

    info = ENVIRONMENTS.get("textcraft")

    def make(**settings):
        env = info.make(**settings)
        env.is_experts = True
        return env

    monkeypatch.setattr(TextCraft, "reset", failing)
    method = session_of("agent_dpo", *SMALL, "threshold=0").algorithm
    made = method._explore(1, 1).metrics["pair/made"]
    again = session_of("agent_dpo", *SMALL, "threshold=0").algorithm
    monkeypatch.setattr(cloning, "expert_trajectories", partial(_of, make))
    metrics = again._explore(1, 1).metrics
    assert (metrics["expert/failed"], len(num)) == (3, 6)
    assert made > 0
    assert {row.tokens.tobytes() for pair in again.pairs.batches.values() for row in pair} < {
        row.tokens.tobytes() for pair in method.pairs.batches.values() for row in pair
    }
    num.clear()
    with pytest.raises(EnvError, match="its expert failed at it: OSError: no room left"):
        list(_of(make, info, [0], rules="", seed=0))
    num.clear()
    [plain_one] = expert_trajectories(info, [0], rules="", seed=0)
    assert list(_of(make, info, [0], rules="", seed=0, retries=most)) == [plain_one]


def _of(make, info, items, **more):
    return expert_trajectories(replace(info, make=make), items, **more)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("learning.minibatch_rows=7",), "even number"),
        (("against=own", "group_size=1"), "group_size to 2 or more"),
        (("sampling.temperature=0",), "makes all episodes of an item alike"),
    ],
)
def test_settings_that_make_no_pairs_are_refused(given, says):
    with pytest.raises(ConfigError, match=says):
        config_of("agent_dpo", *given)


@pytest.mark.parametrize(
    ("method", "settings", "says"),
    [
        ("agent_dpo", ("group_size=3", "pairs=[PAIRS]"),
         "group_size has no effect: pairs are read from files, and none is rolled out. Leave pairs out, or leave gr"),
        ("agent_dpo", ("pairs=[PAIRS]", "schedule.max_turns={kind: linear, start: 1, end: 3, over: 4}"),
         r"schedule\.max_turns has no .* none is rolled out\. Leave .* \(evaluation\.max_turns"),
        ("agent_critic", ("of=action", "critic.kind=rule", "max_turns=3", "again=always"),
         "of is action, and a critic of actions is not trained.* again has no effect: of is action. Set of to attempt"),
        ("agent_clone", ("max_turns=3",), r"no episode is rolled out to learn from\. .*\(evaluation\.max_turns limit"),
        ("agent_critic", ("critic.kind=rule", "max_turns=3", "stage1.num_steps=3"),
         r"max_turns has no .* critic\.kind is rule.* \(evaluation\.max_turns limits.* stage1\.num_steps has no"),
    ],
)  # fmt: skip
def test_a_setting_without_effect_is_told_why(method, settings, says, tmp_path):
    write_pairs(tmp_path / "pairs.json", textcraft_pairs(2))
    given = [each.replace("PAIRS", str(tmp_path / "pairs.json")) for each in settings]
    with pytest.raises(ConfigError, match=says):
        check_all_read(session_of(method, "data.env=textcraft", "num_threads=1", *given).algorithm.config)
