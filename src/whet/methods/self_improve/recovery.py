"""Which refinements of wrong answers are learnt from, and how many attempts each question gets.

Critique-in-the-loop self-improvement (arXiv:2411.16579): after one critique of a wrong answer the first right
refinements are kept, unless one takes a shortcut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def kept_refinements(rights: Sequence[bool | None], shortcuts: Sequence[bool], keep: int) -> list[int]:
    """Of the refinements after one critique, which are kept: the first `keep` that are right and take no shortcut.
    Equal texts are kept as often as they come, as published. Every critique is looked at by itself, wherever it stands
    among others.

    Args:
        rights: None: grading failed, and nobody knows.
    Returns: their indices.
    """
    helped = [i for i, (right, cut) in enumerate(zip(rights, shortcuts, strict=True)) if right and not cut]
    return helped[: max(keep, 0)]


def allotted(wrong: Mapping[str, int], budget: int, cap: int | None) -> dict[str, int]:
    """Attempts at refining for each question: b(x) = budget w(x) / sum of w, at least one, at most the cap.

    The largest remainders get what rounding leaves over, those that come first before others. The floor may take more
    than the budget, and the cap may leave some of it unspent.

    Args:
        wrong: w(x), by question: its wrong answers. 0: it gets nothing.
        cap: None: none.
    """
    failed = {name: count for name, count in wrong.items() if count > 0}
    total = sum(failed.values())
    if not total:
        return {}
    shares = {name: divmod(budget * count, total) for name, count in failed.items()}
    left = budget - sum(whole for whole, _ in shares.values())
    first = sorted(shares, key=lambda name: -shares[name][1])[:left]
    counts = {name: max(1, whole + (name in first)) for name, (whole, _) in shares.items()}
    return {name: count if cap is None else min(count, cap) for name, count in counts.items()}
