"""whet's client on whet's server: episodes, states and forks as in process, repeats that act once, typed failures."""

from __future__ import annotations

import contextlib
import pickle
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from support.cutting_proxy import CuttingProxy
from support.env_server import Wild, env_server, until, wild
from support.json_server import JsonServer
from whet.config.environment_data import RemoteEnvironment
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.remote.deadline import transport
from whet.envs.remote.errors import BadAnswer, Failed, Full, Lost, Refused, RemoteError, TooSlow, Unreachable
from whet.envs.remote.info import remote_info, remote_names
from whet.envs.remote.transport import Limits, Server
from whet.envs.remote.v1 import V1Environment
from whet.envs.scripted import episode

QUICK = Limits(timeout_s=0.7, connect_s=1.0, wait_s=0.4, reconnects=2)


@pytest.fixture(scope="module")
def address():
    with env_server("textcraft", "maze", "wordle") as (url, _):
        yield url


@pytest.mark.parametrize("name", ["textcraft", "maze", "wordle"])
def test_an_environment_over_the_wire_is_the_one_in_process(address, name):
    here, there = ENVIRONMENTS.get(name), remote_info(name, RemoteEnvironment(url=address))
    assert [(split, list(items)) for split, items in here.splits().items()] == [
        (split, list(items)) for split, items in there.splits().items()
    ]
    for field in ("max_turns", "rewards", "success_above", "kept_above", "scale", "item_ids", "parser"):
        assert getattr(here, field) == getattr(there, field)
    if here.group is not None:
        assert [here.group(item) for item in here.splits()["test"]] == [there.group(i) for i in there.splits()["test"]]
    one, other = here.make(), there.make()
    for item in here.splits()["test"][:3]:
        assert episode(one, here, item, 7) == episode(other, here, item, 7)
    assert one.reset(0, seed=3) == other.reset(0, seed=3)  # the info too, with its tuples
    other.close()


def test_a_server_lists_its_environments(address):
    assert remote_names(address) == ["textcraft", "maze", "wordle"]
    with pytest.raises(EnvError, match="give the name of one"):
        remote_names(f"openenv+{address}")


def test_states_are_equal_where_they_are_in_process(address):
    here, there = (info.make() for info in (ENVIRONMENTS.get("maze"), V1Info(address)))
    keys: dict[object, object] = {}
    for item in range(6):
        here.reset(item)
        there.reset(item)
        for move in ("move left", "move right", "nonsense", "move left"):
            here.step(move)
            there.step(move)
            assert keys.setdefault(here.state_key(), there.state_key()) == there.state_key()
    assert len(set(keys.values())) == len(keys) > 5


class V1Info:
    """Makes environments on a server without asking it first."""

    def __init__(self, address, name="maze", limits=QUICK):
        self.make = lambda: V1Environment(Server(address, limits), name)


def test_a_fork_goes_its_own_way_and_an_environment_travels_unbegun(address):
    env = V1Info(address).make()
    env.reset(0)
    env.step("move right")
    twin = env.fork()
    assert twin.step("move right") == env.step("move right")
    assert twin.state_key() == env.state_key()
    with pytest.raises(EnvError, match="has not begun"):
        pickle.loads(pickle.dumps(env)).step("move right")


def test_cut_connections_change_nothing_and_leave_no_session():
    """A tenth of 400 requests is cut, before it arrives or after it was answered."""
    with env_server("textcraft") as (url, sessions):
        proxy = CuttingProxy(int(url.rpartition(":")[2]), share=0.1, seed=1)
        info = ENVIRONMENTS.get("textcraft")
        here = info.make()
        expected = [episode(here, info, item, 0) for item in range(12)]
        server = Server(proxy.url, Limits(timeout_s=10, reconnects=6))

        def played(item):
            env = V1Environment(server, "textcraft")
            try:
                return episode(env, info, item, 0)
            finally:
                env.close()

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(played, range(12))) == expected
        assert proxy.counts["spoilt"] > 5
        until(lambda: sessions.num_held == 0)
        proxy.close()


def test_a_full_server_is_waited_for_within_a_limit():
    with env_server("maze", capacity=2) as (url, sessions):
        first, second, third = (V1Info(url).make() for _ in range(3))
        first.reset(0)
        second.reset(0)
        begun = time.monotonic()
        with pytest.raises(Full, match="wait_s"):
            third.reset(0)
        assert time.monotonic() - begun < 3
        waiting = V1Info(url, limits=Limits(wait_s=20)).make()
        threading.Timer(0.3, second.close).start()
        assert waiting.reset(0)[0] == first.reset(0)[0]
        assert sessions.num_held == 2


@pytest.mark.parametrize(
    ("action", "error", "words"),
    [
        ("hang", TooSlow, "did not answer within 0.7 s"),
        ("break", Failed, "the game broke"),
        ("exit", Failed, "SystemExit"),
        ("cheat", Failed, "outside of its range"),
    ],
)
def test_failures_of_an_environment_keep_their_kind(action, error, words):
    with env_server(more={"wild": wild()}, timeout_s=30.0, lease_s=2.0) as (url, sessions):
        env = V1Info(url, "wild").make()
        env.reset(0)
        with pytest.raises(error, match=words):
            env.step(action)
        with pytest.raises(EnvError, match="has not begun"):
            env.step("on")  # nothing of the broken episode goes on
        assert env.reset(1)[0] == "item 1, seed 0"
        assert env.step("on")[:2] == ("ON", 1 / 64)
        env.close()
        until(lambda: sessions.num_held == 0, 6)


def test_the_servers_own_limit_is_late_too():
    with env_server(more={"wild": wild()}, timeout_s=0.2) as (url, _):
        env = V1Info(url, "wild").make()
        env.reset(0)
        with pytest.raises(TooSlow):
            env.step("hang")


def test_a_lease_that_ran_out_ends_the_episode_and_not_the_next_one():
    Wild.closed.clear()
    with env_server(more={"wild": wild()}, lease_s=0.3) as (url, sessions):
        env = V1Info(url, "wild").make()
        env.reset(4)
        until(lambda: sessions.num_held == 0)
        until(lambda: 4 in Wild.closed)
        with pytest.raises(Lost):
            env.step("on")
        assert env.reset(5)[0] == "item 5, seed 0"
        until(lambda: sessions.num_held == 0)
        assert env.reset(2)[0] == "item 2, seed 0"  # lost between two episodes: nothing of it is needed


def test_a_token_comes_from_the_environment_alone(monkeypatch):
    with env_server("maze", token="secret") as (url, _):
        monkeypatch.delenv("WHET_ENV_TOKEN", raising=False)
        with pytest.raises(Refused, match="WHET_ENV_TOKEN"):
            remote_info("maze", RemoteEnvironment(url=url))
        monkeypatch.setenv("WHET_ENV_TOKEN", "sécret")
        with pytest.raises(EnvError, match="no header"):
            remote_info("maze", RemoteEnvironment(url=url))
        monkeypatch.setenv("WHET_ENV_TOKEN", "secret")
        assert remote_info("maze", RemoteEnvironment(url=url)).make().reset(0)


HEADERS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 200\r\nX-Slow: "


@pytest.mark.parametrize("said", [HEADERS, HEADERS + b"now\r\n\r\n", b"H"])
def test_a_server_that_drips_is_late_after_the_whole_requests_limit(said):
    """Each byte comes in time: within the headers, within the body, and within the status line."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=dripping, args=(listening, said), daemon=True).start()
        server = Server(f"http://127.0.0.1:{listening.getsockname()[1]}", QUICK)
        begun = time.monotonic()
        with pytest.raises(TooSlow, match=r"did not answer within 0.7 s"):
            server.ask("/health", is_get=True)
        assert 0.6 < time.monotonic() - begun < 3


def dripping(listening, said):
    connection, _ = listening.accept()
    with connection, contextlib.suppress(OSError):
        connection.recv(65536)
        connection.sendall(said)
        for _ in range(200):
            time.sleep(0.1)
            connection.sendall(b" ")


def test_behind_a_proxy_httpx_finds_the_way(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert transport(httpx.Limits()) is None


def test_nobody_is_there():
    with pytest.raises(Unreachable, match="is its server up"):
        V1Info("http://127.0.0.1:1").make().reset(0)


ANSWER = {"observation": "o", "reward": 0.0, "terminated": False, "truncated": False, "info": {}, "turn": 0}


@pytest.mark.parametrize(
    "said",
    [
        {**ANSWER, "turn": 2},
        {**ANSWER, "turn": True},
        {**ANSWER, "turn": 1, "reward": "1"},
        {**ANSWER, "turn": 1, "reward": float("inf")},
        {**ANSWER, "turn": 1, "reward": 1e300},
        {**ANSWER, "turn": 1, "observation": "half \ud800"},
        {**ANSWER, "turn": 1, "terminated": "false"},
        {"observation": "o"},
        [],
        None,
        b"",
        b"<html>a proxy's page</html>",
        b"[" * 100_000,
        (500, {"error": "text"}),
        (200, {"error": {"code": "env_error", "message": "with 200"}}),
        (409, {"error": {"code": "out_of_order", "message": "turn 1 was expected"}}),
    ],
)
def test_garbage_is_never_an_answer(said):
    def answer(path, body):
        match path:
            case "/v1/create":
                return {"id": "abc", "lease_s": 1}
            case "/v1/reset":
                return ANSWER
            case "/v1/close":
                return {"closed": True}
        return said

    with JsonServer(answer) as server:
        env = V1Info(server.url).make()
        env.reset(0)
        with pytest.raises(BadAnswer):
            env.step("look")
        with pytest.raises(EnvError):
            env.step("look")


@pytest.mark.parametrize("data", [{}, {"id": 7}, {"id": ""}, {"id": "x" * 1000}, None])
def test_a_session_needs_an_id(data):
    with JsonServer(lambda path, body: data) as server, pytest.raises(BadAnswer):
        V1Info(server.url).make().reset(0)


def test_an_answer_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("whet.envs.remote.transport.MAX_BYTES", 1000)
    with JsonServer(lambda path, body: {"id": "x" * 2000}) as server, pytest.raises(BadAnswer, match="more than"):
        V1Info(server.url).make().reset(0)


DESCRIPTION = {
    "splits": {"train": [[0, 8, 1]], "test": [[8, 10, 1]]}, "groups": None, "rules": "Play.", "max_turns": 5,
    "rewards": [0.0, 1.0], "success_above": 0.5, "kept_above": 0.5, "scale": 1.0, "item_ids": {}, "parser": "react",
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"splits": {"train": [[0, 8, 1]]}},
        {"splits": {"train": [[0, 8, 0]], "test": [[8, 10, 1]]}},
        {"splits": {"train": [[0, 9, 1]], "test": [[8, 10, 1]]}},
        {"splits": {"train": "all", "test": "none"}},
        {"rules": None},
        {"rules": "half \ud800"},
        {"rules": "long" * 100_000},
        {"max_turns": 0},
        {"max_turns": "5"},
        {"rewards": [1.0]},
        {"rewards": [1.0, 0.0]},
        {"success_above": 2.0},
        {"scale": 0.0},
        {"parser": "unheard_of"},
    ],
)
def test_a_description_that_cannot_be_is_refused(change):
    with JsonServer(lambda path, body: {**DESCRIPTION, **change}) as server, pytest.raises(EnvError):
        remote_info("game", RemoteEnvironment(url=server.url))


def test_settings_beside_the_address_stand_for_what_the_server_says():
    with JsonServer(lambda path, body: DESCRIPTION) as server:
        remote = RemoteEnvironment(url=server.url, max_turns=9, rules="Other.", success_above=0.9, parser="plain")
        info = remote_info("a game/of mine", remote, {"size": 3})
        assert (info.max_turns, info.rules, info.success_above, info.kept_above) == (9, "Other.", 0.9, 0.9)
        assert (info.parser, info.splits()["train"]) == ("plain", range(8))
        assert server.asked == [("/v1/info/a%20game%2Fof%20mine", {"settings": '{"size": 3}'})]
        given = RemoteEnvironment(url=server.url, splits={"train": (0, 2), "test": (2, 3)})
        assert remote_info("game", given).splits() == {"train": range(2), "test": range(2, 3)}


def test_every_failure_is_an_error_of_environments():
    assert all(issubclass(kind, EnvError) for kind in RemoteError.__subclasses__())
