"""Retries failed samples under a fresh seed and counts them. Too many failures end the run with the first cause.

A fault is ours: a crashed environment, an endpoint that is gone, a grader that broke. What the policy's text caused is
the policy's outcome, such as a reply that cannot be read or an action that hangs a tool. It is scored, never retried.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from whet.errors import TooManyFailures
from whet.rollout.driver import Rollout
from whet.rollout.services import Fault
from whet.types import FAULT_HINTS, FAULTS, Episode, Failure, Outcome, Segment, Task

LATEST = 200
"""Episodes that the budget counts."""
PATIENCE = 20
"""Episodes that begin before the budget can end a run."""


class TooManyFaults(TooManyFailures):
    """So many rollouts failed that training would see only those that happen to work."""


class Ended(NamedTuple):
    """An episode that has ended, as another process is told of it."""

    outcome: Outcome
    number: int
    """Its place in the order of beginnings."""
    again: bool
    """Whether it is retried."""
    episode: Episode | None
    """None: it did not fail."""
    trace: str


@dataclass
class EpisodeCounts:
    """Counts of all episodes that have ended. `started` is the sum of the others.

    The budget looks at episodes in the order in which they began. In the order of endings failures come first, and
    successes late. An episode under way has not failed, so its ending can only confirm that the budget is exceeded.

    Args:
        budget: the share of failures among 200 episodes begun in a row (at first: all so far) past which the run ends.
            1: never.
    """

    budget: float = 0.5
    started: int = 0
    episodes: int = 0
    """Without a failure, whatever the policy did."""
    retried: int = 0
    """Failed, and retried."""
    lost: int = 0
    """Failed, and not retried."""
    by_kind: Counter[str] = field(default_factory=Counter)
    """Failures by `Outcome`."""
    first: Episode | None = None
    """The first failure."""
    trace: str = ""
    """Its stack trace."""
    _num_begun: int = 0
    _failed: list[int] = field(default_factory=list)
    """Numbers of the failures, in order."""

    def begin(self) -> int:
        """The number of an episode that begins. One that is never counted has not failed."""
        self._num_begun += 1
        return self._num_begun - 1

    def count(self, episode: Episode, number: int, *, again: bool, trace: str = "") -> None:
        """Count an episode that has ended.

        Args:
            number: from `begin`.
            again: whether it is retried.
            trace: the stack of its failure.
        Raises: TooManyFaults.
        """
        failed = episode.outcome in FAULTS
        self._add(Ended(episode.outcome, number, again, episode if failed else None, trace))

    def replay(self, endings: Iterable[Ended]) -> None:
        """Count episodes that ended in another process, in their order. Raises: TooManyFaults."""
        before = self._num_begun
        for ended in endings:
            number = before + ended.number
            self._num_begun = max(self._num_begun, number + 1)
            self._add(ended._replace(number=number))

    def _add(self, ended: Ended) -> None:
        outcome, number, again, episode, trace = ended
        failed = episode is not None
        self.started += 1
        self.episodes += not failed
        self.retried += failed and again
        self.lost += failed and not again
        if episode is None:
            return
        self.by_kind[outcome] += 1
        if self.first is None:
            self.first, self.trace = episode, trace
        insort(self._failed, number)
        self._judge(number)

    def _judge(self, number: int) -> None:
        """Judge the windows that a new failure is in. The worst ones end at a failure. Raises: TooManyFaults."""
        for place in range(bisect_left(self._failed, number), len(self._failed)):
            end = self._failed[place]
            length = min(end + 1, LATEST)
            num_failed = place + 1 - bisect_left(self._failed, end + 1 - length)
            if length >= PATIENCE and num_failed > self.budget * length:
                raise TooManyFaults(self._why(num_failed, length))

    def _why(self, num_failed: int, length: int) -> str:
        assert self.first is not None
        share = f"{num_failed} of {length} rollouts begun in a row failed, more than the budget of "
        share += f"{100 * self.budget:.0f} % (faults.budget). The first, on task {self.first.task.id}: "
        cause = f"{self.first.outcome}: {self.first.reason.rstrip('.')}. {hint_of(self.by_kind)}"
        return f"{share}{cause}" + (f"\n{self.trace.rstrip()}" if self.trace else "")

    def metrics(self) -> dict[str, float]:
        """For the log: `episodes/...`, and failures by kind."""
        counts = {"started": self.started, "finished": self.episodes, "retried": self.retried, "lost": self.lost}
        kinds = {f"faults/{kind}": float(count) for kind, count in self.by_kind.items()}
        return {f"episodes/{name}": float(count) for name, count in counts.items()} | kinds


def hint_of(by_kind: Mapping[str, int]) -> str:
    """Advice for the most frequent kind of failure."""
    hint = FAULT_HINTS[max(by_kind, key=by_kind.__getitem__)]
    return f"{hint[0].upper()}{hint[1:]}"


class EpisodeRecords(EpisodeCounts):
    """Records the episodes of a unit, for the process that counts them."""

    def __init__(self) -> None:
        super().__init__(budget=1.0)
        self.records: list[Ended] = []

    def _add(self, ended: Ended) -> None:
        self.records.append(ended)


class Part(NamedTuple):
    """A part of an episode, after its retries."""

    segments: list[Segment]
    failure: Failure | None
    """Of a part that is lost."""
    number: int | None = None
    """Of a success that is not counted: the part that continues it takes this number."""


@dataclass(frozen=True)
class Retries:
    """Retries failed parts of an episode, such as one critique of a group with its refinements.

    Other parts are unaffected. Each part is counted like an episode.
    """

    episode_counts: EpisodeCounts
    limit: int
    """Retries of one part."""

    async def part(
        self,
        task: Task,
        make: Callable[[int], Rollout[list[Segment]]],
        *,
        number: int | None = None,
        is_counted: bool = True,
    ) -> Part:
        """Roll out one part.

        Args:
            make: rolls out the part. Its argument is the attempt (from 0), for the seeds.
            number: of the part that it continues. None: it continues none.
            is_counted: False: only failures are counted. A success then belongs to the part that continues it.
        Raises: TooManyFaults.
        """
        for attempt in range(self.limit + 1):
            number = self.episode_counts.begin() if number is None else number
            try:
                segments = await make(attempt)
                reason = broken_grade(segments)
                failure = None if reason is None else Failure(kind="grader_error", reason=reason)
            except Fault as fault:
                segments, failure = [], fault.failure
            again = failure is not None and attempt < self.limit
            if failure is not None or is_counted:
                outcome: Outcome = "ok" if failure is None else failure.kind
                reason = "" if failure is None else failure.reason
                episode = Episode(task=task, segments=tuple(segments), outcome=outcome, reason=reason)
                trace = "" if failure is None else failure.trace
                self.episode_counts.count(episode, number, again=again, trace=trace)
                number = None
            if not again:
                return Part(segments, failure, number)
        raise AssertionError


async def part_of(
    retries: Retries | None,
    task: Task,
    make: Callable[[int], Rollout[list[Segment]]],
    *,
    number: int | None = None,
    is_counted: bool = True,
) -> Part:
    """As `Retries.part`. Without retries a fault is raised, and a failed grading stays."""
    if retries is None:
        return Part(await make(0), None)
    return await retries.part(task, make, number=number, is_counted=is_counted)


def broken_grade(segments: Iterable[Segment]) -> str | None:
    """The reason of the first failed grading. None: none failed."""
    return next((s.grade.reason for s in segments if s.grade is not None and s.grade.score is None), None)


async def with_retries(
    rollout: Callable[..., Any],
    task: Task,
    sample: int,
    episode_counts: EpisodeCounts,
    *,
    stride: int,
    retries: int,
    **options: Any,
) -> Episode:
    """An episode; after a failure, another one under a fresh seed.

    Args:
        sample: the number among the task's episodes, for the seeds.
        stride: the number of the task's samples. A fresh seed is `sample + stride`.
        retries: how often a failure is retried.
        options: of `rollout`.
    Returns: the first episode that did not fail, or else the last one, whose outcome is the failure.
    Raises: TooManyFaults.
    """
    for attempt in range(retries + 1):
        trace, number = "", episode_counts.begin()
        try:
            episode: Episode = await rollout(task, sample=sample + attempt * stride, **options)
        except Fault as fault:
            failure = fault.failure
            episode, trace = Episode(task=task, segments=(), outcome=failure.kind, reason=failure.reason), failure.trace
        again = episode.outcome in FAULTS and attempt < retries
        episode_counts.count(episode, number, again=again, trace=trace)
        if not again:
            return episode
    raise AssertionError
