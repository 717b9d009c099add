"""whet's TextCraft behind OpenEnv's own server, in a Python that has OpenEnv and not torch: PROGRAM PORT CAPACITY."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn
from openenv.core import Action, Environment, Observation, State
from openenv.core.env_server import ConcurrencyConfig, create_app

from whet.envs import ENVIRONMENTS

INFO = ENVIRONMENTS.get("textcraft")
SPLITS = INFO.splits()


class Act(Action):
    text: str


class Seen(Observation):
    text: str


class Craft(Environment[Act, Seen, State]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.env: Any = INFO.make()
        self.num_steps = 0

    def reset(self, seed: int | None = None, split: str = "train", index: int = 0, **_: Any) -> Seen:
        self.num_steps = 0
        return Seen(text=self.env.reset(SPLITS[split][index], seed=seed or 0)[0])

    def step(self, action: Act, timeout_s: float | None = None, **_: Any) -> Seen:
        self.num_steps += 1
        text, reward, terminated, truncated, _ = self.env.step(action.text)
        flags = {"terminated": terminated, "truncated": truncated}
        return Seen(text=text, reward=reward, done=terminated or truncated, metadata=flags)

    @property
    def state(self) -> State:
        return State(step_count=self.num_steps)

    def list_splits(self) -> list[dict[str, str]]:
        return [{"name": name, "type": name} for name in SPLITS]

    def num_tasks(self, split: str) -> int:
        return len(SPLITS[split])


if __name__ == "__main__":
    room = ConcurrencyConfig(max_concurrent_envs=int(sys.argv[2]), session_timeout=3600)
    app = create_app(Craft, Act, Seen, env_name="textcraft", concurrency_config=room)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
