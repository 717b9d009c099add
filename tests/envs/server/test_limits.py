"""The server's door: tokens, sizes and garbage, and what a client may set."""

from __future__ import annotations

import socket
import time

import httpx
import pytest
import websockets.sync.client as sockets
from typer.testing import CliRunner
from websockets.exceptions import ConnectionClosed, InvalidStatus

from support.commands import ENVIRONMENT
from support.env_server import Wire, env_server, wild
from whet.cli import app as commands
from whet.envs import EnvError
from whet.envs.server.served import served_environments
from whet.envs.wordle import WORDS, load_words

TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def server():
    with env_server("textcraft", "maze", more={"wild": wild()}, max_body_bytes=50_000) as running:
        yield running


@pytest.fixture(scope="module")
def wire(server):
    return Wire(server[0])


def test_a_token_is_asked_for_on_every_wire():
    with env_server("maze", token=TOKEN) as (address, _):
        assert httpx.get(f"{address}/v1/health").status_code == 200
        for path in ("/v1/info", "/agentgym/maze/", "/openenv/maze/health", "/nothing"):
            assert httpx.get(address + path).status_code == 401
        assert Wire(address, Authorization="Bearer wrong").get("info") == (401, "unauthorized")
        assert Wire(address, Authorization=f"Bearer {TOKEN}").get("info") == {"environments": ["maze"]}
        place = f"{address.replace('http', 'ws')}/openenv/maze/ws"
        with pytest.raises(InvalidStatus, match="401"):
            sockets.connect(place)
        with sockets.connect(place, additional_headers={"Authorization": f"Bearer {TOKEN}"}) as socket:
            socket.send('{"type": "state"}')
            assert '"step_count":0' in socket.recv()


def test_a_long_body_is_refused_on_every_wire(server, wire):
    assert wire.post("create", env="x" * 50_000) == (413, "too_large")
    assert httpx.post(f"{server[0]}/agentgym/maze/create", content=b" " * 50_001).status_code == 413
    with sockets.connect(f"{server[0].replace('http', 'ws')}/openenv/maze/ws") as socket:
        socket.send('{"type": "step", "data": {"text": "%s"}}' % ("x" * 50_000))
        with pytest.raises(ConnectionClosed, match="1009"):
            socket.recv()


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"null", b"\xff\xfe", b'{"env": NaN}', b"[" * 20_000, b'{"a":' * 9_000, b'{"env": ' + b"9" * 5000],
)
def test_a_body_that_is_no_object_is_refused(server, body):
    answer = httpx.post(f"{server[0]}/v1/create", content=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_request")
    assert len(answer.content) < 1000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("create", {}),
        ("create", {"env": 3}),
        ("create", {"env": "maze", "settings": []}),
        ("create", {"env": "maze", "settings": {"size": 3}}),
        ("create", {"env": "maze", "key": "k" * 65}),
        ("create", {"env": "maze", "states": 1}),
        ("reset", {"item": 3}),
        ("close", {"id": ["x"]}),
    ],
)
def test_a_wrong_field_is_refused(wire, path, body):
    assert wire.post(path, **body) == (400, "bad_request")


@pytest.mark.parametrize("item", [-1, 1.0, "3", None, True, 2**63])
def test_an_item_is_a_whole_number(wire, item):
    id = wire.post("create", env="maze")["id"]
    assert wire.post("reset", id=id, item=item) == (400, "bad_request")
    assert wire.post("reset", id=id, item=3)["turn"] == 0


@pytest.mark.parametrize("action", ["", "\x00", "move\nup", "x" * 40_000, "\U0001f600", "'; drop table"])
def test_any_text_is_an_action(wire, action):
    id = wire.begin("textcraft")
    assert wire.post("step", id=id, action=action, turn=1)["info"]["invalid"] is True


def test_half_a_character_is_no_text(server, wire):
    id = wire.begin("maze")
    body = b'{"id": "%s", "action": "\\ud800", "turn": 1}' % id.encode()
    assert httpx.post(f"{server[0]}/v1/step", content=body).status_code == 400
    assert wire.get("observe", id=id)["turn"] == 0


def test_endless_headers_are_refused(server):
    host, _, port = server[0].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nX-Long: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            send_for_ever(connection)


def send_for_ever(connection):
    for _ in range(300):
        connection.sendall(b"x" * 10_000)
        time.sleep(0.001)


def test_a_body_behind_short_headers_may_be_longer_than_headers_may(server):
    body = b'{"env": "maze"%s}' % (b" " * 49_000)
    for _ in range(3):
        assert httpx.post(f"{server[0]}/v1/create", content=body).status_code == 200


def test_unknown_names_and_paths_have_codes(server, wire):
    assert wire.post("create", env="mase") == (404, "unknown_environment")
    assert wire.get("info/mase") == (404, "unknown_environment")
    assert wire.post("step", id="00", action="a", turn=1) == (404, "unknown_session")
    assert wire.get("step") == (404, "unknown_url")
    assert httpx.get(f"{server[0]}/docs").json()["error"]["code"] == "unknown_url"


def test_a_client_sets_no_file_of_the_server(wire, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("a secret")
    answer = wire.http.post("/v1/create", json={"env": "textcraft", "settings": {"recipes": str(secret)}})
    assert answer.status_code == 400
    assert "secret" not in answer.text
    assert wire.get("info/textcraft", settings='{"openings": "/etc/passwd"}') == (400, "bad_request")
    id = wire.begin("textcraft", settings={"max_distractors": 0})
    assert wire.get("observe", id=id)["turn"] == 0


def test_settings_of_the_server_reach_every_wire(tmp_path):
    words, few = tmp_path / "words.txt", list(load_words(WORDS)[:40])
    words.write_text("\n".join(few))
    with env_server("wordle", own={"wordle": {"words": str(words)}}) as (address, _):
        id = httpx.post(f"{address}/agentgym/wordle/create").json()["id"]
        vocabulary = httpx.get(f"{address}/agentgym/wordle/filtered_vocab", params={"id": id}).json()
        assert vocabulary == few
        assert Wire(address).begin("wordle")
    for own in ({"wordle": {"wrds": 3}}, {"maze": {}}, {"wordle": {"words": "nowhere.txt"}}):
        with pytest.raises(EnvError, match=r"wordle|maze|nowhere"):
            served_environments(["wordle"], own)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--host", "0.0.0.0"], "--no-token"),
        (["--token", "two words"], "ASCII"),
        (["mase"], "did you mean 'maze'"),
        (["--set", "maze"], "NAME.key=value"),
        (["maze", "--set", "wordle.words=x"], "not served"),
        (["maze", "--set", "maze.size=3"], "does not take these settings"),
        (["--host", "nowhere.invalid", "--no-token"], "cannot listen"),
    ],
)
def test_a_server_that_cannot_start_says_why(arguments, says):
    done = CliRunner().invoke(commands, ["env", "serve", "--port", "0", *arguments], env=ENVIRONMENT)
    assert done.exit_code in (1, 2)
    assert says in " ".join(done.output.split())
