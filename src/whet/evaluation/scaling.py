"""Metrics of several samples: K chains of answer, critique and refinement, or K refinements after one critique."""

from __future__ import annotations

from collections.abc import Sequence

from whet.evaluation.critique import average_at_k, majority_at_k, pass_at_k
from whet.evaluation.protocol import is_right, last_paths
from whet.types import FAULTS, Episode


def measure_samples(episodes_by_task: Sequence[Sequence[Episode]]) -> dict[str, float | None]:
    """K independent chains per task: majority vote, pass@K and mean of the refinements, and of the answers."""
    metrics: dict[str, float | None] = {}
    for name in ("answer", "refine"):
        votes, rights = [], []
        for episodes in episodes_by_task:
            chains = [path for episode in episodes for path in last_paths(episode)]
            if any(path.broken for path in chains):  # a question with a failed grading is left out whole
                continue
            finals = [(path.refinement or path.answer) if name == "refine" else path.answer for path in chains]
            votes.append([segment.grade.extracted if segment.grade else None for segment in finals])
            rights.append([is_right(segment) for segment in finals])
        metrics |= {
            f"majority_{name}": majority_at_k(votes, rights),
            f"pass_{name}": pass_at_k(rights),
            f"average_{name}": average_at_k(rights),
        }
    return metrics


def scaling(episodes_by_task: Sequence[Sequence[Episode]]) -> dict[str, dict[str, float | None]]:
    """The majority's accuracy by the number of chains that vote, from each task's first ones on.

    These are Critique-RL's Figures 1 and 6. Compare with plain answers at 2K and 3K, as a chain is three texts.

    Returns: by `majority_answer` and `majority_refine`, and by k as text: 1, 2, 4, ..., and all of them.
    """
    most = max(map(len, episodes_by_task), default=0)
    by_count = {k: measure_samples([group[:k] for group in episodes_by_task]) for k in powers(most)}
    names = ("majority_answer", "majority_refine")
    return {name: {str(k): metrics[name] for k, metrics in by_count.items()} for name in names}


def measure_refinements(episodes: Sequence[Episode]) -> dict[str, float | None]:
    """`pass@k` of several refinements after one critique (Critique-RL, Figure 7), unbiased, for k = 1, 2, 4, ..., and
    all of them. An answer without a critique counts as each of its refinements. An episode with a failed grading is
    left out.
    """
    rows = []
    for episode in episodes:
        if episode.outcome in FAULTS:
            continue
        critiques = episode.indices("critic")
        finals = episode.children(critiques[0], "actor") if critiques else [0]
        rows.append([is_right(episode.segments[index]) for index in finals])
    most = max(map(len, rows), default=0)
    rows = [row if len(row) == most else row * most for row in rows]
    return {f"pass@{k}": pass_at_k(rows, k) for k in powers(most)}


def powers(most: int) -> list[int]:
    """The powers of two up to a number, and the number itself."""
    return sorted({most, *(2**i for i in range(most.bit_length()) if 2**i <= most)} - {0})
