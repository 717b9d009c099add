"""The critique protocol: answer, critique, refine over a set of tasks, and what came of it as metrics and traces.

Training steps, validation, the final table and `whet eval` all go through here, so their numbers mean the same.
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
    """One way through an episode: an answer, a critique of it, and the refinement that it led to."""

    answer: Segment
    critique: Segment | None
    refinement: Segment | None
    critique_index: int | None
    """In the episode."""

    @property
    def broken(self) -> bool:
        """Some grade in it failed, which is nobody's score."""
        grades = [s.grade for s in (self.answer, self.refinement) if s is not None]
        return any(grade is not None and grade.score is None for grade in grades)

    @property
    def exchange(self) -> Exchange:
        """What metrics are made of. An answer that went to no critic counts as its own refinement."""
        final = self.refinement if self.critique is not None else self.answer
        return Exchange(
            answer_correct=is_right(self.answer),
            refinement_correct=None if final is None else is_right(final),
            verdict=self.critique.parsed.get("verdict") if self.critique else None,
        )


def is_right(segment: Segment) -> bool:
    return segment.grade is not None and segment.grade.score == 1.0


def share_right(segments: Iterable[Segment]) -> float:
    """How many of them are right, in [0, 1]. NaN where there is none, or where a grading failed: then nobody knows."""
    rights = [math.nan if s.grade is None or s.grade.score is None else is_right(s) for s in segments]
    return sum(rights) / len(rights) if rights else math.nan


def num_exhausted(episodes: Iterable[Episode]) -> int:
    """Replies that ran their grading out of time or memory: wrong, and worth knowing about."""
    return sum(s.grade is not None and s.grade.exhausted for episode in episodes for s in episode.segments)


def paths(episode: Episode) -> Iterator[Chained]:
    """One a critique, in the order of the episode; of an episode without critiques, the bare answer."""
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
    """As `paths`, one a chain: from the first answer to the chain's last refinement, with the last verdict given.

    In a single round this is `paths`. Over several it measures the whole exchange, as the paper's Figure 4 does.
    """
    answer = episode.segments[0]
    for path in paths(episode):
        after = [] if path.critique_index is None else episode.children(path.critique_index, "actor")
        goes_on = any(episode.children(i, "critic") for i in after)
        if not goes_on:
            yield Chained(answer, path.critique, path.refinement, path.critique_index)


def measure(episodes: Sequence[Episode]) -> dict[str, float | None]:
    """The metrics of `whet.evaluation.critique` over all chains, with counts of what is wrong or cut off.

    A chain in which grading failed is counted (`grader_errors`) and left out. A reply that ran its grading out of its
    limits is wrong, and counted too (`reply_exhausted`).
    """
    every = [path for episode in episodes for path in last_paths(episode)]
    whole = [path for path in every if not path.broken]
    metrics: dict[str, float | None] = dict(critique_metrics([path.exchange for path in whole]))
    # A verdict is held against the answer that it judges, in whichever round; an answer that went to no critic (oracle
    # verifier) is no missing verdict.
    found = critique_metrics(judged(episodes))
    metrics |= {n: v for n, v in found.items() if n.startswith(("acc_dis", "relevance", "unparsed"))}
    segments = [segment for episode in episodes for segment in episode.segments if segment.tokens]
    cut = sum(segment.stop_reason == "length" for segment in segments)
    metrics["truncated"] = cut / len(segments) if segments else None
    metrics["grader_errors"] = float(len(every) - len(whole))
    metrics["reply_exhausted"] = float(num_exhausted(episodes))
    return metrics


def judged(episodes: Iterable[Episode]) -> list[Exchange]:
    """One a critique, whose answer and refinement could be graded."""
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
    """What the report shows of each critique: the texts, the grades, the verdict, what it was paid.

    Args:
        credit: mean credit a token of each critique, by its seed.
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
