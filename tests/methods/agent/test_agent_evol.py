"""AgentEvol: what is demonstrated, explored, kept and merged, round by round, and where a round starts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from support.agent_model import agent_model
from support.benches import method_of, phases_of
from support.commands import config_of
from support.explored import explored_episode
from support.sessions import finished
from whet.config import ConfigError
from whet.envs import ENVIRONMENTS
from whet.envs.formats import write
from whet.envs.maze import Maze
from whet.methods.agent.evolution import COUNTS, item_of
from whet.methods.agent.rollouts import AgentRollouts
from whet.tasks.files import DataError
from whet.trajectories.files import write_trajectories
from whet.trajectories.records import Message, Trajectory, conversation

SMALL = (
    f"policy.path={agent_model()}", "data.env=maze", "data.num_train=8", "data.num_validation=2", "data.num_test=2",
    "evaluation.max_turns=2", "max_turns=2", "sampling.max_new_tokens=8", "rules=none", "num_threads=1",
    "items_per_step=3", "num_rounds=2", "num_epochs=1", "rows_per_step=4", "validate_every=100", "traces_per_step=1",
)  # fmt: skip
ALL_KEPT = "kept_above.maze=-1000"
"""A model with random weights has no success."""


def settings(*more):
    return config_of("agent_evol", *SMALL, *more)


@pytest.fixture
def made(tmp_path):
    return lambda *more: method_of(settings(*more), tmp_path)


# --- the worked example -----------------------------------------------------------------------------------------------

FIRST = [
    [explored_episode("textcraft", 1, 1.0), explored_episode("textcraft", 1, 1.0)],
    [explored_episode("textcraft", 2, 0.0)],
    [explored_episode("sciworld", 3, 100.0)],
    [explored_episode("sciworld", 4, 99.0)],
    [explored_episode("babyai", 5, 0.2)],
    [explored_episode("babyai", 6, 0.0)],
    [explored_episode("webshop", 7, 0.99)],
]
SECOND = [[explored_episode("textcraft", 10 + item, 1.0)] for item in range(4)]


def evolving(made, *more):
    """With two demonstrations, in the worlds of the example; webshop is nobody's that is listed here."""
    method = made(*more)
    maze = ENVIRONMENTS.get("maze")
    method.rollouts.infos = {name: ENVIRONMENTS.get(name) for name in ("textcraft", "sciworld", "babyai")}
    method.rollouts.infos["webshop"] = replace(maze, name="webshop")
    method.rounds.base = method.base[:2]
    return method


def took(method, number, groups):
    return [method.rounds.take(number, group, method._weights(group)) for group in groups]


@pytest.mark.parametrize(
    ("merge", "first", "second"), [("base", 5, 6), ("previous", 5, 7), ("cumulative", 5, 9), ("none", 3, 4)]
)
def test_the_filter_is_strict_and_the_merges_have_as_many_as_they_should(made, merge, first, second):
    method = evolving(made, "keep=first", f"merge={merge}")
    assert took(method, 1, FIRST) == [1, 0, 1, 0, 1, 0, 0]
    kept = {name: counts["kept"] for name, counts in method.rounds.manifest(1).items() if counts["kept"]}
    assert kept == {"textcraft": 1, "sciworld": 1, "babyai": 1}
    assert len(method.rounds.merged(1)) == first
    method.rounds.begin(2)
    assert sum(took(method, 2, SECOND)) == 4
    assert len(method.rounds.merged(2)) == second


def test_every_success_of_an_item_is_kept_where_that_is_asked(made):
    assert took(evolving(made, "keep=all"), 1, FIRST)[0] == 2


def test_a_threshold_of_ones_own_stands_in_place_of_the_environments(made):
    method = evolving(made, "keep=first", "kept_above.maze=5")
    method.config = method.config.model_copy(update={"kept_above": {"webshop": 0.5, "babyai": 0.5}})
    assert took(method, 1, FIRST) == [1, 0, 1, 0, 0, 0, 1]


def test_a_reward_weighs_on_its_environments_scale(made):
    method = evolving(made, "weighting=reward")
    groups = [[explored_episode("sciworld", 1, 60.0)], [explored_episode("sciworld", 2, -100.0)],
              [explored_episode("babyai", 3, 0.2)], [explored_episode("babyai", 4, None)]]  # fmt: skip
    assert [method._weights(group) for group in groups] == [[0.6], [0.0], [0.2], [0.0]]
    assert took(method, 1, groups) == [1, 0, 1, 0]
    assert method.rounds.manifest(1)["babyai"] == {"explored": 2, "failed": 1, "kept": 1, "merged": 1}
    credit = [row.credit.tolist() for rows in method.rounds.merged(1)[2:] for row in rows]
    assert credit == [[pytest.approx(0.6)] * 2, [pytest.approx(0.2)] * 2]


def test_normalised_weights_are_the_rows_credit(made):
    method = evolving(made, "weighting=self_normalised", "group_size=2")
    took(method, 1, [[explored_episode("babyai", 3, 0.2), explored_episode("babyai", 3, 0.6)]])
    assert [rows[0].credit[0] for rows in method.rounds.merged(1)[2:]] == pytest.approx([0.25, 0.75])


# --- demonstrations ---------------------------------------------------------------------------------------------------


def test_experts_demonstrate_a_part_and_everything_is_explored(made):
    method = made("base_share=0.25")
    assert len(method.base) == 2
    assert {item_of(task) for task in method.pool} == {item_of(task) for task in method.run.tasks["train"]}
    assert phases_of(method)["explore_1"].num_steps == 3  # 8 items by 3


def test_what_was_demonstrated_can_be_left_out_of_what_is_explored(made):
    method = made("base_share=0.25", "explore=beyond")
    assert len(method.pool) == 6
    with pytest.raises(ConfigError, match="explore = all"):
        made("base_share=1", "explore=beyond")


def test_without_demonstrations_the_model_explores_as_it_is(made):
    phases = phases_of(made("base_share=0"))
    assert list(phases)[:3] == ["before", "explore_1", "merge_1"]


def test_a_round_may_be_a_part_of_the_items(made):
    method = made("num_explored=5", "test_rounds=False")
    found = phases_of(method)
    assert found["explore_1"].num_steps == 2
    assert "base" not in found, "False is false"
    assert method._batches(1) != method._batches(2)


def episode(item_id, *, loss=(False, True, True)):
    actions = ["move up", "move down"]
    if not item_id.startswith("lmrlgym_maze"):  # of other worlds ReAct is read
        actions = [write("I go.", action) for action in actions]
    messages = conversation("rules", ["a maze", "you moved", "done"], actions)
    places = {1: loss[0], 3: loss[1], 5: loss[2]}
    said = tuple(Message(m.who, m.text, places.get(i)) if m.who == "gpt" else m for i, m in enumerate(messages))
    return Trajectory(item_id=item_id, messages=said)


def test_demonstrations_of_files_honour_their_loss_and_may_be_of_any_world(made, tmp_path):
    file = tmp_path / "shown.json"
    shown = [episode("lmrlgym_maze_1"), episode("tool_academia_0"), episode("tool_sheet_0", loss=(False, False, True)),
             episode("lmrlgym_maze_2", loss=(True, True, True))]  # fmt: skip
    write_trajectories(file, shown)
    method = made(f"trajectories=[{file}]", "rules=own")
    [rows, *others] = [group[0] for group in method.base]
    assert [row.kind for row in (rows, *others)] == ["maze", "academia", "sheet", "maze"]
    academia, report_spec, promised = (row.num_trained for row in others)
    assert 0 < report_spec < academia, "one reply trains, and then two do"
    assert 0 < rows.num_trained < promised, "the promise trains where the file says so alone"


def test_a_text_is_no_flag(made, tmp_path):
    file = tmp_path / "shown.json"
    rows = [{"item_id": "maze_1", "conversations": [{"from": "human", "loss": "False", "value": "x"}] * 3}]
    file.write_text(json.dumps(rows))
    with pytest.raises(DataError, match="true, false or null"):
        made(f"trajectories=[{file}]")


# --- what cannot be meant ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("group_size=2", "sampling.temperature=0"), "alike"),
        (("weighting=self_normalised",), "group_size of 2"),
        (("weighting=self_normalised", "group_size=2", "keep=first"), "keep = all"),
        (("merge=False",), "merge"),
        (("test_rounds=maybe",), "test_rounds"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given, says):
    with pytest.raises(ConfigError, match=says):
        settings(*given)


def test_a_threshold_of_a_world_that_is_not_played_is_refused(made):
    with pytest.raises(ConfigError, match="kept_above names textcraft"):
        made("kept_above.textcraft=0.5")


# --- whole runs -------------------------------------------------------------------------------------------------------


def weights_of(policy):
    return policy.causal_lm.model.norm.weight


@pytest.mark.parametrize("start", ["initial", "last"])
def test_a_round_starts_from_the_first_model_or_from_the_one_that_explored(made, start):
    method = made(f"start={start}")
    before = weights_of(method.run.loop.policies["policy"]).clone()
    method._remember()
    with torch.no_grad():
        weights_of(method.run.loop.policies["policy"]).mul_(0.5)
    method._begin(1)
    method._restart()
    assert torch.equal(weights_of(method.run.loop.policies["policy"]), before) is (start == "initial")


def test_rounds_from_start_to_end(tmp_path):
    session = finished("agent_evol", *SMALL, ALL_KEPT, "group_size=2", "keep=first", folder=tmp_path)
    done = {each.name: each.num_steps for each in session.loop.done}
    assert list(done) == [
        *("before", "clone", "base", "explore_1", "merge_1", "learn_1", "round_1"),
        *("explore_2", "merge_2", "learn_2", "round_2", "after"),
    ]
    counts = {"maze": {"explored": 16, "failed": 0, "kept": 8, "merged": 10}}
    assert session.loop.found["merge_1"] == session.loop.found["merge_2"] == counts
    assert done["learn_1"] == 3  # 10 episodes once, by 4
    rounds = json.loads((tmp_path / "rounds.json").read_text())
    assert rounds == [{"round": number, "episodes": counts} for number in (1, 2)]
    [row] = [each for each in session.loop.folder.read_metrics() if each["phase"] == "merge_2"]
    assert {name: row[f"round/{name}"] for name in COUNTS} == counts["maze"]
    assert list(session.algorithm.evaluator.summary()) == ["before", "base", "round_1", "round_2", "after", "last"]


def test_a_world_that_breaks_down_pays_nothing_and_is_counted(tmp_path, monkeypatch):
    plain = Maze.reset

    def breaking(self, item, *, seed=0):
        if item % 2:
            raise RuntimeError("the walls fell down")
        return plain(self, item, seed=seed)

    monkeypatch.setattr(Maze, "reset", breaking)
    monkeypatch.setattr(AgentRollouts, "conversations", lambda self: [])
    more = ("num_rounds=1", "base_share=0", "faults.budget=1", "faults.retries=0", "test_rounds=false", ALL_KEPT)
    session = finished("agent_evol", *SMALL, *more, folder=tmp_path)
    num_odd = sum(task.info["item"] % 2 for task in session.algorithm.pool)
    assert 0 < num_odd < 8
    kept = 8 - num_odd
    assert session.loop.found["merge_1"]["maze"] == {"explored": 8, "failed": num_odd, "kept": kept, "merged": kept}
    rows = [row for row in session.loop.folder.read_metrics() if row["phase"] == "explore_1"]
    assert sum(row["episodes/failed"] for row in rows) == num_odd
    assert all(row["kept/share"] is not None for row in rows)


def test_a_horizon_goes_on_from_round_to_round(tmp_path):
    """Three steps of exploring in each of two rounds: the fourth is the first of round 2."""
    more = ("schedule.max_turns={kind: steps, values: [1, 2, 3], every: 2}", "test_rounds=false", ALL_KEPT)
    own = [setting for setting in SMALL if not setting.startswith("max_turns")]
    session = finished("agent_evol", *own, *more, folder=tmp_path)
    rows = [row for row in session.loop.folder.read_metrics() if row["phase"].startswith("explore")]
    assert [row["turns/horizon"] for row in rows] == [1, 1, 2, 2, 3, 3]
    assert all(row["turns/mean"] <= row["turns/horizon"] for row in rows)
    assert [row["episodes/cut_by_horizon"] for row in rows] == [row["episodes/cut"] for row in rows]
    assert rows[0]["episodes/cut_by_horizon"] == 1  # nobody is through a maze in one turn


def test_a_gate_that_has_opened_stays_open_in_the_next_round(tmp_path):
    """It opens after each step that logs a reward above -1: those of exploring, three a round."""
    horizon = "{kind: gated, values: [1, 2, 3, 4, 5, 6], metric: reward/mean, above: -1, patience: 1}"
    own = [setting for setting in SMALL if not setting.startswith("max_turns")]
    more = (f"schedule.max_turns={horizon}", "test_rounds=false", ALL_KEPT)
    session = finished("agent_evol", *own, *more, folder=tmp_path)
    rows = [row for row in session.loop.folder.read_metrics() if row["phase"].startswith("explore")]
    assert [row["turns/horizon"] for row in rows] == [1, 2, 3, 4, 5, 6]


def test_where_nothing_is_learnt_at_all_the_agent_stays_as_it_is(tmp_path):
    finished("agent_evol", *SMALL, "num_rounds=1", "base_share=0", "test_rounds=false", folder=tmp_path)
    rows = json.loads((tmp_path / "summary.json").read_text())["rows"]
    assert rows["before"] == rows["after"] == rows["last"]


def test_a_run_that_keeps_nothing_and_merges_nothing_says_so_and_goes_on(tmp_path):
    session = finished("agent_evol", *SMALL, "num_rounds=1", "merge=none", "test_rounds=false", folder=tmp_path)
    assert [each.name for each in session.loop.done] == ["before", "clone", "explore_1", "merge_1", "after"]
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert "nothing_kept" in {each["event"] for each in events}
