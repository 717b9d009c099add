"""Which groups of a step have a signal."""

from __future__ import annotations

from collections.abc import Sequence

from whet.credit.rewards import ScoredSegment
from whet.types import Segment


def differ(segments: Sequence[Segment]) -> bool:
    """Whether the scores differ, so that some replies are better than others (DAPO's dynamic sampling)."""
    return len({s.grade.score for s in segments if s.grade is not None}) > 1


def is_mixed(group: Sequence[ScoredSegment]) -> bool:
    """Whether the rewards differ, penalties on length included."""
    return len({scored.reward for scored in group}) > 1
