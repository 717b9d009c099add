"""Whether the members of a group began alike: else their rewards say nothing of what the policy did."""

from __future__ import annotations

from collections.abc import Sequence

from whet.types import FAULTS, Episode, Segment

SHOWN = 80
"""Characters that a sentence quotes of each beginning, from where they part."""


def unequal_start(group: Sequence[Episode]) -> str | None:
    """Whether episodes of one task began with other prompts: an environment's first words, or what a policy was put.

    What a rule wrote first, such as an answer that is critiqued, may differ. Returns: a sentence, or None.
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
    """What the environment said to both, from a little before they part."""
    if one.role != "observation" or other.role != "observation":
        return ""
    same = next((i for i, (a, b) in enumerate(zip(one.text, other.text, strict=False)) if a != b), 0)
    start = max(0, same - 20)
    return f" ({one.text[start : start + SHOWN]!r} and {other.text[start : start + SHOWN]!r})"
