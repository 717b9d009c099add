"""How published papers measure agents, by environment: temperature, turns and action format.

AgentGym's scripts (arXiv:2406.04151) measure one greedy episode an item. AgentGym-RL's (arXiv:2509.08755) measure one
at temperature 1. Their limits of turns for these environments are the longest horizons that they train with.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from whet.registry import Registry

SETTINGS = ("evaluation.max_turns", "format")
"""Those that a protocol sets."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a paper measures agents in an environment."""

    environment: str
    paper: str
    max_turns: int
    temperature: float
    """0: greedy."""
    format: str = "react"

    def settings(self, given: Collection[str]) -> list[str]:
        """The settings of a run, but for those that the user has given.

        Args:
            given: dotted keys.
        """
        values = zip(SETTINGS, (self.max_turns, self.format), strict=True)
        return [f"{key}={value}" for key, value in values if key not in given]

    def sentence(self, overridden: Collection[str]) -> str:
        """What is set, and what the user's own settings override."""
        sampling = f"temperature {self.temperature:g}" if self.temperature else "greedy (temperature 0)"
        text = f"as published by {self.paper} for {self.environment}: {sampling}, {self.max_turns} turns, {self.format}"
        return f"{text}; your own {', '.join(overridden)} holds instead" if overridden else text


AS_PUBLISHED: Registry[Protocol] = Registry("published evaluation")
AGENTGYM, AGENTGYM_RL = "AgentGym (arXiv:2406.04151)", "AgentGym-RL (arXiv:2509.08755)"
_TURNS = {
    "textcraft": 20, "babyai": 20, "maze": 15, "wordle": 8, "sciworld": 30, "webshop": 10, "alfworld": 30, "sqlgym": 1,
    "weather": 10, "movie": 12, "academia": 12, "sheet": 15, "todo": 15,
}  # fmt: skip
for _env, _turns in _TURNS.items():
    AS_PUBLISHED.add(_env, Protocol(_env, AGENTGYM, _turns, temperature=0.0), says=AGENTGYM)
for _env, _turns in {"textcraft": 30, "babyai": 20, "sciworld": 30}.items():
    AS_PUBLISHED.add(f"agentgym_rl_{_env}", Protocol(_env, AGENTGYM_RL, _turns, temperature=1.0), says=AGENTGYM_RL)
