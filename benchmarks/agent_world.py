"""The world of `agent_step.py`, as ours and as TRL's `environment_factory` has it, and how TRL reads replies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from whet.config.environment_data import EnvironmentData
from whet.envs import ENVIRONMENTS
from whet.envs.formats import PARSERS
from whet.envs.protocol import INVALID
from whet.envs.textcraft.environment import TEXTCRAFT, TextCraft
from whet.methods.environment_tasks import load_environment_tasks
from whet.rollout.agent import ITEM
from whet.seeds import seed_of

TURNS = 10
"""Of an episode."""
CHAT = (
    "{% for message in messages %}<|{{ 'user' if message['role'] == 'tool' else message['role'] }}|>"
    "{{ message['content'] }}{% for call in message['tool_calls'] or [] %}{{ call['function']['name'] }} "
    "{{ call['function']['arguments'] }}{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The tiny agents' chat template, with what TRL asks of one: calls are shown, and tools' answers, as a user's turns."""
CALLS = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|assistant|>",
    "fields": {
        "tool_calls": {
            "close": "<|end|>",
            "repeats": True,
            "content": "text",
            "content_args": {"strip": False},
            "transform": {"type": "function", "function": {"name": "act", "arguments": {"reply": "{content}"}}},
        }
    },
}
"""A `response_template` of transformers, by which TRL finds calls: any reply is one of `act`, with all of its text."""


class Steady(TextCraft):
    """TextCraft that goes on after its goal, since TRL has no way for a world to end an episode, and that pays for
    every action that it understands, so that nearly every group has something to teach: ours computes no rows without
    credit."""

    def step(self, action: str) -> Any:
        observation, _, _, _, info = super().step(action)
        self.has_ended = False
        return observation, (not info.get(INVALID)) / TURNS, False, False, info


STEADY = replace(TEXTCRAFT, name="steady", make=Steady, max_turns=TURNS, of_settings=None, expert=None)
ENVIRONMENTS.add(STEADY.name, STEADY, says="TextCraft that goes on and on")


class Tools:
    """As TRL has it: `reset` begins an episode, and every other public method is a tool."""

    def __init__(self) -> None:
        self._env, self._parse = Steady(), PARSERS.get(STEADY.parser)

    def reset(self, item: int, **row: Any) -> str:
        self._shown, _ = self._env.reset(item, seed=item)
        self._paid = 0.0
        return self._shown

    def act(self, reply: str) -> str:
        """Do what a reply says.

        Args:
            reply: A thought and an action.
        """
        parsed = self._parse(reply)
        if parsed.problem:
            return parsed.answer(self._shown)
        self._shown, reward, *_ = self._env.step(parsed.action)
        self._paid += reward
        return self._shown


def items(count: int) -> list[int]:
    """What a run of ours trains on, in its order."""
    tasks = list(load_environment_tasks(EnvironmentData(**data_of(count))).tasks["train"])
    Random(seed_of(0, "items of", STEADY.name)).shuffle(tasks)
    return [task.info[ITEM] for task in tasks]


def data_of(count: int) -> dict[str, Any]:
    return {"kind": "environments", "env": STEADY.name, "num_train": count, "num_validation": 1, "num_test": 1}


class Watched:
    """Notes the processor time that this process has taken at the end of each training step of ours."""

    def __init__(self) -> None:
        self.phase, self.cpu = "", list[float]()

    def begin(self, phase: str, done: int, total: int) -> None:
        self.phase = phase

    def step(self, step: int, shown: Mapping[str, float | None]) -> None:
        if self.phase == "train":
            self.cpu.append(time.process_time())

    def tell(self, level: str, text: str) -> None: ...

    def end(self) -> None: ...
