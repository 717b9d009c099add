"""Runs made before a run wrote down its sheet: which of the two sheets of that time is theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from whet.report.records import PhaseRecord, Record
from whet.runs.sheet import Sheet
from whet.runs.sheets import CRITIQUE, SOLVE

RECIPES = {"solve": SOLVE, "critique_rl": CRITIQUE}
UNCOMPARED = ("reinforce_pp", "reward", "gae")
"""The advantages of that time that held no reward against those of its group."""
WRITERS = ("policy", "critic")
"""Keys of a trace that have told who wrote it, whatever the sheet calls them; `critic` once did so of any policy."""


def former_sheet(settings: Record, summary: Record | None, phases: Sequence[PhaseRecord] = ()) -> Sheet:
    """By the config's recipe; where that says nothing, by the summary's rows, and then by the metrics."""
    recipe = settings.get("recipe")
    if isinstance(recipe, str) and recipe in RECIPES:
        found = RECIPES[recipe]
        return replace(found, is_compared=False) if settings.get("advantage") in UNCOMPARED else found
    rows = (summary or {}).get("rows")
    if isinstance(rows, Mapping) and rows:  # `average` is measured where a policy answers alone
        return SOLVE if any(isinstance(row, Mapping) and "average" in row for row in rows.values()) else CRITIQUE
    return SOLVE if any(phase.has("reward/correct") for phase in phases) else CRITIQUE
