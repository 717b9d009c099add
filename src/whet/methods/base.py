"""What a method is: an algorithm, which decides who learns what from which rows, and a spec.

The spec is data: how the algorithm is evaluated, served, planned and reported. Each method has one file, found by
`METHODS`. The session, the loop, the report and the command line know these two and no method's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from whet.config import ConfigError, config_at
from whet.config.effects import acts
from whet.config.parts import EndpointConfig, ModelConfig
from whet.config.runs import RunConfig
from whet.grading.verdicts import parse_verdict
from whet.methods import METHODS
from whet.methods.evaluator import Evaluator
from whet.models.prompts import Conversation
from whet.report.spec import ReportSpec
from whet.rollout.environments import Environments
from whet.rollout.runtime import Runtime
from whet.rollout.services import BatchFunction
from whet.tasks.prompts import Prompts
from whet.trainer.loop import Loop, Phase
from whet.types import Task

C = TypeVar("C", bound=RunConfig)
Skill = Literal["answer", "critique", "refine", "act"]
"""What a trained policy can do: answer a question, critique an answer, refine its answer after a critique, or act in an
environment."""
Skills = Mapping[str, Mapping[Skill, str]]
Models = Mapping[str, ModelConfig | EndpointConfig]


@dataclass(frozen=True)
class RunContext:
    """What an algorithm works with: the loop of its run, its tasks, its grader and its runtime."""

    loop: Loop
    tasks: Mapping[str, Sequence[Task]]
    """By split: train, validation, test. Where nothing trains, splits of files that are not measured are empty."""
    grade: BatchFunction
    """Grades `(reply, task)` pairs."""
    prompts: Prompts
    runtime: Runtime
    trains: bool = True
    """False: `whet eval`, which only measures."""
    info: list[str] = field(default_factory=list)
    """Printed about the data before the run begins, a sentence each."""
    warnings: list[str] = field(default_factory=list)
    """What to check before the run begins, a sentence each."""

    @property
    def questions(self) -> list[tuple[str]]:
        """The prompts of all tasks, for conversations."""
        return [(task.prompt,) for tasks in self.tasks.values() for task in tasks]

    def next_tasks(self, step: int, count: int, *, first: int = 0) -> list[Task]:
        """A step's training tasks. All tasks of the set come once before any comes again.

        Args:
            first: tasks that came before step 1.
        """
        train = self.tasks["train"]
        start = first + (step - 1) * count
        return [train[(start + i) % len(train)] for i in range(min(count, len(train)))]


def read_verdict(critique: str, prompts: Prompts) -> Mapping[str, Any]:
    """What a critique says: its `verdict`."""
    return {"verdict": parse_verdict(critique, **prompts.labels)}


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """How an algorithm is evaluated, served, planned and reported, as data.

    A family makes it, as `solver_spec` does, and a method names what differs. Functions take the algorithm of a run,
    or the settings of one.
    """

    config: type[RunConfig]
    """The class of the settings; the method starts from its defaults."""
    roles: tuple[str, ...]
    """The policies that are loaded, each by the settings of its name."""
    more_models: Callable[[Any], Models] = lambda config: {}
    """By the settings, models that are loaded beside those of the roles."""
    environments: Callable[[Any], Environments | None] = lambda config: None
    """By the settings, the environments that agents act in. None: there are none."""

    # Evaluated
    evaluator: Callable[[Any], Evaluator[Any]]
    snapshots: Mapping[str, str] = field(default_factory=dict)
    """Of methods that train a critic: the frozen critics that a run may hold, and their rows in tables and traces.
    The last is the best: that of the last stage, by its validation."""
    swappable: tuple[str, ...] = ()
    """The frozen roles for which `whet eval` may take another model than the run's."""

    # Served
    final_policies: tuple[str, ...]
    """The policies that a run ends with, the best one last. A run that stopped early has the first ones."""
    skills: Skills = field(default_factory=dict)
    """By role the skills of its policy, and of its frozen copies, once the run is over. By skill the settings that
    sample it, such as `roles.critique`. A role that is not in it has no skills."""
    prompts: Callable[[Prompts], Prompts] = lambda prompts: prompts
    """From the prompts of a run to those that its policies get."""
    uses_prompts: bool = True
    """False: the method has prompts of its own and ignores the settings' `prompts`."""
    reading: Callable[[str, Prompts], Mapping[str, Any]] = read_verdict
    """Reads a critique by one of its policies: its `verdict`, and a `score` if it closes with one."""

    # Planned
    conversations: Callable[[Any], list[Conversation]]
    """What the policies may be asked, for checks before the run begins."""
    plan: Callable[[Any], list[str]] = lambda algorithm: []
    """Lines of the plan, beside those of all methods."""
    is_lazy: bool = False
    """True: what follows the first phase depends on results of earlier phases."""
    later: Callable[[Any], Sequence[Phase]] = lambda algorithm: ()
    """Of a lazy method, the phases after the first, each at its largest possible size. For the plan alone; they never
    run. (): unknown."""

    # Reported
    report: ReportSpec
    report_by: Callable[[ReportSpec, Any], ReportSpec] = lambda report, config: report
    """The report spec of a run, from `report` and the settings."""

    def report_of(self, config: RunConfig) -> ReportSpec:
        return self.report_by(self.report, config)

    def best_of(self, names: Container[str]) -> str:
        """The best of a run's policies: the last of `final_policies` that it has."""
        return [name for name in self.final_policies if name in names][-1]

    def target_of(self, name: str) -> str:
        """The eval target of a name, which may be a target or its row in the table."""
        return next((policy for policy, row in self.snapshots.items() if row == name), name)

    def models(self, config: RunConfig) -> dict[str, ModelConfig]:
        """The models that are loaded. Roles that the settings leave empty have none."""
        return {name: model for name, model in self._loaded(config).items() if isinstance(model, ModelConfig)}

    def endpoints(self, config: RunConfig) -> dict[str, EndpointConfig]:
        return {
            name: endpoint for name, endpoint in self._loaded(config).items() if isinstance(endpoint, EndpointConfig)
        }

    def _loaded(self, config: RunConfig) -> Models:
        roles = {name: getattr(config, name) for name in self.roles if acts(config, name)}
        return {**roles, **self.more_models(config)}


class Algorithm(ABC, Generic[C]):
    """Decides who learns what from which rows, in one run."""

    spec: ClassVar[MethodSpec]
    """How it is evaluated, served, planned and reported."""

    def __init__(self, config: C, run: RunContext) -> None:
        self.config, self.run = config, run
        self.evaluator = self.spec.evaluator(self)
        if run.trains:
            _check_prompts_per_step(config, len(run.tasks["train"]))

    @abstractmethod
    def phases(self) -> Iterator[Phase]:
        """The phases of the run in order; each is made when its turn comes.

        A pure function of the settings and of `Loop.found`: a resumed run makes the finished phases again, without
        running them.
        """

    def at(self, step: int) -> C:
        """The settings at a step of a phase, schedules applied."""
        return config_at(self.config, max(1, step), self.run.loop.gates)


def _check_prompts_per_step(config: RunConfig, num_train: int) -> None:
    """Raises: ConfigError if a step needs more problems than there are.

    A step has no problem twice, and a schedule of learning rates that counts on more problems would never end.
    """
    if "prompts_per_step" in type(config).model_fields:
        num_prompts = config.__dict__["prompts_per_step"]  # an attribute access would count as a use
        if num_prompts > num_train:
            raise ConfigError(
                f"prompts_per_step = {num_prompts} is more than the {num_train} training problems that there are: "
                "lower it"
            )


def method(name: str, *, says: str = "") -> Callable[[type[Algorithm[Any]]], type[Algorithm[Any]]]:
    """A decorator that registers a method, which starts from the defaults of its spec's config.

    Raises: TypeError where the algorithm has no spec.
    """

    def decorate(cls: type[Algorithm[Any]]) -> type[Algorithm[Any]]:
        if not isinstance(getattr(cls, "spec", None), MethodSpec):
            raise TypeError(f"{cls.__name__} has no spec: give it one, such as spec = solver_spec(YourConfig)")
        METHODS.add(name, cls, says=says or (cls.__doc__ or "").strip().partition("\n")[0])
        return cls

    return decorate
