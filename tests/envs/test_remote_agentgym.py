"""AgentGym's servers as their code answers: three dialects, errors that come with 200, and numbers that come again."""

from __future__ import annotations

import pickle

import pytest

from support.json_server import JsonServer
from whet.config.environment_data import RemoteEnvironment
from whet.envs import EnvError
from whet.envs.remote.agentgym import AgentGymSession
from whet.envs.remote.errors import BadAnswer, Failed, Lost, Refused, TooSlow, Unreachable
from whet.envs.remote.info import remote_info
from whet.envs.remote.transport import Limits, Server

LIMITS = Limits(timeout_s=2.0, connect_s=1.0, wait_s=0.3, reconnects=1)
SPLITS = {"train": (0, 8), "test": (8, 10)}


def session(server, name):
    return AgentGymSession(Server(server.url, LIMITS), name)


def answering(answers):
    """A server's function: by path, what it answers, or a list of what it answers one after the other."""
    answers = dict(answers)

    def answer(path, body):
        said = answers.get(path, (404, {"detail": "Not Found"}))
        return said.pop(0) if isinstance(said, list) else said

    return answer


@pytest.mark.parametrize("created", [7, {"id": 7}, {"env_idx": 7}, {"id": 7, "observation": "x", "done": False}])
def test_a_new_session_has_its_number_whatever_its_dialect(created):
    answers = {"/create": created, "/reset": {"observation": "here", "done": False, "reward": 0}}
    with JsonServer(answering(answers)) as server:
        env = session(server, "maze")
        assert env.reset(3) == ("here", {})
        assert server.asked == [("/create", None), ("/reset", {"id": 7, "game": 3})]


# By environment: body of create, body of reset, answer of reset, what is read first, body of step, answer, what is read
DIALECTS = {
    "textcraft": ({}, {"id": 7, "data_idx": 3}, {"observation": "o"}, "o",
                  {"id": 7, "action": "look"}, {"observation": "p", "reward": 1, "done": True}, ("p", 1.0, True)),
    "babyai": (None, {"id": 7, "data_idx": 3}, {"observation": "o", "score": 0, "reward": 0, "done": False}, "o",
               {"id": 7, "action": "look"}, {"observation": "p", "reward": 0, "score": 0.7, "done": True},
               ("p", 0.7, True)),
    "sciworld": (None, {"id": 7, "data_idx": 3}, {"task_description": "boil", "observation": "a hall", "score": 0},
                 "boil\na hall", {"id": 7, "action": "look"},
                 {"observation": "p", "reward": 5, "score": 40, "done": False}, ("p", 40.0, False)),
    "alfworld": (None, {"id": 7, "game": 3, "world_type": "Text"},
                 {"observation": "a room", "available_actions": ["look", "go"]},
                 "a room\nAVAILABLE ACTIONS: look,go", {"id": 7, "action": "look"},
                 {"observation": "p", "reward": 0, "done": False, "available_actions": []}, ("p", 0.0, False)),
    "wordle": (None, {"id": 7, "seed": 3}, {"id": 7, "observation": ""}, "", {"id": 7, "action": "look"},
               {"observation": "b b b b b", "reward": 0, "done": False}, ("b b b b b", 0.0, False)),
    "webshop": (None, {"env_idx": 7, "session_id": 3}, ["s", None], "asked", {"env_idx": 7, "action": "look"},
                {"state": "p", "reward": 0.5, "done": True, "info": None}, ("p", 0.5, True)),
    "sqlgym": (None, {"env_idx": 7, "item_id": 3}, ["s", None], "asked", {"env_idx": 7, "action": "look"},
               {"state": "p", "reward": 1.0, "done": True, "info": {}}, ("p", 1.0, True)),
    "searchqa": ({"id": 0}, {"env_idx": 7, "id": 3}, "s", "asked", {"env_idx": 7, "action": "look"},
                 {"observation": "p", "reward": 0, "done": False, "info": None}, ("p", 0.0, False)),
    "weather": ({"id": 0}, {"env_idx": 7, "id": 3}, "s", "asked", {"env_idx": 7, "action": "Action: look"},
                {"observation": "p", "reward": 1.0, "done": True}, ("p", 1.0, True)),
    "webarena": (None, {"env_idx": 7, "seed": 0, "idx": 3}, {"observation": "o", "sites": [], "object": "buy"},
                 "asked", {"env_idx": 7, "action": "look"},
                 {"observation": "p", "reward": 1, "terminated": False, "truncated": False, "info": {}},
                 ("p", 0.0, False)),
}  # fmt: skip


@pytest.mark.parametrize("name", DIALECTS)
def test_each_environment_is_spoken_to_in_its_dialect(name):
    create, reset, begun, first, step, stepped, seen = DIALECTS[name]
    bare = "env_idx" in reset and name != "webarena"
    answers = {
        "/create": 7 if bare else {next(key for key in ("id", "env_idx") if key in reset): 7},
        "/reset": begun, "/step": stepped, "/observation": "asked",
    }  # fmt: skip
    with JsonServer(answering(answers)) as server:
        env = session(server, name)
        assert env.reset(3)[0] == first
        observation, reward, terminated, truncated, _ = env.step("look")
        assert (observation, reward, terminated) == seen
        assert not truncated
        bodies = {path: body for path, body in server.asked if path != "/observation"}
        assert bodies == {"/create": create, "/reset": reset, "/step": step}
        env.close()  # most have no /close: 404


def test_scores_are_of_the_episode_so_far():
    """So a step's reward is what the score grew by, and the sum is the last score: -100 is a mistake without return."""
    steps = [{"observation": "", "reward": 9, "score": score, "done": False} for score in (8, 8, 40, -100)]
    answers = {"/create": {"id": 0}, "/reset": {"task_description": "", "observation": "", "score": 0}, "/step": steps}
    with JsonServer(answering(answers)) as server:
        env = session(server, "sciworld")
        env.reset(0)
        assert [env.step("wait")[1] for _ in range(4)] == [8, 0, 32, -140]
        steps.append({"observation": "", "reward": 0, "score": 3, "done": False})
        env.reset(1)
        assert env.step("wait")[1] == 3


def test_only_the_last_sql_block_is_sent():
    answers = {
        "/create": 0,
        "/reset": ["", None],
        "/observation": "",
        "/step": {"state": "", "reward": 0, "done": True},
    }
    with JsonServer(answering(answers)) as server:
        env = session(server, "sqlgym")
        env.reset(0)
        env.step("First ```sql\nSELECT 1\n``` no: ```sql\nSELECT 2\n``` done")
        assert server.asked[-1] == ("/step", {"env_idx": 0, "action": "SELECT 2"})


GOOD = {"observation": "o", "reward": 0, "done": False}


@pytest.mark.parametrize(
    ("path", "said", "error", "words"),
    [
        ("/step", {"error": "The id 9 is not valid."}, Failed, "The id 9 is not valid"),
        ("/step", (500, {"detail": "boom"}), Failed, "answers 500"),
        ("/step", (422, {"detail": []}), Refused, "answers 422"),
        ("/step", (404, b"<html>"), BadAnswer, "no JSON"),
        ("/step", b"\xff\xfe not json", BadAnswer, "no JSON"),
        ("/step", {"observation": "o", "done": False}, BadAnswer, "no 'reward'"),
        ("/step", {**GOOD, "reward": "1"}, BadAnswer, "reward"),
        ("/step", {**GOOD, "reward": float("nan")}, BadAnswer, "reward"),
        ("/step", {**GOOD, "done": "yes"}, BadAnswer, "terminated"),
        ("/step", {**GOOD, "observation": None}, BadAnswer, "observation"),
        ("/step", [1], BadAnswer, "protocol"),
        ("/reset", {"observation": ["o"]}, BadAnswer, "observation"),
        ("/reset", {"error": "list index out of range"}, Failed, "out of range"),
        ("/create", {"id": "7"}, BadAnswer, "no number"),
        ("/create", {"error": "full"}, Failed, "full"),
        ("/create", -1, BadAnswer, "no number"),
        ("/create", True, BadAnswer, "no number"),
    ],
)
def test_answers_that_break_the_protocol_are_failures_with_a_name(path, said, error, words):
    answers = {"/create": {"id": 0}, "/reset": GOOD, "/step": GOOD, path: said}
    with JsonServer(answering(answers)) as server:
        env = session(server, "textcraft")
        with pytest.raises(error, match=words):  # noqa: PT012 - where it fails depends on the answer
            env.reset(0)
            env.step("look")


def test_a_reset_of_web_arena_that_timed_out_is_late():
    answers = {"/create": {"env_idx": 0}, "/reset": {"observation": "x"}, "/observation": "TimeoutError"}
    with JsonServer(answering(answers)) as server, pytest.raises(TooSlow):
        session(server, "webarena").reset(0)


def test_a_number_that_comes_again_ends_the_sessions_before_it():
    """The server was started again: the old session's steps would act in the new one's episode."""
    answers = {"/create": [{"id": 0}, {"id": 1}, {"id": 0}], "/reset": GOOD, "/step": GOOD}
    with JsonServer(answering(answers)) as server:
        first, second, third = (session(server, "textcraft") for _ in range(3))
        first.reset(0)
        second.reset(0)
        first.step("look")
        third.reset(0)
        num_asked = len(server.asked)
        for old in (first, second):
            with pytest.raises(Lost):
                old.step("look")
        assert len(server.asked) == num_asked  # nothing was sent
        assert third.step("look")[0] == "o"


def test_a_step_is_sent_once_and_a_cut_gives_up_all_sessions():
    answers = {"/create": [{"id": 0}, {"id": 1}, {"id": 0}], "/reset": GOOD, "/step": GOOD}
    server = JsonServer(answering(answers))
    port = server.server_address[1]
    with server:
        first, second = (session(server, "textcraft") for _ in range(2))
        first.reset(0)
        second.reset(0)
    with pytest.raises(Unreachable):
        first.step("look")
    with JsonServer(answering(answers), port=port) as again:
        with pytest.raises(Lost):
            second.step("look")
        assert again.asked == []
        second.reset(0)
        assert second.step("look")[0] == "o"
        assert [path for path, _ in again.asked] == ["/create", "/reset", "/step"]


def test_whet_knows_the_published_items_and_its_own_rules():
    answers = {"/create": [{"id": 0}, {"id": 1}, {"id": 2}], "/reset": GOOD, "/step": GOOD, "/close": True}
    with JsonServer(answering(answers)) as server:
        info = remote_info("textcraft", RemoteEnvironment(url=f"agentgym+{server.url}/"))
        assert len(info.splits()["train"]) == 444
        assert [info.group(item) for item in (0, 140, 420, 533)] == ["depth 1", "depth 2", "depth 3", "depth 4"]
        assert [sum(info.group(item) == f"depth {depth}" for item in info.splits()["test"]) for depth in (1, 2, 3, 4)] \
            == [31, 41, 25, 3]  # fmt: skip
        assert (info.parser, info.expert) == ("cleaned", None)
        env = pickle.loads(pickle.dumps(info)).make()
        env.reset(543)
        twin = env.fork()
        assert twin.step("look") == env.step("look")
        assert twin.state_key() == env.state_key()
        with pytest.raises(Lost):  # a session does not travel
            pickle.loads(pickle.dumps(env.env)).step("look")
        with pytest.raises(EnvError, match="no item -1"):
            env.reset(-1)


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("nothing", {}, "no server of 'nothing'"),
        ("webshop", {}, "give data.env.webshop.splits"),
        ("textcraft", {"success_above": 2.0}, "success_above"),
        ("textcraft", {"parser": "strange"}, "set parser"),
        ("textcraft", {"splits": {"train": (0, 3)}}, "no split 'test'"),
    ],
)
def test_what_cannot_be_is_refused_before_a_run(name, settings, words):
    answers = {"/create": {"id": 0}, "/reset": GOOD}
    with JsonServer(answering(answers)) as server, pytest.raises(EnvError, match=words):
        remote_info(name, RemoteEnvironment(url=f"agentgym+{server.url}", **settings))


def test_an_environment_that_whet_lacks_needs_its_items_alone():
    answers = {"/create": 0, "/reset": ["s", None], "/observation": "asked"}
    with JsonServer(answering(answers)) as server:
        remote = RemoteEnvironment(url=f"agentgym+{server.url}", splits=SPLITS, rules="Buy.", max_turns=7)
        info = remote_info("webshop", remote)
        assert (info.rules, info.max_turns, info.parser, info.rewards) == ("Buy.", 7, "react", (0.0, 1.0))
        with pytest.raises(EnvError, match="takes no settings"):
            remote_info("webshop", remote, {"size": 3})
        with pytest.raises(EnvError, match="is it AgentGym's server of maze"):
            remote_info("maze", RemoteEnvironment(url=f"agentgym+{server.url}/maze"))
