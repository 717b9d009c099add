"""Rewards: terms, which are pure functions of an episode, and totals, which make one reward of several terms.

A term may read what came after the segment, such as the refinement after a critique. A term that needs a failed grade
has no value. Then the segment has no reward: it is left out, and never gets 0.

The last section has Critique-RL's rewards (arXiv:2510.24320, eq. 4 to 9) as functions of one exchange. There `o` is the
correctness of the answer, and `n` that of the refinement after the critique. The verdict is the critique's judgment of
the answer. Where the paper and the authors' code differ, both are settings:

| choice | paper | authors' code |
|---|---|---|
| stage I, `direct_reward` | {1, 0}: `scale="unit"` (eq. 7) | {+1, -1}: `scale="signed"` |
| stage II, `combine` | a soft bonus: `how="additive"` (eq. 9) | a hard gate: `how="gated"` |

Signed rewards double every leave-one-out advantage while the KL coefficient stays, so the KL has half the relative
weight. The paper's Appendix G gives the bonus weight as 0.9, apparently Adam's beta_1 by mistake. Its section 5.1 and
the code have 0.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Literal

from whet.config.base import ConfigError
from whet.config.critics import IndirectName
from whet.evaluation.protocol import is_right
from whet.rewards import RewardError, RewardTerm, value_of
from whet.types import MAX_REWARD, Episode, Segment, as_reward

RESERVED = ("total", "mean", "correct")
"""Names in `Segment.rewards` and after `reward/` in the log that no added term may take."""
Total = Callable[[Mapping[str, float]], float]
"""From the terms of a segment, by name, to its reward."""


@dataclass(frozen=True, slots=True)
class ScoredSegment:
    """A segment that has a reward, in its episode."""

    episode: Episode
    index: int

    @property
    def segment(self) -> Segment:
        return self.episode.segments[self.index]

    @property
    def reward(self) -> float:
        return self.segment.rewards["total"]


def rewarded(
    episodes: Iterable[Episode],
    role: str,
    terms: Mapping[str, RewardTerm],
    total: Total = lambda values: sum(values.values()),
    *,
    added: Mapping[str, float] | None = None,
) -> list[Episode]:
    """The episodes with `rewards` on every segment of a role: its terms, and their `total`.

    Args:
        total: of `terms`.
        added: weights of registered terms, by name. They are added to the total.
    Raises: UnknownName where a name in `added` is not registered, ConfigError where it is taken. RewardError where such
        a term breaks, or the total is more than `MAX_REWARD` in size.
    """
    added_terms: dict[str, RewardTerm] = {name: partial(value_of, name) for name in added or ()}
    if taken := sorted({*terms, *RESERVED} & added_terms.keys()):
        raise ConfigError(f"rewards.{taken[0]}: the name is taken by what is logged anyway; register yours by another")
    scored_episodes = []
    for episode in episodes:
        segments = list(episode.segments)
        for index in episode.indices(role):
            values = {name: term(episode, index) for name, term in {**terms, **added_terms}.items()}
            rewards = {name: float(value) for name, value in values.items() if value is not None}
            if len(rewards) < len(values):
                continue
            reward = total({name: rewards[name] for name in terms})
            for name, weight in (added or {}).items():
                reward += weight * rewards[name]
            if as_reward(reward) is None:
                raise RewardError(
                    f"the rewards of task {episode.task.id[:60]!r} add up to {reward:g}, and a reward is at most "
                    f"{MAX_REWARD:g} in size: lower the weights in rewards"
                )
            segments[index] = replace(segments[index], rewards={**rewards, "total": reward})
        scored_episodes.append(replace(episode, segments=tuple(segments)))
    return scored_episodes


def groups_of(episodes: Iterable[Episode], role: str, key: str) -> list[list[ScoredSegment]]:
    """The scored segments of a role that share a baseline, in the order of the episodes.

    Args:
        key: of `Segment.group`: `task`, `answer`, ...
    """
    groups: dict[str, list[ScoredSegment]] = {}
    for episode in episodes:
        for index in episode.indices(role):
            segment = episode.segments[index]
            group = groups.setdefault(segment.group.get(key, episode.task.id), [])
            if segment.rewards:
                group.append(ScoredSegment(episode, index))
    return list(groups.values())


# --- terms ------------------------------------------------------------------------------------------------------------


def outcome(*, signed: bool = False) -> RewardTerm:
    """The grader's score of the segment, 0 to 1; `signed`: -1 to 1."""

    def term(episode: Episode, index: int) -> float | None:
        grade = episode.segments[index].grade
        if grade is None or grade.score is None:
            return None
        return 2 * grade.score - 1 if signed else grade.score

    return term


def overlong(limit: int, last: int) -> RewardTerm:
    """DAPO's soft penalty on length (arXiv:2503.14476, eq. 13): falls linearly to -1 over the last tokens of the limit.

    Args:
        limit: tokens that a reply may have.
        last: the number of tokens at its end that have a penalty.
    """
    return lambda episode, index: -(max(0, len(episode.segments[index].tokens) - (limit - last)) / last)


def verdict_match(scale: Literal["signed", "unit"] = "unit") -> RewardTerm:
    """Whether a critique's verdict agrees with the verifier (Critique-RL, eq. 7); `signed`: -1 where it does not."""

    def term(episode: Episode, index: int) -> float | None:
        answer = judged(episode, index)
        if answer.grade is None or answer.grade.score is None:
            return None
        return direct_reward(episode.segments[index].parsed.get("verdict"), is_right(answer), scale)

    return term


def refine_outcome(table: IndirectName = "refine") -> RewardTerm:
    """The mean reward of the refinements after a critique (Critique-RL, eq. 4 to 6).

    Args:
        table: a name in `INDIRECT`.
    """

    def term(episode: Episode, index: int) -> float | None:
        answer, refinements = judged(episode, index), refinements_of(episode, index)
        if not refinements or any(s.grade is None or s.grade.score is None for s in (answer, *refinements)):
            return None
        return fmean(indirect_reward(table, is_right(answer), is_right(refinement)) for refinement in refinements)

    return term


def score_match(tolerance: float) -> RewardTerm:
    """The closeness of a critique's score to its answer's, both `parsed["score"]` (Critique-RL, appendix E)."""

    def term(episode: Episode, index: int) -> float:
        return closeness(episode.segments[index].parsed["score"], judged(episode, index).parsed["score"], tolerance)

    return term


def refine_score(episode: Episode, index: int) -> float | None:
    """The mean score of the refinements after a critique."""
    refinements = refinements_of(episode, index)
    return fmean(refinement.parsed["score"] for refinement in refinements) if refinements else None


def judged(episode: Episode, index: int) -> Segment:
    """The answer that a critique judges."""
    return episode.segments[episode.segments[index].parent or 0]


def refinements_of(episode: Episode, index: int) -> Sequence[Segment]:
    """The actor's refinements after a critique. In an environment: the last segments of those attempts."""
    replies = [i for i in episode.children(index) if episode.segments[i].role in ("actor", "observation")]
    return [episode.segments[_last_turn(episode, i)] for i in replies]


def _last_turn(episode: Episode, index: int) -> int:
    """The index of the last turn that follows a segment, critiques aside."""
    for later, segment in enumerate(episode.segments):
        if later > index and segment.parent == index and segment.role != "critic":
            index = later
    return index


# --- totals -----------------------------------------------------------------------------------------------------------


def gated(how: Literal["gated", "additive"], weight: float) -> Total:
    """Critique-RL's stage II: `indirect` with the verdict (`judged_right`, 0 or 1) as a gate or a bonus (eq. 9)."""
    return lambda values: combine(values["indirect"], bool(values["judged_right"]), how, weight)


def mixture(weights: Mapping[str, float]) -> Total:
    """`sum_i w_i r_i / sum_i w_i` (RefCritic: verdict 1, refine lambda)."""
    total, sum_of_weights = weighted(weights), sum(weights.values())
    return lambda values: total(values) / sum_of_weights


def weighted(weights: Mapping[str, float]) -> Total:
    """`sum_i w_i r_i`, of the terms that have a weight."""
    return lambda values: sum(weight * values[name] for name, weight in weights.items())


def only(name: str) -> Total:
    """One term is the reward; the others are only logged."""
    return lambda values: values[name]


def least(values: Mapping[str, float]) -> float:
    """The smallest term (CriticLean: verdict and format both have to be right)."""
    return min(values.values())


# --- Critique-RL's equations ------------------------------------------------------------------------------------------


Verdict = Literal["correct", "wrong"]


def judged_right(verdict: Verdict | None, answer_correct: bool) -> bool:
    """Whether the critique's verdict agrees with the verifier. No verdict (None: unparsed, or cut off) never does."""
    return verdict is not None and (verdict == "correct") == answer_correct


def direct_reward(verdict: Verdict | None, answer_correct: bool, scale: Literal["signed", "unit"]) -> float:
    """Stage I, r_dis (eq. 7): whether the verdict is right. An unparsed one counts as wrong.

    Args:
        scale: `unit` gives 1 or 0 (the paper); `signed` gives +1 or -1 (the authors' code).
    """
    if scale not in ("signed", "unit"):
        raise ValueError(f"unknown scale {scale!r}: choose 'signed' (the authors' code) or 'unit' (the paper).")
    if judged_right(verdict, answer_correct):
        return 1.0
    return -1.0 if scale == "signed" else 0.0


INDIRECT: dict[IndirectName, Callable[[bool, bool], float]] = {
    "refine": lambda o, n: float(n),  # eq. 4
    "delta": lambda o, n: float(n - o),  # eq. 5
    "correction": lambda o, n: float(n) if not o else 0.2 * n,  # eq. 6: fixing counts five times keeping
}
"""The indirect rewards (eq. 4 to 6), from the correctness of answer and refinement. Paper and code agree on them, and
use `refine` by default."""


def indirect_reward(name: IndirectName, answer_correct: bool, refinement_correct: bool) -> float:
    """The reward of the refinement after a critique, whatever the verdict."""
    if name not in INDIRECT:
        raise ValueError(f"unknown indirect reward {name!r}: choose one of {', '.join(INDIRECT)}.")
    return INDIRECT[name](answer_correct, refinement_correct)


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
