"""The text of an environment's rules: a file of whet, or a plug-in's own text."""

from __future__ import annotations

import re
from importlib.resources import files


def rules_text(rules: str) -> str:
    """The text that `EnvironmentInfo.rules` names or holds."""
    if re.fullmatch(r"[a-z_]{1,40}", rules):
        place = files("whet.envs") / "prompts" / f"{rules}.md"
        return place.read_text(encoding="utf-8").strip() if place.is_file() else rules
    return rules
