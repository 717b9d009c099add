"""Metrics of critics that give a score, held against the one of a learned oracle (Critique-RL, appendix E)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from whet.evaluation.critique import Metrics
from whet.evaluation.protocol import last_paths, paths
from whet.types import Episode, Segment


def score_metrics(episodes: Sequence[Episode], span: float) -> Metrics:
    """From `parsed["score"]`: of a critique what it gave (None: unreadable), of answers and refinements the oracle's.

    Args:
        span: from the lowest score to the highest.
    Returns: `score`, `score_refine`, means; `score_gain`, their difference; `mse_dis`, `mae_dis`, errors of the
        critiques that can be read; `near`, 1 less the absolute error as a share of the span, 0 where unreadable.
        None: nothing to divide by.
    """
    chains = [path for episode in episodes for path in last_paths(episode)]
    before = [score for path in chains for score in scores_of(path.answer)]
    after = [score for path in chains for score in scores_of(path.refinement if path.critique else path.answer)]
    errors = [
        None if given is None else abs(given - oracle)
        for episode in episodes
        for path in paths(episode)
        if path.critique is not None
        for given, oracle in [(path.critique.parsed.get("score"), path.answer.parsed["score"])]
    ]
    known = [error for error in errors if error is not None]
    return {
        "score": _mean(before),
        "score_refine": _mean(after),
        "score_gain": fmean(after) - fmean(before) if before and after else None,
        "mse_dis": _mean([error**2 for error in known]),
        "mae_dis": _mean(known),
        "near": _mean([0.0 if error is None else 1 - error / span for error in errors]),
    }


def scores_of(segment: Segment | None) -> Iterator[float]:
    if segment is not None:
        yield segment.parsed["score"]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None
