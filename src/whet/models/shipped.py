"""The models in the package, by their names in settings. Free of torch, for settings that name them."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
TINY = _HERE / "tiny_model"
AGENTS = {
    "tiny_agent": _HERE / "tiny_agents" / "cloned",
    "tiny_agent_early": _HERE / "tiny_agents" / "early",
    "tiny_agent_careless": _HERE / "tiny_agents" / "careless",
    "tiny_agent_worlds": _HERE / "tiny_agents" / "worlds",
}
OURS = {"tiny": TINY, **AGENTS}
