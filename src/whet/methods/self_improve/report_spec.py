"""The sheet of self-improvement: accuracy by how hard questions are, and what exploring found."""

from __future__ import annotations

from dataclasses import replace

from whet.evaluation.difficulty import LEVELS
from whet.methods.charts import ENTROPY, LOSS, NORM, SOLVED, TIME
from whet.methods.report_specs import SOLVE, SOLVE_COLUMNS
from whet.report.spec import Chart, Column, Line

_OF_LEVEL = {1: "most right", 5: "most wrong"}
_ENDS = "by how hard, for the policy at first"
COLUMNS = (
    SOLVE_COLUMNS[0],
    Column("acc_low", "from", SOLVE_COLUMNS[0].group, "The lower end of its 95 % interval.", "a bound, over problems"),
    Column("acc_high", "to", SOLVE_COLUMNS[0].group, "The upper end of its 95 % interval.", "a bound, over problems"),
    *SOLVE_COLUMNS[1:3],
    Column("coverage", "coverage", "exploring", "Explored questions for which the round found a right solution.",
           "questions explored"),
    *(
        Column(
            f"level_{level}", f"level {level}", _ENDS, f"Greedy replies that are right, of level {level} "
            f"(samples before the first round: {6 - level}/5 right at most, more than {5 - level}/5; level 5 with 0).",
            "problems of that level",
        )
        for level in LEVELS
    ),
)  # fmt: skip
COVERAGE = Chart(
    "Coverage", "questions with a solution, a round", "percent", False,
    (
        Line("round/coverage", "answers and refinements", "blue", points=True),
        Line("round/coverage_answers", "answers alone", "grey", points=True),
        Line("round/recovered", "recovered, of those with no right answer", "orange", points=True),
    ),
)  # fmt: skip
YIELD = Chart(
    "Yield", "solutions a generation, a round", "percent", True,
    (
        Line("round/yield", "of the policy's generations", "blue", points=True),
        Line("round/yield_calls", "critiques counted too", "orange", points=True),
        Line("round/yield_answers", "right answers an answer", "grey", points=True),
    ),
)  # fmt: skip
TAIL = Chart(
    "Hard questions", "levels 4 and 5, a round", "percent", True,
    (
        Line("round/hard", "of what was kept", "blue", points=True),
        Line("round/hard_source", "of the questions", "grey", points=True),
    ),
)  # fmt: skip
DIVERSITY = Chart(
    "Diversity", "means over questions, a round", "number", True,
    (
        Line("round/distinct", "distinct solutions", "blue", points=True),
        Line("round/dissimilarity", "1 - similarity of pairs", "orange", points=True),
        Line("round/answer_entropy", "entropy of the answers", "violet", points=True),
    ),
)  # fmt: skip
IMPROVEMENT = replace(
    SOLVE,
    order=("training", "refined", "before", "round_1", "round_2", "round_3", "best", "last"),
    columns=COLUMNS,
    training=("validation/acc", "reward/correct", "round/coverage"),
    is_staged=True,
    charts=(SOLVED, COVERAGE, YIELD, TAIL, DIVERSITY, LOSS, ENTROPY, NORM, TIME),
    off_policy=(),
    shares=(),
    titles={"before": "Before the rounds", "refined": "After a critique"},
    phases={
        "sft_actor": "warm start, policy", "sft_critic": "warm start, critic", "levels": "how hard questions are",
        "before": "test, before", "after": "test, after",
    },
    behind={"acc": {"outcome": "right"}},
)  # fmt: skip
"""Traces of the test are of greedy replies; those of exploring are the first answers, and what was kept after a
critique."""
