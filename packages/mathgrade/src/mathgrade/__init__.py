r"""Reads mathematical answers: finds the final answer of a reply, and says whether it is the reference.

    >>> import mathgrade
    >>> mathgrade.extract(r"So he has 3 left. The answer is $\boxed{1,080.00}$ dollars.")
    '1080'
    >>> mathgrade.same("0.5", r"\frac{1}{2}")
    True
    >>> mathgrade.grade("The answer is 3 or 4.", "4")
    Result(score=0.0, reason="another value than the reference's", extracted='3, 4', exhausted=False)

An answer is judged only if every token of it is accounted for. A token may be parsed mathematics, or a named rule that
cannot change the value may cover it (`reading` lists them). An answer with any other token is refused: score 0, with a
reason that names it.

`extract` and `examine` take time linear in the text. `same` and `grade` may pass two formulas to SymPy, which has no
time limit: see `grade`. Importing this does not import SymPy.
"""

from mathgrade.answers import final_answer as extract
from mathgrade.grading import Comparison, Result, examine, grade, same

__all__ = ["Comparison", "Result", "examine", "extract", "grade", "same"]
