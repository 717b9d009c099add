"""What a method is: its settings, the policies in its seats, its phases, and the sheet that reports it.

One file each, found by `METHODS`. The session, the loop, the report and the command line know this protocol and no
method's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from whet.config import ConfigError, config_at
from whet.config.acts import acts
from whet.config.parts import EndpointConfig, ModelConfig
from whet.config.runs import RunConfig
from whet.grading.verdicts import parse_verdict
from whet.methods.registry import METHODS
from whet.models.prompts import Conversation
from whet.report.spec import ReportSpec
from whet.rollout.critique import CritiqueRound
from whet.rollout.environments import Environments
from whet.rollout.runtime import Runtime
from whet.rollout.services import BatchFunction
from whet.tasks.prompts import Prompts
from whet.trainer.loop import Batch, Loop, Phase, Selection
from whet.types import Task

__all__ = [
    "Batch",
    "Conversation",
    "EvalSettings",
    "Measured",
    "Method",
    "Metrics",
    "Phase",
    "ReportSpec",
    "RunContext",
    "ScalingRoles",
    "Selection",
    "Skill",
    "Skills",
    "Traces",
    "method",
]  # fmt: skip
C = TypeVar("C", bound=RunConfig)
Metrics = Mapping[str, float | None]
Traces = Sequence[Mapping[str, Any]]
Skill = Literal["answer", "critique", "refine", "act"]
"""What a policy can be asked for once it is trained: to answer a question, to critique an answer, to write its own
answer anew after a critique, or to say its next turn in an environment."""
Skills = Mapping[str, Mapping[Skill, str]]


@dataclass(frozen=True)
class RunContext:
    """What a method works at: the run that goes on, its problems, and the seats."""

    loop: Loop
    tasks: Mapping[str, Sequence[Task]]
    """By split: train, validation, test. Where nothing is trained, those of files that are not measured are empty."""
    grade: BatchFunction
    """Grades `(reply, task)` pairs."""
    prompts: Prompts
    runtime: Runtime
    trains: bool = True
    """False: `whet eval`, which only measures."""


@dataclass(frozen=True)
class EvalSettings:
    """What `whet eval` was asked for."""

    names: tuple[str, ...] = ()
    """What to measure, of `Method.eval_targets`. Empty: all of the run's."""
    split: str = "test"
    num_samples: int = 1
    """Samples a problem. More than 1: sampled, with majority votes."""
    temperature: float | None = None
    """Of samples. None: the method's usual one."""
    num_refinements: int = 1
    """Refinements of one answer after one critique. More than 1: they are sampled, all else is greedy (pass@k)."""
    changed: tuple[str, ...] = ()
    """Settings other than the run's, `key=value`: they are in the record, and its name tells them apart."""


@dataclass(frozen=True)
class Measured:
    """What was measured of one subject."""

    row: str
    """Its name in tables."""
    place: str
    """Of the file that keeps it."""
    metrics: Metrics
    traces: Traces
    record: Mapping[str, Any]
    """What else the file says."""


@dataclass(frozen=True)
class ScalingRoles:
    """Who sits where while strategies are measured (`whet.evaluation.inference_scaling`)."""

    row: str
    """The name in tables of what is measured."""
    sampled: CritiqueRound
    """Its parts, not the whole round, are played."""
    greedy: CritiqueRound
    """The same, greedy."""


def no_refinements(settings: EvalSettings) -> None:
    """Raises: ConfigError where several refinements are asked of a policy that has no critic."""
    if settings.num_refinements > 1:
        raise ConfigError("several refinements are of critics; what is measured here refines nothing: leave them out")


class Method(ABC, Generic[C]):
    """A method, put together for one run."""

    config_class: ClassVar[type[RunConfig]]
    report_spec: ClassVar[ReportSpec]
    roles: ClassVar[tuple[str, ...]]
    """The policies that are loaded, each from the settings of its name."""
    swappable: ClassVar[tuple[str, ...]] = ()
    """Of these, the frozen ones in whose place `whet eval` may put another model than the run's."""
    is_worded: ClassVar[bool] = True
    """False: what is asked has words of its own, and none of the settings' `prompts`."""
    is_lazy: ClassVar[bool] = False
    """True: what comes after the first phase depends on what phases find."""
    kept: ClassVar[Mapping[str, str]] = {}
    """Of methods that train a critic: the frozen ones that a run may come to keep, and their rows in tables and traces.
    The last is the best: that of the last stage, by its validation."""
    skills: ClassVar[Skills] = {}
    """By seat what its policy, and the frozen copies of it, can be asked for once the run is over; and by skill the
    settings that say how it is sampled, such as `roles.critique`. A seat that is not in it is asked for nothing."""

    @classmethod
    def final_policies(cls) -> tuple[str, ...]:
        """The policies that a run comes to, the best one last. A run that did not get so far has the first ones."""
        return cls.roles

    @classmethod
    def best_of(cls, names: Container[str]) -> str:
        """The best of a run's policies: the last of `outcomes` that it came to."""
        return [name for name in cls.final_policies() if name in names][-1]

    @classmethod
    def eval_target_of(cls, name: str) -> str:
        """The subject that a name stands for: its own, or that of its row in the table."""
        return next((policy for policy, row in cls.kept.items() if row == name), name)

    @staticmethod
    def words(prompts: Prompts) -> Prompts:
        """How its policies are asked, in a run of that dialect."""
        return prompts

    @staticmethod
    def reading(critique: str, prompts: Prompts) -> Mapping[str, Any]:
        """What a critique by one of its policies says: its `verdict`, and a `score` where it closes with one."""
        return {"verdict": parse_verdict(critique, **prompts.labels)}

    def __init__(self, config: C, run_context: RunContext) -> None:
        self.config, self.run_context, self.loop = config, run_context, run_context.loop
        self.tasks, self.prompts, self.runtime = run_context.tasks, run_context.prompts, run_context.runtime
        self.info: list[str] = []
        """What its data came to, which is as it should be; a sentence each."""
        self.warnings: list[str] = []
        """What there is to look at in them before the run begins; a sentence each."""
        if run_context.trains:
            _check_prompts_per_step(config, len(self.tasks["train"]))

    @property
    def run_report_spec(self) -> ReportSpec:
        """The sheet, with what the run's settings make of it."""
        return self.report_spec

    @abstractmethod
    def phases(self) -> Iterator[Phase]:
        """The run from start to end, each phase when its turn has come. A pure function of the settings and of
        `Loop.found`: who resumes a run goes through those that are done again, without running them."""

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        """One row of the table, and the traces behind it.

        Args:
            name: of `rows`.
            labels: `phase`, `step` and `split`, for the traces.
        """
        raise NotImplementedError

    @property
    def rows(self) -> tuple[str, ...]:
        """Of the final table, in the order in which they are tested."""
        raise NotImplementedError

    @property
    def questions(self) -> list[tuple[str]]:
        """Of all problems, for `conversations`."""
        return [(task.prompt,) for tasks in self.tasks.values() for task in tasks]

    def conversations(self) -> list[Conversation]:
        """What may be put to the policies, to be looked at before the run begins."""
        words = self.prompts
        return [Conversation(role, self.questions, words.solve_messages, words.solve_prefill, 0) for role in self.roles]

    # --- measuring ----------------------------------------------------------------------------------------------------

    def test(self, rows: Sequence[str], *, phase: str = "test", begin: Callable[[], None] = lambda: None) -> Phase:
        """One step a row of the final table."""

        def collect(step: int) -> Batch:
            labels = {"phase": phase, "step": step, "split": "test"}
            metrics, traces = self.tested(rows[step - 1], self.measured_tasks("test"), labels)
            return Batch(metrics={f"test/{name}": value for name, value in metrics.items()}, traces=traces)

        return Phase(phase, len(rows), collect, begin=begin, headline=(f"test/{self.run_report_spec.best}",))

    def measured_tasks(self, split: str) -> Sequence[Task]:
        """Those of the split that the settings put to use."""
        options = getattr(self.config, "evaluation", None)
        if options is None:
            return self.tasks[split]
        return self.tasks[split][: options.num_test if split == "test" else options.num_validation]

    def summary(self) -> dict[str, dict[str, Any]]:
        """The final table's rows, from the metrics that were logged."""
        return self.logged({("test", step): name for step, name in enumerate(self.rows, 1)})

    def closing(self, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Sentences that the final table comes down to, printed last.

        Args:
            rows: of the summary.
        """
        return []

    def eval_targets(self, *, of_run: bool) -> tuple[str, ...]:
        """What `whet eval` can measure.

        Args:
            of_run: whether the policies are a run's last ones, or the settings' own models.
        """
        return self.rows

    def measure(self, name: str, settings: EvalSettings, *, of_run: bool) -> Measured:
        """One subject, for `whet eval`.

        Raises: ConfigError where there is no such subject, or it is not measured so.
        """
        if name not in self.eval_targets(of_run=of_run):
            raise ConfigError(
                f"there is no {name!r} to measure; choose of: {', '.join(self.eval_targets(of_run=of_run))}"
            )
        if settings.num_samples > 1:
            raise ConfigError(f"what {self.config.method} trains is measured once a problem: leave the samples out")
        no_refinements(settings)
        labels = {"phase": "eval", "step": 0, "split": settings.split}
        metrics, traces = self.tested(name, self.measured_tasks(settings.split), labels)
        return Measured(name, f"{name}-{settings.split}", metrics, traces, {"row": name})

    def best_eval_target(self, *, of_run: bool) -> str:
        """Of `eval_targets`, the one that strategies are measured of where none is named."""
        return self.eval_targets(of_run=of_run)[-1]

    def scaling_roles(self, name: str, temperature: float | None, *, of_run: bool, judged: bool) -> ScalingRoles:
        """Who answers, critiques and refines where strategies spend a budget, for `whet eval --strategy`.

        Args:
            name: as in `measure`.
            temperature: None: the method's usual one.
            judged: whether any strategy asks for critiques.
        Raises: ConfigError where there is nobody to.
        """
        raise ConfigError(
            f"strategies are measured of critics, and of policies that answer alone; {self.config.method} has neither"
        )

    def later(self) -> Sequence[Phase]:
        """Of a lazy method, phases after the first, each as large as what it hangs on may make it; for the plan, and
        played by nobody. (): who knows."""
        return ()

    def plan(self) -> list[str]:
        """What a run would do beside what all methods tell, in lines."""
        return []

    @classmethod
    def models(cls, config: C) -> dict[str, ModelConfig]:
        """The models in the seats, but in those that the settings leave empty."""
        return {name: each for name, each in cls._seated(config).items() if isinstance(each, ModelConfig)}

    @classmethod
    def endpoints(cls, config: C) -> dict[str, EndpointConfig]:
        """The endpoints in the seats."""
        return {name: each for name, each in cls._seated(config).items() if isinstance(each, EndpointConfig)}

    @classmethod
    def envs(cls, config: C) -> Environments | None:
        """The environments that it plays in, if it does."""
        return None

    @classmethod
    def _seated(cls, config: C) -> dict[str, ModelConfig | EndpointConfig]:
        return {name: getattr(config, name) for name in cls.roles if acts(config, name)}

    def at(self, step: int) -> C:
        """The settings at a step of a phase, schedules applied."""
        return config_at(self.config, max(1, step), self.loop.gates)

    def next_tasks(self, step: int, count: int, *, first: int = 0) -> list[Task]:
        """A step's training problems, once round the set before any comes again.

        Args:
            first: problems that came before step 1.
        """
        train = self.tasks["train"]
        start = first + (step - 1) * count
        return [train[(start + i) % len(train)] for i in range(min(count, len(train)))]

    def logged(self, places: Mapping[tuple[str, int], str]) -> dict[str, dict[str, Any]]:
        """Rows of the table, by the phase and step that logged each under `test/`."""
        found = {}
        for row in self.loop.folder.read_metrics():
            if name := places.get((str(row.get("phase")), row.get("step", -1))):
                found[name] = {key.removeprefix("test/"): v for key, v in row.items() if key.startswith("test/")}
        return found


def _check_prompts_per_step(config: RunConfig, num_train: int) -> None:
    """A step has no problem twice; a schedule of learning rates that counts on more problems would never end.

    Raises: ConfigError.
    """
    if "prompts_per_step" in type(config).model_fields:
        asked = config.__dict__["prompts_per_step"]  # looking is no reading
        if asked > num_train:
            raise ConfigError(
                f"prompts_per_step = {asked} is more than the {num_train} training problems that there are: lower it"
            )


def method(name: str, *, says: str = "") -> Callable[[type[Method[Any]]], type[Method[Any]]]:
    """A decorator: register a method, which starts from the defaults of its config."""

    def decorate(cls: type[Method[Any]]) -> type[Method[Any]]:
        METHODS.add(name, cls, says=says or (cls.__doc__ or "").strip().partition("\n")[0])
        return cls

    return decorate
