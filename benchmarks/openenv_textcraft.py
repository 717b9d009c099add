"""whet's TextCraft behind OpenEnv's own server, for `env_server.py` to compare with. Needs openenv 0.10, and no torch.

PYTHONPATH=src PYTHON_WITH_OPENENV benchmarks/openenv_textcraft.py PORT
"""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from openenv.core import Action, Environment, Observation, State
from openenv.core.env_server import create_app
from openenv.core.env_server.types import ConcurrencyConfig

from whet.envs.textcraft.environment import TextCraft, splits


class TextAction(Action):
    text: str


class TextObservation(Observation):
    text: str


class Craft(Environment[TextAction, TextObservation, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.env = TextCraft()
        self.num_steps = 0

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str = "train",
        index: int = 0,
        **_: Any,
    ) -> TextObservation:
        text, info = self.env.reset(splits()[split][index], seed=seed or 0)
        self.num_steps = 0
        return TextObservation(text=text, metadata={"info": info})

    def step(self, action: TextAction, timeout_s: float | None = None, **_: Any) -> TextObservation:
        text, reward, terminated, truncated, info = self.env.step(action.text)
        self.num_steps += 1
        metadata = {"terminated": terminated, "truncated": truncated, "info": info}
        return TextObservation(text=text, reward=reward, done=terminated or truncated, metadata=metadata)

    @property
    def state(self) -> State:
        return State(step_count=self.num_steps)


if __name__ == "__main__":
    limits = ConcurrencyConfig(max_concurrent_envs=256, session_timeout=3600)
    app = create_app(Craft, TextAction, TextObservation, env_name="textcraft", concurrency_config=limits)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
