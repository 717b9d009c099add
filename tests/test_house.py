"""Ownership: a method is known by its registration alone.

`scripts/house_figures.py` prints the figures of the house: no test holds them to a bar.
"""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "whet"
VARIANTS = (
    *("ref_critic", "critique_dpo", "nft", "rltf_sd", "critique_coder", "spc"),
    *("critic_gradient", "star_critic", "score_rl", "open_ended"),
)


def test_nothing_but_the_registry_knows_a_methods_name():
    """Its line in `methods/__init__.py`, and its own file."""
    for file in SOURCE.rglob("*.py"):
        place = file.relative_to(SOURCE).as_posix()
        if place.startswith("methods/"):
            continue
        strings = [
            n.value for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(n, ast.Constant)
        ]
        named = {
            value for value in strings if value in (*VARIANTS, "critique_rl", "policy_gradient")
        }  # imitation is a word too
        assert not named, f"{place} names {named}"
