"""Scores of critics as published benchmarks give them: of verdicts, of the first wrong step, of corrections.

ProcessBench (arXiv:2412.06559), CriticBench-GQC (arXiv:2402.14809).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from whet.evaluation.critique import Exchange, Metrics


def judgment_metrics(exchanges: Sequence[Exchange]) -> Metrics:
    """Metrics of verdicts that allow for class balance.

    Returns: `balanced`, the mean of discriminability on right and on wrong answers (unparsed: wrong). `f1_wrong`,
        `precision_wrong` and `recall_wrong`, with "the answer is wrong" as the positive class. `f1_always_wrong`, that
        of a critic that calls everything wrong. None: nothing to divide by.
    """
    right = [exchange for exchange in exchanges if exchange.answer_correct]
    wrong = [exchange for exchange in exchanges if not exchange.answer_correct]
    flagged = [exchange for exchange in exchanges if exchange.verdict == "wrong"]
    hits = sum(not exchange.answer_correct for exchange in flagged)
    classes = [fmean(exchange.judged_right for exchange in part) for part in (right, wrong) if part]
    return {
        "balanced": fmean(classes) if len(classes) == 2 else None,
        "precision_wrong": hits / len(flagged) if flagged else None,
        "recall_wrong": hits / len(wrong) if wrong else None,
        "f1_wrong": 2 * hits / (len(flagged) + len(wrong)) if flagged or wrong else None,
        "f1_always_wrong": 2 * len(wrong) / (len(exchanges) + len(wrong)) if exchanges else None,
    }


def oracle_accuracy(exchanges: Sequence[Exchange]) -> float | None:
    """The accuracy if only wrong answers were refined, in [0, 1].

    Args:
        exchanges: one for each question, from its first answer to its last refinement.
    Returns: None where there is none, or one without a refinement.
    """
    if not exchanges or any(exchange.refinement_correct is None for exchange in exchanges):
        return None
    return fmean(exchange.answer_correct or bool(exchange.refinement_correct) for exchange in exchanges)


def processbench(labels: Sequence[int], predictions: Sequence[int | None]) -> Metrics:
    """ProcessBench's metrics of the first wrong step.

    Args:
        labels: its index from 0; -1: no step is wrong.
        predictions: None: unreadable, a miss.
    Returns: `err`, the share of right predictions among items with a wrong step, and `cor`, that among the others.
        `f1`, their harmonic mean, 0 where both are 0. None: there is no such item.
    """
    hits = [(label, label == prediction) for label, prediction in zip(labels, predictions, strict=True)]
    wrong = [hit for label, hit in hits if label != -1]
    without_error = [hit for label, hit in hits if label == -1]
    err, cor = (fmean(part) if part else None for part in (wrong, without_error))
    f1 = None
    if err is not None and cor is not None:
        f1 = 2 * err * cor / (err + cor) if err + cor else 0.0
    return {"err": err, "cor": cor, "f1": f1}


def error_reduction(before: float, after: float) -> float | None:
    """The share of the errors that is gone: (after - before) / (1 - before). None if there were none."""
    return (after - before) / (1 - before) if before < 1 else None
