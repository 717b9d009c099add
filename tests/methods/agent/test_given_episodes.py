"""Files of episodes in another action format than the run's: refused with counts, or read by the format they name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from support.sessions import session_of
from whet.envs import ENVIRONMENTS
from whet.envs.formats import PARSERS
from whet.methods.agent.given_episodes import given_episodes
from whet.methods.registry import config_of
from whet.run.recording import trajectory_of
from whet.tasks.files import DataError
from whet.trajectories.conversion import convert
from whet.trajectories.experts import expert_trajectories
from whet.trajectories.files import read_trajectories, write_trajectories
from whet.trajectories.format_detection import FORMAT, how_written, tried
from whet.trajectories.records import FIRST_REPLY, Message
from whet.trajectories.replay import replay_file
from whet.types import Episode, Task

INFO = ENVIRONMENTS.get("textcraft")
INFOS = {"textcraft": INFO}
CLONE = ("data.env=textcraft", "num_threads=1", "data.num_train=4", "data.num_validation=1", "data.num_test=1")


def config(format):
    return config_of("agent_clone", None, ["data.env=textcraft", f"format={format}"])


@pytest.fixture(scope="module")
def shown():
    """As the expert plays, in ReAct."""
    return list(expert_trajectories(INFO, range(6), rules="Rules.", seed=0))


def in_format(trajectories, format, *, says=None):
    found = [convert(each, format, source="react") for each in trajectories]
    return [replace(each, info={} if says is None else {FORMAT: says}) for each in found]


def written(path, trajectories):
    write_trajectories(path, trajectories)
    return str(path)


def actions(trajectories, format):
    return [PARSERS.get(format)(reply).action for each in trajectories for reply in each.replies()]


def test_830_plain_episodes_are_refused_where_the_run_reads_react_and_learnt_where_it_reads_plain(tmp_path, shown):
    plain = [
        replace(each, item_id=f"textcraft_{n}")
        for n, each in zip(range(830), in_format(shown, "plain") * 139, strict=False)
    ]
    assert len(plain) == 830
    file = written(tmp_path / "plain.json", plain)
    with pytest.raises(DataError) as error:
        session_of("agent_clone", *CLONE, f"trajectories=[{file}]")
    said = str(error.value)
    count = sum(each.num_turns for each in plain)
    assert f"{file}: in {count:,} of {count:,} replies of textcraft the run's format reads no action (cleaned)" in said
    assert (
        f"the first in textcraft_0, message 3: {plain[0].replies()[0]!r}; learn such replies as they are with " in said
    )
    assert 'format=plain, or say in each record how it is written ("format": "plain")' in said

    given, warnings = given_episodes(file, config("plain"), INFOS)
    assert (given, warnings) == (plain, [])


def test_records_that_name_their_format_are_rewritten_in_the_runs(tmp_path, shown):
    file = written(tmp_path / "plain.jsonl", in_format(shown, "plain", says="plain"))
    given, warnings = given_episodes(file, config("react"), INFOS)
    assert warnings == [f"6 trajectories of {file} are plain, and are rewritten as cleaned"]
    assert actions(given, "cleaned") == actions(shown, "cleaned")
    assert all("Action:" in reply for each in given for reply in each.replies())
    assert all(FORMAT not in each.info for each in given)
    assert given[0].messages[0].text != "Rules."  # the first message describes the format

    said = [replace(each, info={FORMAT: "plian"}) for each in shown]
    with pytest.raises(DataError, match=r"textcraft_0: its record says format: 'plian', .* write react, plain, func"):
        given_episodes(written(tmp_path / "x.json", said), config("react"), INFOS)
    wrong = [replace(each, info={FORMAT: "function_calling"}) for each in shown]
    with pytest.raises(
        DataError, match=r"its records say format: function_calling, and in \d+ of \d+ replies .* no act"
    ):
        given_episodes(written(tmp_path / "y.json", wrong), config("react"), INFOS)


@pytest.mark.parametrize("target", ["react", "plain", "function_calling", "code_as_action"])
@pytest.mark.parametrize("source", ["react", "function_calling:textcraft", "code_as_action:textcraft"])
def test_function_calls_and_react_show_what_they_are(tmp_path, shown, source, target):
    trajectories = shown if source == "react" else in_format(shown, source)
    given, _ = given_episodes(written(tmp_path / "x.json", trajectories), config(target), INFOS)
    reads = {"react": "cleaned", "plain": "plain"}.get(target, f"{target}:textcraft")
    assert actions(given, reads) == actions(shown, "cleaned")
    assert "" not in actions(given, reads)
    if target == "react" and source == "react":
        assert given == shown


def test_files_of_two_formats_are_refused(tmp_path, shown):
    mixed = [*in_format(shown[:5], "plain"), *shown[5:]]
    with pytest.raises(
        DataError, match=r"\d+ of \d+ replies of textcraft have no action that cleaned reads, and the ot"
    ):
        given_episodes(written(tmp_path / "x.json", mixed), config("plain"), INFOS)
    told = [replace(each, info={FORMAT: "plain"}) for each in mixed[:5]]
    given, _ = given_episodes(written(tmp_path / "y.json", [*told, *mixed[5:]]), config("plain"), INFOS)
    assert actions(given, "plain") == actions(shown, "cleaned")


def test_a_few_replies_without_an_action_are_said_and_no_empty_action_is_learnt(tmp_path, shown):
    messages = list(shown[0].messages)
    messages[FIRST_REPLY] = Message("gpt", "Thought:\nI cannot craft this.", True)
    file = written(tmp_path / "x.json", [replace(shown[0], messages=tuple(messages)), *shown[1:]])
    count = sum(each.num_turns for each in shown)
    given, warnings = given_episodes(file, config("react"), INFOS)
    assert given[0].messages[FIRST_REPLY].trains
    assert warnings == [
        f"1 of {count} replies of textcraft in {file} have no action that cleaned reads; they are learnt as they are "
        "(the first in textcraft_0, message 3: 'Thought:\\nI cannot craft this.')"
    ]
    given, warnings = given_episodes(file, config("plain"), INFOS)
    assert not given[0].messages[FIRST_REPLY].trains
    assert tried(given, "plain").num_unread == 0
    assert "they are not learnt" in warnings[0]


def test_published_files_are_read_as_they_were(data_folder):
    for name, environment in (("textcraft", "textcraft"), ("babyai", "babyai"), ("lmrlgym_maze", "maze")):
        path = data_folder / f"agentgym/AgentTraj-L/{name}_train.json"
        info = ENVIRONMENTS.get(environment)
        settings = config_of("agent_clone", None, [f"data.env={environment}"])
        given, warnings = given_episodes(str(path), settings, {environment: info})
        assert given == list(read_trajectories(path))
        assert len(warnings) == (name == "textcraft")  # the one reply in 2,005 that gives up


def test_what_a_run_of_another_format_recorded_says_so_and_is_replayed(tmp_path, shown):
    task = Task(id="t", prompt="", info={"item": 0, "environment": "textcraft"})
    empty = Episode(task=task, segments=(), outcome="ok")
    assert FORMAT not in trajectory_of(empty, INFO, "Rules.", env_seed=1).info
    assert trajectory_of(empty, INFO, "Rules.", env_seed=1, format="plain").info[FORMAT] == "plain"
    seeded = [replace(each, info={"world_seed": 1}) for each in shown[:2]]
    plain = [replace(each, info={"world_seed": 1, FORMAT: "plain"}) for each in in_format(shown[:2], "plain")]
    rewards = [
        [each.reward for each in replay_file(written(tmp_path / f"{n}.json", some), INFO).episodes]
        for n, some in enumerate((seeded, plain))
    ]
    assert rewards[0] == rewards[1] == [1.0, 1.0]


def test_pairs_in_another_format_are_refused(tmp_path, shown):
    def pair(each):
        rows = [{"from": m.who, "loss": m.loss, "value": m.text} for m in each.messages]
        return {"id": each.item_id, "prompt": rows[:3], "chosen": rows[3:], "rejected": rows[3:]}

    for name, some in (("plain", in_format(shown, "plain")), ("calls", in_format(shown, "function_calling:textcraft"))):
        (tmp_path / f"{name}.json").write_text(json.dumps([pair(each) for each in some]))
    with pytest.raises(DataError, match=r"pairs: in \d+ of \d+ replies of textcraft the run's format reads no action"):
        session_of("agent_dpo", *CLONE, f"pairs=[{tmp_path / 'plain.json'}]")
    with pytest.raises(
        DataError, match=r"are written as function_calling:textcraft, and the run's format reads cleaned"
    ):
        session_of("agent_dpo", *CLONE, f"pairs=[{tmp_path / 'calls.json'}]")


def test_how_written_of_nothing():
    found = how_written([], "x", "cleaned", environment="textcraft", parser="cleaned")
    assert (found.format, found.num_replies, found.is_read) == ("cleaned", 0, True)
