"""The runtime of rollouts: a run's policies, engines and services by name, and the calls of the drivers.

Rollout functions get their roles here. `unequal_start` checks that the members of a group began alike, and `Watchdog`
reports rollouts that make no progress.
"""

from __future__ import annotations

import faulthandler
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from whet.config.parts import EngineConfig, FaultsConfig, SamplingConfig
from whet.engines.building import engine_of
from whet.engines.endpoint import EndpointEngine
from whet.engines.protocol import Engine
from whet.errors import RunError
from whet.models.lean import steady_positions
from whet.models.policy import Policy
from whet.rollout.driver import GRADER, Batched, Rollout, roll_out
from whet.rollout.environments import ENVIRONMENT_SERVICE, Environments
from whet.rollout.free import Arrivals, Clock, roll_out_free
from whet.rollout.retries import EpisodeCounts, Retries, with_retries
from whet.rollout.roles import EndpointRole, PolicyRole, Role
from whet.rollout.services import BatchFunction, Service
from whet.types import FAULTS, Episode, Row, Sampling, Segment

if TYPE_CHECKING:
    from whet.rollout.async_units import UnitPool

T = TypeVar("T")
SCORER = "scorer"
"""The service that scores rows: payloads are rows, answers the logprobs of their trained tokens, a float each."""
MAX_SHOWN = 80
"""Characters that a message quotes of each first observation, around the first difference."""
logger = logging.getLogger(__name__)


Call = Callable[[], Rollout[T]]
"""A rollout that has not begun: a function with its arguments."""


class Pool(Protocol):
    """Workers that roll out in a runtime's place. `whet.cluster` has them."""

    def roll_out(self, units: Sequence[Sequence[Call[T]]], label: str) -> list[T]:
        """As `Runtime.roll_out`, for calls that are cut into units."""
        ...

    def units(self) -> UnitPool:
        """The workers, for units that go on while the policy trains."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


class ServerPool(Protocol):
    """Servers that engines sample on, and that the run starts. `whet.cluster` has them."""

    def engine_settings(self, policy: Policy) -> EngineConfig:
        """The settings of engines, with the servers' urls. The first call starts them, by this policy's weights."""
        ...

    def check(self) -> None:
        """Raises: RunError where a server is gone for good."""
        ...

    def close(self) -> None:
        """End the servers."""
        ...


class Runtime(Mapping[str, Any]):
    """Policies, endpoints and services. As a mapping: the services of the lockstep driver, by name.

    These are the grader, the scorer, the environments, each endpoint, and of each policy its engine's `generate`.

    Args:
        policies: the run's dict, to which policies may be added later.
        grade: grades a batch of `(reply, task)`.
        settings: of the engines.
        endpoints: by the name of their role.
        faults: how often failures are retried, and how many end the run.
        envs: the environments, if there are any.
    """

    def __init__(
        self,
        policies: Mapping[str, Policy],
        grade: BatchFunction,
        settings: EngineConfig,
        endpoints: Mapping[str, EndpointEngine] | None = None,
        faults: FaultsConfig | None = None,
        envs: Environments | None = None,
    ) -> None:
        self.policies, self.grade, self.settings = policies, grade, settings
        self.endpoints, self.faults, self.envs = endpoints or {}, faults or FaultsConfig(), envs
        self.episode_counts = EpisodeCounts(budget=self.faults.budget)
        self.watchdog = Watchdog(self.faults.stall_s)
        self.arrivals = Arrivals()
        self.say_unequal: Callable[[str], None] = lambda text: None
        """Receives a sentence where members of a group began with different prompts."""
        self.unit: int | None = None
        """Rollouts that are taken at once. None: all of a call."""
        self.pool: Pool | None = None
        """The workers that roll out. None: this process does."""
        self.servers: ServerPool | None = None
        """Servers that the run starts. None: it starts none."""
        self.num_late = 0
        """Answers that came later than they were due."""
        self.engine_made: Callable[[str, Engine], None] = lambda name, engine: None
        """Receives the policy's name and each new engine, before its first request."""
        self._engines: dict[str, tuple[Policy, Engine]] = {}
        """By name, with the policy that the engine was made for."""
        self._elsewhere: dict[str, float] = {}
        """Counts of workers."""
        self._num_before = 0
        """Tokens of engines that were replaced."""

    @property
    def is_free(self) -> bool:
        """Whether each rollout resumes as soon as its own answer is there."""
        return self.settings.rollout == "free"

    def engine(self, name: str) -> Engine:
        """A policy's engine. Made at its first use, and again where the name stands for another policy by now.

        Raises: RunError where its weights are not the policy's newest.
        """
        policy = self.policies[name]
        engine = self.made_engine(name)
        if self.servers is not None:
            self.servers.check()
        if engine is None:
            _, replaced = self._engines.get(name, (None, None))
            self._num_before += replaced.num_tokens if replaced is not None else 0
            settings = self.settings if self.servers is None else self.servers.engine_settings(policy)
            engine = engine_of(policy, settings)
            self._engines[name] = policy, engine
            self.engine_made(name, engine)
        if engine.version != policy.version:
            raise RunError(
                f"the engine of {policy.title} holds weights of version {engine.version}, and the policy is at version "
                f"{policy.version}: whatever changed the policy has not sent its weights (`Trainer.push`)"
            )
        return engine

    def made_engine(self, name: str) -> Engine | None:
        """A policy's engine, if one was made."""
        policy, engine = self._engines.get(name, (None, None))
        return engine if policy is self.policies[name] else None

    @property
    def num_tokens(self) -> int:
        """Read and written by all engines so far."""
        return self._num_before + sum(engine.num_tokens for _, engine in self._engines.values())

    def grow(self, growth: Mapping[str, float]) -> None:
        """Add what workers counted to the counts. Raises: BudgetSpent where an endpoint has no token left."""
        for name, value in growth.items():
            self._elsewhere[name] = self._elsewhere.get(name, 0.0) + value
        for name, endpoint in self.endpoints.items():
            endpoint.check_budget(
                sum(self._elsewhere.get(f"endpoint/{name}.{kind}", 0) for kind in ("read", "written"))
            )

    def counts(self) -> dict[str, float]:
        """Counts of the run so far, by metric: tokens, episodes, failures by kind, endpoint requests. Workers' too."""
        metrics = self._counts_here()
        return metrics | {name: metrics.get(name, 0.0) + value for name, value in self._elsewhere.items()}

    def _counts_here(self) -> dict[str, float]:
        metrics = {"tokens": float(self.num_tokens), **self.episode_counts.metrics()}
        if self.is_free:
            metrics["time/late_answers"] = float(self.num_late)
        if self.envs is not None and (num_cut := self.envs.counts["cut_observations"]):
            metrics["environment/cut_observations"] = float(num_cut)
        for name, endpoint in self.endpoints.items():
            metrics |= {f"endpoint/{name}.{kind}": float(count) for kind, count in endpoint.counts.items()}
        return metrics

    def __getitem__(self, name: str) -> Any:
        if name == GRADER:
            return self.grade
        if name == SCORER:
            return self.scored
        if name == ENVIRONMENT_SERVICE:
            return self.envs
        return self.endpoints[name] if name in self.endpoints else self.engine(name).generate

    def __iter__(self) -> Iterator[str]:
        return iter((GRADER, *self.policies, *self.endpoints))

    def __len__(self) -> int:
        return 1 + len(self.policies) + len(self.endpoints)

    def scored(self, rows: Sequence[Row]) -> list[tuple[float, ...]]:
        """Logprobs of each row's trained tokens, under the row's policy."""
        scores: list[tuple[float, ...]] = [()] * len(rows)
        for name in dict.fromkeys(row.policy for row in rows):
            index = [i for i, row in enumerate(rows) if row.policy == name]
            for i, logprobs in zip(index, self.engine(name).score([rows[i] for i in index]), strict=True):
                scores[i] = tuple(logprobs.tolist())
        return scores

    def role(self, name: str, policy: str, settings: SamplingConfig, **more: Any) -> Role:
        """A role that a policy of this run or an endpoint fills.

        Args:
            name: of the role.
            policy: name of the policy or endpoint.
            more: as in `policy_role`.
        """
        if policy in self.endpoints:
            prefills = self.endpoints[policy].config.prefill == "continue"
            return EndpointRole(name, policy, self._sampling(settings, **more), prefills)
        return self.policy_role(name, policy, settings, **more)

    def policy_role(self, name: str, policy: str, settings: SamplingConfig, **more: Any) -> PolicyRole:
        """A role that a policy of this run fills.

        Args:
            name: of the role.
            policy: name of the policy.
            settings: how it samples.
            greedy: take the likeliest token each time.
            temperature: replaces that of the settings, where not greedy. None: theirs.
        """
        source = self.policies[policy]
        # Without endpoints all parts of a prompt have a limited length, and prompts were checked before the run.
        positions = steady_positions(source.causal_lm) if self.endpoints else None
        return PolicyRole(name, policy, source.tokenizer, self._sampling(settings, **more), self.is_free, positions)

    def _sampling(
        self, settings: SamplingConfig, *, greedy: bool = False, temperature: float | None = None
    ) -> Sampling:
        sampling = Sampling(
            temperature=settings.temperature if temperature is None else temperature,
            top_p=settings.top_p,
            max_new_tokens=settings.max_new_tokens,
            stop=settings.stop,
        )
        if greedy:
            return replace(sampling, temperature=0.0, top_p=1.0)
        return sampling

    def retries(self, *, is_counted: bool = True) -> Retries:
        """For rollout functions that retry their parts themselves.

        Args:
            is_counted: whether failures count among the run's episodes. False: the parts belong to other episodes,
                which are counted and retried as a whole.
        """
        return Retries(self.episode_counts if is_counted else EpisodeCounts(budget=1.0), self.faults.retries)

    def roll_out(self, calls: Iterable[Call[T]], *, label: str = "") -> list[T]:
        """Run rollouts to their ends, in lockstep or free-running as the settings say.

        Args:
            calls: rollouts that have not begun: functions with their arguments (`functools.partial`). They may travel
                to another process, so they hold what a rollout needs and nothing that it changes.
            label: as in `Arrivals.clock`.
        Returns: the rollouts' results, in order.
        Raises: as `whet.rollout.driver.roll_out`.
        """
        waiting = list(calls)
        size = self.unit or max(1, len(waiting))
        units = [waiting[at : at + size] for at in range(0, len(waiting), size)] or [[]]
        if self.pool is not None:
            return self.pool.roll_out(units, label)
        return [result for unit in units for result in self._roll_out((call() for call in unit), label)]

    def _roll_out(self, rollouts: Iterable[Rollout[T]], label: str) -> list[T]:
        """The results of one unit."""
        if self.settings.draft:  # what drafts are taken from must not depend on other units
            for _, engine in self._engines.values():
                engine.restart()
        with self.watchdog.watching():
            if not self.is_free:
                return roll_out(rollouts, self, beat=self.watchdog.beat)
            try:
                with self._clock(label) as clock:
                    results = roll_out_free(rollouts, FreeServices(self), clock, beat=self.watchdog.beat)
            finally:
                for _, engine in self._engines.values():
                    engine.restart()  # weights may change before the next call
            self.num_late += sum(clock.num_late.values())
            return results

    def _clock(self, label: str) -> AbstractContextManager[Clock]:
        """Of the next call of the free-running driver."""
        latency = self.settings.latency
        return self.arrivals.clock(label) if latency is None else nullcontext(Clock(default=latency))

    def by_task(
        self, rollout: Callable[..., Rollout[Episode]], tasks: Sequence[Any], *, num_samples: int = 1, **more: Any
    ) -> list[list[Episode]]:
        """Groups of `num_samples` episodes, one group a task. Failed rollouts are retried, and all are counted.

        Args:
            rollout: the rollout function. It takes a task, and by name `sample`.
            more: as in `whet.rollout.retries.with_retries`.
        Raises: TooManyFaults, and as `roll_out`.
        """
        calls = self.calls_by_task(rollout, tasks, num_samples=num_samples, **more)
        return self.in_groups(self.roll_out(calls), num_samples)

    def calls_by_task(
        self, rollout: Callable[..., Rollout[Episode]], tasks: Sequence[Any], *, num_samples: int = 1, **more: Any
    ) -> list[Call[Episode]]:
        """The calls of `by_task`, before they are rolled out."""
        faults = self.faults
        return [
            partial(
                with_retries, rollout, task, i, self.episode_counts, stride=num_samples, retries=faults.retries, **more
            )
            for task in tasks
            for i in range(num_samples)
        ]

    def in_groups(self, episodes: Sequence[Episode], num_samples: int) -> list[list[Episode]]:
        """The episodes of each task. Says where members of a group began with other prompts."""
        groups = [list(episodes[at : at + num_samples]) for at in range(0, len(episodes), num_samples)]
        if problem := next(filter(None, map(unequal_start, groups)), None):
            self.say_unequal(problem)
        return groups


class FreeServices(Mapping[str, Service]):
    """A runtime's services for the free-running driver, which asks them one ticket at a time."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.grader, self.scorer = runtime, Batched(runtime.grade), Batched(runtime.scored)

    def __getitem__(self, name: str) -> Service:
        if name == GRADER:
            return self.grader
        if name == SCORER:
            return self.scorer
        if name == ENVIRONMENT_SERVICE:
            assert self.runtime.envs is not None
            return self.runtime.envs
        return self.runtime.endpoints[name] if name in self.runtime.endpoints else self.runtime.engine(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.runtime)

    def __len__(self) -> int:
        return len(self.runtime)


# --- equal starts -----------------------------------------------------------------------------------------------------


def unequal_start(group: Sequence[Episode]) -> str | None:
    """Checks that all episodes of one task began with one prompt. Otherwise their rewards cannot be compared.

    The prompt is an environment's first observation, or what a policy read. A rule's first segment, such as an answer
    that is critiqued, may differ.

    Returns: a message, or None where they are equal.
    """
    starts = [(episode, episode.segments[0]) for episode in group if episode.outcome not in FAULTS and episode.segments]
    for episode, start in starts[1:]:
        first = starts[0][1]
        if _prompt(start) != _prompt(first):
            return (
                f"members of the group of task {episode.task.id} began with other prompts{_quotes(first, start)}: "
                "their rewards cannot be compared. Draw whatever the environment leaves to chance from item and seed "
                "in reset, and keep nothing from one episode to the next"
            )
    return None


def _prompt(segment: Segment) -> object:
    """What has to be equal. None: nothing."""
    if segment.role == "observation":
        return segment.text
    return segment.context if segment.versions else None


def _quotes(first: Segment, second: Segment) -> str:
    """Both first observations, from 20 characters before the first difference."""
    if first.role != "observation" or second.role != "observation":
        return ""
    place = next((i for i, (a, b) in enumerate(zip(first.text, second.text, strict=False)) if a != b), 0)
    shown = slice(max(0, place - 20), max(0, place - 20) + MAX_SHOWN)
    return f" ({first.text[shown]!r} and {second.text[shown]!r})"


# --- the watchdog -----------------------------------------------------------------------------------------------------


class Watchdog:
    """Reports rollouts that make no progress, with the service they wait for and all thread stacks.

    It watches one call of a driver at a time.

    Args:
        seconds: without progress, after which it reports, and again after each further such time. 0: never.
        say: called with the report, from the watchdog's thread.
        stacks: the file to which the stacks of all threads are added. None: they are not written.
    """

    def __init__(self, seconds: float, say: Callable[[str], None] = logger.warning, stacks: Path | None = None) -> None:
        self.seconds, self.say, self.stacks = seconds, say, stacks
        self._since, self._waits_for = time.monotonic(), ""

    def beat(self, service: str) -> None:
        """The rollouts make progress, and are about to ask or wait for this service."""
        self._since, self._waits_for = time.monotonic(), service

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch while the rollouts run."""
        if not self.seconds:
            yield
            return
        has_ended = threading.Event()
        self.beat("")
        thread = threading.Thread(target=self._watch, args=(has_ended,), name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()

    def _watch(self, has_ended: threading.Event) -> None:
        num_reports = 0
        while not has_ended.wait(min(1.0, self.seconds / 4)):
            quiet_s = time.monotonic() - self._since
            if quiet_s < self.seconds:
                num_reports = 0
            elif quiet_s >= self.seconds * (num_reports + 1):
                num_reports += 1
                self._report(quiet_s)

    def _report(self, quiet_s: float) -> None:
        hint = ""
        if self.stacks is not None:
            with self.stacks.open("a", encoding="utf-8") as file:
                file.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%S')}: waiting for {self._waits_for}\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
            hint = f"; what every thread is doing is in {self.stacks}"
        self.say(f"nothing has come from the service {self._waits_for!r} for {quiet_s:.0f} s{hint}")
