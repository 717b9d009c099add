"""Workers that Ray places: each rolls out units of a run, with engines, graders and environments of its own.

Which worker takes a unit changes nothing: its results depend on its rollouts, their seeds and the weights. So a unit
whose worker died is rolled out again, to the same bits.
"""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import cloudpickle
import torch
from torch import Tensor

from whet.cluster.ahead import RayUnits, stamp_of
from whet.cluster.processes import Member, Processes
from whet.cluster.ray_start import check_ray, connect, facts_of_this_process, resources
from whet.config.parts import ClusterConfig
from whet.errors import WhetError
from whet.models.policy import Policy
from whet.models.scoring import score
from whet.rollout.parcels import pack, unpack
from whet.rollout.runtime import Call, Runtime
from whet.rollout.units import Recorded, UnitResult, pack_unit, run_unit, tokenizers
from whet.trainer.selfchecks import PROBE_BUDGET, check_scores, probe_rows

T = TypeVar("T")


class WorkerProcess:
    """A Ray actor: one worker. It has a runtime after `start`.

    Args:
        build: makes the worker's runtime from the settings. It travels by its name.
        settings: of the run.
    """

    def __init__(self, build: Callable[[Mapping[str, Any]], Runtime], settings: Mapping[str, Any]) -> None:
        self._made_by = build, settings

    def facts(self) -> Mapping[str, Any]:
        """Where it runs, and what is installed there."""
        return facts_of_this_process()

    def start(self) -> WhetError | None:
        """Make the runtime. Returns: what is wrong with the settings, such as a file that this machine lacks."""
        build, settings = self._made_by
        try:
            self.runtime = build(settings)
        except WhetError as error:
            return error
        self.policies: dict[str, Policy] = dict(self.runtime.policies)
        return None

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
        self.names = tokenizers(runtime)
        self._processes: Processes | None = None
        self._seconds = dict.fromkeys(("busy", "rollout", "sync"), 0.0)
        self._units: RayUnits | None = None
        self._since = 0.0
        """When the time of `metrics` began, where units go on while the policy trains."""

    # --- rolling out --------------------------------------------------------------------------------------------------

    def roll_out(self, units: Sequence[Sequence[Call[T]]], label: str) -> list[T]:
        """The results of all rollouts, in order. Episodes are counted in that order too.

        Raises: what a rollout raised. RunError after `cluster.restarts` deaths, or where a worker does not hold the
            policies' weights.
        """
        if self._units is not None:
            self._units.pause()
            self._units.renew()
        processes, started = self.processes, time.perf_counter()
        is_timed = self.runtime.is_free and self.runtime.settings.latency is None
        names = [self.runtime.arrivals.next_name(label) if is_timed else "" for _ in units]
        recorded = self.runtime.arrivals.recorded
        jobs = [
            (pack_unit(unit, self.runtime, self.names, self.stays), recorded.get(name, {}) if name else None)
            for unit, name in zip(units, names, strict=True)
        ]
        answers: dict[int, bytes] = {}
        results: list[T] = []
        num_home = 0
        with self.runtime.watchdog.watching():
            for number, (kind, value, seconds) in processes.work(jobs, self._sync, self._beat):
                self._seconds["busy"] += seconds
                if kind == "error":
                    raise value
                answers[number] = value
                while num_home in answers:  # in order, so that counts and their limits are those of one process
                    results += self._home(answers.pop(num_home), names[num_home])
                    num_home += 1
        if self._units is not None:
            self._units.check_what_came()
        self._seconds["rollout"] += time.perf_counter() - started
        return results

    def units(self) -> RayUnits:
        """The workers, for units that go on while the policy trains."""
        if self._units is None:
            self._units, self._since = RayUnits(self), time.perf_counter()
        return self._units

    def spent(self, kind: str, seconds: float) -> None:
        """Add to what `metrics` says: "busy" of one worker, or "sync"."""
        self._seconds[kind] += seconds

    def _beat(self) -> None:
        self.runtime.watchdog.beat("workers")

    def _home(self, answer: bytes, name: str) -> list[Any]:
        """A unit's results, once its episodes and tokens are counted here."""
        unit: UnitResult = unpack(answer, self.names)
        self.runtime.episode_counts.replay(unit.endings)
        self.runtime.grow(unit.growth)
        if name:
            self.runtime.arrivals.write({"play": name, "arrivals": unit.arrivals})
        return unit.results

    # --- weights ------------------------------------------------------------------------------------------------------

    def _sync(self, member: Member) -> None:
        """Give the weights that a worker lacks to all that are idle, and check by a probe that each holds them.

        Raises: RunError where one does not. ProcessDied.
        """
        lacking = [policy for policy in self.sampled() if member.has.get(policy.name) != stamp_of(policy)]
        if not lacking:
            return
        started = time.perf_counter()
        for policy in lacking:
            asked = self.send(policy, [other for other in self.lacking(policy) if other in self.processes.idle])
            expected = score(policy, probe_rows(policy), token_budget=PROBE_BUDGET)
            for other, answer in asked:
                check_scores(policy, self.processes.answer(other, answer), expected)
                other.has[policy.name] = stamp_of(policy)
        self._seconds["sync"] += time.perf_counter() - started

    def sampled(self) -> list[Policy]:
        """The policies that workers have."""
        return [policy for policy in self.runtime.policies.values() if not policy.is_value]

    def lacking(self, policy: Policy) -> list[Member]:
        """The workers that were not sent a policy's newest weights."""
        stamp = stamp_of(policy)
        return [member for member in self.processes.started if member.has.get(policy.name) != stamp]

    def send(self, policy: Policy, members: Sequence[Member]) -> list[tuple[Member, Any]]:
        """Send a policy's weights to workers. Returns: each with its scores of a probe, to come."""
        weights = self.processes.ray.put(to_arrays(policy.state()))
        arguments = policy.name, self.source_of(policy.name), policy.version, weights
        return [(member, member.actor.update_weights.remote(*arguments)) for member in members]

    # --- processes ----------------------------------------------------------------------------------------------------

    @property
    def processes(self) -> Processes:
        """The workers' processes. They start with the first call."""
        if self._processes is None:
            ray = connect(self.settings)
            actor = ray.remote(WorkerProcess).options(**resources(self.settings))
            self._processes = Processes(
                ray,
                lambda: actor.remote(*self._made_by),
                self.settings.workers,
                restarts=self.settings.restarts,
                kind="worker",
                tell=self.tell,
            )
        return self._processes

    def close(self) -> None:
        """End the workers."""
        if self._units is not None:
            with suppress(Exception):  # whatever ends the run was raised already
                self._units.pause()
        if self._processes is not None:
            self._processes.close()
        self._processes = None

    def metrics(self) -> dict[str, float]:
        """Of the time since the last call. `cluster/busy`: the share of the workers' time in which they rolled out."""
        if self._units is not None:
            self._seconds["rollout"], self._since = time.perf_counter() - self._since, time.perf_counter()
        if self._processes is None or not self._seconds["rollout"]:
            return {}
        spent = self._seconds["rollout"] * self.settings.workers
        metrics = {
            "cluster/busy": min(1.0, self._seconds["busy"] / spent),
            "cluster/waiting_units": float(self._processes.most_waiting),
            "cluster/sync_s": self._seconds["sync"],
            "cluster/restarts": float(self._processes.num_restarts),
        }
        self._seconds, self._processes.most_waiting = dict.fromkeys(self._seconds, 0.0), 0
        return metrics


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
