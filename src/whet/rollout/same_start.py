"""Checks that the members of a group began alike. Otherwise their rewards cannot be compared."""

from __future__ import annotations

from collections.abc import Sequence

from whet.types import FAULTS, Episode, Segment

SHOWN = 80
"""Characters that the message quotes of each first observation, around the first difference."""


def unequal_start(group: Sequence[Episode]) -> str | None:
    """Whether episodes of one task began with other prompts: an environment's first observation, or a policy's prompt.

    A rule's first segment, such as an answer that is critiqued, may differ. Returns: a message, or None.
    """
    starts = [(e, e.segments[0]) for e in group if e.outcome not in FAULTS and e.segments]
    for episode, segment in starts[1:]:
        first = starts[0][1]
        if _prompt(segment) != _prompt(first):
            return (
                f"members of the group of task {episode.task.id} began with other prompts{_where(first, segment)}: "
                "their rewards cannot be compared. Draw whatever the environment leaves to chance from item and seed "
                "in reset, and keep nothing from one episode to the next"
            )
    return None


def _prompt(segment: Segment) -> object:
    if segment.role == "observation":
        return segment.text
    return segment.context if segment.versions else None


def _where(one: Segment, other: Segment) -> str:
    """Both first observations, from 20 characters before the first difference."""
    if one.role != "observation" or other.role != "observation":
        return ""
    same = next((i for i, (a, b) in enumerate(zip(one.text, other.text, strict=False)) if a != b), 0)
    start = max(0, same - 20)
    return f" ({one.text[start : start + SHOWN]!r} and {other.text[start : start + SHOWN]!r})"
