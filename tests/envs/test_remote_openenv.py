"""OpenEnv servers: whet's own by that wire, and others with their forms of actions, old habits and mistakes."""

from __future__ import annotations

import logging
import pickle
import threading

import pytest

from support.env_server import env_server, until, wild
from support.openenv_server import OpenEnvServer
from whet.config.environment_data import RemoteEnvironment
from whet.envs import ENVIRONMENTS, EnvError
from whet.envs.remote.errors import BadAnswer, Failed, Full, Refused, TooSlow, Unreachable
from whet.envs.remote.info import remote_info
from whet.envs.remote.openenv_session import Interface, OpenEnvSession, Part
from whet.envs.remote.transport import Limits, Server

QUICK = Limits(timeout_s=0.7, connect_s=2.0, wait_s=0.4)
SPLITS = {"train": (0, 8), "test": (8, 10)}
TEXT = Interface((Part(None, range(100)),), ("text",), "text")


def observed(text="o", *, reward=0.0, done=False, **metadata):
    return {"observation": {"text": text}, "reward": reward, "done": done, "metadata": metadata}


def session(server, interface=TEXT):
    return OpenEnvSession(Server(server.url, QUICK), "game", interface)


def test_episodes_on_whets_server_are_those_in_process():
    with env_server("maze", "textcraft") as (url, sessions):
        here = ENVIRONMENTS.get("textcraft")
        there = remote_info(
            "textcraft", RemoteEnvironment(url=f"openenv+ws{url.removeprefix('http')}/openenv/textcraft")
        )
        splits = here.splits()
        assert [len(items) for items in there.splits().values()] == [len(items) for items in splits.values()]
        one, other = here.make(), there.make()
        for index in range(3):
            for split in ("train", "test"):
                begun = other.reset(there.splits()[split][index], seed=index)
                assert begun == one.reset(splits[split][index], seed=index)
                for _, action in here.expert(one, seed=0):
                    step = one.step(action)
                    assert other.step(action) == step
                    if step[2]:
                        break
        twin = other.fork()
        twin.close()
        other.close()
        until(lambda: sessions.num_held == 0)


def test_a_name_that_whets_server_lacks_is_refused():
    with env_server("maze") as (url, _), pytest.raises(EnvError, match="openenv"):
        remote_info("textcraft", RemoteEnvironment(url=f"openenv+{url}/openenv/textcraft"))


def test_failures_of_an_environment_on_whets_server():
    with env_server(more={"wild": wild()}) as (url, _):
        info = remote_info("wild", RemoteEnvironment(url=f"openenv+{url}/openenv/wild", timeout_s=0.7))
        env = info.make()
        for action, error in (("break", Failed), ("hang", TooSlow)):
            env.reset(0)
            with pytest.raises(error):
                env.step(action)
            with pytest.raises(EnvError):
                env.step("on")
        assert env.reset(1)[0] == "item 1, seed 0"
        assert pickle.loads(pickle.dumps(env)).reset(2)[0] == "item 2, seed 0"


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        (observed("p", reward=None), ("p", 0.0, False, False)),
        (observed("p", reward=True, done=True), ("p", 1.0, True, False)),
        (observed("p", reward=1, done=True, terminated=False, truncated=True), ("p", 1.0, False, True)),
        (observed("p", done=True, truncated=True), ("p", 0.0, False, True)),
        ({"observation": {"rows": [1, 2], "score": 3}, "reward": 0.5, "done": False},
         ('{"rows": [1, 2], "score": 3}', 0.5, False, False)),
    ],
)  # fmt: skip
def test_answers_are_read_as_they_are_meant(said, seen):
    with OpenEnvServer(lambda message: said if message["type"] == "step" else observed()) as server:
        env = session(server)
        env.reset(3, seed=5)
        assert env.step("look")[:4] == seen
        assert server.asked == [
            {"type": "reset", "data": {"seed": 5, "index": 3}},
            {"type": "step", "data": {"text": "look"}},
        ]


@pytest.mark.parametrize(
    "said",
    [
        {"observation": "text", "reward": 0, "done": False},
        {"observation": {"text": "o"}, "reward": 0},
        observed(reward="1"),
        observed(reward=float("nan")),
        observed(done="yes"),
        observed(done=True, terminated=False, truncated=False),
        observed(terminated=True),
        {"type": "state", "data": {}},
        {"type": "observation", "data": []},
        "[]",
        "no JSON",
        "[" * 100_000,
    ],
)
def test_garbage_is_never_an_answer(said):
    with OpenEnvServer(lambda message: said if message["type"] == "step" else observed()) as server:
        env = session(server)
        env.reset(0)
        with pytest.raises(BadAnswer):
            env.step("look")
        with pytest.raises(Unreachable, match="the episode with it"):
            env.step("look")


def test_a_cut_connection_ends_the_episode_and_no_step_goes_twice():
    says = [observed(), None, observed("again")]
    with OpenEnvServer(lambda message: says.pop(0)) as server:
        env = session(server)
        env.reset(0)
        with pytest.raises(Unreachable):
            env.step("look")
        assert env.reset(1) == ("again", {})
        assert [message["type"] for message in server.asked] == ["reset", "step", "reset"]


def test_a_full_server_is_waited_for_within_a_limit():
    full = {"type": "error", "data": {"message": "full", "code": "CAPACITY_REACHED"}}
    with OpenEnvServer(lambda message: full) as server, pytest.raises(Full, match="wait_s"):
        session(server).reset(0)
    says = [full, full, observed("room")]
    with OpenEnvServer(lambda message: says.pop(0)) as server:
        assert session(server).reset(0) == ("room", {})
    with env_server("maze", capacity=1) as (url, _):
        info = remote_info("maze", RemoteEnvironment(url=f"openenv+{url}/openenv/maze", wait_s=20))
        first, second = info.make(), info.make()
        begun = first.reset(0)
        threading.Timer(0.3, first.close).start()
        assert second.reset(0) == begun


def test_an_error_ends_the_episode_but_an_action_that_is_none_is_answered():
    codes = ["VALIDATION_ERROR", "EXECUTION_ERROR"]

    def answer(message):
        if message["type"] == "reset":
            return observed()
        return {"type": "error", "data": {"message": "no", "code": codes.pop(0)}}

    with OpenEnvServer(answer) as server:
        env = session(server)
        env.reset(0)
        assert env.step("look") == ("no", 0.0, False, False, {"invalid": True})
        with pytest.raises(Failed, match="EXECUTION_ERROR"):
            env.step("look")


@pytest.mark.parametrize("code", [None, 0, False, "", [], "long" * 1_000_000])
def test_an_error_is_never_a_reward_whatever_its_code(code):
    data = {"message": "no", "code": code, "reward": 1.0, "done": True, "observation": {"text": "won"}}
    with OpenEnvServer(
        lambda message: {"type": "error", "data": data} if message["type"] == "step" else observed()
    ) as server:
        env = session(server)
        env.reset(0)
        with pytest.raises(Failed, match="could not go on") as failed:
            env.step("look")
        assert len(str(failed.value)) < 600


def test_an_action_of_several_fields_is_written_as_json():
    schema = {"action": {"properties": {"row": {"type": "integer"}, "column": {"type": "integer"}}}}
    with OpenEnvServer(lambda message: observed(), {"/schema": schema}) as server:
        env = remote_info("game", RemoteEnvironment(url=f"openenv+{server.url}", splits=SPLITS)).make()
        env.reset(0)
        num_asked = len(server.asked)
        for text in ("left", "[1]", "{", "[" * 50_000):
            observation, _, _, _, info = env.step(text)
            assert info == {"invalid": True}
            assert "row, column" in observation
        assert len(server.asked) == num_asked
        env.step('{"row": 1, "column": 2}')
        assert server.asked[-1] == {"type": "step", "data": {"row": 1, "column": 2}}


def test_a_server_that_begins_another_item_is_refused():
    def answer(message):
        return observed(index=0, split="train")

    with OpenEnvServer(answer) as server:
        with pytest.raises(BadAnswer, match=r"begins \{'index': 0\}"):
            session(server).reset(4)
        with pytest.raises(BadAnswer, match="begins"):
            remote_info("game", RemoteEnvironment(url=f"openenv+{server.url}", splits=SPLITS))


def test_an_old_server_that_drops_the_index_is_warned_of_once(caplog):
    caplog.set_level(logging.WARNING)
    remote = {"splits": SPLITS}
    with OpenEnvServer(lambda message: observed("always")) as server:
        info = remote_info("game", RemoteEnvironment(url=f"openenv+{server.url}", **remote))
        info.make().reset(3)
    assert [record.message.count("drops the index") for record in caplog.records] == [1]
    caplog.clear()
    with OpenEnvServer(lambda message: observed(str(message["data"]["index"]))) as server:
        remote_info("game", RemoteEnvironment(url=f"openenv+{server.url}", **remote))
    assert not caplog.records


@pytest.mark.parametrize(
    ("pages", "settings", "words"),
    [
        ({}, {}, "names no split 'train'"),
        ({"/schema": {"action": []}}, {}, "action's fields"),
        ({"/list_environments": ["chess", "go"]}, {}, "has no environment 'game'; it has chess, go"),
        ({"/list_environments": ["game"], "/game/splits": [{"type": "train"}]}, {}, "split without a name"),
    ],
)
def test_what_cannot_be_is_refused_before_a_run(pages, settings, words):
    with OpenEnvServer(lambda message: observed(), pages) as server, pytest.raises(EnvError, match=words):
        remote_info("game", RemoteEnvironment(url=f"openenv+{server.url}", **settings))


def test_nobody_is_there():
    with pytest.raises(Unreachable, match="is its server up"):
        OpenEnvSession(Server("http://127.0.0.1:1", QUICK), "game", TEXT).reset(0)
    with pytest.raises(Refused, match="OpenEnv server"), env_server("maze") as (url, _):
        OpenEnvSession(Server(url, QUICK), "game", TEXT).reset(0)
