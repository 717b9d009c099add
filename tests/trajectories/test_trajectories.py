"""Trajectories in files: the published ones, read and written back; what is wrong is named by file and record."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.envs.protocol import EnvError
from whet.tasks.files import DataError
from whet.trajectories.files import read_trajectories, write_trajectories
from whet.trajectories.records import Message, Trajectory, check, conversation, environment_of, item_number

SAYS = ("Rules.", "OK.", "You see a key.", "Thought:\ntake\n\nAction:\npick up", "Done.")


def messages(says=SAYS):
    return tuple(Message("gpt" if n % 2 else "human", text, (n != 1) if n % 2 else None) for n, text in enumerate(says))


ONE = Trajectory(item_id="textcraft_3", messages=messages())
TEXTS = st.text(st.characters(codec="utf-8"))
PUBLISHED = {"textcraft": (247, 2005), "babyai": (481, 2831), "lmrlgym_maze": (141, 672)}
"""Records and replies of the files at hand, counted."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_round_trip(name, data_folder, tmp_path):
    found = read_trajectories(data_folder / f"agentgym/AgentTraj-L/{name}_train.json")
    assert (len(found), sum(each.num_turns for each in found)) == PUBLISHED[name]
    assert {each.environment for each in found} == {name.removeprefix("lmrlgym_")}
    assert all(not each.messages[1].trains and each.messages[3].trains for each in found)
    for copy in (tmp_path / "copy.json", tmp_path / "copy.jsonl"):
        write_trajectories(copy, found)
        assert read_trajectories(copy) == found
    published = json.loads((data_folder / f"agentgym/AgentTraj-L/{name}_train.json").read_text())
    assert json.loads((tmp_path / "copy.json").read_text()) == published


@pytest.mark.parametrize("name", PUBLISHED)
def test_conversations_may_be_python_in_a_text(name, data_folder, tmp_path):
    path = data_folder / f"agentgym/AgentTraj-L/{name}_train.json"
    rows = [row | {"conversations": repr(row["conversations"])} for row in json.loads(path.read_text())]
    (tmp_path / "literal.json").write_text(json.dumps(rows))
    assert read_trajectories(tmp_path / "literal.json") == read_trajectories(path)


def test_published_promises_are_ours_to_the_letter(data_folder):
    for name in PUBLISHED:
        found = read_trajectories(data_folder / f"agentgym/AgentTraj-L/{name}_train.json")
        for each in found:
            again = conversation(each.messages[0].text, each.observations(), each.replies())
            assert again == each.messages


def test_sizes_of_the_published_sets_add_up():
    assert 3930 + 215 + 955 + 2420 + 2120 + 810 + 374 + 311 + 215 + 135 + 3000 == 14_485
    assert 200 + 20 + 25 + 25 + 200 + 200 + 90 + 100 + 20 + 20 + 20 + 20 + 20 + 200 == 1_160


@pytest.mark.parametrize(
    ("item", "environment", "number"),
    [
        ("lmrlgym_maze_12", "maze", 12),
        ("webshop_6", "webshop", 6),
        ("triviaqa_12545", "searchqa", 12545),
        ("tool_academia_0", "academia", 0),
        ("movie_23", "movie", 23),
        ("alfworld_2420", "alfworld", 2420),
    ],
)
def test_names_of_items(item, environment, number):
    assert (environment_of(item), item_number(item)) == (environment, number)


@pytest.mark.parametrize("item", ["", "_", "textcraft", "textcraft_", "textcraft_-1", "textcraft_²", "a_" + "9" * 5000])
def test_names_without_a_number(item):
    with pytest.raises(EnvError, match="does not end in an item's number"):
        item_number(item)


def test_a_log_has_rewards_and_keeps_other_fields(tmp_path):
    path = tmp_path / "log.jsonl"
    logged = (
        replace(ONE, reward=1.0, success=True, info={"seed": 7}),
        replace(ONE, reward=-100.0, success=False),
        replace(ONE, item_id="sciworld_4", messages=messages()[:3]),
    )
    write_trajectories(path, logged)
    assert len(path.read_text().splitlines()) == 3
    assert read_trajectories(path) == logged


def test_rollouts_have_numbers_and_roles(tmp_path):
    path = tmp_path / "0.json"
    chat = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(SAYS)]
    system = {"role": "system", "content": "Be brief."}
    rows = [{"item_id": 3, "conversations": each, "reward": 1} for each in (chat, [system, *chat])]
    path.write_text(json.dumps(rows))
    plain = replace(ONE, messages=tuple(replace(each, loss=None) for each in ONE.messages), reward=1.0)
    assert read_trajectories(path, "textcraft") == (plain, replace(plain, info={"system": "Be brief."}))
    with pytest.raises(DataError, match=r"0\.json, record 1: item_id is the number 3, .* name it \(--env NAME of"):
        read_trajectories(path)
    path.write_text(json.dumps([rows[0] | {"item_id": -1}]))
    with pytest.raises(DataError, match=r"0\.json, record 1: item_id is -1; write a whole number from 0"):
        read_trajectories(path, "textcraft")


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=5), st.booleans())
def test_a_conversation_holds_what_it_was_made_of(rules, says, is_answered):
    replies = [f"reply {each}" for each in says][: len(says) if is_answered else len(says) - 1]
    one = Trajectory(item_id="maze_1", messages=conversation(rules, says, replies))
    assert check(one, "here") is one
    assert (one.observations(), one.replies(), one.num_turns) == (tuple(says), tuple(replies), len(replies))
    assert [message.text for message in one.messages if message.trains] == replies
    with pytest.raises(AssertionError, match="an observation before every reply"):
        conversation(rules, says, [*says, "one more"])


def test_the_last_turn_may_be_unanswered():
    assert replace(ONE, messages=messages()[:4]).observations() == ("You see a key.",)
    assert ONE.observations() == ("You see a key.", "Done.")
    assert (ONE.num_turns, ONE.replies()) == (1, (SAYS[3],))


GOOD = {
    "item_id": "textcraft_3",
    "conversations": [{"from": m.who, "loss": m.loss, "value": m.text} for m in messages()],
}


def bad(**changes):
    return json.dumps([GOOD, GOOD | changes])


def said(number, **changes):
    chat = [dict(each) for each in GOOD["conversations"]]
    chat[number] |= changes
    return bad(conversations=chat)


WRONG = {
    "empty": ("", "is empty"),
    "no json": ("[{]", "not JSON"),
    "number": ("[1]", "record 1: expected an object with item_id, and found int"),
    "no item": (bad(item_id=None), "record 2: item_id is missing"),
    "odd item": (bad(item_id="textcraft"), "record 2: 'textcraft' does not end in an item's number"),
    "no conversation": (bad(conversations=None), "record 2: conversations is missing; write a list of messages"),
    "object": (bad(conversations={}), "record 2: conversations is dict"),
    "short": (bad(conversations=GOOD["conversations"][:2]), "record 2: 2 messages, and an episode has 3 at least"),
    "order": (bad(conversations=GOOD["conversations"][1:]), "record 2: message 0 is of 'gpt', and human and gpt take"),
    "speaker": (said(2, **{"from": "system"}), "record 2: message 2 is from 'system'; write 'human' or 'gpt'"),
    "list speaker": (said(2, **{"from": []}), "record 2: message 2 is from list"),
    "twice": (said(3, **{"from": "human"}), "message 3 is of 'human', .* so it should be of 'gpt'"),
    "loss": (said(3, loss="yes"), "record 2: message 3 has the loss 'yes'; write true, false or null"),
    "world trains": (said(2, loss=True), "message 2 of 'human' has loss true; only 'gpt' trains"),
    "value": (said(3, value=None), "record 2: the value of message 3 is missing; write a text"),
    "half": (said(3, value="\ud800"), "half a character"),
    "reward": (bad(reward="1"), "record 2: the reward is '1'; write a number, or null"),
    "reward nan": (bad(reward=float("nan")), "NaN is no number that JSON has"),
    "reward true": (bad(reward=True), "record 2: the reward is True"),
    "reward inf": (
        '[{"item_id": "a_1", "conversations": [], "reward": 1e999}]',
        "item 1: a number past the largest float stands in the column 'reward'",
    ),
    "success": (bad(success="yes"), "record 2: success is 'yes'; write true, false or null"),
    "code": (bad(conversations="__import__('os').abort()"), "record 2: conversations is a text that is no Python list"),
    "call": (bad(conversations="[].append(1)"), "record 2: conversations is a text that is no Python list"),
    "half literal": (bad(conversations="[{'from': 'human', 'loss"), "is a text that is no Python list"),
    "deep literal": (bad(conversations="[" * 100_000), "is a text that is no Python list"),
    "deep sum": (bad(conversations="1" + "+1" * 100_000), "is a text that is no Python list"),
    "digits": (bad(conversations="[" + "9" * 10_000 + "]"), "is a text that is no Python list"),
    "unhashable": (bad(conversations="{[]: 1}"), "is a text that is no Python list"),
    "nul literal": (bad(conversations="[\0]"), "is a text that is no Python list"),
    "literal half": (
        bad(conversations="[" + "{'from': 'human', 'loss': None, 'value': '\\ud800'}, " * 3 + "]"),
        "message 0 holds half a character|message 1 is of 'human'",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_said_in_a_sentence(kind, tmp_path):
    text, sentence = WRONG[kind]
    path = tmp_path / "traj.json"
    path.write_text(text)
    with pytest.raises(DataError, match=sentence) as caught:
        read_trajectories(path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("role", [[], {}, None, "tool"])
def test_a_rollout_whose_speaker_is_none_is_refused(role, tmp_path):
    path = tmp_path / "rollouts.jsonl"
    path.write_text(json.dumps({"item_id": 3, "conversations": [{"role": role, "content": "Hi"}]}))
    with pytest.raises(DataError, match=r"line 1: message 0 is dict; write role \(user or assistant\) and content"):
        read_trajectories(path, "maze")


def test_an_item_without_a_conversation_is_no_trajectory(tmp_path):
    path = tmp_path / "items.jsonl"
    path.write_text('{"item_id": "a_1", "conversations": null}\n')
    with pytest.raises(DataError, match=r"line 1: conversations is missing; write a list of messages"):
        read_trajectories(path)


def test_cut_and_damaged_files_never_come_back_as_something_else(data_folder, tmp_path):
    whole = (data_folder / "agentgym/AgentTraj-L/lmrlgym_maze_train.json").read_bytes()[:60_000]
    rng, path = random.Random(0), tmp_path / "damaged.json"
    for _ in range(200):
        damaged = bytearray(whole[: rng.randrange(len(whole))])
        for _ in range(rng.randrange(3) if damaged else 0):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):  # a list that is cut has no end
            read_trajectories(path)


def test_a_trajectory_that_could_not_be_read_back_is_not_written(tmp_path):
    path = tmp_path / "out.json"
    write_trajectories(path, [ONE])
    for odd in (
        replace(ONE, messages=ONE.messages[1:]),
        replace(ONE, messages=(*ONE.messages[:2], Message("human", "\ud800"))),
        replace(ONE, reward=float("nan")),
        replace(ONE, info={"what": object()}),
        replace(ONE, info={"what": "\ud800"}),
    ):
        with pytest.raises(DataError):
            write_trajectories(path, [ONE, odd])
    assert read_trajectories(path) == (ONE,)
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]
    with pytest.raises(EnvError, match="could not write"):
        write_trajectories(tmp_path / "none" / "out.json", [ONE])


@given(
    st.lists(TEXTS, min_size=3, max_size=7),
    st.none() | st.floats(-100, 100),
    st.none() | st.booleans(),
    st.sampled_from(["out.json", "out.jsonl"]),
)
@settings(max_examples=50)
def test_any_trajectory_round_trips(tmp_path_factory, says, reward, success, name):
    path = tmp_path_factory.mktemp("law") / name
    one = Trajectory(item_id="maze_1", messages=messages(says), reward=reward, success=success)
    write_trajectories(path, [one, one])
    assert read_trajectories(path) == (one, one)
