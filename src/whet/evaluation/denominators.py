"""The denominator of each metric, in words, for reports. A separate module, so that reading a report needs no model."""

from __future__ import annotations

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
"""Of `evaluation.critique.critique_metrics`."""

SOLVE_DENOMINATORS: dict[str, str] = {
    "acc": "all problems",
    "average": "all samples",
    "pass": "all problems",
    "majority": "all problems",
    "truncated": "all replies",
    "length": "a mean over replies, in tokens",
}
"""Of `evaluation.solve.solve_metrics`."""
