"""Scores of critics as published benchmarks give them: of verdicts, of the first wrong step, of corrections.

ProcessBench (arXiv:2412.06559), CriticBench-GQC (arXiv:2402.14809).
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from whet.evaluation.critique import Exchange, Metrics


def judgment_metrics(exchanges: Sequence[Exchange]) -> Metrics:
    """What class balance does to verdicts, and what only mending the wrong ones would come to.

    Returns: `balanced`, the mean of discriminability on right and on wrong answers (unparsed: wrong); `f1_wrong`, with
        "the answer is wrong" as the positive class, and its `precision_wrong` and `recall_wrong`; `f1_always_wrong`,
        what a critic gets that calls everything wrong; `acc_oracle`, accuracy where only wrong answers are refined.
        None: nothing to divide by.
    """
    right = [each for each in exchanges if each.answer_correct]
    wrong = [each for each in exchanges if not each.answer_correct]
    flagged = [each for each in exchanges if each.verdict == "wrong"]
    hits = sum(not each.answer_correct for each in flagged)
    fixed = [bool(each.refinement_correct) for each in wrong]
    classes = [fmean(each.judged_right for each in those) for those in (right, wrong) if those]
    asked = bool(exchanges) and all(each.refinement_correct is not None for each in exchanges)
    return {
        "balanced": fmean(classes) if len(classes) == 2 else None,
        "precision_wrong": hits / len(flagged) if flagged else None,
        "recall_wrong": hits / len(wrong) if wrong else None,
        "f1_wrong": 2 * hits / (len(flagged) + len(wrong)) if flagged or wrong else None,
        "f1_always_wrong": 2 * len(wrong) / (len(exchanges) + len(wrong)) if exchanges else None,
        "acc_oracle": (len(right) + sum(fixed)) / len(exchanges) if asked else None,
    }


def processbench(labels: Sequence[int], predictions: Sequence[int | None]) -> Metrics:
    """Of the earliest wrong step.

    Args:
        labels: its index from 0; -1: no step is wrong.
        predictions: None: unreadable, a miss.
    Returns: `err`, the share found among items with a wrong step; `cor`, the share of the others that are called
        flawless; `f1`, their harmonic mean, 0 where both are 0. None: there is no such item.
    """
    hits = [(label, label == prediction) for label, prediction in zip(labels, predictions, strict=True)]
    err = [hit for label, hit in hits if label != -1]
    cor = [hit for label, hit in hits if label == -1]
    found: Metrics = {"err": fmean(err) if err else None, "cor": fmean(cor) if cor else None}
    one, other = found["err"], found["cor"]
    if one is None or other is None:
        return found | {"f1": None}
    return found | {"f1": 2 * one * other / (one + other) if one + other else 0.0}


def error_reduction(before: float, after: float) -> float | None:
    """Which share of the errors has gone: (after - before) / (1 - before). None where there were none."""
    return (after - before) / (1 - before) if before < 1 else None
