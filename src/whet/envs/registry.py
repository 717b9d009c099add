"""The environments by name."""

from __future__ import annotations

from whet.envs.protocol import EnvironmentInfo
from whet.registry import Registry

ENVIRONMENTS: Registry[EnvironmentInfo] = Registry("environment")
"""One that needs a package imports it when an instance is made, and not before."""
