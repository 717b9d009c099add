"""Runs that an earlier whet made: what their settings are called now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METHOD_NAMES = {"solve": "policy_gradient", "critique_rl": "critique_rl"}
"""What the key `recipe` of 0.1 said, to what `method` says now."""


def upgraded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run, as this whet calls them."""
    found = dict(settings)
    recipe = found.get("recipe")
    if "method" not in found and isinstance(recipe, str) and recipe in METHOD_NAMES:
        del found["recipe"]
        found = {"method": METHOD_NAMES[recipe], **found}
    return found
