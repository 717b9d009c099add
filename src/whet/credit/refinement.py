"""The reward terms of Critique-RL (arXiv:2510.24320, eq. 4 to 9), each a pure function of one exchange.

`o` is the correctness of the answer, and `n` that of the refinement after the critique. The verdict is the critique's
judgment of the answer. Where the paper and the authors' code differ, both are settings:

| choice | paper | authors' code |
|---|---|---|
| stage I, `direct_reward` | {1, 0}: `scale="unit"` (eq. 7) | {+1, -1}: `scale="signed"` |
| stage II, `combine` | a soft bonus: `how="additive"` (eq. 9) | a hard gate: `how="gated"` |

Signed rewards double every leave-one-out advantage while the KL coefficient stays, so the KL has half the relative
weight. The paper's Appendix G gives the bonus weight as 0.9, apparently Adam's beta_1 by mistake. Its section 5.1 and
the code have 0.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["correct", "wrong"]
IndirectName = Literal["refine", "delta", "correction"]


def judged_right(verdict: Verdict | None, answer_correct: bool) -> bool:
    """Does the critique's verdict agree with the verifier? No verdict (None: unparsed, or cut off) never does."""
    return verdict is not None and (verdict == "correct") == answer_correct


def direct_reward(verdict: Verdict | None, answer_correct: bool, scale: Literal["signed", "unit"]) -> float:
    """Stage I, r_dis (eq. 7): is the verdict right? Unparsed counts as wrong.

    Args:
        scale: `unit` gives 1 or 0 (the paper); `signed` gives +1 or -1 (the authors' code).
    """
    if scale not in ("signed", "unit"):
        raise ValueError(f"unknown scale {scale!r}: choose 'signed' (the authors' code) or 'unit' (the paper).")
    if judged_right(verdict, answer_correct):
        return 1.0
    return -1.0 if scale == "signed" else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineTable:
    """The reward of each transition from answer to refinement; c is correct, i incorrect."""

    c2c: float
    c2i: float
    i2c: float
    i2i: float

    def reward(self, answer_correct: bool, refinement_correct: bool) -> float:
        if answer_correct:
            return self.c2c if refinement_correct else self.c2i
        return self.i2c if refinement_correct else self.i2i


INDIRECT: dict[IndirectName, RefineTable] = {
    "refine": RefineTable(c2c=1.0, c2i=0.0, i2c=1.0, i2i=0.0),  # eq. 4: n
    "delta": RefineTable(c2c=0.0, c2i=-1.0, i2c=1.0, i2i=0.0),  # eq. 5: n - o
    "correction": RefineTable(c2c=0.2, c2i=0.0, i2c=1.0, i2i=0.0),  # eq. 6: fixing counts five times keeping
}
"""The indirect rewards (eq. 4 to 6). Paper and code agree on them, and use `refine` by default."""


def indirect_reward(name: IndirectName, answer_correct: bool, refinement_correct: bool) -> float:
    """The reward of the refinement after a critique, whatever the verdict."""
    if name not in INDIRECT:
        raise ValueError(f"unknown indirect reward {name!r}: choose one of {', '.join(INDIRECT)}.")
    return INDIRECT[name].reward(answer_correct, refinement_correct)


def combine(indirect: float, right: bool, how: Literal["gated", "additive"], weight: float = 0.2) -> float:
    """Stage II: the indirect reward and the judgment in one number.

    Args:
        indirect: from `indirect_reward`.
        right: from `judged_right`; unparsed is not right.
        how: `additive` is eq. 9, `indirect + weight * r_dis` with r_dis in {0, 1} (the paper). `gated` (the authors'
            code) is the same if the judgment is right, and -1 otherwise. A right refinement after a wrong verdict gets
            1.0 from the former and -1.0 from the latter.
        weight: of a right judgment; beta_1 in eq. 9.
    """
    if how == "additive":
        return indirect + weight * right
    if how == "gated":
        return indirect + weight if right else -1.0
    raise ValueError(f"unknown combination {how!r}: choose 'gated' (the authors' code) or 'additive' (the paper).")


def closeness(score: float | None, oracle: float, tolerance: float) -> float:
    """r_dis where the oracle is a score (appendix E): `max(0, 1 - |f - r_oracle| / delta)`. No readable score: 0.

    Args:
        tolerance: delta, more than 0. An error of this size or more gives 0.
    """
    return 0.0 if score is None else max(0.0, 1 - abs(score - oracle) / tolerance)
