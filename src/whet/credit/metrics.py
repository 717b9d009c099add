"""Metrics of a step's rewards: means for the log, groups without a signal, and counts for the watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from whet.config.parts import SamplingConfig
from whet.credit.advantages import Advantage, Baseline
from whet.credit.assignment import is_mixed
from whet.credit.rewards import ScoredSegment
from whet.evaluation.protocol import is_right
from whet.trainer.watch import Signs
from whet.types import Episode, Grade, Segment

Groups = Sequence[Sequence[ScoredSegment]]
Reaches = Callable[[ScoredSegment], bool]
"""Whether a segment reaches the goal of its reward, whatever other terms the reward has."""


def reaches_reference(scored: ScoredSegment) -> bool:
    """A reply that the grader finds wholly right."""
    return is_right(scored.segment)


def reward_metrics(groups: Groups) -> dict[str, float]:
    """Means over all scored segments: `reward/mean`, and `reward/<term>` where there are terms."""
    every = [scored.segment.rewards for group in groups for scored in group]
    if not every:
        return {}
    names = [name for name in every[0] if name != "total"]
    means = {f"reward/{name}": sum(rewards[name] for rewards in every) / len(every) for name in names}
    return {"reward/mean": sum(rewards["total"] for rewards in every) / len(every), **means}


def flat_groups(groups: Groups, reaches: Reaches) -> dict[str, float]:
    """The share of groups without a signal, whose rewards are all equal.

    Among these, `all_right` counts groups in which every segment reaches the goal, and `all_wrong` those in which none
    does. Both are shares of all groups.
    """
    groups = [group for group in groups if group]  # the others are failures, and no rewards
    if not groups:
        return {}
    flat = [[reaches(scored) for scored in group] for group in groups if len({scored.reward for scored in group}) == 1]
    return {
        "group/no_signal": len(flat) / len(groups),
        "group/all_right": sum(map(all, flat)) / len(groups),
        "group/all_wrong": sum(not any(reached) for reached in flat) / len(groups),
    }


def failures(episodes: Iterable[Episode]) -> dict[str, float]:
    """Episodes whose grading failed: never a reward, and left out."""
    return {"grader/errors": float(sum(episode.outcome == "grader_error" for episode in episodes))}


def all_right(group: Sequence[ScoredSegment]) -> bool:
    """Whether all replies are right by their scores, without penalties on length."""
    return all(map(reaches_reference, group))


def all_wrong(group: Sequence[ScoredSegment]) -> bool:
    """Whether no reply is right, and all scores are equal."""
    return len({p.segment.grade.score for p in group if p.segment.grade}) == 1 and not reaches_reference(group[0])


def reply_metrics(groups: Groups, sampling: SamplingConfig) -> dict[str, float]:
    """Means over the graded replies of a step: rewards, lengths, entropy, and groups without a signal."""
    every = [scored for group in groups for scored in group]
    if not every:
        return {}
    lengths = [len(scored.segment.tokens) for scored in every]
    means = [fmean(scored.reward for scored in group) for group in groups if group]
    metrics = {
        "reward/mean": fmean(scored.reward for scored in every),
        "reward/correct": fmean(map(reaches_reference, every)),
        "length/mean": fmean(lengths),
        "length/truncated": fmean(scored.segment.stop_reason == "length" for scored in every),
    }
    if compared := [group for group in groups if len(group) > 1]:
        metrics["group/no_signal"] = fmean(len({scored.reward for scored in group}) == 1 for group in compared)
        metrics["group/all_right"] = fmean(map(all_right, compared))
        metrics["group/all_wrong"] = fmean(map(all_wrong, compared))
    if sampling.temperature == 1 and sampling.top_p == 1:
        # Each sampled token's -log p is an unbiased estimate of its distribution's entropy.
        metrics["entropy/sampled"] = -sum(sum(scored.segment.logprobs) for scored in every) / sum(lengths)
    for name, sign in (("good", 1), ("bad", -1)):
        those = [
            len(scored.segment.tokens)
            for group, mean in zip([g for g in groups if g], means, strict=True)
            for scored in group
            if len({other.reward for other in group}) > 1 and (scored.reward - mean) * sign > 0  # a mean may round
        ]
        if those:
            metrics[f"length/{name}"] = fmean(those)
    return metrics


# --- for the watch ----------------------------------------------------------------------------------------------------


def reply_signs(groups: Groups, advantage: Advantage, num_failed: int) -> Signs:
    """Counts of a step's replies for the watch. Only rewards count as a signal: a KL teaches nothing new.

    Args:
        groups: the graded replies to each task, before any are left out.
        num_failed: the number of replies whose grading failed.
    """
    every = [scored for group in groups for scored in group]
    if advantage.baseline == "none":
        taught = any(scored.reward for scored in every)
    else:  # among replies that are all wrong, penalties on length teach only to be short
        compared = [every] if advantage.baseline == "batch" else groups
        taught = any(is_mixed(group) and not all_wrong(group) for group in compared)
    return Signs(
        replies=len(every) + num_failed,
        right=sum(map(reaches_reference, every)),
        partial=sum(is_partial(p.segment.grade) for p in every),
        unread=sum(map(is_unread, (p.segment.grade for p in every))),
        cut=sum(scored.segment.stop_reason == "length" for scored in every),
        ungraded=num_failed,
        taught=taught,
        compared=num_compared(groups, advantage.baseline),
    )


def num_compared(groups: Sequence[Sequence[Any]], baseline: Baseline) -> int:
    """Groups whose replies are compared with each other. 0 for other baselines, where a group of equal rewards may
    have a signal."""
    return sum(len(group) > 1 for group in groups) if baseline == "group" else 0


def is_unread(grade: Grade | None) -> bool:
    """Whether a grader scored 0 and extracted no answer. A user's grader may give a score without an answer."""
    return grade is not None and grade.score == 0 and grade.extracted is None


def is_partial(grade: Grade | None) -> bool:
    """Whether a grader scored above 0 and below 1, which is not right."""
    return grade is not None and grade.score is not None and 0 < grade.score < 1


def graded_signs(label: str, segments: Sequence[Segment]) -> Signs:
    """Counts of answers or refinements that are graded, but not rewarded."""
    grades = [segment.grade for segment in segments if segment.grade is not None]
    return Signs(
        what=label,
        replies=len(segments),
        right=sum(map(is_right, segments)),
        unread=sum(map(is_unread, grades)),
        cut=sum(segment.stop_reason == "length" for segment in segments),
        ungraded=sum(grade.score is None for grade in grades),
    )


def critique_signs(
    groups: Groups, critiques: Sequence[Segment], reaches: Reaches, baseline: Baseline = "group"
) -> Signs:
    """Counts of a step's critiques for the watch.

    Args:
        groups: the rewarded ones.
        critiques: all of them, also those whose grading failed.
        baseline: the rewards that theirs are compared with.
    """
    scored = [member for group in groups for member in group]
    compared = [scored] if baseline == "batch" else groups
    return Signs(
        what="critiques",
        holding="verdict",
        replies=len(critiques),
        right=sum(map(reaches, scored)),
        unread=sum(critique.parsed.get("verdict") is None for critique in critiques),
        cut=sum(critique.stop_reason == "length" for critique in critiques),
        ungraded=len(critiques) - len(scored),
        taught=any(member.reward for member in scored) if baseline == "none" else any(map(is_mixed, compared)),
        compared=num_compared(groups, baseline),
    )
