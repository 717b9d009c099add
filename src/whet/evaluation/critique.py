"""Metrics of one round of answer, critique and refinement (arXiv:2510.24320, section 3.3), and of K samples.

`critique_metrics` needs one `Exchange` per question; `DENOMINATORS` has the names of its metrics. It always holds that
`delta = i2c - c2i = acc_refine - acc`. A metric without a denominator is None, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import comb, fsum
from statistics import NormalDist, fmean, stdev
from typing import Literal

DENOMINATORS: dict[str, str] = {
    "acc": "all questions",
    "acc_refine": "all questions",
    "delta": "all questions",
    "c2i": "all questions",
    "i2c": "all questions",
    "c2c": "all questions",
    "i2i": "all questions",
    "c2i_of_correct": "questions whose answer was correct",
    "i2c_of_incorrect": "questions whose answer was incorrect",
    "acc_dis": "all questions; an unparsed verdict counts as wrong",
    "acc_dis_correct": "questions whose answer was correct; an unparsed verdict counts as wrong",
    "acc_dis_incorrect": "questions whose answer was incorrect; an unparsed verdict counts as wrong",
    "acc_dis_parsed": "questions with a parsed verdict (as in the authors' code)",
    "acc_dis_parsed_correct": "questions with a parsed verdict whose answer was correct (as in the authors' code)",
    "acc_dis_parsed_incorrect": "questions with a parsed verdict whose answer was incorrect (as in the authors' code)",
    "unparsed": "all questions",
    "relevance": "questions judged rightly",
    "relevance_correct": "questions judged rightly whose answer was correct",
    "relevance_incorrect": "questions judged rightly whose answer was incorrect",
    "n": "a count of questions",
    "n_correct": "a count of questions",
    "n_incorrect": "a count of questions",
}
"""The metrics of `critique_metrics`, and in words what each is divided by."""
Metrics = dict[str, float | None]
_VOTE_DIGITS = 9
"""Sums of weights are rounded to this many digits."""
_VERDICT_METRICS = [name for name in DENOMINATORS if name.startswith(("acc_dis", "unparsed", "relevance"))]


@dataclass(frozen=True, slots=True)
class Exchange:
    """One graded round on one question."""

    answer_correct: bool
    refinement_correct: bool | None
    """None: no refinement was asked for. Then it must be None in every exchange of the evaluation."""
    verdict: Literal["correct", "wrong"] | None
    """The critique's verdict on the answer. None: unparsed."""

    @property
    def judged_right(self) -> bool:
        return self.verdict is not None and (self.verdict == "correct") == self.answer_correct


def critique_metrics(exchanges: Sequence[Exchange]) -> Metrics:
    """All metrics in `DENOMINATORS`. Without refinements, those that need them are None.

    `c2i` is the share of questions whose answer was correct and whose refinement is incorrect; `i2c`, `c2c`, `i2i`
    likewise. `acc_dis` is discriminability; `relevance` is the share of right verdicts with a correct refinement.
    """
    correct = [exchange for exchange in exchanges if exchange.answer_correct]
    incorrect = [exchange for exchange in exchanges if not exchange.answer_correct]
    metrics: Metrics = {"acc": _ratio(len(correct), len(exchanges))}
    metrics |= _refinement_metrics(exchanges)
    metrics["unparsed"] = _share(exchange.verdict is None for exchange in exchanges)
    for suffix, part in (("", exchanges), ("_correct", correct), ("_incorrect", incorrect)):
        judged_right = [exchange for exchange in part if exchange.judged_right]
        parsed = sum(exchange.verdict is not None for exchange in part)
        metrics[f"acc_dis{suffix}"] = _ratio(len(judged_right), len(part))
        metrics[f"acc_dis_parsed{suffix}"] = _ratio(len(judged_right), parsed)
        metrics[f"relevance{suffix}"] = _share(exchange.refinement_correct for exchange in judged_right)
        metrics[f"n{suffix}"] = len(part)
    return {name: metrics[name] for name in DENOMINATORS}


def _refinement_metrics(exchanges: Sequence[Exchange]) -> Metrics:
    missing = sum(exchange.refinement_correct is None for exchange in exchanges)
    if missing == len(exchanges):
        return dict.fromkeys(("acc_refine", "delta", "c2i", "i2c", "c2c", "i2i", "c2i_of_correct", "i2c_of_incorrect"))
    if missing:
        raise ValueError(
            f"{missing} of {len(exchanges)} exchanges have refinement_correct None, the others do not. Leave out "
            "exchanges that failed; where an answer was kept unrefined, its own correctness is the refinement's."
        )
    cells = Counter((exchange.answer_correct, exchange.refinement_correct) for exchange in exchanges)
    c2c, c2i, i2c, i2i = cells[True, True], cells[True, False], cells[False, True], cells[False, False]
    n = len(exchanges)
    return {
        "acc_refine": (c2c + i2c) / n,
        "delta": (i2c - c2i) / n,
        "c2i": c2i / n,
        "i2c": i2c / n,
        "c2c": c2c / n,
        "i2i": i2i / n,
        "c2i_of_correct": _ratio(c2i, c2c + c2i),
        "i2c_of_incorrect": _ratio(i2c, i2c + i2i),
    }


def _share(flags: Iterable[bool | None]) -> float | None:
    """The share of True among the flags. None if there are none, or one is unknown."""
    flags = list(flags)
    return None if None in flags else _ratio(sum(map(bool, flags)), len(flags))


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def no_critic_metrics(answers_correct: Sequence[bool]) -> Metrics:
    """The "No Critic" row of a table: every answer is kept, nothing is judged. Same names as `critique_metrics`."""
    metrics = critique_metrics([Exchange(right, right, None) for right in answers_correct])
    return metrics | dict.fromkeys(_VERDICT_METRICS)


def pass_at_k(correct: Sequence[Sequence[bool]], k: int | None = None) -> float | None:
    """The chance that at least one of k answers to a question is right, averaged over questions.

    Args:
        correct: one row per question, one flag per sampled answer.
        k: at most the number of samples of any question. With more samples it is the unbiased estimate
            (arXiv:2107.03374, eq. 1). None: all samples, of which every question must have the same number.
    """
    if not correct:
        return None
    if k is None:
        k = _same_length(correct)
    fewest = min(map(len, correct))
    if not 1 <= k <= fewest:
        raise ValueError(f"pass@{k} needs k >= 1 and k answers to each question, got as few as {fewest}: lower k.")
    return fmean(1 - comb(len(row) - sum(row), k) / comb(len(row), k) for row in correct)


def average_at_k(correct: Sequence[Sequence[bool]]) -> float | None:
    """Mean accuracy of K sampled answers per question, in [0, 1]. (The authors' avg@K leaves out the division by K.)"""
    if not correct:
        return None
    k = _same_length(correct)
    return _ratio(sum(map(sum, correct)), k * len(correct))


def vote(keys: Sequence[str | None], weights: Sequence[float] | None = None) -> int | None:
    """The index of the first answer that is equal to the majority's. None: no answer votes.

    Args:
        keys: of the answers. Equal keys are one answer. None (nothing was extracted) does not vote.
        weights: of each answer, 0 or more. Those of equal answers add up. None: 1 each. Of equal sums, the answer seen
            first wins.
    """
    totals: dict[str, list[float]] = {}
    for key, weight in zip(keys, weights if weights is not None else [1.0] * len(keys), strict=True):
        if key is not None:
            totals.setdefault(key, []).append(weight)
    if not totals:
        return None
    # Rounded, so that three tenths tie with 0.3.
    return keys.index(max(totals, key=lambda key: round(fsum(totals[key]), _VOTE_DIGITS)))


def majority_at_k(answers: Sequence[Sequence[str | None]], correct: Sequence[Sequence[bool]]) -> float | None:
    """MV@K: the share of questions whose majority answer is right. A question without answers counts as wrong.

    None where there is no question, or no answer to vote by though some are right, as with a grader that gives scores
    alone.

    Args:
        answers: one row per question, one extracted answer per sample. Votes are counted by equality of text: `1/2`
            and `0.5` differ unless normalised before.
        correct: of the same shape. The majority is as right as the first sample with it.
    """
    if any(map(any, correct)) and all(answer is None for row in answers for answer in row):
        return None
    winners = map(vote, answers)
    return _share(winner is not None and rights[winner] for winner, rights in zip(winners, correct, strict=True))


def _same_length(rows: Sequence[Sequence[object]]) -> int:
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise ValueError(f"K differs between questions, from {min(lengths)} to {max(lengths)}: give all the same K.")
    return lengths.pop()


# Student's t, 97.5 % quantile, 1 to 29 degrees of freedom.
_T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
)  # fmt: skip


def mean_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean over seeds and the half width of its 95 % Student t interval; None for a single value."""
    if not values:
        raise ValueError("mean_interval needs at least one value: no seed gave this metric.")
    n = len(values)
    if n < 2:
        return fmean(values), None
    return fmean(values), _t_975(n - 1) * stdev(values) / n**0.5


def _t_975(freedom: int) -> float:
    if freedom <= len(_T_975):
        return _T_975[freedom - 1]
    z = NormalDist().inv_cdf(0.975)
    # Cornish-Fisher in 1 / freedom: right to three decimals from 30 on.
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
