"""Credit: rewards written onto segments by named terms, advantages by name, and the rows that carry them.

| module | what it has | names |
|---|---|---|
| rewards | terms of an episode, how they add up, Critique-RL's eq. 4 to 9 | `rewarded`, `groups_of` |
| advantages | which rewards form a baseline, and the resulting credit | `ADVANTAGES` |
| assignment | groups of scored segments to rows, with a value model or not; pairs | `assign_credit`, `pair_rows` |
| views | a chain of turns as one row | `joined` |
| metrics | a step's rewards, for the log and the watch | `reward_metrics`, `reply_signs` |
"""

from whet.config.critics import IndirectName
from whet.credit.advantages import ADVANTAGES, Advantage, advantage
from whet.credit.assignment import (
    AssignedCredit,
    Reference,
    assign_credit,
    assign_credit_with_values,
    best_and_worst,
    differ,
    is_mixed,
    pair_rows,
    with_reference,
)
from whet.credit.metrics import critique_signs, flat_groups, graded_signs, reply_metrics, reply_signs, reward_metrics
from whet.credit.rewards import (
    ScoredSegment,
    Total,
    gated,
    groups_of,
    least,
    mixture,
    only,
    outcome,
    overlong,
    refine_outcome,
    rewarded,
    verdict_match,
)
from whet.credit.views import Joined, joined
from whet.rewards import REWARDS, RewardTerm

__all__ = [
    "ADVANTAGES",
    "REWARDS",
    "Advantage",
    "AssignedCredit",
    "IndirectName",
    "Joined",
    "Reference",
    "RewardTerm",
    "ScoredSegment",
    "Total",
    "advantage",
    "assign_credit",
    "assign_credit_with_values",
    "best_and_worst",
    "critique_signs",
    "differ",
    "flat_groups",
    "gated",
    "graded_signs",
    "groups_of",
    "is_mixed",
    "joined",
    "least",
    "mixture",
    "only",
    "outcome",
    "overlong",
    "pair_rows",
    "refine_outcome",
    "reply_metrics",
    "reply_signs",
    "reward_metrics",
    "rewarded",
    "verdict_match",
    "with_reference",
]
