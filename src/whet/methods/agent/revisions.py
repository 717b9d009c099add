"""How much a critic helps an agent: attempts before and after a critique, and whether its verdict was right.

The tree of an episode is that of `methods.agent.critique_rollout`: the end of an attempt is graded with its success.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from whet.evaluation.critique import Exchange, Metrics, critique_metrics
from whet.evaluation.protocol import is_right
from whet.methods.agent.critique_rollout import attempt_text
from whet.methods.agent.review import REVIEWER
from whet.rollout.agent import FULL, HORIZON
from whet.types import FAULTS, Episode, Segment

OF_VERDICTS = ("acc_dis", "unparsed", "relevance")
"""Prefixes of the metrics of critiques' verdicts."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One way through an episode: an attempt, and where there is a critique of it, the attempt that it led to."""

    first: Sequence[Segment]
    critique: Segment | None = None
    second: Sequence[Segment] = ()
    """Empty: none was asked for. The end of the first alone: that one stands."""

    @property
    def exchange(self) -> Exchange:
        """What metrics are made of. Without a critique the attempt stands."""
        final = self.second if self.critique is not None else self.first
        return Exchange(
            answer_correct=is_right(self.first[-1]),
            refinement_correct=is_right(final[-1]) if final else None,
            verdict=self.critique.parsed.get("verdict") if self.critique is not None else None,
        )

    @property
    def segments(self) -> list[Segment]:
        return [*self.first, *([self.critique] if self.critique is not None else []), *self.second]

    @property
    def stands(self) -> bool:
        """Whether the verdict has let the first attempt stand."""
        return len(self.second) == 1


def revisions(episode: Episode) -> Iterator[Revision]:
    """One a critique, in the order of the episode; of an episode without any, the bare attempt."""
    segments, critiques = episode.segments, episode.indices("critic")
    first = segments[: critiques[0]] if critiques else segments
    if not critiques:
        yield Revision(first)
    for index, end in pairwise([*critiques, len(segments)]):
        yield Revision(first, segments[index], segments[index + 1 : end])


def revision_metrics(episodes: Iterable[Episode]) -> Metrics:
    """`critique_metrics` of attempts, with what they took.

    An episode whose first attempt failed is left out. Where failures took the critiques, or the attempts after them,
    the first attempt stands. Wrong attempts meet more failures than those that stand anyway, so leaving them out would
    flatter the critic. Metrics of verdicts are of critiques alone.

    Returns: beside those `turns` (of both attempts) and `turns_attempt` (of one). `tokens` (written by agent and
        critic, of both attempts; an endpoint's and a rule's are 0) and `tokens_first` (of the first attempt alone).
        `sent_back` (of reviewed actions; None where none was) and `unread` (of them, those whose review has no readable
        verdict). `retried` (the share of critiques that another attempt followed; None where none was asked for).
        `invalid` (of all turns). `cut` (attempts that reached a limit), `cut_by_horizon`, `cut_by_context` (that of
        turns, of tokens). `truncated` (replies that reached their limit of tokens). `faults` (episodes that failed, or
        lost all their critiques).
    """
    rolled_out = list(episodes)
    whole = [episode for episode in rolled_out if episode.outcome not in FAULTS]
    begun = [*whole, *(episode for episode in rolled_out if episode.outcome in FAULTS and episode.segments)]
    by_episode = [list(revisions(episode)) for episode in begun]
    every = [revision for episode_revisions in by_episode for revision in episode_revisions]
    exchanges = [revision.exchange for revision in every]
    judged = exchanges[: sum(map(len, by_episode[: len(whole)]))]
    if any(exchange.refinement_correct is None for exchange in judged):
        exchanges = [replace(exchange, refinement_correct=None) for exchange in exchanges]
    turns = [turn for episode in begun for turn in _turns(episode.segments)]
    reviews = [s for episode in begun for s in episode.segments if s.role == REVIEWER]
    attempts = [episode_revisions[0].first for episode_revisions in by_episode]
    attempts += [revision.second for revision in every if revision.second and not revision.stands]
    reasons = [attempt[-1].grade.reason if attempt[-1].grade else "" for attempt in attempts]
    written = [s for episode in begun for s in episode.segments if s.tokens]
    of_verdicts = {name: value for name, value in critique_metrics(judged).items() if name.startswith(OF_VERDICTS)}
    return (
        critique_metrics(exchanges)
        | of_verdicts
        | {
            "turns": _mean(len(_turns(revision.first)) + len(_turns(revision.second)) for revision in every),
            "tokens": _mean(_num_tokens(revision.segments) for revision in every),
            "tokens_first": _mean(_num_tokens(revision.first) for revision in every),
            "sent_back": _mean(review.parsed["verdict"] == "wrong" for review in reviews),
            "unread": _mean(review.parsed["verdict"] is None for review in reviews),
            "retried": _mean(not revision.stands for revision in every if revision.second),
            "invalid": _mean("note" in turn.parsed for turn in turns),
            "turns_attempt": _mean(len(_turns(attempt)) for attempt in attempts),
            "cut": _mean(map(bool, reasons)),
            "cut_by_horizon": _mean(reason == HORIZON for reason in reasons),
            "cut_by_context": _mean(reason == FULL for reason in reasons),
            "truncated": _mean(segment.stop_reason == "length" for segment in written),
            "faults": float(len(rolled_out) - len(whole)),
        }
    )


def no_critic_metrics(episodes: Iterable[Episode]) -> Metrics:
    """`revision_metrics` of first attempts, each of which stands; nothing is judged."""
    metrics = revision_metrics(episodes)
    return {name: None if name.startswith((*OF_VERDICTS, "retried")) else value for name, value in metrics.items()}


def revision_traces(
    episodes: Iterable[Episode],
    *,
    phase: str,
    step: int,
    split: str,
    critic: str,
    credit: Mapping[int, float] | None = None,
) -> Iterator[dict[str, Any]]:
    """What the report shows of each critique: the goal, both attempts, the verdict, its rewards.

    Args:
        critic: whose row of the final table, or `training`.
        credit: mean credit a token of each critique, by its seed.
    """
    for episode in episodes:
        for revision in revisions(episode) if episode.segments else ():
            critique, texts = revision.critique, {"answer": attempt_text(revision.first)}
            if revision.second:
                texts["refinement"] = texts["answer"] if revision.stands else attempt_text(revision.second)
            exchange = revision.exchange
            after = exchange.refinement_correct if critique is not None else None
            yield {
                "phase": phase,
                "step": step,
                "split": split,
                "critic": critic,
                "task": episode.task.id,
                "question": revision.first[0].text,
                "reference": None,
                "answer": texts["answer"],
                "refinement": texts.get("refinement"),
                "critique": critique.text if critique is not None else None,
                "answer_score": float(exchange.answer_correct),
                "refinement_score": None if after is None else float(after),
                "verdict": exchange.verdict,
                "reward": critique.rewards.get("total") if critique is not None else None,
                "rewards": {n: v for n, v in critique.rewards.items() if n != "total"} if critique is not None else {},
                "credit": (credit or {}).get(critique.seed) if critique is not None else None,
                "stop": {"critique": critique.stop_reason} if critique is not None else {},
                "outcome": episode.outcome,
            }


def _turns(attempt: Sequence[Segment]) -> list[Segment]:
    """Those that were taken."""
    return [turn for turn in attempt if "action" in turn.parsed]


def _num_tokens(segments: Iterable[Segment]) -> int:
    return sum(len(segment.tokens) for segment in segments)


def _mean(values: Iterable[float]) -> float | None:
    numbers = list(values)
    return fmean(numbers) if numbers else None
