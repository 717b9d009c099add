"""`whet env check`: a table and 0 where all is well, sentences and 1 where it is not, one sentence where it cannot."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from support.env_server import SPLITS, env_server
from whet.cli import app
from whet.envs import EnvironmentInfo
from whet.envs.server.served import Served
from whet.envs.user_environment import UserEnvironment


def checked(*args):
    done = CliRunner().invoke(app, ["env", "check", "--items", "2", *args])
    return done.exit_code, " ".join(done.output.split())


def test_an_environment_here():
    code, said = checked("maze")
    assert code == 0
    assert said.count(" ok") == 8


@pytest.mark.parametrize("wire", ["{url}", "agentgym+{url}/agentgym/maze", "openenv+{url}/openenv/maze"])
def test_one_behind_each_wire(wire):
    with env_server("maze") as (url, _):
        code, said = checked(wire.format(url=url), *([] if wire == "{url}" else ["maze"]))
    assert (code, said.count(" ok"), said.count("it has none")) == (0, 7, 1), said


class Forgetful:
    """Says something else at each reset."""

    count = 0

    def reset(self, item, *, seed=0):
        type(self).count += 1
        self.left = 3
        return f"reset {self.count}", {}

    def step(self, action):
        self.left -= 1
        return "on", 0.0, self.left == 0, False, {}


def test_one_that_breaks_the_protocol():
    info = EnvironmentInfo(
        name="forgetful",
        make=lambda: UserEnvironment(Forgetful, name="forgetful", splits=lambda: SPLITS),
        splits=lambda: SPLITS,
        rules="",
        max_turns=3,
    )
    with env_server(more={"forgetful": Served(info, "forgets", True, {})}) as (url, _):
        code, said = checked(url, "forgetful")
    assert code == 1
    assert "violation" in said
    assert "is another episode from turn 0 on" in said


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["http://127.0.0.1:1"], "no connection"),
        (["openenv+ws://127.0.0.1:1"], "give the name of one"),
        (["maze", "textcraft"], "is no address"),
        (["mazes"], "did you mean 'maze'"),
        (["agentgym+http://127.0.0.1:1", "maze"], "no connection"),
    ],
)
def test_what_cannot_be_checked_is_one_sentence(args, words):
    code, said = checked(*args)
    assert code == 2
    assert words in said
    assert said.count("whet: ") == 1
