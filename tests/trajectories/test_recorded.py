"""Recorded conversations of other libraries, as traces for a page."""

from __future__ import annotations

import json

import pytest

from whet.cli.app import app
from whet.tasks.files import DataError
from whet.trajectories.pages import trace_row
from whet.trajectories.recorded import recorded_rows
from whet.trajectories.records import Message, Trajectory


def file_of(folder, *rows):
    path = folder / "file.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def node(parent, role, content, **more):
    return {"parent": parent, "message": {"role": role, "content": content, **more}, "sampled": role == "assistant"}


def verifiers(nodes, **more):
    """An episode as verifiers 0.4.0 writes it to `traces.jsonl`; fields that whet does not read are left out."""
    data = {"name": "textcraft_50", "idx": 7}
    trace = {"task": {"data": data}, "nodes": nodes, "rewards": {"score": {"score": 0.5, "weight": 2.0}}} | more
    return {"id": "ef76", "env": {"id": "whet_textcraft"}, "task": {"data": data}, "traces": [trace]}


def test_a_trace_of_verifiers_is_read_turn_by_turn(tmp_path):
    call = {"id": "c", "name": "get", "arguments": '{"item": "pear"}'}
    nodes = [
        node(None, "system", "Rules."),
        node(0, "user", "Craft a pear."),
        node(1, "assistant", None, reasoning_content="A pear.", tool_calls=[call]),
        node(2, "tool", [{"type": "text", "text": "Got 3 pear"}]),
    ]
    [row] = recorded_rows(file_of(tmp_path, verifiers(nodes)))
    assert row["task"] == "textcraft_50"
    assert row["question"] == "Rules.\n\nCraft a pear."
    assert row["turns"] == [
        {"role": "agent", "text": 'A pear.\nget({"item": "pear"})'},
        {"role": "observation", "text": "Got 3 pear"},
    ]
    assert row["reward"] == 1.0  # 0.5 of weight 2
    assert row["rewards"] == {"score": 0.5}
    assert row["outcome"] == "ok"


def test_a_history_that_branches_is_a_conversation_for_each_end(tmp_path):
    nodes = [
        node(None, "user", "Q"),
        node(0, "assistant", "one"),
        node(0, "assistant", "two"),
        node(1, "user", "and?"),
    ]
    rows = list(recorded_rows(file_of(tmp_path, verifiers(nodes, errors=["lost"]))))
    assert [[turn["text"] for turn in row["turns"]] for row in rows] == [["two"], ["one", "and?"]]
    assert {(row["outcome"], row["reason"]) for row in rows} == {("failed", "lost")}


def test_chats_and_trajectories_are_read_and_a_reward_is_never_made_up(tmp_path):
    said = [("human", "Rules."), ("gpt", "OK."), ("human", "A wall."), ("gpt", "Action: left")]
    rows = list(
        recorded_rows(
            file_of(
                tmp_path,
                {"item_id": "maze_3", "conversations": [{"from": who, "value": text} for who, text in said]},
                {"prompt": "2 + 2?", "completion": [{"role": "assistant", "content": "4"}], "reward": 0, "answer": "4"},
                {"messages": [{"role": "user", "content": "Hi"}]},
            )
        )
    )
    assert [row["question"] for row in rows] == ["A wall.", "2 + 2?", "Hi"]
    assert [[turn["text"] for turn in row["turns"]] for row in rows] == [["Action: left"], ["4"], []]
    assert [(row["reward"], row["answer_score"]) for row in rows] == [(None, None), (0.0, 0.0), (None, None)]
    assert [row["environment"] for row in rows] == ["maze", "", ""]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"step": 1}, "line 1: this is no conversation that whet knows"),
        ({"traces": [{}]}, "trace 0 has no list of nodes"),
        (verifiers([node(0, "user", "Q")]), "node 0 has no message, or no earlier node as its parent"),
        ({"messages": ["hello"]}, "message 0 has no role"),
        ({"messages": "hello"}, "its messages are no list"),
        ({"conversations": [{"from": [], "value": "Q"}]}, "message 0 has no role"),
        ({"conversations": [{"from": "human", "value": "Q"}, None]}, "message 1 has no role"),
        (verifiers([node(None, "user", "Q")], errors=5), "its errors are no list"),
        ({"messages": [{"role": "assistant", "content": 5, "tool_calls": 5}]}, "its calls of tools are no list"),
    ],
)
def test_what_is_no_conversation_is_refused_with_its_place(tmp_path, row, says):
    with pytest.raises(DataError, match=says):
        list(recorded_rows(file_of(tmp_path, row)))


def test_odd_values_are_shown_as_they_are(tmp_path):
    message = {"role": "assistant", "content": [5, None, {"type": "image"}], "tool_calls": ["x", {"function": "f"}]}
    odd = verifiers([node(None, "user", 5)]) | {"env": "mine", "task": 5}
    first, second = recorded_rows(file_of(tmp_path, {"messages": [message], "reward": "1", "success": None}, odd))
    assert first["turns"][0]["text"] == "[image]\nx\nf"
    assert first["reward"] is None
    assert (second["question"], second["environment"]) == ("", "")


def test_a_chat_of_sharegpt_keeps_its_first_question(tmp_path):
    said = [{"from": who, "value": text} for who, text in [("human", "2 + 2?"), ("gpt", "4"), ("human", "Sure?")]]
    [row] = recorded_rows(file_of(tmp_path, {"conversations": said}))
    assert (row["question"], [turn["text"] for turn in row["turns"]]) == ("2 + 2?", ["4", "Sure?"])


def test_a_success_that_is_a_text_is_none(tmp_path):
    """`bool("false")` would make it one."""
    chat = {"messages": [{"role": "assistant", "content": "!"}]}
    rows = recorded_rows(file_of(tmp_path, *({**chat, "success": success} for success in ("false", 0, 1))))
    assert [row["answer_score"] for row in rows] == [None, 0.0, 1.0]


@pytest.mark.parametrize(
    ("reward", "success", "score"),
    [(0.4, False, 0.0), (None, True, 1.0), (0.0, True, 1.0), (0.4, None, 1.0), (0.0, None, 0.0), (None, None, None)],
)
def test_a_recorded_success_wins_over_a_reward_on_both_pages(tmp_path, reward, success, score):
    """A failure may have a reward for a part of the goal."""
    messages = tuple(Message(who, who) for who in ("human", "gpt", "human", "gpt"))
    trajectory = Trajectory(item_id="maze_1", messages=messages, reward=reward, success=success)
    assert trace_row(trajectory)["answer_score"] == score
    file = tmp_path / "chats.jsonl"
    chat = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}
    file.write_text(json.dumps({**chat, "reward": reward, "success": success}))
    [row] = recorded_rows(file)
    assert row["answer_score"] == score


def test_published_trajectories_open_on_a_page(data_folder, tmp_path):
    from typer.testing import CliRunner

    file, page = data_folder / "agentgym/AgentTraj-L/textcraft_train.json", tmp_path / "page.html"
    done = CliRunner().invoke(app, ["show", str(file), "--limit", "40", "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "40 episodes in" in done.output
    assert "textcraft" in page.read_text()
