"""OpenEnv's wire: an episode over a WebSocket, its errors, and the Task API."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, contextmanager
from socket import SHUT_RDWR

import httpx
import pytest
import websockets.sync.client as sockets
from websockets.exceptions import ConnectionClosed

from support.env_server import Wild, env_server, until, wild
from whet.envs import ENVIRONMENTS
from whet.envs.wire import info_json


@pytest.fixture(scope="module")
def server():
    with env_server("textcraft", "maze", more={"wild": wild()}, capacity=8) as running:
        yield running


@contextmanager
def connected(server, name):
    with sockets.connect(f"{server[0].replace('http', 'ws')}/openenv/{name}/ws", close_timeout=5) as socket:
        yield socket


def ask(socket, message):
    socket.send(message if isinstance(message, str | bytes) else json.dumps(message))
    return json.loads(socket.recv())


def reset(socket, **data):
    return ask(socket, {"type": "reset", "data": data})


def step(socket, text):
    return ask(socket, {"type": "step", "data": {"text": text}})


@pytest.mark.parametrize("split", ["train", "test"])
def test_episodes_equal_those_in_this_process(server, split):
    info = ENVIRONMENTS.get("textcraft")
    env = info.make()
    with connected(server, "textcraft") as socket:
        for index in range(3):
            item = info.splits()[split][index]
            observation, about = env.reset(item, seed=7)
            answer = reset(socket, split=split, index=index, seed=7, episode_id="mine", unknown=3)["data"]
            where = {"split": split, "index": index, "item": item, "seed": 7}
            metadata = {"terminated": False, "truncated": False, "turn": 0, **where, "info": sent(about)}
            assert answer == {
                "observation": {"text": observation, "metadata": metadata},
                "reward": None,
                "done": False,
                "metadata": metadata,
            }
            moves, is_over, turn = info.expert(env, seed=0), False, 0
            while not is_over:
                turn += 1
                action = next(moves)[1]
                observation, reward, terminated, truncated, about = env.step(action)
                is_over = terminated or truncated
                answer = step(socket, action)["data"]
                assert answer["observation"]["text"] == observation
                assert (answer["reward"], answer["done"]) == (reward, is_over)
                metadata = {"terminated": terminated, "truncated": truncated, "turn": turn, **where}
                assert answer["metadata"] == metadata | {"info": sent(about)}
            state = ask(socket, {"type": "state"})
            assert state == {"type": "state", "data": {"episode_id": "mine", "step_count": turn, **where}}


def sent(info):
    return json.loads(json.dumps(info_json(info)))


def test_without_an_index_the_seed_chooses_the_item(server):
    splits = ENVIRONMENTS.get("textcraft").splits()
    with connected(server, "textcraft") as socket:
        assert reset(socket)["data"]["metadata"]["item"] == splits["train"][0]
        assert ask(socket, {"type": "reset"})["data"]["metadata"]["split"] == "train"
        assert reset(socket, seed=1000, split="test")["data"]["metadata"]["item"] == splits["test"][1000 % 105]


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("{", "INVALID_JSON"),
        (b"\xff", "INVALID_JSON"),
        ("[" * 20_000, "INVALID_JSON"),
        ("3", "VALIDATION_ERROR"),
        ({"type": "mcp", "data": {}}, "UNKNOWN_TYPE"),
        ({}, "UNKNOWN_TYPE"),
        ({"type": "step"}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": 3}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": "a", "move": "b"}}, "VALIDATION_ERROR"),
        ({"type": "step", "data": {"text": "a"}}, "EXECUTION_ERROR"),  # nothing has begun
        ({"type": "reset", "data": []}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"seed": -1}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"index": "3"}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"index": 10_000}}, "EXECUTION_ERROR"),
        ({"type": "reset", "data": {"split": "dev"}}, "EXECUTION_ERROR"),
        ({"type": "reset", "data": {"split": 3}}, "VALIDATION_ERROR"),
        ({"type": "reset", "data": {"episode_id": "x" * 256}}, "VALIDATION_ERROR"),
    ],
)
def test_a_wrong_message_has_a_code_and_the_session_goes_on(server, message, code):
    with connected(server, "textcraft") as socket:
        answer = ask(socket, message)
        assert (answer["type"], answer["data"]["code"]) == ("error", code)
        assert answer["data"]["message"]
        assert reset(socket)["type"] == "observation"
        assert step(socket, "inventory")["data"]["reward"] == 0.0


def test_a_broken_environment_ends_the_connection(server):
    with connected(server, "wild") as socket:
        reset(socket)
        assert step(socket, "break")["data"]["code"] == "SESSION_ERROR"
        with pytest.raises(ConnectionClosed):
            socket.recv()


def test_a_full_server_says_so_and_closes(server):
    with ExitStack() as stack:
        others = [stack.enter_context(connected(server, "maze")) for _ in range(8)]
        for socket in others:
            reset(socket)
        with connected(server, "maze") as socket:
            error = json.loads(socket.recv())["data"]
            assert (error["code"], error["active_sessions"], error["max_sessions"]) == ("CAPACITY_REACHED", 8, 8)
            with pytest.raises(ConnectionClosed):
                socket.recv()
        others[0].send('{"type": "close"}')
        with pytest.raises(ConnectionClosed, match="1000"):
            others[0].recv()
    until(lambda: server[1].num_held == 0)


def test_a_connection_without_messages_expires():
    with env_server(more={"wild": wild()}, lease_s=0.5) as running, connected(running, "wild") as socket:
        reset(socket, index=2)
        Wild.closed.clear()
        begun = time.monotonic()
        assert json.loads(socket.recv(timeout=10))["data"]["code"] == "SESSION_ERROR"
        assert time.monotonic() - begun > 0.4
        until(lambda: Wild.closed == [2] and running[1].num_held == 0)


def test_a_connection_that_is_cut_releases_its_environment(server):
    Wild.closed.clear()
    with connected(server, "wild") as socket:
        reset(socket, index=4)
        socket.socket.shutdown(SHUT_RDWR)
    until(lambda: Wild.closed == [4])


def test_the_task_api_lists_splits_and_items(server):
    def post(path, body, status=200):
        answer = httpx.post(f"{server[0]}/openenv/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def get(path):
        return httpx.get(f"{server[0]}/openenv/{path}").json()

    splits = ENVIRONMENTS.get("textcraft").splits()
    assert get("list_environments") == ["textcraft", "maze", "wild"]
    assert get("textcraft/splits") == [{"name": "train", "type": "train"}, {"name": "test", "type": "test"}]
    assert {"name": "published_test", "type": "validation"} in get("maze/splits")
    assert post("textcraft/num_tasks", {"split": "test"}) == {"num_tasks": len(splits["test"])}
    item = splits["test"][3]
    task = {"split": "test", "index": 3, "item": item, "group": ENVIRONMENTS.get("textcraft").group(item)}
    assert post("textcraft/task", {"split": "test", "index": 3}) == {"task": task}
    assert post("textcraft/task_range", {"split": "test", "start": 3, "stop": 4})["tasks"] == [task]
    assert len(post("textcraft/tasks", {"split": "test"})["tasks"]) == len(splits["test"])
    assert "detail" in post("textcraft/task", {"split": "test", "index": 10_000}, 400)
    assert "detail" in post("textcraft/num_tasks", {"split": "dev"}, 400)
    assert "detail" in post("mase/num_tasks", {"split": "test"}, 404)


def test_what_the_server_says_of_itself(server):
    def get(path):
        return httpx.get(f"{server[0]}/openenv/{path}").json()

    assert get("textcraft/health") == {"status": "healthy"}
    assert get("textcraft/metadata")["name"] == "textcraft"
    schema = get("textcraft/schema")
    assert list(schema["action"]["properties"]) == schema["action"]["required"] == ["text"]
    assert "text" in schema["observation"]["properties"]
    assert get("textcraft/state") == {"episode_id": None, "step_count": 0}
