"""The environments by name."""

from __future__ import annotations

from whet.envs.protocol import EnvironmentInfo
from whet.registry import Registry

HELD = {
    "webarena": "its five sites run in Docker, and one of its graders is a remote model",
    "miniwob": "its pages need a browser",
}
"""Environments of AgentGym and of related work that whet does not have yet, and why. `whet env list` shows them."""

ENVIRONMENTS: Registry[EnvironmentInfo] = Registry("environment")
"""One that needs a package imports it when an instance is made, and not before."""
