"""Measures the policies of an algorithm: the rows of its final table, and the eval targets of `whet eval`.

`MethodSpec.evaluator` names an algorithm's evaluator. Training needs it for validation alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from whet.config import ConfigError
from whet.config.runs import RunConfig
from whet.rollout.critique import CritiqueRound
from whet.trainer.loop import Batch, Phase
from whet.types import Task

if TYPE_CHECKING:
    from whet.methods.base import RunContext

C = TypeVar("C", bound=RunConfig)
Metrics = Mapping[str, float | None]
Traces = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class EvalSettings:
    """The settings of `whet eval`."""

    names: tuple[str, ...] = ()
    """The targets to measure, of `Evaluator.targets`. Empty: all of the run's."""
    split: str = "test"
    num_samples: int = 1
    """Samples a problem. More than 1: sampled, with majority votes."""
    temperature: float | None = None
    """Of samples. None: the method's default. An agent's one episode is sampled too where it is above 0."""
    num_refinements: int = 1
    """Refinements of one answer after one critique. More than 1: they are sampled, and all else is greedy (pass@k)."""
    changed: tuple[str, ...] = ()
    """Settings other than the run's, `key=value`: they are in the record, and its name tells them apart."""


@dataclass(frozen=True)
class Measured:
    """The measurements of one target."""

    row: str
    """Its name in tables."""
    place: str
    """The name of its file."""
    metrics: Metrics
    traces: Traces
    record: Mapping[str, Any]
    """What else goes into the file."""


@dataclass(frozen=True)
class ScalingRoles:
    """The roles that answer, critique and refine for strategies (`whet.evaluation.inference_scaling`)."""

    row: str
    """The target's name in tables."""
    sampled: CritiqueRound
    """Strategies ask for its parts; the whole round is not rolled out."""
    greedy: CritiqueRound
    """The same, greedy."""


def no_refinements(settings: EvalSettings) -> None:
    """Raises: ConfigError if several refinements are to be measured of a policy that has no critic."""
    if settings.num_refinements > 1:
        raise ConfigError("several refinements are of critics; what is measured here refines nothing: leave them out")


class Evaluator(ABC, Generic[C]):
    """Measures the policies of one algorithm.

    Args:
        algorithm: a `whet.methods.base.Algorithm`. Its settings and its run are read when something is measured.
    """

    measures: Mapping[str, str] = MappingProxyType({})
    """Rows of the final table that depend on the weights of one policy alone, and that policy."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm

    @property
    def config(self) -> C:
        config: C = self.algorithm.config
        return config

    @property
    def run(self) -> RunContext:
        context: RunContext = self.algorithm.run
        return context

    @abstractmethod
    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        """One row of the table, and the traces behind it.

        Args:
            name: of `rows`.
            labels: `phase`, `step` and `split`, for the traces.
        """

    def validate(self, step: int, *, phase: str = "train") -> Batch:
        """Metrics and traces of the validation tasks, for the step of a phase."""
        raise NotImplementedError

    @property
    def rows(self) -> tuple[str, ...]:
        """The rows of the final table, in the order of their tests."""
        raise NotImplementedError

    def test(self, rows: Sequence[str], *, phase: str = "test", begin: Callable[[], None] = lambda: None) -> Phase:
        """A phase with one step for each row of the final table.

        Rows of equal weights are measured once: their seeds are the same, and so are their numbers.
        """

        def collect(step: int) -> Batch:
            name, labels = rows[step - 1], {"phase": phase, "step": step, "split": "test"}
            twin = next((at for at, row in enumerate(rows[: step - 1], 1) if self._are_equal(row, name)), None)
            if twin is None:
                metrics, traces = self.tested(name, self.measured_tasks("test"), labels)
            else:  # from the logs, which a resumed run has too
                metrics = self.logged({(phase, twin): name})[name]
                measured = [trace for trace in self.run.loop.folder.read_traces(phase) if trace["step"] == twin]
                traces = [{**trace, **labels, "policy": name} for trace in measured]
            return Batch(metrics={f"test/{name}": value for name, value in metrics.items()}, traces=traces)

        best = self.algorithm.spec.report_of(self.config).best
        return Phase(phase, len(rows), collect, begin=begin, headline=(f"test/{best}",))

    def _are_equal(self, row: str, other: str) -> bool:
        policies = [self.run.loop.policies.get(self.measures.get(name, "")) for name in (row, other)]
        return policies[0] is not None and policies[1] is not None and policies[0].equals(policies[1])

    def measured_tasks(self, split: str) -> Sequence[Task]:
        """The tasks of the split that are measured, by the settings."""
        options = getattr(self.config, "evaluation", None)
        if options is None:
            return self.run.tasks[split]
        limit = getattr(options, "num_test" if split == "test" else "num_validation", None)
        return self.run.tasks[split][:limit]

    # --- the final table ----------------------------------------------------------------------------------------------

    def summary(self) -> dict[str, dict[str, Any]]:
        """The final table's rows, from the logged metrics."""
        return self.logged({("test", step): name for step, name in enumerate(self.rows, 1)})

    def logged(self, places: Mapping[tuple[str, int], str]) -> dict[str, dict[str, Any]]:
        """Rows of the table, by the phase and step that logged each under `test/`."""
        rows = {}
        for line in self.run.loop.folder.read_metrics():
            if name := places.get((str(line.get("phase")), line.get("step", -1))):
                rows[name] = {key.removeprefix("test/"): v for key, v in line.items() if key.startswith("test/")}
        return rows

    def closing(self, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Sentences that sum up the final table, printed last.

        Args:
            rows: as `summary` returns them.
        """
        return []

    # --- `whet eval` --------------------------------------------------------------------------------------------------

    def targets(self, *, of_run: bool) -> tuple[str, ...]:
        """What `whet eval` can measure.

        Args:
            of_run: True: the policies are a run's last ones. False: they are the models of the settings.
        """
        return self.rows

    def best_target(self, *, of_run: bool) -> str:
        """The target of strategies where none is named, one of `targets`."""
        return self.targets(of_run=of_run)[-1]

    def measure(self, name: str, settings: EvalSettings, *, of_run: bool) -> Measured:
        """One target, for `whet eval`.

        Raises: ConfigError if there is no such target, or it cannot be measured with these settings.
        """
        if name not in self.targets(of_run=of_run):
            raise ConfigError(f"there is no {name!r} to measure; choose of: {', '.join(self.targets(of_run=of_run))}")
        if settings.num_samples > 1:
            raise ConfigError(f"what {self.config.method} trains is measured once a problem: leave the samples out")
        no_refinements(settings)
        labels = {"phase": "eval", "step": 0, "split": settings.split}
        metrics, traces = self.tested(name, self.measured_tasks(settings.split), labels)
        return Measured(name, f"{name}-{settings.split}", metrics, traces, {"row": name})

    def scaling_roles(self, name: str, temperature: float | None, *, of_run: bool, judged: bool) -> ScalingRoles:
        """The roles of strategies that spend a budget, for `whet eval --strategy`.

        Args:
            name: as in `measure`.
            temperature: None: the method's default.
            judged: whether any strategy asks for critiques.
        Raises: ConfigError if the method has no such roles.
        """
        raise ConfigError(
            f"strategies are measured of critics, and of policies that answer alone; {self.config.method} has neither"
        )
