"""The authors' own clients, from a checkout of AgentGym, play whole episodes here as in this process.

WHET_AGENTGYM=CHECKOUT pytest tests/envs/server/test_agentgym_clients.py
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path

import pytest

from support.env_server import env_server
from whet.envs import ENVIRONMENTS
from whet.envs.formats import write

CHECKOUT = os.environ.get("WHET_AGENTGYM", "")
CLIENTS = {
    "textcraft": "TextCraftEnvClient",
    "babyai": "BabyAIEnvClient",
    "maze": "MazeEnvClient",
    "wordle": "WordleEnvClient",
    "sciworld": "SciworldEnvClient",
    "webshop": "WebshopEnvClient",
    "weather": "WeatherEnvClient",
    "movie": "MovieEnvClient",
    "academia": "AcademiaEnvClient",
    "sheet": "SheetEnvClient",
    "todo": "TodoEnvClient",
    "sqlgym": "SqlGymEnvClient",
    "searchqa": "SearchQAEnvClient",
}
TOOLS = ("weather", "movie", "academia", "sheet", "todo")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not CHECKOUT, reason="WHET_AGENTGYM names no checkout of AgentGym, whose clients this runs"),
]


@pytest.fixture(scope="module")
def clients():
    sys.path.insert(0, str(Path(CHECKOUT) / "agentenv"))
    yield importlib.import_module("agentenv.envs")
    sys.path.pop(0)


def items_of(info, count):
    splits = info.splits()
    return [*splits["train"][:count], *splits["test"][:count]]


@pytest.mark.parametrize("name", list(CLIENTS))
def test_episodes_equal_those_in_this_process(name, clients, capsys):
    if name == "sciworld" and shutil.which("java") is None:
        pytest.skip("SciWorld needs Java")
    info = ENVIRONMENTS.get(name)
    env = info.make()
    with env_server(name) as (address, sessions):
        client = getattr(clients, CLIENTS[name])(f"{address}/agentgym/{name}", data_len=10)
        num_steps = 0
        for item in items_of(info, 1 if name == "sciworld" else 8):
            client.reset(item)
            observation = env.reset(item)[0]
            if name == "wordle":
                assert "\n".join(env.words) in client.observe()
            else:
                assert client.observe().endswith(observation)
            total, is_over, moves = 0.0, False, info.expert(env)
            while not is_over:
                thought, action = next(moves)
                observation, reward, terminated, truncated, _ = env.step(action)
                total, is_over = total + reward, terminated or truncated
                if name in TOOLS:  # on one line, as the tools' own servers want it
                    reply = f"Thought:\n{thought.replace('Action:', '')}\n\nAction: {action}"
                else:
                    reply = write(thought.replace("Action:", ""), action, info.parser)
                out = client.step(reply)
                if name == "babyai" and terminated:
                    assert "The task is completed." in out.state
                    observation = observation.replace("\nAvail", "\n The task is completed.\nAvail")
                assert out.state == observation
                assert out.reward == (total if name in ("babyai", "sciworld", *TOOLS) else reward)
                assert out.done == is_over
                num_steps += 1
            assert info.is_success(total) or name == "wordle"
        assert num_steps > 10
        if hasattr(client, "close"):
            assert client.close() is (None if name == "webshop" else True)  # its client returns nothing
            assert sessions.num_held == 0
    env.close()
