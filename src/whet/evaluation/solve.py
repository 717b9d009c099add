"""Metrics of a policy's answers: one greedy reply per problem, and k sampled ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from whet.evaluation.critique import Metrics, average_at_k, majority_at_k, pass_at_k
from whet.evaluation.protocol import is_right, num_exhausted
from whet.types import FAULTS, Episode, Segment


def solve_metrics(greedy: Sequence[Episode], sampled: Sequence[Sequence[Episode]] = ()) -> Metrics:
    """Metrics of replies. A problem with a failed grading is left out of that metric, and counted.

    Args:
        greedy: one episode per problem.
        sampled: k episodes per problem. Empty: `average`, `pass` and `majority` are None.
    Returns: `acc`; `average`, `pass` (at k), `majority` (of k); `truncated`, `length` (tokens); `n` (problems),
        `k`, `grader_errors`, `reply_exhausted`.
    """
    whole = [e.segments[0] for e in greedy if e.outcome not in FAULTS]
    groups = [[e.segments[0] for e in group] for group in sampled if all(e.outcome not in FAULTS for e in group)]
    rights = [[is_right(segment) for segment in group] for group in groups]
    votes = [[segment.grade.extracted if segment.grade else None for segment in group] for group in groups]
    # A user's grader that gives only a score leaves nothing to vote with.
    is_mute = any(map(any, rights)) and all(vote is None for row in votes for vote in row)
    every = [*greedy, *(e for group in sampled for e in group)]
    replies: list[Segment] = [e.segments[0] for e in every if e.segments]
    errors = sum(e.outcome in FAULTS for e in every)
    return {
        "acc": fmean(map(is_right, whole)) if whole else None,
        "average": average_at_k(rights),
        "pass": pass_at_k(rights),
        "majority": None if not rights or is_mute else majority_at_k(votes, rights),
        "truncated": fmean(s.stop_reason == "length" for s in replies) if replies else None,
        "length": fmean(len(s.tokens) for s in replies) if replies else None,
        "n": float(len(greedy)),
        "k": float(len(sampled[0])) if sampled else 0.0,
        "grader_errors": float(errors),
        "reply_exhausted": float(num_exhausted([*greedy, *(e for group in sampled for e in group)])),
    }
