"""Workers that Ray places: each rolls out units of a run, with engines, graders and environments of its own.

Which worker takes a unit changes nothing: its results depend on its rollouts, their seeds and the weights. So a unit
whose worker died is rolled out again, to the same bits.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import cloudpickle
import torch
from torch import Tensor

from whet.cluster.ray_start import cause_of, check_ray, check_versions, connect, facts_of_this_process, resources
from whet.cluster.units import Recorded, UnitResult, pack_unit, run_unit, tokenizers
from whet.config.parts import ClusterConfig
from whet.errors import RunError, TooManyFailures, WhetError
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.rollout.parcels import pack, unpack
from whet.rollout.runtime import Call, Runtime
from whet.trainer.selfchecks import PROBE_BUDGET, check_scores, probe_rows

T = TypeVar("T")
AHEAD = 2
"""Units that a worker has at one time: the next one waits there, so that no worker waits for the controller."""


class WorkerProcess:
    """A Ray actor: one worker.

    Args:
        build: makes the worker's runtime from the settings. It travels by its name.
        settings: of the run.
    """

    def __init__(self, build: Callable[[Mapping[str, Any]], Runtime], settings: Mapping[str, Any]) -> None:
        self.runtime = build(settings)
        self.policies: dict[str, Policy] = dict(self.runtime.policies)

    def facts(self) -> Mapping[str, Any]:
        """Where it runs, and what is installed there."""
        return facts_of_this_process()

    def update_weights(self, name: str, source: str, version: int, weights: Mapping[str, Any]) -> list[Tensor]:
        """Give a policy new weights. Returns: the engine's scores of a probe.

        Args:
            source: the policy that it was forked from, where the worker does not have it yet.
            weights: as `Policy.state` gives them, by `to_arrays`.
        """
        if name not in self.policies:
            self.policies[name] = self.policies[source].fork(name)
            self.runtime.policies = self.policies
        policy = self.policies[name]
        policy.load_state(from_arrays(weights), version=version)
        engine = self.runtime.made_engine(name)
        if engine is None:
            engine = self.runtime.engine(name)
        else:
            engine.update_weights(version, policy)
        return engine.score(probe_rows(policy), token_budget=PROBE_BUDGET)

    def run(self, parcel: bytes, recorded: Recorded | None) -> tuple[str, Any, float]:
        """Roll out a unit.

        Returns: ("answer", a packed `UnitResult`) or ("error", what stopped it), and the seconds it took.
        """
        started = time.perf_counter()
        try:
            result = run_unit(parcel, self.runtime, recorded)
        except Exception as error:
            return "error", _portable(error), time.perf_counter() - started
        return "answer", pack(result, tokenizers(self.runtime)), time.perf_counter() - started


@dataclass
class Worker:
    """A worker, as the run's own process knows it."""

    actor: Any
    facts: Mapping[str, Any]
    versions: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By policy, which weights it has: see `RayWorkers._stamp`."""
    taken: dict[Any, int] = field(default_factory=dict)
    """Its units, by their answers to come."""


class RayWorkers:
    """Workers under Ray, as a runtime's `Pool`. They start with the first call.

    Args:
        runtime: the run's own. Its counts grow by what workers count.
        build: as in `WorkerProcess`.
        run_settings: all settings of the run.
        source_of: the policy that another one was forked from.
        stays: objects of the run that no rollout may hold, by what they are.
        tell: receives a sentence where a worker died.
    """

    def __init__(
        self,
        settings: ClusterConfig,
        runtime: Runtime,
        build: Callable[[Mapping[str, Any]], Runtime],
        run_settings: Mapping[str, Any],
        source_of: Callable[[str], str],
        stays: Mapping[str, object],
        tell: Callable[[str], None],
    ) -> None:
        check_ray(settings)
        self.settings, self.runtime, self.source_of, self.stays, self.tell = settings, runtime, source_of, stays, tell
        self._made_by = (build, run_settings)
        self._names = tokenizers(runtime)
        self._ray: Any = None
        self._workers: list[Worker] = []
        self.num_restarts = 0
        self._seconds = dict.fromkeys(("busy", "rollout", "sync"), 0.0)
        self._most_waiting = 0

    # --- rolling out --------------------------------------------------------------------------------------------------

    def roll_out(self, units: Sequence[Sequence[Call[T]]], label: str) -> list[T]:
        """The results of all rollouts, in order. Episodes are counted in that order too.

        Raises: what a rollout raised. RunError after `cluster.restarts` deaths, or where a worker does not hold the
            policies' weights.
        """
        self._start()
        started = time.perf_counter()
        parcels = [pack_unit(unit, self.runtime, self._names, self.stays) for unit in units]
        is_timed = self.runtime.is_free and self.runtime.settings.latency is None
        names = [self.runtime.arrivals.next_name(label) if is_timed else "" for _ in units]
        waiting = deque(range(len(units)))
        answers: dict[int, bytes] = {}
        results: list[T] = []
        num_home = 0
        with self.runtime.watchdog.watching():
            while num_home < len(units):
                for worker in self._workers:
                    self._sync(worker)
                self._give(waiting, parcels, names)
                for index, answer in self._take(waiting):
                    answers[index] = answer
                while num_home in answers:  # in order, so that counts and their limits are those of one process
                    results += self._home(answers.pop(num_home), names[num_home])
                    num_home += 1
        self._seconds["rollout"] += time.perf_counter() - started
        return results

    def _give(self, waiting: deque[int], parcels: Sequence[bytes], names: Sequence[str]) -> None:
        """Hand units to workers, the emptiest first."""
        while waiting and (worker := min(self._workers, key=lambda worker: len(worker.taken))):
            if len(worker.taken) >= AHEAD:
                break
            index = waiting.popleft()
            recorded = self.runtime.arrivals.recorded.get(names[index], {}) if names[index] else None
            worker.taken[worker.actor.run.remote(parcels[index], recorded)] = index
        self._most_waiting = max(self._most_waiting, len(waiting))

    def _take(self, waiting: deque[int]) -> list[tuple[int, bytes]]:
        """Answers that have come, at least one, or none where a worker died: its units wait again."""
        asked = [answer for worker in self._workers for answer in worker.taken]
        self.runtime.watchdog.beat("workers")
        done, _ = self._ray.wait(asked, num_returns=1)
        [answer] = done
        worker = next(worker for worker in self._workers if answer in worker.taken)
        try:
            kind, value, seconds = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            self._replace(worker, error, waiting)
            return []
        index = worker.taken.pop(answer)
        self._seconds["busy"] += seconds
        if kind == "error":
            self._forget()
            raise value
        return [(index, value)]

    def _home(self, answer: bytes, name: str) -> list[Any]:
        """A unit's results, once its episodes and tokens are counted here."""
        unit: UnitResult = unpack(answer, self._names)
        try:
            self.runtime.episode_counts.replay(unit.endings)
        except TooManyFailures:
            self._forget()
            raise
        self.runtime.grow(unit.growth)
        if name:
            self.runtime.arrivals.write({"play": name, "arrivals": unit.arrivals})
        return unit.results

    def _forget(self) -> None:
        """Nobody waits for the units that are out: their workers end them and answer into the void."""
        for worker in self._workers:
            worker.taken.clear()

    # --- weights ------------------------------------------------------------------------------------------------------

    def _sync(self, worker: Worker) -> None:
        """Give a worker the weights that it lacks, and check by a probe that it holds them.

        Raises: RunError where it does not.
        """
        lacking = [
            policy
            for name, policy in self.runtime.policies.items()
            if not policy.is_value and worker.versions.get(name) != _stamp(policy)
        ]
        if not lacking or worker.taken:
            return
        started = time.perf_counter()
        behind = [other for other in self._workers if not other.taken]  # all of them, but for one that is new
        for policy in lacking:
            weights = self._ray.put(to_arrays(policy.state()))
            arguments = policy.name, self.source_of(policy.name), policy.version, weights
            asked = [(other, other.actor.update_weights.remote(*arguments)) for other in behind]
            expected = score(policy, probe_rows(policy), token_budget=PROBE_BUDGET)
            for other, answer in asked:
                check_scores(policy, self._ray.get(answer), expected)
                other.versions[policy.name] = _stamp(policy)
        self._seconds["sync"] += time.perf_counter() - started

    # --- processes ----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._workers:
            return
        self._ray = connect(self.settings)
        actors = [self._new_actor() for _ in range(self.settings.workers)]
        for number, actor in enumerate(actors):
            self._workers.append(Worker(actor, self._facts_of(actor, number)))

    def _new_actor(self) -> Any:
        return self._ray.remote(WorkerProcess).options(**resources()).remote(*self._made_by)

    def _facts_of(self, actor: Any, number: int) -> Mapping[str, Any]:
        try:
            facts = self._ray.get(actor.facts.remote())
        except self._ray.exceptions.RayError as error:
            raise RunError(f"worker {number} could not start: {cause_of(error, {})}") from error
        check_versions(facts["versions"], f"worker {number} on {facts['node']}")
        return facts

    def _replace(self, worker: Worker, error: Exception, waiting: deque[int]) -> None:
        """Start a new worker for one that died. Its units wait again, before the others.

        Raises: RunError after `cluster.restarts` deaths.
        """
        number = self._workers.index(worker)
        facts = worker.facts
        cause = f"worker {number} (process {facts['pid']} on {facts['node']}) {cause_of(error, facts)}"
        if self.num_restarts >= self.settings.restarts:
            raise RunError(f"{cause}\nThat was more than cluster.restarts = {self.settings.restarts} processes allow")
        self.num_restarts += 1
        waiting.extendleft(sorted(worker.taken.values(), reverse=True))
        self.tell(f"{cause}\nA new one starts and takes its {len(worker.taken)} units")
        actor = self._new_actor()
        self._workers[number] = Worker(actor, self._facts_of(actor, number))

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            self._ray.kill(worker.actor)
        self._workers = []

    def metrics(self) -> dict[str, float]:
        """Of the time since the last call. `cluster/busy`: the share of the workers' time in which they rolled out."""
        if not self._seconds["rollout"]:
            return {}
        spent = self._seconds["rollout"] * self.settings.workers
        metrics = {
            "cluster/busy": min(1.0, self._seconds["busy"] / spent),
            "cluster/waiting_units": float(self._most_waiting),
            "cluster/sync_s": self._seconds["sync"],
            "cluster/restarts": float(self.num_restarts),
        }
        self._seconds, self._most_waiting = dict.fromkeys(self._seconds, 0.0), 0
        return metrics


def _stamp(policy: Policy) -> tuple[int, int]:
    """Tells a policy's weights from all others that it had in this run."""
    return policy.version, policy.num_loads


def _portable(error: Exception) -> Exception:
    """An error that the run's own process can raise, with its traceback as a note."""
    try:
        pickle.loads(cloudpickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    if not isinstance(error, WhetError):
        error.add_note(f"In a worker:\n{traceback.format_exc()}")
    return error


def to_arrays(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """Weights as arrays, which Ray shares between processes of one machine. Bfloat16, which has no array, as bytes."""
    return {
        name: (str(value.dtype), value.view(torch.int16).numpy() if value.dtype == torch.bfloat16 else value.numpy())
        for name, value in weights.items()
    }


def from_arrays(arrays: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights again, as copies."""
    weights = {}
    for name, (dtype, array) in arrays.items():
        value = torch.from_numpy(array.copy())
        weights[name] = value.view(torch.bfloat16) if dtype == "torch.bfloat16" else value
    return weights
