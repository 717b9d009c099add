"""The critique protocol: metrics and traces of answers, critiques and refinements over a set of tasks.

Training steps, validation, the final table and `whet eval` all use it, so their numbers mean the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.evaluation.critique import Exchange, critique_metrics
from whet.types import Episode, Segment


@dataclass(frozen=True, slots=True)
class Chained:
    """One path through an episode: an answer, a critique of it, and the refinement after that."""

    answer: Segment
    critique: Segment | None
    refinement: Segment | None
    critique_index: int | None
    """In the episode."""

    @property
    def broken(self) -> bool:
        """Whether one of its grades failed."""
        grades = [s.grade for s in (self.answer, self.refinement) if s is not None]
        return any(grade is not None and grade.score is None for grade in grades)

    @property
    def exchange(self) -> Exchange:
        """The exchange for metrics. An answer without a critique counts as its own refinement."""
        final = self.refinement if self.critique is not None else self.answer
        return Exchange(
            answer_correct=is_right(self.answer),
            refinement_correct=None if final is None else is_right(final),
            verdict=self.critique.parsed.get("verdict") if self.critique else None,
        )


def is_right(segment: Segment) -> bool:
    return segment.grade is not None and segment.grade.score == 1.0


def share_right(segments: Iterable[Segment]) -> float:
    """The share of right segments, in [0, 1]. NaN where there is none, or a grading failed."""
    rights = [math.nan if s.grade is None or s.grade.score is None else is_right(s) for s in segments]
    return sum(rights) / len(rights) if rights else math.nan


def num_exhausted(episodes: Iterable[Episode]) -> int:
    """The number of replies whose grading ran out of time or memory. They count as wrong."""
    return sum(s.grade is not None and s.grade.exhausted for episode in episodes for s in episode.segments)


def paths(episode: Episode) -> Iterator[Chained]:
    """One path for each critique, in the order of the episode. Without critiques: the bare answer."""
    segments = episode.segments
    critiques = episode.indices("critic")
    if not critiques:
        yield Chained(segments[0], None, None, None)
    for index in critiques:
        parent = segments[index].parent
        refinements = episode.children(index, "actor")
        refinement = segments[refinements[0]] if refinements else None
        yield Chained(segments[parent or 0], segments[index], refinement, index)


def last_paths(episode: Episode) -> Iterator[Chained]:
    """One path for each chain: from the first answer to the chain's last refinement, with the last verdict.

    In a single round this is `paths`. Over several it measures the whole exchange, as the paper's Figure 4 does.
    """
    answer = episode.segments[0]
    for path in paths(episode):
        after = [] if path.critique_index is None else episode.children(path.critique_index, "actor")
        goes_on = any(episode.children(i, "critic") for i in after)
        if not goes_on:
            yield Chained(answer, path.critique, path.refinement, path.critique_index)


def measure(episodes: Sequence[Episode]) -> dict[str, float | None]:
    """The metrics of `whet.evaluation.critique` over all chains, with counts of failures and truncated segments.

    A chain with a failed grading is counted (`grader_errors`) and left out. A reply whose grading exceeded its limits
    is wrong, and counted too (`reply_exhausted`).
    """
    metrics: dict[str, float | None] = dict(critique_metrics(exchanges(episodes)))
    # A verdict is compared with the answer that it judges, in any round. An answer without a critique (`keep_right`)
    # has no missing verdict.
    verdict_metrics = critique_metrics(judged(episodes))
    metrics |= {n: v for n, v in verdict_metrics.items() if n.startswith(("acc_dis", "relevance", "unparsed"))}
    segments = [segment for episode in episodes for segment in episode.segments if segment.tokens]
    cut = sum(segment.stop_reason == "length" for segment in segments)
    metrics["truncated"] = cut / len(segments) if segments else None
    metrics["grader_errors"] = float(sum(path.broken for episode in episodes for path in last_paths(episode)))
    metrics["reply_exhausted"] = float(num_exhausted(episodes))
    return metrics


def exchanges(episodes: Iterable[Episode]) -> list[Exchange]:
    """One exchange for each chain that could be graded, from its first answer to its last refinement."""
    return [path.exchange for episode in episodes for path in last_paths(episode) if not path.broken]


def judged(episodes: Iterable[Episode]) -> list[Exchange]:
    """One exchange for each critique whose answer and refinement could be graded."""
    every = [path for episode in episodes for path in paths(episode)]
    return [path.exchange for path in every if path.critique is not None and not path.broken]


def trace_rows(
    episodes: Sequence[Episode],
    *,
    phase: str,
    step: int,
    split: str,
    critic: str,
    credit: Mapping[int, float] | None = None,
) -> Iterator[dict[str, Any]]:
    """Traces for the report, one for each critique: the texts, the grades, the verdict, the reward.

    Args:
        credit: mean credit per token of each critique, by its seed.
    """
    for episode in episodes:
        for path in paths(episode):
            texts = {"answer": path.answer, "critique": path.critique, "refinement": path.refinement}
            yield {
                "phase": phase,
                "step": step,
                "split": split,
                "critic": critic,
                "task": episode.task.id,
                "question": episode.task.prompt,
                "reference": episode.task.answer,
                **{name: segment.text if segment else None for name, segment in texts.items()},
                "answer_score": _score(path.answer),
                "refinement_score": _score(path.refinement),
                "verdict": path.critique.parsed.get("verdict") if path.critique else None,
                "reward": path.critique.rewards.get("total") if path.critique else None,
                "rewards": {n: v for n, v in path.critique.rewards.items() if n != "total"} if path.critique else {},
                "credit": (credit or {}).get(path.critique.seed) if path.critique else None,
                "stop": {name: segment.stop_reason for name, segment in texts.items() if segment},
                "outcome": episode.outcome,
            }


def _score(segment: Segment | None) -> float | None:
    return segment.grade.score if segment is not None and segment.grade is not None else None
