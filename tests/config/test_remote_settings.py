"""How settings name environments behind an address, alone and beside others."""

from __future__ import annotations

import sys

import pytest

from whet.config import ConfigError
from whet.config.base import plain
from whet.config.environment_data import RemoteEnvironment
from whet.config.yaml_text import compact
from whet.envs import EnvError
from whet.envs.remote.address import Address, read_address
from whet.envs.remote.openenv_session import Interface, OpenEnvSession, Part
from whet.envs.remote.transport import Server
from whet.methods.registry import config_of

URL = "http://127.0.0.1:8000"


def data(*overrides):
    return config_of("agent_grpo", None, list(overrides)).data


def test_one_is_named_beside_its_address():
    given = data(f"data.env={{name: maze, url: {URL}}}", "data.env.maze.timeout_s=5")
    assert given.env == {"maze": RemoteEnvironment(url=URL, timeout_s=5.0)}
    assert given.shares == {"maze": 1.0}


def test_several_are_named_by_key():
    given = data(f"data.env={{maze: {{url: {URL}, share: 3, splits: {{train: [0, 8], test: [8, 10]}}}}, wordle: 1}}")
    assert given.shares == {"maze": 3.0, "wordle": 1.0}
    assert list(given.remotes) == ["maze"]
    assert given.remotes["maze"].splits == {"train": (0, 8), "test": (8, 10)}
    assert data("data.env=maze,wordle").remotes == {}


def test_a_saved_config_reads_back():
    saved = data(f"data.env={{name: maze, url: {URL}}}")
    assert data(f"data.env={compact(plain(saved.env))}").env == saved.env


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (f"{{maze: {{url: {URL}, shar: 2}}}}", "did you mean data.env.maze.share"),
        ("{maze: {share: 2}}", "data.env.maze.url has no default"),
        ("{maze: -1}", "data.env.maze must be a number above 0"),
        (f"{{name: maze, url: {URL}, share: 0}}", "data.env.maze.share must be a number > 0"),
        (f"{{name: maze, url: {URL}, token: x}}", "unknown key data.env.maze.token"),
        ("[maze, [wordle]]", "data: a list in env holds names alone"),
    ],
)
def test_what_is_wrong_is_said_with_its_key(env, words):
    with pytest.raises(ConfigError, match=words):
        data(f"data.env={env}")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("http://h:1/", Address("whet", "http://h:1")),
        ("https://h/a/b//", Address("whet", "https://h/a/b")),
        ("agentgym+http://h:1/maze/", Address("agentgym", "http://h:1/maze")),
        ("openenv+ws://h:1/x", Address("openenv", "http://h:1/x")),
        ("openenv+wss://[::1]:2", Address("openenv", "https://[::1]:2")),
    ],
)
def test_addresses(text, address):
    assert read_address(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "h:1", "ftp://h", "http://", "http://u:p@h", "http://h:x", "http://h/?a=1", "http://h/#a", "http://h h"],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(EnvError):
        read_address(text)


def test_a_missing_package_is_one_sentence(monkeypatch):
    session = OpenEnvSession(Server(URL), "game", Interface((Part(None, range(9)),), ("text",), "text"))
    for package, ask in (("httpx", lambda: Server(URL).ask("/")), ("websockets", lambda: session.reset(0))):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(EnvError, match=rf"{package}: in whet's checkout, `make setup EXTRAS=remote`"):
            ask()
