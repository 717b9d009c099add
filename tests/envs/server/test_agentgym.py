"""AgentGym's published dialects, request by request, as specs of its servers have them."""

from __future__ import annotations

import httpx
import pytest

from support.env_server import env_server, wild
from whet.envs import ENVIRONMENTS


@pytest.fixture(scope="module")
def address():
    with env_server(
        *("textcraft", "babyai", "maze", "wordle", "webshop", "todo", "sqlgym", "searchqa"),
        more={"wild": wild()},
        capacity=64,
    ) as (place, _):
        yield place


class Gym:
    """Requests as the authors' clients send them."""

    def __init__(self, address, name):
        self.base = f"{address}/agentgym/{name}"

    def post(self, path, status=200, **body):
        answer = httpx.post(f"{self.base}/{path}", json=body)
        assert answer.status_code == status
        return answer.json()

    def get(self, path, **query):
        answer = httpx.get(f"{self.base}/{path}", params=query)
        assert answer.status_code == 200
        return answer.json()


def shape(answer):
    """Keys with the kinds of their values."""
    return {name: type(value).__name__ for name, value in answer.items()}


def test_textcraft(address):
    gym = Gym(address, "textcraft")
    assert gym.get("").startswith("This is environment")
    created = gym.post("create", minecraft_dir="agentenv_textcraft/", commands=None, goal=None)
    assert shape(created) == {"id": "int", "observation": "str", "done": "bool", "reward": "int"}
    id = created["id"]
    env = ENVIRONMENTS.get("textcraft").make()
    for number in (3, 3 + len(env.goals)):  # numbers go round, as published
        answer = gym.post("reset", id=id, data_idx=number)
        assert answer == {"id": id, "observation": env.reset(3)[0], "done": False, "reward": 0}
    assert gym.post("reset", id=id)["observation"] == env.reset(0)[0]
    env.reset(3)
    gym.post("reset", id=id, data_idx=3)
    moves = ENVIRONMENTS.get("textcraft").expert(env)
    done = False
    while not done:
        action = next(moves)[1]
        observation, reward, done, _, _ = env.step(action)
        assert gym.post("step", id=id, action=action, more="keys") == {
            "observation": observation,
            "reward": int(reward),
            "done": done,
        }
    assert gym.get("observation", id=id) == observation
    assert gym.get("detail", id=id) == {"observation": observation, "reward": 1, "done": True, "deleted": False}
    assert "error" in gym.post("step", id=id, action="inventory")
    assert gym.post("close", id=id) is True
    assert gym.post("close", id=id) is False
    assert gym.post("step", id=id, action="inventory") == {"error": f"The id {id} is not valid."}


def test_babyai(address):
    pytest.importorskip("minigrid", reason="BabyAI's package is not installed")
    gym = Gym(address, "babyai")
    id = gym.post("create")["id"]
    env, info = ENVIRONMENTS.get("babyai").make(), ENVIRONMENTS.get("babyai")
    answer = gym.post("reset", id=id, data_idx=11)
    observation = env.reset(11)[0]
    assert answer == {"observation": observation, "reward": 0, "score": 0, "deleted": False, "done": False}
    assert gym.get("observation", id=id) == answer
    moves, done = info.expert(env), False
    while not done:
        action = next(moves)[1]
        observation, reward, done, _, _ = env.step(action)
        answer = gym.post("step", id=id, action=action)
        if not done:
            assert answer == {"observation": observation, "reward": 0, "score": 0, "done": False}
            assert gym.get("observation", id=id)["observation"] == f"Your goal: {env.goal}\n{observation}"
    assert answer["reward"] == answer["score"] == reward > 0.5
    before, mark, actions = observation.rpartition("\nAvailable actions")
    assert answer["observation"] == f"{before}\n The task is completed.{mark}{actions}"
    finished = {"error": f"The task with environment {id} has finished."}
    assert gym.post("step", id=id, action="move forward") == finished
    assert gym.get("observation", id=id) == finished
    assert gym.post("reset", id=id, data_idx=3)["done"] is False


def test_maze(address):
    gym = Gym(address, "maze")
    assert gym.get("available_actions") == ["move left", "move right", "move up", "move down"]
    id = gym.post("create")["id"]
    assert "error" in gym.get("observation", id=id)
    assert gym.post("reset", id=id, game=26) == {"error": "The game 26 is not valid."}
    env = ENVIRONMENTS.get("maze").make()
    assert gym.post("reset", id=id, game=17) == {"observation": env.reset(17)[0]}
    says = env.step("move up")[0]
    assert gym.post("step", id=id, action="move up") == {"observation": says, "reward": 0, "done": False}
    assert gym.get("observation", id=id) == says
    for _ in range(3):
        answer = gym.post("step", id=id, action="move down")
    assert answer == {"observation": "Success\n", "reward": 1, "done": True}
    assert "has finished" in gym.get("detail", id=id)["error"]
    gym.post("reset", id=id, game=0)
    assert gym.get("detail", id=id) == {
        "maze_name": "double_t_maze",
        "observation": env.reset(0)[0],
        "done": False,
        "reward": 0,
        "deleted": False,
    }
    assert gym.post("close", id=id) is True  # which the published server lacks


def test_wordle(address):
    gym = Gym(address, "wordle")
    id = gym.post("create")["id"]
    env = ENVIRONMENTS.get("wordle").make()
    assert gym.get("filtered_vocab", id=id) == list(env.words)
    assert gym.post("reset", id=id, seed=4) == {"id": id, "observation": env.reset(4)[0]}
    assert gym.post("step", id=id, action="q q q q q") == {"observation": "invalid word", "reward": 0, "done": False}
    env.step("q q q q q")
    says = env.step("c r a n e")[0]
    assert gym.post("step", id=id, action="c r a n e")["observation"] == says
    assert gym.get("filtered_vocab", id=id) == list(env.candidates())
    assert gym.get("detail", id=id) == {
        "observation": says,
        "reward": 0,
        "done": False,
        "deleted": False,
        "seed": 4,
    }


def test_tools(address):
    """A bare number at create, a bare text at reset, and the reward of the episode so far."""
    gym = Gym(address, "todo")
    info = ENVIRONMENTS.get("todo")
    env = info.make()
    id = gym.post("create", id=5)
    assert id == 0
    assert gym.get("observation", env_idx=id) == env.reset(5)[0]
    assert gym.post("reset", env_idx=id, id=3) == env.reset(3)[0]
    assert gym.post("reset", env_idx=id) == env.reset(3)[0]  # the same again
    total = 0.0
    for thought, action in info.expert(env):
        observation, reward, done, _, _ = env.step(action)
        total += reward
        answer = {"observation": observation, "reward": int(total), "done": done}
        assert gym.post("step", env_idx=id, action=f"Thought: {thought}\n\nAction: {action}") == answer
        if done:
            break
    assert total == 1
    assert gym.get("observation", env_idx=id) == observation
    assert "error" in gym.post("step", env_idx=id, action="look")
    assert "error" in gym.post("reset", env_idx=id, id=5000)
    assert gym.post("close", env_idx=id) is True  # which the published server lacks


def test_a_plugin_is_served_in_the_plainest_dialect(address):
    gym = Gym(address, "wild")
    id = gym.post("create")["id"]
    answer = {"id": id, "observation": "item 2, seed 0", "reward": 0, "score": 0, "done": False}
    assert gym.post("reset", id=id, data_idx=2) == answer
    gym.post("step", id=id, action="a")
    assert gym.post("step", id=id, action="end") == {
        "observation": "over",
        "reward": 0.25,
        "done": True,
        "score": 17 / 64,
    }
    gym.post("reset", id=id, data_idx=2)
    assert "the game broke" in gym.post("step", id=id, action="break")["error"]
    assert gym.post("step", id=id, action="a") == {"error": f"The id {id} is not valid."}


def test_ids_count_up_and_none_comes_twice(address):
    gym = Gym(address, "maze")
    first = gym.post("create")["id"]
    gym.post("close", id=first)
    assert [gym.post("create")["id"] for _ in range(3)] == [first + 1, first + 2, first + 3]
    assert gym.post("step", id=first, action="move up") == {"error": f"The id {first} is not valid."}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("step", {"action": "move up"}),
        ("step", {"id": "ID"}),
        ("step", {"id": "ID", "action": None}),
        ("reset", {"id": "ID"}),
        ("reset", {"id": "ID", "game": -1}),
        ("reset", {"id": "ID", "game": "x"}),
        ("close", {"id": 1.5}),
    ],
)
def test_a_malformed_body_is_refused_with_422(address, path, body):
    gym = Gym(address, "maze")
    id = gym.post("create")["id"]
    sent = {name: id if value == "ID" else value for name, value in body.items()}
    assert "error" in gym.post(path, status=422, **sent)


def test_an_unknown_environment_or_path_is_404(address):
    assert httpx.post(f"{address}/agentgym/mase/create").status_code == 404
    assert httpx.post(f"{address}/agentgym/maze/render", json={}).status_code == 404
    assert httpx.get(f"{address}/agentgym/maze/filtered_vocab").status_code == 404


def test_webshop(address):
    gym = Gym(address, "webshop")
    env, info = ENVIRONMENTS.get("webshop").make(), ENVIRONMENTS.get("webshop")
    id = gym.post("create")
    assert type(id) is int
    assert gym.get("list_envs") == [id]
    first = env.reset(5)[0]
    assert gym.post("reset", env_idx=id, session_id=5) == [first, None]
    assert gym.get("observation", env_idx=id) == first
    assert gym.get("instruction_text", env_idx=id) == f"Instruction: {env.goal.instruction}"
    assert gym.get("available_actions", env_idx=id) == {"has_search_bar": True, "clickables": ["search"]}
    done = False
    for _, action in info.expert(env):
        if done:
            break
        state, reward, done = env.step(action)[:3]
        answer = gym.post("step", env_idx=id, action=action)
        assert answer == {"state": state, "reward": reward, "done": done, "info": None}
        assert gym.get("observation", env_idx=id) == state
    assert reward == 1
    assert "has finished" in gym.post("step", 500, env_idx=id, action="click[buy now]")["error"]
    assert "webshop has the items 0 to" in gym.post("reset", 500, env_idx=id, session_id=10**6)["error"]
    assert gym.post("close", env_idx=id) is True


def test_sqlgym(address):
    gym = Gym(address, "sqlgym")
    env = ENVIRONMENTS.get("sqlgym").make()
    id, other = gym.post("create"), gym.post("create")
    assert type(id) is int
    assert gym.get("list_envs") == [id, other]
    item = ENVIRONMENTS.get("sqlgym").splits()["test"][0]
    first = env.reset(item)[0]
    assert gym.post("reset", env_idx=id, item_id=item) == [first, None]
    assert gym.get("observation", env_idx=id) == first
    state, reward, done = env.step(env.gold)[:3]
    assert gym.post("step", env_idx=id, action=env.gold) == {
        "state": state,
        "reward": reward,
        "done": done,
        "info": {"ground_truth": env.gold},
    }
    assert (reward, done) == (1, True)
    assert gym.get("observation", env_idx=id) == first
    assert "has finished" in gym.post("step", 500, env_idx=id, action=env.gold)["error"]
    assert "give path=FOLDER" in gym.post("reset", 500, env_idx=other, item_id=931)["error"]
    assert gym.post("close", env_idx=other) is True
    assert gym.get("list_envs") == [id]
    assert "not valid" in gym.post("step", 500, env_idx=other, action="SELECT 1")["error"]


def test_searchqa(address):
    pytest.importorskip("bm25s", reason="bm25s is not installed")
    gym = Gym(address, "searchqa")
    env = ENVIRONMENTS.get("searchqa").make()
    id = gym.post("create", id=0)
    assert type(id) is int
    assert "error" in gym.post("step", 500, env_idx=id, action="<answer>x</answer>")
    item = ENVIRONMENTS.get("searchqa").splits()["test"][0]
    first = env.reset(item)[0]
    assert gym.post("reset", env_idx=id, id=item) == first
    for action in ("<think>so</think><search>Works</search>", "look", "<answer>x</answer>"):
        says = env.step(action)[0]
        assert gym.post("step", env_idx=id, action=action) == {
            "observation": says,
            "reward": 0,
            "done": False,
            "info": None,
        }
    assert gym.get("observation", env_idx=id) == first
    right = f"<answer>{env.question.answers[0]}</answer>"
    assert gym.post("step", env_idx=id, action=right)["reward"] == 1
    assert "triviaqa: give path=FOLDER" in gym.post("reset", 500, env_idx=id, id=12545)["error"]
    assert gym.post("reset", env_idx=id, id=item) == first
    assert gym.post("close", env_idx=id) is True
    assert gym.post("close", env_idx=id) is False
