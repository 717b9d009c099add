"""Asynchronous training of a policy gradient: which rollouts a unit has, its log, and what checkpoints hold of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from whet.config import AsyncData, ConfigError
from whet.config.parts import ClusterConfig
from whet.methods.base import RunContext
from whet.methods.gradient_config import GradientConfig
from whet.methods.names import POLICY
from whet.rollout.async_units import (
    LOG,
    AsyncUnits,
    LocalUnits,
    UnitPool,
    as_info,
    check_versions,
    from_info,
    log_problem,
    read_log,
)
from whet.rollout.runtime import Call
from whet.rollout.server_units import ServerUnits
from whet.rollout.unit_schedule import Batch, RecordedSchedule, UnitSchedule
from whet.tasks.files import DataError, parse_json, read_text
from whet.types import Episode, Task

STORE = "async"
"""The store's queues: of episodes by unit, and of what is said of each unit."""
SCHEDULE = "schedule"


def ahead_of(
    config: GradientConfig,
    run: RunContext,
    tasks: Callable[[int], Sequence[Any]],
    calls: Callable[[int, Sequence[Any]], list[Call[Episode]]],
) -> Ahead | None:
    """As `Ahead`. None where each step trains on its own rollouts, or nothing is trained."""
    return Ahead(config, run, tasks, calls) if config.off_policy.kind == "async" and run.trains else None


class Ahead:
    """The rollouts of a policy gradient that go on while it trains.

    Args:
        tasks: of a step.
        calls: the rollouts of some of them, by the step that they count for.
    Raises: ConfigError, DataError where a log cannot be repeated.
    """

    def __init__(
        self,
        config: GradientConfig,
        run: RunContext,
        tasks: Callable[[int], Sequence[Any]],
        calls: Callable[[int, Sequence[Any]], list[Call[Episode]]],
    ) -> None:
        assert isinstance(config.off_policy, AsyncData)
        general: Any = config  # each method's config is of a run too
        cluster: ClusterConfig = general.cluster
        self.is_on_servers = general.engine.kind == "vllm"
        if not (cluster.workers or self.is_on_servers or config.off_policy.log is not None):
            raise ConfigError(
                "off_policy.kind = async needs processes that roll out while this one trains: set cluster.workers, or "
                "engine.kind=vllm with cluster.servers or engine.urls; off_policy.log=FILE repeats a run without them"
            )
        self.run, self.tasks, self.calls = run, tasks, calls
        self.group_size, self.regime, self.num_steps = config.group_size, config.off_policy, config.num_steps
        num_tasks = len(tasks(1))
        self.tasks_a_unit = tasks_a_unit(num_tasks, config.group_size, cluster.rollouts_a_unit)
        self.size = num_tasks // self.tasks_a_unit
        self.record = self._read(self.regime.log) if self.regime.log is not None else None
        self.versions: dict[int, int] = {}
        """The policy's version at each step's begin, as far back as units go."""
        self._units: AsyncUnits | None = None

    def _read(self, file: str) -> dict[int, Batch]:
        lines = read_text(Path(file), "off_policy.log").splitlines()
        rows = [parse_json(line, f"{file}, line {number}") for number, line in enumerate(lines, 1)]
        try:
            record = read_log(rows)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"off_policy.log: {file} is no log of units: give the {LOG} of a run's folder") from error
        if problem := log_problem(record, self.size, self.regime.max_age, self.num_steps):
            raise ConfigError(f"off_policy.log: {file} cannot be repeated: {problem}")
        return {step: record[step] for step in range(1, self.num_steps + 1)}

    def groups(self, step: int) -> tuple[list[list[Episode]], dict[str, float]]:
        """The groups that a step trains on, and metrics. Rollouts then go on until the next call.

        Raises: as `AsyncUnits.next_batch`.
        """
        units = self._units or self._open(step)
        self.versions[step] = self.run.loop.policies[POLICY].version
        batch, results, metrics = units.next_batch(step)
        for (_, begun), episodes in zip(batch, results, strict=True):
            check_versions(episodes, POLICY, begun, self.versions)
        self._save(units)
        groups = [group for episodes in results for group in self.run.runtime.in_groups(episodes, self.group_size)]
        units.go_on()
        return groups, metrics

    def _open(self, step: int) -> AsyncUnits:
        """The units, as the checkpoint left them where there is one."""
        schedule = (
            UnitSchedule(self.size, self.regime.max_age, self.num_steps)
            if self.record is None
            else RecordedSchedule(self.size, self.regime.max_age, self.num_steps, record=self.record)
        )
        loop = self.run.loop
        write = partial(loop.folder.logs.append, LOG)
        self._units = units = AsyncUnits(schedule, self._pool(), self.run.runtime, self._calls_of, write)
        said = {task.id: task.info for batch in loop.store.tasks(STORE).batches.values() for task in batch}
        if SCHEDULE in said:
            info = said.pop(SCHEDULE)
            self.versions = {int(step): version for step, version in info["versions"].items()}
            ended = {int(unit): unit_info["begun"] for unit, unit_info in said.items()}
            schedule.restore(step, info["num_begun"], ended, info["unended"])
            for unit, unit_info in said.items():
                units.results[int(unit)] = from_info(unit_info, loop.store.episodes(STORE).batches[unit])
        return units

    def _pool(self) -> UnitPool:
        runtime = self.run.runtime
        if runtime.pool is not None:
            return runtime.pool.units()
        return ServerUnits(runtime, POLICY) if self.is_on_servers else LocalUnits(runtime)

    def _calls_of(self, unit: int) -> list[Call[Episode]]:
        step, part = unit // self.size + 1, unit % self.size
        tasks = self.tasks(step)[part * self.tasks_a_unit : (part + 1) * self.tasks_a_unit]
        return self.calls(step, tasks)

    def _save(self, units: AsyncUnits) -> None:
        """Put the units that have ended into the store, and so into checkpoints. Those under way begin again there."""
        schedule, store = units.schedule, self.run.loop.store
        said, episodes = store.tasks(STORE), store.episodes(STORE)
        said.clear()
        episodes.clear()
        oldest = min([schedule.step, *schedule.open.values()])
        self.versions = {begun: version for begun, version in self.versions.items() if begun >= oldest}
        unended = sorted({*(schedule.open.keys() - schedule.ended.keys()), *schedule.lost})
        about = {"num_begun": schedule.num_begun, "unended": unended, "versions": self.versions}
        said.put(SCHEDULE, [Task(id=SCHEDULE, prompt="", answer="", info=about)])
        for unit, begun in schedule.ended.items():
            result = units.results[unit]
            said.put(str(unit), [Task(id=str(unit), prompt="", answer="", info=as_info(result, begun))])
            episodes.put(str(unit), result.results)


def tasks_a_unit(num_tasks: int, group_size: int, rollouts_a_unit: int | None) -> int:
    """Tasks of a unit: the most that divide a step's tasks, with no more rollouts than `cluster.unit`. At least 1."""
    most = (rollouts_a_unit or 1) // group_size
    return max((count for count in range(1, most + 1) if num_tasks % count == 0), default=1)
