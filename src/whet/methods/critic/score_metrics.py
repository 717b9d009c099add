"""Compares the scores of critics with those of a learned oracle (Critique-RL, appendix E)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from whet.evaluation.critique import Metrics
from whet.evaluation.protocol import last_paths, paths
from whet.types import Episode, Segment


def score_metrics(episodes: Sequence[Episode], span: float) -> Metrics:
    """Metrics from `parsed["score"]`: a critique's score (None: unreadable), the oracle's of answers and refinements.

    Args:
        span: from the lowest score to the highest.
    Returns: `score` and `score_refine`, the oracle's means, and `score_gain`, their difference. `mse_dis` and `mae_dis`
        are errors of the readable critiques. `near` is 1 less the absolute error as a share of the span, and 0 where
        unreadable. None: nothing to divide by.
    """
    chains = [path for episode in episodes for path in last_paths(episode)]
    before = [score for path in chains for score in scores_of(path.answer)]
    after = [score for path in chains for score in scores_of(path.refinement if path.critique else path.answer)]
    errors = [
        None if critic_score is None else abs(critic_score - oracle)
        for episode in episodes
        for path in paths(episode)
        if path.critique is not None
        for critic_score, oracle in [(path.critique.parsed.get("score"), path.answer.parsed["score"])]
    ]
    readable = [error for error in errors if error is not None]
    return {
        "score": _mean(before),
        "score_refine": _mean(after),
        "score_gain": fmean(after) - fmean(before) if before and after else None,
        "mse_dis": _mean([error**2 for error in readable]),
        "mae_dis": _mean(readable),
        "near": _mean([0.0 if error is None else 1 - error / span for error in errors]),
    }


def scores_of(segment: Segment | None) -> Iterator[float]:
    if segment is not None:
        yield segment.parsed["score"]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
