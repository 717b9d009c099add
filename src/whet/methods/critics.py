"""Shared by methods with a critic: roles, the critique round, warm start, validation and the test of every critic.

A method names the critics that it freezes (`critic_spec`: policy name to row name) and yields its own training between
`warm_starts` and `evaluator.test_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, TypeVar

from whet.config import ConfigError
from whet.config.critics import ActorRule
from whet.config.parts import ChainData, SamplingConfig
from whet.config.runs import CriticRunConfig, TrainingConfig
from whet.credit.assignment import AssignedCredit
from whet.credit.metrics import Groups, Reaches, critique_signs, flat_groups, graded_signs, reward_metrics
from whet.evaluation.benchmarks import judgment_metrics, oracle_accuracy
from whet.evaluation.critique import no_critic_metrics
from whet.evaluation.protocol import exchanges, is_right, judged, measure, trace_rows
from whet.evaluation.scaling import measure_refinements, measure_samples, scaling
from whet.methods.base import Algorithm, MethodSpec, RunContext
from whet.methods.evaluator import EvalSettings, Evaluator, Measured, Metrics, ScalingRoles, Traces
from whet.methods.report_specs import load_report
from whet.methods.warm_start import warm_start
from whet.models.prompts import Conversation, check_prompts, of_rounds
from whet.rollout.critique import CritiqueRound, RuleCritic
from whet.rollout.retries import broken_grade
from whet.rollout.roles import Role
from whet.rollout.rule_roles import RuleRole, verdict_actor
from whet.tasks.demonstrators import demonstrator, examples_of
from whet.tasks.oracles import RULE_CRITICS, TRIVIAL_CRITICS, rule_critics
from whet.trainer.loop import Batch, Phase, Selection
from whet.trainer.terms import Update
from whet.types import FAULTS, Episode, Sampling, Segment, Task

C = TypeVar("C", bound=CriticRunConfig)
SFT = "critic_sft"
"""The critic after its warm start, frozen."""
ACC_REFINE = "critique/acc_refine"
TEMPERATURE = 0.7
"""Of samples that are measured (the papers')."""
NO_CRITIC, SELF = "no_critic", "self"
"""What `whet eval` can measure beside critics: plain answers, and the actor as its own critic (Self-Refine)."""
CritiqueMetrics = Callable[[Sequence[Episode]], Metrics]


class CriticAlgorithm(Algorithm[C]):
    """An actor answers, a critic critiques, the actor refines; the critic is trained."""

    evaluator: CriticEvaluator[C]
    imitators: ClassVar[Sequence[Literal["actor", "critic"]]] = ("actor", "critic")
    """Who imitates `warm_start`'s demonstrations, if it is a policy of the run."""

    def __init__(self, config: C, run: RunContext) -> None:
        super().__init__(config, run)
        self.warm_starts = _warm_starts(self) if run.trains else []
        """Of actor and critic. Made now, so that errors in their texts stop the run before it begins."""

    def keep_sft(self) -> None:
        """Freezes the critic as the warm start left it, when a phase begins."""
        self.run.loop.freeze("critic", SFT)


def critic_spec(config: type[CriticRunConfig], snapshots: Mapping[str, str], **fields: Any) -> MethodSpec:
    """The spec of a method that trains a critic.

    Args:
        snapshots: by critic that a run freezes, its row in tables. The warm start's critic is added.
        fields: what differs from the family, by fields of `MethodSpec`.
    """
    every = {SFT: "sft_critic", **snapshots}
    skills = {
        "actor": {"answer": "roles.answer", "refine": "roles.refinement"},
        "critic": {"critique": "roles.critique"},
    }
    family: dict[str, Any] = {
        "roles": ("actor", "critic"),
        "evaluator": CriticEvaluator,
        "snapshots": every,
        "swappable": ("actor",),
        "final_policies": ("critic", *every),
        "skills": skills,
        "conversations": ask_critic,
        "report": load_report("critique"),
    }
    return MethodSpec(config=config, **(family | fields))


# --- phases -----------------------------------------------------------------------------------------------------------


def _warm_starts(algorithm: CriticAlgorithm[C]) -> list[Phase]:
    config, run = algorithm.config, algorithm.run
    settings = config.warm_start
    shown = demonstrator(examples_of(settings), config.data, run.tasks, run.prompts)
    run.warnings.extend(filter(None, [shown.warning]))
    phases = []
    for role in algorithm.imitators:
        if role in run.loop.policies:  # an endpoint learns nothing
            num_steps = settings.actor_steps if role == "actor" else settings.critic_steps
            phases.append(warm_start(settings, num_steps, run.loop, shown, role))
    return phases


def training_phases(
    algorithm: CriticAlgorithm[C],
    settings: TrainingConfig,
    collect: Callable[[int], Batch],
    updates: Callable[[int], Mapping[str, Update]],
    *,
    into: str,
    begin: Callable[[], None] | None = None,
    headline: tuple[str, ...] = ("reward/mean", "critique/acc_dis", ACC_REFINE),
) -> Iterator[Phase]:
    """The phases of a method with one stretch of training.

    Args:
        into: the critic of the best Acc@Refine in validation, frozen.
        begin: before step 1. None: the warm start's critic is frozen.
    """
    yield from algorithm.warm_starts
    yield Phase(
        name="train",
        num_steps=settings.num_steps,
        collect=collect,
        updates=updates,
        begin=begin or algorithm.keep_sft,
        validate=algorithm.evaluator.validate,
        validate_every=settings.validate_every,
        select=Selection("critic", into, "validation/acc_refine"),
        main="critic",
        headline=headline,
    )
    yield algorithm.evaluator.test_of([SFT, into])


# --- rollouts ---------------------------------------------------------------------------------------------------------


def critique_rounds(
    algorithm: Algorithm[C],
    key: Sequence[object],
    critic: str,
    *,
    greedy: bool,
    temperature: float | None = None,
    **settings: Any,
) -> CritiqueRound:
    """The critique round with the run's actor and one of its critics.

    Args:
        key: the seeds' first part, after the run's seed.
        temperature: of all roles, where not greedy. None: that of each role's settings.
        settings: of the round.
    """
    run, config = algorithm.run, algorithm.config
    roles, sampled = config.roles, {"greedy": greedy, "temperature": temperature}
    return CritiqueRound(
        prompts=run.prompts,
        actor=actor_role(algorithm, roles.answer, **sampled),
        critic=run.runtime.role("critic", critic, roles.critique, **sampled),
        reviser=actor_role(algorithm, roles.refinement, **sampled),
        key=(config.seed, *key),
        **settings,
    )


def actor_role(algorithm: Algorithm[C], settings: SamplingConfig, **sampled: Any) -> Role:
    """The actor's role: a model, an endpoint, or a rule of the tiny world.

    Args:
        sampled: as `Runtime.role` takes it.
    """
    run, data, who = algorithm.run, algorithm.config.data, algorithm.config.actor
    if not isinstance(who, ActorRule):
        return run.runtime.role("actor", "actor", settings, **sampled)
    limit = Sampling(temperature=0.0, max_new_tokens=settings.max_new_tokens)
    of_env = data.misconceptions if isinstance(data, ChainData) and who.misconceptions is None else None
    rule = verdict_actor(who.mend, who.spoil, who.misconceptions or of_env)
    return RuleRole("actor", rule, run.prompts, limit)


def sample_critiques(
    algorithm: Algorithm[C],
    key: Sequence[object],
    tasks: Sequence[Task],
    *,
    answers: Mapping[str, Segment] | None = None,
    **settings: Any,
) -> list[Episode]:
    """One episode of each task, sampled, with the critic that is trained."""
    rounds = critique_rounds(algorithm, key, "critic", greedy=False, **settings)
    return [e for group in roll_out_rounds(algorithm.run, rounds, tasks, answers) for e in group]


def roll_out_rounds(
    run: RunContext,
    rounds: CritiqueRound,
    tasks: Sequence[Task],
    answers: Mapping[str, Segment] | None = None,
    *,
    num_samples: int = 1,
    is_counted: bool = True,
) -> list[list[Episode]]:
    """Episodes of each task, with the cached answers where there are any.

    A failed critique was retried alone, with what follows it. What is lost after all retries is left out: a critique of
    its episode, or a whole episode.
    """
    rounds = replace(rounds, retries=run.runtime.retries(is_counted=is_counted))
    which = [(task, sample) for task in tasks for sample in range(num_samples)]
    rollouts = [partial(rounds, task, answer=(answers or {}).get(task.id), sample=i) for task, i in which]
    episodes = run.runtime.roll_out(rollouts, label="" if is_counted else "answers")
    groups = [episodes[at : at + num_samples] for at in range(0, len(episodes), num_samples)]
    return [[episode for episode in group if _is_there(episode)] for group in groups]


def _is_there(episode: Episode) -> bool:
    """False if the episode is lost and has no failed grading that the metrics count."""
    return episode.outcome not in FAULTS or broken_grade(episode.segments) is not None


# --- a training step --------------------------------------------------------------------------------------------------


def critique_traces(
    config: CriticRunConfig, phase: str, step: int, episodes: Sequence[Episode], assigned: AssignedCredit
) -> list[dict[str, Any]]:
    """Traces of a step's first episodes, with the credit of each critique."""
    shown = episodes[: config.traces_per_step]
    return list(
        trace_rows(shown, phase=phase, step=step, split="train", critic="training", credit=assigned.of_segments)
    )


def training_batch(
    config: CriticRunConfig, phase: str, step: int, episodes: Sequence[Episode], groups: Groups,
    assigned: AssignedCredit, reaches: Reaches, *, metrics_of: CritiqueMetrics = measure,
) -> Batch:  # fmt: skip
    """A training step's rows, with their metrics, traces and warning signs.

    Args:
        episodes: scored.
        groups: of critiques.
        reaches: whether a critique does what is rewarded.
        metrics_of: the metrics of critique rounds.
    """
    critiques = [e.segments[i] for e in episodes for i in e.indices("critic")]
    refinements = [e.segments[i] for e in episodes for c in e.indices("critic") for i in e.children(c, "actor")]
    signs = [
        critique_signs(groups, critiques, reaches, assigned.baseline),
        graded_signs("answers", [e.segments[0] for e in episodes]),
        graded_signs("refinements", refinements),
    ]
    metrics = {
        **reward_metrics(groups),
        **flat_groups(groups, reaches),
        **step_metrics(episodes, metrics_of),
        **assigned.metrics,
    }
    traces = critique_traces(config, phase, step, episodes, assigned)
    return Batch(assigned.rows, metrics, traces, signs=signs)


def step_metrics(episodes: Sequence[Episode], metrics_of: CritiqueMetrics = measure) -> dict[str, float | None]:
    """The metrics of a training step's critiques, by their names in the log."""
    lengths = [len(e.segments[i].tokens) for e in episodes for i in e.indices("critic")]
    measured = {f"critique/{name}": value for name, value in metrics_of(episodes).items()}
    exhausted = measured.pop("critique/reply_exhausted")
    failed = measured["critique/grader_errors"]
    return {
        **measured,
        "length/mean": sum(lengths) / len(lengths) if lengths else None,
        "length/truncated": measured.pop("critique/truncated"),
        "grader/errors": failed,
        "grader/reply_exhausted": exhausted,
    }


# --- what may be asked ------------------------------------------------------------------------------------------------


def ask_critic(algorithm: CriticAlgorithm[C]) -> list[Conversation]:
    """Conversations of critique rounds with the critic."""
    return _conversations(algorithm, "critic")


def _conversations(algorithm: Algorithm[C], critic: str) -> list[Conversation]:
    run, roles, num_rounds = algorithm.run, algorithm.config.roles, algorithm.config.evaluation.num_rounds
    num_revised = num_rounds * (roles.critique.max_new_tokens + roles.refinement.max_new_tokens)
    written = roles.answer.max_new_tokens + num_revised
    return of_rounds(("actor", critic), run.prompts, run.questions, written, num_rounds)


# --- measuring --------------------------------------------------------------------------------------------------------


class CriticEvaluator(Evaluator[C]):
    """Measures greedy answer, critique and refinement, as the papers do: without a critic, then with each one."""

    def __init__(self, algorithm: Any) -> None:
        super().__init__(algorithm)
        self.greedy_answers: dict[str, Segment] = {}

    def read(self, episodes: Sequence[Episode]) -> list[Episode]:
        """The episodes, with whatever else a method reads from their texts."""
        return list(episodes)

    def metrics_of(self, episodes: Sequence[Episode]) -> Metrics:
        """The metrics of critique rounds."""
        return measure(episodes)

    def test_of(self, critics: Sequence[str]) -> Phase:
        """The phase of the final table: no critic, then each of `critics`."""
        return self.test([NO_CRITIC, *critics], begin=self.algorithm.keep_sft)

    @property
    def rows(self) -> tuple[str, ...]:
        snapshots = self.algorithm.spec.snapshots
        return (NO_CRITIC, *(row for policy, row in snapshots.items() if policy in self.run.loop.policies))

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        if name == NO_CRITIC:
            answers = self.greedy(tasks)
            return no_critic_metrics([is_right(answers[task.id]) for task in tasks if task.id in answers]), ()
        episodes = self.evaluated(tasks, name)
        row = self.algorithm.spec.snapshots[name]
        return self.metrics_of(episodes), list(trace_rows(episodes, critic=row, **labels))

    def validate(self, step: int, *, phase: str = "train") -> Batch:
        """One plain round, whatever the test will be: a checkpoint is chosen by what its stage learns."""
        tasks = self.measured_tasks("validation")
        episodes = self.evaluated(tasks, "critic", num_rounds=1, keep_right=False)
        traces = trace_rows(episodes[:50], phase=phase, step=step, split="validation", critic="training")
        return Batch(metrics=self.metrics_of(episodes), traces=list(traces))

    def evaluated(self, tasks: Sequence[Task], critic: str, **changed: Any) -> list[Episode]:
        """Greedy answer, critique and refinement of each task, as the paper evaluates.

        Args:
            changed: settings of the round other than the config's.
        """
        settings = self._protocol() | changed
        rounds = critique_rounds(self.algorithm, ("evaluation",), critic, greedy=True, **settings)
        groups = roll_out_rounds(self.run, rounds, tasks, self.greedy(tasks))
        return self.read([episode for group in groups for episode in group])

    def _protocol(self) -> dict[str, Any]:
        options = self.config.evaluation
        return {"num_rounds": options.num_rounds, "history": options.history, "keep_right": options.oracle_verifier}

    def greedy(self, tasks: Sequence[Task]) -> Mapping[str, Segment]:
        """The frozen actor's greedy answers by task id, sampled once."""
        missing = [task for task in tasks if task.id not in self.greedy_answers]
        if missing:
            rounds = critique_rounds(self.algorithm, ("evaluation",), "critic", greedy=True, num_critiques=0)
            # Counted with the episodes that they are part of: a resumed run samples them again.
            for group in roll_out_rounds(self.run, rounds, missing, is_counted=False):
                for episode in group:
                    if episode.outcome not in FAULTS:  # else the actor is asked again, as part of the episode
                        self.greedy_answers[episode.task.id] = episode.segments[0]
        return self.greedy_answers

    # --- `whet eval` --------------------------------------------------------------------------------------------------

    def targets(self, *, of_run: bool) -> tuple[str, ...]:
        critics = [name for name in self.algorithm.spec.snapshots if name in self.run.loop.policies]
        return (NO_CRITIC, *(critics or ["critic"]))

    def measure(self, name: str, settings: EvalSettings, *, of_run: bool) -> Measured:
        num_samples, num_refinements = settings.num_samples, settings.num_refinements
        options = self.config.evaluation
        check_scaling(settings, options.num_rounds)
        temperature = TEMPERATURE if settings.temperature is None else settings.temperature
        rounds = self._measured_rounds(name, settings, temperature)
        rolled_out = roll_out_rounds(self.run, rounds, self.measured_tasks(settings.split), num_samples=num_samples)
        episodes = [self.read(group) for group in rolled_out if len(group) == num_samples]
        every = [episode for group in episodes for episode in group]
        metrics = self.metrics_of(every)
        judgment = {**judgment_metrics(judged(every)), "acc_oracle": oracle_accuracy(exchanges(every))}
        record = {"critic": name, "evaluation": options.model_dump(), "judgment": judgment}
        if num_samples > 1:
            metrics = {**metrics, **measure_samples(episodes)}
            record["scaling"] = scaling(episodes)
        if num_refinements > 1:
            metrics = {**metrics, **measure_refinements(every)}
        row = self.algorithm.spec.snapshots.get(name, name)
        place = f"{row}-{settings.split}-k{num_samples}-r{options.num_rounds}"
        place += f"-m{num_refinements}" if num_refinements > 1 else ""
        place += f"-t{temperature:g}" if num_samples > 1 or num_refinements > 1 else ""
        place += f"-{options.history}" if options.num_rounds > 1 else ""
        place += "-oracle_verifier" if options.oracle_verifier else ""
        traces = trace_rows(every, phase="eval", step=0, split=settings.split, critic=row)
        return Measured(row, place, metrics, list(traces), record)

    def scaling_roles(self, name: str, temperature: float | None, *, of_run: bool, judged: bool) -> ScalingRoles:
        if isinstance(self.config.actor, ActorRule):
            raise ConfigError("strategies spend tokens, and actor.kind = rule writes none: take a model as the actor")
        if judged and name == NO_CRITIC:
            raise ConfigError(f"{NO_CRITIC} critiques nothing: choose strategies that need no critic, or a critic")
        heat = TEMPERATURE if temperature is None else temperature
        sampled, greedy = (self._measured_rounds(name, EvalSettings(num_samples=count), heat) for count in (2, 1))
        return ScalingRoles(self.algorithm.spec.snapshots.get(name, name), sampled, greedy)

    def _rule_critic(self, name: str) -> RuleCritic:
        critics = rule_critics(self.config.data.kind, self.run.prompts)
        if name not in critics:
            raise ConfigError(
                f"the rule critic {name!r} knows the tiny world only: choose {', '.join(critics)}, or one of the run's"
            )
        return critics[name]

    def _measured_rounds(self, name: str, settings: EvalSettings, temperature: float) -> CritiqueRound:
        """The round with the critic to measure, sampled by the settings."""
        options = self._protocol() | {"num_refinements": settings.num_refinements}
        make = partial(
            critique_rounds, self.algorithm, ("eval",), greedy=settings.num_samples == 1, temperature=temperature
        )
        if name in (*RULE_CRITICS, *TRIVIAL_CRITICS):
            rounds = replace(make("critic", **options), critic=self._rule_critic(name))
        elif name == NO_CRITIC:
            rounds = make("critic", num_critiques=0)
        elif name == SELF and isinstance(self.config.actor, ActorRule):
            raise ConfigError(
                "actor.kind = rule writes no critiques, so there is no --critic self: name another critic"
            )
        elif name == SELF:
            check_prompts(_conversations(self.algorithm, "actor"), self.run.loop.policies)
            rounds = make("actor", **options)
        elif name not in self.run.loop.policies or name == "actor":
            choices = ", ".join(
                [*(n for n in self.run.loop.policies if n != "actor"), NO_CRITIC, SELF, *RULE_CRITICS, *TRIVIAL_CRITICS]
            )
            raise ConfigError(f"there is no critic {name!r}; choose of: {choices}")
        else:
            rounds = make(name, **options)
        if settings.num_refinements == 1:
            return rounds
        reviser = actor_role(self.algorithm, self.config.roles.refinement, temperature=temperature)
        return replace(rounds, reviser=reviser)


def check_scaling(settings: EvalSettings, num_rounds: int) -> None:
    """Raises: ConfigError if several refinements are combined with several samples or rounds."""
    if settings.num_refinements > 1 and (settings.num_samples > 1 or num_rounds > 1):
        raise ConfigError(
            f"{settings.num_refinements} refinements of one answer are measured with one sample and one round: ask for "
            "more of the one, and then of the other"
        )
