"""Runs whose environments are behind an address: the bits of those in process, and what is refused beforehand."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import whet
from support.agent_model import agent_model
from support.commands import same_bits
from support.cutting_proxy import CuttingProxy
from support.env_process import EnvProcess
from whet.cli import app
from whet.config import ConfigError
from whet.envs import EnvError


@pytest.fixture(scope="module")
def server():
    with EnvProcess("maze", "textcraft") as running:
        yield running


def settings(env):
    return {
        "policy": {"path": str(agent_model())}, "data": {"env": env, "num_test": 2, "num_validation": 2},
        "prompts_per_step": 4, "group_size": 3, "num_steps": 5, "num_threads": 1, "rules": "none", "max_turns": 3,
        "sampling": {"max_new_tokens": 24}, "evaluation": {"max_turns": 2}, "progress": False,
    }  # fmt: skip


@pytest.fixture(scope="module")
def in_process(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "in_process"
    whet.train("agent_grpo", out=out, **settings("maze"))
    return out


@pytest.mark.integration
@pytest.mark.parametrize(("way", "share"), [("fine", 0.0), ("cut", 0.01), ("cut", 0.1), ("slow", 0.2)])
def test_a_run_has_the_bits_of_the_one_in_process(tmp_path, server, in_process, way, share):
    """Also where connections are cut, before a request has arrived or after it was answered, and where answers come
    late and in another order."""
    proxy = CuttingProxy(server.port, way=way, share=share, slow_s=0.1, seed=5)
    try:
        whet.train("agent_grpo", out=tmp_path / "run", **settings({"name": "maze", "url": proxy.url}))
    finally:
        proxy.close()
    same_bits(in_process, tmp_path / "run")
    assert proxy.counts["requests"] > 200
    assert share < 0.1 or proxy.counts["spoilt"] > 10


@pytest.mark.integration
def test_gigpo_knows_states_by_their_digests(tmp_path, server):
    """Its groups are of turns in equal states, which it asks of the environment."""
    for name, env in (("here", "maze"), ("there", {"maze": {"url": server.url}})):
        whet.train("agent_gigpo", out=tmp_path / name, **settings(env) | {"num_steps": 2})
    same_bits(tmp_path / "here", tmp_path / "there")


def test_a_dry_run_asks_the_server(server, tmp_path):
    env = f"data.env={{name: maze, url: {server.url}}}"
    done = CliRunner().invoke(
        app,
        [
            *("train", "agent_grpo", env, f"policy.path={agent_model()}", "rules=none", "prompts_per_step=4"),
            *("--dry-run", "--out", str(tmp_path / "run")),
        ],
    )
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("{name: maze, url: 'http://127.0.0.1:1'}", "no connection with http://127.0.0.1:1"),
        ("{name: wordle, url: URL}", "wordle"),
        ("{name: maze, url: 'URL/v2'}", "there is no GET /v2"),
        ("{name: maze, url: 'ftp://x'}", "is no address"),
        ("{name: maze, url: URL, max_turns: 0}", "max_turns"),
        ("{name: maze, share: 2}", "url has no default"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(server, tmp_path, env, words):
    env = env.replace("URL", server.url)
    done = CliRunner().invoke(app, ["train", "agent_grpo", f"data.env={env}", "--out", str(tmp_path / "run")])
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert words in said
    assert said.count("whet: ") == 1
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


def test_settings_reach_the_environment_on_the_server(server, tmp_path):
    data = {"env": {"textcraft": {"url": server.url}}, "settings": {"textcraft": {"no_such": 1}}}
    with pytest.raises(EnvError, match="does not take these settings"):
        whet.train("agent_grpo", out=tmp_path / "run", **settings({}) | {"data": data})


def test_a_setting_beside_no_address_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="url has no default"):
        whet.train("agent_grpo", out=tmp_path / "run", **settings({"maze": {"share": 2.0}}))


def test_an_agent_is_measured_on_a_server(server):
    """With the numbers of the same measurement in process, without the expert's, which is in process alone."""
    said = []
    for env in ("maze", f"maze={server.url}"):
        args = ["eval", "--policy", str(agent_model()), "--env", env, "data.num_test=2", "rules=none"]
        done = CliRunner().invoke(app, [*args, "sampling.max_new_tokens=24", "evaluation.max_turns=2"])
        assert done.exit_code == 0, done.output
        rows = [line.split() for line in done.output.splitlines()]
        said.append([row for row in rows if row and row[0] in ("Policy", "Random", "Constant") and len(row) == 8])
    assert said[0] == said[1]
    assert len(said[0]) == 3
