"""The published formulas, written anew in plain numpy, beside our functions on the same random inputs.

`FORMULAS` is the list, `compare` runs one. The test asks for no difference, and for a row of `docs/fidelity.md` where a
formula is known to differ; `benchmarks/formulas.py` prints the table. No formula here calls the code that it checks.
Specs are named by their paper, or by the published code that was read.
"""

from __future__ import annotations

from support.formulas.advantages import ADVANTAGE_FORMULAS
from support.formulas.clipping import CLIPPING_FORMULAS
from support.formulas.compared import Formula, Result, compare
from support.formulas.losses import LOSS_FORMULAS
from support.formulas.rewards import REWARD_FORMULAS
from support.formulas.selection import SELECTION_FORMULAS
from support.formulas.updates import UPDATE_FORMULAS

FORMULAS: tuple[Formula, ...] = (
    *ADVANTAGE_FORMULAS,
    *LOSS_FORMULAS,
    *CLIPPING_FORMULAS,
    *UPDATE_FORMULAS,
    *REWARD_FORMULAS,
    *SELECTION_FORMULAS,
)

__all__ = ["FORMULAS", "Formula", "Result", "compare"]
