"""Sessions over `/v1`: episodes equal to those in this process, and what becomes of sessions that fail or idle."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from support.env_server import Late, Wild, Wire, env_server, steps_of, until, wild
from whet.envs import ENVIRONMENTS
from whet.envs.wire import MAX_BATCH, info_json, state_digest

NAMES = ("textcraft", "maze", "wordle")


@pytest.fixture(scope="module")
def server():
    with env_server(*NAMES, more={"wild": wild(), "late": wild(Late, "late")}) as running:
        yield running


@pytest.fixture(scope="module")
def wire(server):
    return Wire(server[0])


def in_process(env, info, item, seed):
    """The answers of an expert's episode, as JSON holds them, and its actions."""
    observation, about = env.reset(item, seed=seed)
    answers, actions = [(observation, 0.0, False, False, about)], []
    states = [state_digest(env.state_key())]
    moves = info.expert(env, seed=seed)
    while not (answers[-1][2] or answers[-1][3]):
        actions.append(next(moves)[1])
        answers.append(env.step(actions[-1]))
        states.append(state_digest(env.state_key()))
    as_json = [(*answer[:4], json.loads(json.dumps(info_json(answer[4])))) for answer in answers]
    return as_json, actions, states


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_equals_the_one_in_this_process(name, wire):
    info = ENVIRONMENTS.get(name)
    env = info.make()
    id = wire.post("create", env=name, states=True)["id"]
    for item in [*info.splits()["train"][:3], *info.splits()["test"][:3]]:
        expected, actions, states = in_process(env, info, item, 5)
        answers = [wire.post("reset", id=id, item=item, seed=5)]
        answers += [wire.post("step", id=id, action=action, turn=turn) for turn, action in enumerate(actions, 1)]
        assert list(steps_of(answers)) == expected
        assert [answer["state"] for answer in answers] == states
        assert [answer["turn"] for answer in answers] == list(range(len(answers)))
    assert wire.post("close", id=id) == {"closed": True}


def test_a_repeated_step_acts_once(wire, server):
    id = wire.begin("wild")
    first = wire.post("step", id=id, action="a", turn=1)
    assert wire.post("step", id=id, action="a", turn=1) == first
    assert wire.post("step", id=id, action="b", turn=1) == (409, "out_of_order")
    assert wire.post("step", id=id, action="a", turn=3) == (409, "out_of_order")
    assert wire.post("step", id=id, action="b", turn=2)["observation"] == "B"
    assert wire.get("observe", id=id)["observation"] == "B"
    assert wire.get("actions", id=id) == {"actions": ["hang", "break"]}
    assert server[1].get(id).total == 1 / 32


def test_a_repeated_create_gets_the_same_session(wire):
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: wire.post("create", env="wild", key="mine"), range(8)))
    assert len({answer["id"] for answer in answers}) == 1
    assert wire.post("create", env="maze", key="mine") == (400, "bad_request")
    wire.post("close", id=answers[0]["id"])
    assert wire.post("create", env="wild", key="mine")["id"] != answers[0]["id"]


def test_what_comes_too_early_or_too_late_is_refused(wire):
    id = wire.post("create", env="wild")["id"]
    assert wire.post("step", id=id, action="a", turn=1) == (409, "not_begun")
    assert wire.get("observe", id=id) == (409, "not_begun")
    assert wire.post("fork", id=id) == (409, "not_begun")
    wire.post("reset", id=id, item=1)
    assert wire.post("step", id=id, action="end", turn=1)["terminated"] is True
    assert wire.post("step", id=id, action="a", turn=2) == (409, "has_ended")
    assert wire.post("reset", id=id, item=2)["observation"] == "item 2, seed 0"
    assert wire.post("close", id=id) == {"closed": True}
    assert wire.post("close", id=id) == {"closed": False}
    assert wire.post("step", id=id, action="a", turn=1) == (404, "unknown_session")


@pytest.mark.parametrize("name", ["wild", "late"])
@pytest.mark.parametrize("action", ["break", "exit", "cheat"])
def test_a_broken_environment_closes_its_session(wire, server, name, action):
    id, held = wire.begin(name, item=4), server[1].num_held
    Wild.closed.clear()
    assert wire.post("step", id=id, action=action, turn=1) == (500, "env_error")
    until(lambda: Wild.closed == [4] and server[1].num_held == held - 1)
    assert wire.post("step", id=id, action="a", turn=2) == (404, "unknown_session")


def test_an_item_that_is_not_there_is_an_error_of_the_environment(wire):
    id = wire.post("create", env="maze")["id"]
    answer = wire.http.post("/v1/reset", json={"id": id, "item": 99})
    assert answer.status_code == 500
    assert "maze has no item 99" in answer.json()["error"]["message"]


def test_coroutines_are_awaited(wire):
    id = wire.begin("late", item=3, seed=2)
    assert wire.post("step", id=id, action="hello", turn=1)["observation"] == "HELLO"


def test_one_call_at_a_time(wire, server):
    id = wire.begin("wild")
    with ThreadPoolExecutor(1) as thread:
        slow = thread.submit(wire.post, "step", id=id, action="slow", turn=1)
        until(lambda: server[1].get(id).is_busy)
        assert wire.post("step", id=id, action="a", turn=1) == (409, "busy")
        assert slow.result()["observation"] == "SLOW"
    assert wire.post("step", id=id, action="slow", turn=1)["turn"] == 1


def test_a_fork_goes_its_own_way(wire):
    for name in ("textcraft", "wild"):
        id = wire.begin(name)
        wire.post("step", id=id, action="get 1 oak log", turn=1)
        other = wire.post("fork", id=id)["id"]
        assert wire.get("observe", id=other) == wire.get("observe", id=id)
        assert wire.post("step", id=other, action="inventory", turn=2)["turn"] == 2
        assert wire.get("observe", id=id)["turn"] == 1


def test_a_batch_is_answered_in_order(wire):
    ids = [wire.begin(name) for name in ("maze", "wild", "late", "textcraft")]
    steps = [{"id": id, "action": "inventory", "turn": turn} for turn in (1, 2) for id in ids]
    answers = wire.post("steps", steps=[*steps, {"id": ids[0], "action": 3, "turn": 3}, "x"])["answers"]
    assert [answer["turn"] for answer in answers[:8]] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert [answer["observation"] for answer in answers[1:3]] == ["INVENTORY", "INVENTORY"]
    assert [answer["error"]["code"] for answer in answers[8:]] == ["bad_request"] * 2
    assert wire.post("steps", steps=[]) == (400, "bad_request")
    assert wire.post("steps", steps=[{}] * (MAX_BATCH + 1)) == (400, "bad_request")


def test_a_late_answer_closes_the_session_and_its_environment():
    with env_server(more={"wild": wild()}, timeout_s=0.2, capacity=1) as (address, sessions):
        wire = Wire(address)
        id = wire.begin("wild", item=5)
        Wild.closed.clear()
        assert wire.post("step", id=id, action="hang", turn=1) == (504, "timeout")
        assert wire.post("step", id=id, action="a", turn=2) == (404, "unknown_session")
        assert wire.post("create", env="wild") == (503, "full")  # it hangs, and still has its memory
        until(lambda: sessions.num_held == 0)
        assert Wild.closed == [5]
        assert wire.begin("wild")


def test_an_idle_session_expires_and_its_id_is_not_used_again():
    with env_server(more={"wild": wild()}, lease_s=1.0) as (address, sessions):
        wire = Wire(address)
        ids = [wire.begin("wild", item=item) for item in (1, 2)]
        Wild.closed.clear()
        end = time.monotonic() + 2.5
        turn = 0
        while time.monotonic() < end:
            turn += 1
            assert wire.post("step", id=ids[0], action="a", turn=turn)["turn"] == turn
            time.sleep(0.05)
        assert Wild.closed == [2]
        assert wire.post("step", id=ids[1], action="a", turn=1) == (410, "expired")
        until(lambda: sessions.num_held == 0)
        assert wire.post("close", id=ids[0]) == {"closed": False}
        assert sessions.counts["expired"] == 2


def test_a_full_server_answers_at_once():
    with env_server("maze", capacity=2) as (address, _):
        wire = Wire(address)
        ids = [wire.post("create", env="maze")["id"] for _ in range(2)]
        answer = wire.http.post("/v1/create", json={"env": "maze"})
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert wire.http.post("/agentgym/maze/create").status_code == 503
        wire.post("close", id=ids[0])
        assert "id" in wire.post("create", env="maze")


def test_sessions_of_a_server_that_stops_are_closed():
    with env_server(more={"wild": wild()}) as (address, _):
        for item in range(3):
            Wire(address).begin("wild", item=item)
        Wild.closed.clear()
    assert sorted(Wild.closed) == [0, 1, 2]


def test_many_clients_at_once_get_their_own_episodes(server):
    def play(number):
        wire = Wire(server[0])
        id = wire.begin("wild", item=number % 6)
        texts = [f"client {number} turn {turn}" for turn in range(1, 20)]
        said = [wire.post("step", id=id, action=text, turn=turn)["observation"] for turn, text in enumerate(texts, 1)]
        wire.post("close", id=id)
        return said == [text.upper() for text in texts]

    with ThreadPoolExecutor(16) as threads:
        assert all(threads.map(play, range(16)))


def test_a_client_that_leaves_in_the_middle_can_ask_again(server):
    wire = Wire(server[0])
    id = wire.begin("wild")
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server[0]}/v1/step", json={"id": id, "action": "slow", "turn": 1}, timeout=0.1)
    until(lambda: wire.post("step", id=id, action="slow", turn=1) != (409, "busy"))
    assert wire.post("step", id=id, action="slow", turn=1)["observation"] == "SLOW"
    assert server[1].get(id).total == 1 / 64
