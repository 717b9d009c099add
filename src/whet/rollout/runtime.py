"""The desk: policies and services at hand, by name. Flows ask it for roles; it makes an engine where one is first asked
for.

Checks that the members of a group began alike. Otherwise their rewards cannot be compared.

Reports rollouts that make no progress, with the service they wait for and all thread stacks.
"""

from __future__ import annotations

import faulthandler
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

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

T = TypeVar("T")
SCORER = "scorer"
"""The service that scores rows: payloads are rows, answers the logprobs of what trains in them, a float each."""


class Runtime(Mapping[str, Any]):
    """Policies, endpoints and services at hand; as a mapping, what answers whole batches by the name that flows ask
    for: the grader, an engine's `generate`, an endpoint.

    Args:
        policies: the run's own dict, which may come to hold more of them.
        grade: grades a batch of `(reply, task)`.
        endpoints: by the name of their seat.
        worlds: the environments, if there are any.
    """

    def __init__(
        self, policies: Mapping[str, Policy], grade: BatchFunction, settings: EngineConfig,
        endpoints: Mapping[str, EndpointEngine] | None = None, faults: FaultsConfig | None = None,
        envs: Environments | None = None,
    ) -> None:  # fmt: skip
        self.policies, self.grade, self.settings = policies, grade, settings
        self.endpoints, self.faults, self.envs = endpoints or {}, faults or FaultsConfig(), envs
        self.episode_counts = EpisodeCounts(budget=self.faults.budget)
        self.watchdog = Watchdog(self.faults.stall_s)
        self.arrivals = Arrivals()
        self.say_unequal: Callable[[str], None] = lambda text: None
        """Is told where members of a group got other prompts."""
        self.num_late = 0
        """Answers that came later than they were due."""
        self.engine_made: Callable[[str, Engine], None] = lambda name, engine: None
        """Receives each engine that is made, and the name of its policy, before anything is asked of it."""
        self._engines: dict[str, tuple[Policy, Engine]] = {}
        """With the policy that each was made for."""
        self._num_before = 0
        """Tokens of engines that are gone."""

    @property
    def is_free(self) -> bool:
        """Whether each play goes on as soon as its own answer is there."""
        return self.settings.rollout == "free"

    def engine(self, name: str) -> Engine:
        """A policy's. Made when it is first asked for, and anew where another policy has come to bear the name.

        Raises: RunError where its weights are not those that the policy has now.
        """
        policy = self.policies[name]
        engine = self.made_engine(name)
        if engine is None:
            _, former = self._engines.get(name, (None, None))
            self._num_before += former.num_tokens if former is not None else 0
            engine = engine_of(policy, self.settings)
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

    def counts(self) -> dict[str, float]:
        """What was done so far: tokens read and written, episodes by what became of them, failures by kind, and of
        endpoints what was sent."""
        found = {"tokens": float(self.num_tokens), **self.episode_counts.metrics()}
        found |= {"time/late_answers": float(self.num_late)} if self.is_free else {}
        if self.envs is not None and (num_cut := self.envs.counts["cut_observations"]):
            found["environment/cut_observations"] = float(num_cut)
        for name, each in self.endpoints.items():
            found |= {f"endpoint/{name}.{what}": float(count) for what, count in each.counts.items()}
        return found

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
        """Logprobs of each row's trained tokens, under the policy that it names."""
        found: list[tuple[float, ...]] = [()] * len(rows)
        for name in dict.fromkeys(row.policy for row in rows):
            index = [i for i, row in enumerate(rows) if row.policy == name]
            for i, logprobs in zip(index, self.engine(name).score([rows[i] for i in index]), strict=True):
                found[i] = tuple(logprobs.tolist())
        return found

    def role(self, name: str, policy: str, settings: SamplingConfig, **more: Any) -> Role:
        """A seat that anybody may sit in: a policy, or an endpoint. Arguments as in `role`."""
        if policy in self.endpoints:
            prefills = self.endpoints[policy].config.prefill == "continue"
            return EndpointRole(name, policy, self._sampling(settings, **more), prefills)
        return self.policy_role(name, policy, settings, **more)

    def policy_role(self, name: str, policy: str, settings: SamplingConfig, **more: Any) -> PolicyRole:
        """A policy's seat: who sits in it, and how it samples.

        Args:
            greedy: sample nothing.
            temperature: in place of the settings', where not greedy. None: theirs.
        """
        own = self.policies[policy]
        # Without endpoints prompts were checked before the run began: all that is in them is of a limited length.
        positions = steady_positions(own.causal_lm) if self.endpoints else None
        return PolicyRole(name, policy, own.tokenizer, self._sampling(settings, **more), self.is_free, positions)

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
        """For flows that play their own parts again.

        Args:
            is_counted: among the run's episodes. False: they are part of others, which make them again where they fail.
        """
        return Retries(self.episode_counts if is_counted else EpisodeCounts(budget=1.0), self.faults.retries)

    def roll_out(self, rollouts: Iterable[Rollout[T]], *, label: str = "") -> list[T]:
        """Run flows to their ends, in lockstep or free as the settings say.

        Args:
            label: see `Arrivals.roll_out`.
        """
        with self.watchdog.watching():
            if not self.is_free:
                return roll_out(rollouts, self, beat=self.watchdog.beat)
            try:
                with self._clock(label) as clock:
                    found = roll_out_free(rollouts, _Free(self), clock, beat=self.watchdog.beat)
            finally:
                for _, engine in self._engines.values():
                    engine.restart()  # weights may change before the next play
            self.num_late += sum(clock.num_late.values())
            return found

    def _clock(self, label: str) -> AbstractContextManager[Clock]:
        """Of the next play."""
        latency = self.settings.latency
        return self.arrivals.clock(label) if latency is None else nullcontext(Clock(default=latency))

    def by_task(
        self, rollout: Callable[..., Rollout[Episode]], tasks: Sequence[Any], *, num_samples: int = 1,
        **more: Any,
    ) -> list[list[Episode]]:  # fmt: skip
        """`num_samples` plays of each task, next to each other; one that fails is played again, and all are counted.

        Args:
            flow: takes a task, and by name `sample`.
        """
        episodes = self.roll_out([
            with_retries(rollout, task, i, self.episode_counts, stride=num_samples, retries=self.faults.retries, **more)
            for task in tasks
            for i in range(num_samples)
        ])  # fmt: skip
        groups = [episodes[at : at + num_samples] for at in range(0, len(episodes), num_samples)]
        if found := next(filter(None, map(unequal_start, groups)), None):
            self.say_unequal(found)
        return groups


class _Free(Mapping[str, Service]):
    """The desk's services, each to be asked one ticket at a time."""

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


SHOWN = 80
"""Characters that the message quotes of each first observation, around the first difference."""


def unequal_start(group: Sequence[Episode]) -> str | None:
    """Whether episodes of one task began with other prompts: an environment's first observation, or a policy's prompt.

    A rule's first segment, such as an answer that is critiqued, may differ. Returns: a message, or None.
    """
    starts = [(e, e.segments[0]) for e in group if e.outcome not in FAULTS and e.segments]
    for episode, segment in starts[1:]:
        first = starts[0][1]
        if _prompt(segment) != _prompt(first):
            return (
                f"members of the group of task {episode.task.id} began with other prompts{_where(first, segment)}: "
                "their rewards cannot be compared. Draw whatever the environment leaves to chance from item and seed "
                "in reset, and keep nothing from one episode to the next"
            )
    return None


def _prompt(segment: Segment) -> object:
    if segment.role == "observation":
        return segment.text
    return segment.context if segment.versions else None


def _where(one: Segment, other: Segment) -> str:
    """Both first observations, from 20 characters before the first difference."""
    if one.role != "observation" or other.role != "observation":
        return ""
    same = next((i for i, (a, b) in enumerate(zip(one.text, other.text, strict=False)) if a != b), 0)
    start = max(0, same - 20)
    return f" ({one.text[start : start + SHOWN]!r} and {other.text[start : start + SHOWN]!r})"


# --- the watchdog -----------------------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)


class Watchdog:
    """Watches one call of a driver at a time.

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
        over = threading.Event()
        self.beat("")
        thread = threading.Thread(target=self._watch, args=(over,), name="watchdog", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        spoken = 0
        while not over.wait(min(1.0, self.seconds / 4)):
            quiet = time.monotonic() - self._since
            if quiet < self.seconds:
                spoken = 0
            elif quiet >= self.seconds * (spoken + 1):
                spoken += 1
                self._speak(quiet)

    def _speak(self, quiet: float) -> None:
        hint = ""
        if self.stacks is not None:
            with self.stacks.open("a", encoding="utf-8") as file:
                file.write(f"--- {time.strftime('%Y-%m-%dT%H:%M:%S')}: waiting for {self._waits_for}\n")
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
            hint = f"; what every thread is doing is in {self.stacks}"
        self.say(f"nothing has come from the service {self._waits_for!r} for {quiet:.0f} s{hint}")
