"""From environments to tasks: splits, lists of items, settings that change the items, rules in each action format."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from support.sessions import session_of
from whet.config import ConfigError, check_all_read
from whet.config.environment_data import EnvironmentData
from whet.config.reads import read_all
from whet.envs import ENVIRONMENTS
from whet.envs.formats import PARSERS
from whet.methods.environment_tasks import ENVIRONMENT, format_of, load_environment_tasks, rules_of
from whet.methods.registry import config_of
from whet.registry import UnknownName
from whet.rollout.agent import ITEM


def items(problems, split, name):
    return [task.info[ITEM] for task in problems.tasks[split] if task.info[ENVIRONMENT] == name]


def listed(folder: Path, name: str, *ids: str) -> str:
    file = folder / f"{name}.json"
    file.write_text(json.dumps([{"item_id": each} for each in ids]))
    return str(file)


def test_validation_is_drawn_from_training_and_leaves_most_of_it():
    problems = load_environment_tasks(EnvironmentData(env=["maze", "textcraft"]))
    assert len(items(problems, "validation", "textcraft")) == 24
    assert len(items(problems, "validation", "maze")) == 4  # of 17, a quarter
    for name in ("maze", "textcraft"):
        parts = [set(items(problems, split, name)) for split in ("train", "validation", "test")]
        assert sum(map(len, parts)) == len(set.union(*parts))


def test_published_lists_are_read_and_what_they_share_is_said(tmp_path):
    train = listed(tmp_path, "train", "textcraft_1", "textcraft_2", "textcraft_3", "textcraft_1", "lmrlgym_maze_5")
    test = listed(tmp_path, "test", "textcraft_3", "textcraft_9")
    data = EnvironmentData(env=["textcraft", "maze"], train_items=(train,), test_items=(test,), num_validation=1)
    with pytest.raises(ConfigError, match="maze has 1 training items"):
        load_environment_tasks(data)
    few = listed(tmp_path, "few", "textcraft_1", "textcraft_3")
    problems = load_environment_tasks(EnvironmentData(env="textcraft", train_items=(few,), test_items=(test,)))
    assert items(problems, "test", "textcraft") == [3, 9]
    assert sorted(items(problems, "train", "textcraft") + items(problems, "validation", "textcraft")) == [1, 3]
    assert problems.leaks == ("1 of textcraft's 2 test items are training items too",)
    with pytest.raises(ConfigError, match=r"have items of maze, which data\.env does not name"):
        load_environment_tasks(EnvironmentData(env="textcraft", train_items=(train,)))


def test_the_published_lists_overlap_as_their_readme_says(data_folder):
    lists = data_folder / "agentgym" / "RL-ids"
    train, test = lists / "train" / "lmrlgym_maze_train.json", lists / "eval" / "lmrlgym_maze_test.json"
    problems = load_environment_tasks(EnvironmentData(env="maze", train_items=(str(train),), test_items=(str(test),)))
    assert problems.leaks == ("10 of maze's 25 test items are training items too",)


def test_other_recipes_are_other_items(tmp_path):
    for name, given, count in (("plank", "log", 4), ("stick", "plank", 4), ("post", "stick", 1)):
        recipe = {"type": "minecraft:crafting_shapeless", "ingredients": [{"item": f"minecraft:{given}"}],
                  "result": {"item": f"minecraft:{name}", "count": count}}  # fmt: skip
        (tmp_path / f"{name}.json").write_text(json.dumps(recipe))
    info = ENVIRONMENTS.get("textcraft").settled({"recipes": str(tmp_path)})
    found = info.splits()
    assert sorted((*found["train"], *found["test"])) == [0, 1, 2]
    assert [info.group(item) for item in range(3)] == ["depth 1", "depth 2", "depth 3"]
    assert ENVIRONMENTS.get("textcraft").settled({}) is ENVIRONMENTS.get("textcraft")


@pytest.mark.parametrize("name", ["textcraft", "babyai", "maze", "wordle", "sciworld"])
@pytest.mark.parametrize("format", ["react", "function_calling", "code_as_action", "plain"])
def test_the_rules_end_in_an_example_that_their_format_reads(name, format):
    info = ENVIRONMENTS.get(name)
    plain = PARSERS.get(info.parser)(rules_of(info).text).action
    text = rules_of(info, format).text
    read = PARSERS.get(format_of(info, format))
    example = text if format == "react" else text.rpartition("\n\n")[2]
    assert read(example).action == plain
    assert not read(example).problem
    assert ("Thought:" in text) == (format == "react")
    calls = {"function_calling": "calls", "code_as_action": "calls in Python"}.get(format)
    assert calls is None or f"Actions are {calls} of these functions:\n\n- `" in text


def test_a_world_without_functions_says_so():
    info = replace(ENVIRONMENTS.get("maze"), name="mine")
    for format in ("function_calling", "code_as_action"):
        with pytest.raises(ConfigError, match="mine has no functions to call"):
            rules_of(info, format)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"env": "textcraft", "settings": {"textcraft": {"foo": 1}}}, r"data\.settings\.textcraft: .*'foo'"),
        ({"env": "textcraft", "settings": {"maze": {}}}, r"data\.settings\.maze is of an environment that data\.env"),
    ],
)
def test_settings_that_no_world_takes_are_refused(settings, says):
    with pytest.raises(ConfigError, match=says):
        load_environment_tasks(EnvironmentData(**settings))


def test_an_item_that_is_not_there_is_refused_and_one_of_another_seed_is_not(tmp_path):
    with pytest.raises(ConfigError, match="have 90000 of textcraft, and it has none"):
        load_environment_tasks(EnvironmentData(env="textcraft", test_items=(listed(tmp_path, "a", "textcraft_90000"),)))
    problems = load_environment_tasks(
        EnvironmentData(env="babyai", test_items=(listed(tmp_path, "b", f"babyai_{40 * 3000}"),))
    )
    assert items(problems, "test", "babyai") == [120000]


def test_shares_are_above_0():
    with pytest.raises(ValidationError, match="greater than 0"):
        EnvironmentData(env={"textcraft": 1, "maze": 0})


def test_names_of_worlds_may_stand_in_a_list_or_behind_commas():
    assert EnvironmentData(env="textcraft, maze").shares == EnvironmentData(env=["textcraft", "maze"]).shares
    assert EnvironmentData(env="maze").shares == {"maze": 1.0}


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("data.env={textcraft: -1}", "data.env.textcraft must be a number above 0, got -1"),
        ("schedule.max_turns={kind: steps, values: [], every: 1}", "schedule.max_turns.values must not be empty"),
        ("horizon=10", "unknown key horizon: did you mean max_turns"),
        ("max_rounds=10", "unknown key max_rounds: did you mean max_turns"),
        ("model_path=m", "unknown key model_path: did you mean value.path, policy.path or"),
    ],
)
def test_what_is_wrong_is_said_with_what_is_meant(setting, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        config_of("agent_grpo", None, [setting])


def test_published_settings_are_found_by_the_name_of_their_paper():
    with pytest.raises(UnknownName, match=r"did you mean 'agentgym_rl_textcraft' or 'agentgym_rl_babyai' or"):
        config_of("agentgym_rl", None, [])


@pytest.mark.parametrize(
    ("method", "settings", "key"),
    [
        ("agent_grpo", ("prompts=short",), "prompts has no effect: an agent reads"),
        (
            "agent_evol",
            ("weighting=reward", "kept_above={textcraft: 0.5}"),
            "kept_above.textcraft has no",
        ),
        ("agent_evol", ("base_share=0", "explore=beyond"), "explore has no effect"),
        ("agent", ("evaluation.validation_samples=2",), r"evaluation\.validation_samples has no effect"),
        ("agent_critic", ("evaluation.validation_samples=2",), r"evaluation\.validation_samples has no effect"),
    ],
)
def test_settings_that_nothing_acts_on_are_refused(method, settings, key):
    session = session_of(method, "data.env=textcraft", "num_threads=1", *settings)
    config = session.algorithm.config
    read_all(config)  # as a run counts what it reads later
    with pytest.raises(ConfigError, match=key):
        check_all_read(config)


def test_plug_ins_are_found_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import whet\n@whet.grader('anywhere')\ndef g(completion, **_):\n    return 1.0\n"
    )
    monkeypatch.chdir(tmp_path)
    config = config_of("grpo", None, ["plugins=[mine.py]"])
    assert config.plugins == (str(tmp_path / "mine.py"),)


def test_goals_of_some_subgroups_are_taken_in_all_splits():
    info = ENVIRONMENTS.get("textcraft")
    problems = load_environment_tasks(
        EnvironmentData(env=["textcraft"], groups=("depth 1", "depth 3"), num_validation=10)
    )
    for split, count in (("train", 196), ("validation", 10), ("test", 52)):
        own = items(problems, split, "textcraft")
        assert {info.group(item) for item in own} == {"depth 1", "depth 3"}
        assert len(own) == count


def test_an_environment_without_the_named_subgroups_keeps_all_items():
    alone = load_environment_tasks(EnvironmentData(env=["textcraft"], groups=("depth 1",)))
    mixed = load_environment_tasks(EnvironmentData(env=["textcraft", "maze", "academia"], groups=("depth 1",)))
    for split in ("train", "validation", "test"):
        assert items(mixed, split, "textcraft") == items(alone, split, "textcraft")
    kinds = {ENVIRONMENTS.get("academia").group(item) for item in items(mixed, "test", "academia")}
    assert len(kinds) == 13
    assert len(items(mixed, "test", "maze")) == 8


def test_a_subgroup_that_no_environment_has_is_named_with_the_choices_of_all():
    with pytest.raises(ConfigError, match="textcraft, maze has items of: depth 1, depth 2, depth 3, depth 4"):
        load_environment_tasks(EnvironmentData(env=["textcraft", "maze"], groups=("depth 1", "depth 9")))


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("textcraft", "data.groups has 'depth 9', and textcraft has items of: depth 1, depth 2, depth 3, depth 4"),
        ("maze", "data.groups chooses among published subgroups, and maze has none: leave it out"),
    ],
)
def test_subgroups_that_are_not_there_are_named(env, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_environment_tasks(EnvironmentData(env=[env], groups=("depth 9",)))


def test_rules_of_queries_and_searches_end_in_an_example_of_their_form():
    queries, searches = ENVIRONMENTS.get("sqlgym"), ENVIRONMENTS.get("searchqa")
    assert rules_of(queries).text.endswith("Action: ```sql\nSELECT name FROM pilots WHERE rank = 'captain'\n```")
    assert rules_of(queries, "plain").text.endswith("the block:\n\nSELECT name FROM pilots WHERE rank = 'captain'")
    assert rules_of(searches).text.endswith("</think>\n<search>Ada Brandt birthplace</search>")
    assert rules_of(searches, "plain").text.endswith("one answer:\n\n<search>Ada Brandt birthplace</search>")
    for info in (queries, searches):
        assert "Reply in this form" not in rules_of(info, "tools").text
        with pytest.raises(ConfigError, match="has no functions to call"):
            rules_of(info, "function_calling")
