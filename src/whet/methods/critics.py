"""What methods with a critic share: seats, the critique round, warm start, validation, the test of every critic kept.

A method names the critics that it keeps (`kept`: policy name to row name) and yields its own training between
`warm_start()` and `test()`.
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
from whet.evaluation.benchmarks import judgment_metrics
from whet.evaluation.critique import no_critic_metrics
from whet.evaluation.protocol import is_right, judged, measure, trace_rows
from whet.evaluation.scaling import measure_refinements, measure_samples, scaling
from whet.methods.base import EvalSettings, Measured, Method, Metrics, RunContext, ScalingRoles, Skills, Traces
from whet.methods.warm_start import warm_start
from whet.models.prompts import Conversation, check_prompts, of_rounds
from whet.rollout.critique import CritiqueRound, RuleCritic
from whet.rollout.retries import broken_grade
from whet.rollout.roles import Role
from whet.rollout.rule_roles import RuleRole
from whet.tasks.demonstrators import demonstrator, examples_of
from whet.tasks.oracles import RULE_CRITICS, TRIVIAL_CRITICS, rule_critics
from whet.tasks.rule_actors import verdict_actor
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


class CriticMethod(Method[C]):
    """An actor answers, a critic critiques, the actor refines; the critic is trained."""

    roles: ClassVar[tuple[str, ...]] = ("actor", "critic")
    skills: ClassVar[Skills] = {
        "actor": {"answer": "roles.answer", "refine": "roles.refinement"},
        "critic": {"critique": "roles.critique"},
    }
    swappable: ClassVar[tuple[str, ...]] = ("actor",)
    kept: ClassVar[Mapping[str, str]] = {SFT: "sft_critic"}

    @classmethod
    def final_policies(cls) -> tuple[str, ...]:
        return ("critic", *cls.kept)

    def __init__(self, config: C, run_context: RunContext) -> None:
        super().__init__(config, run_context)
        self.greedy_answers: dict[str, Segment] = {}
        settings = config.warm_start
        self._warm_starts: list[Phase] = []
        if run_context.trains:  # made at once, so that what is wrong with their texts is said before the run begins
            shown = demonstrator(examples_of(settings), config.data, self.tasks, self.prompts)
            self.warnings += filter(None, [shown.warning])
            steps: dict[Literal["actor", "critic"], int] = {"critic": settings.critic_steps}
            if "actor" in self.loop.policies:  # an endpoint learns nothing
                steps = {"actor": settings.actor_steps, **steps}
            self._warm_starts = [warm_start(settings, each, self.loop, shown, role) for role, each in steps.items()]

    # --- phases -------------------------------------------------------------------------------------------------------

    def warm_start(self) -> Iterator[Phase]:
        """Of actor and critic."""
        yield from self._warm_starts

    def keep_sft(self) -> None:
        """For a phase to begin with: the critic as the warm start left it, kept from then on."""
        self.loop.freeze("critic", SFT)

    def trained(
        self, settings: TrainingConfig, collect: Callable[[int], Batch], updates: Callable[[int], Mapping[str, Update]],
        *, into: str, begin: Callable[[], None] | None = None, headline: tuple[str, ...],
    ) -> Iterator[Phase]:  # fmt: skip
        """The phases of a method with one stretch of training.

        Args:
            into: the critic of the best Acc@Refine in validation, which is kept.
            begin: before step 1. None: the warm start's critic is kept.
        """
        yield from self.warm_start()
        yield Phase(
            name="train",
            num_steps=settings.num_steps,
            collect=collect,
            updates=updates,
            begin=begin or self.keep_sft,
            validate=partial(self.validate, "train"),
            validate_every=settings.validate_every,
            select=Selection("critic", into, "validation/acc_refine"),
            main="critic",
            headline=headline,
        )
        yield self.tested_after([SFT, into])

    def tested_after(self, critics: Sequence[str]) -> Phase:
        """The final table: no critic, then every critic given."""
        return self.test([NO_CRITIC, *critics], begin=self.keep_sft)

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        if name == NO_CRITIC:
            found = self._greedy(tasks)
            return no_critic_metrics([is_right(found[task.id]) for task in tasks if task.id in found]), ()
        episodes = self.evaluated(tasks, name)
        return self.found_in(episodes), list(trace_rows(episodes, critic=self.kept[name], **labels))

    @property
    def rows(self) -> tuple[str, ...]:
        return (NO_CRITIC, *(row for policy, row in self.kept.items() if policy in self.loop.policies))

    # --- playing ------------------------------------------------------------------------------------------------------

    def rounds(
        self, key: Sequence[object], critic: str, *, greedy: bool, temperature: float | None = None, **settings: Any
    ) -> CritiqueRound:
        """The critique round with the run's actor and one of its critics.

        Args:
            key: the seeds' first part, after the run's own seed.
            temperature: of all roles, where not greedy. None: each role's own.
            settings: of the round.
        """
        roles, sampled = self.config.roles, {"greedy": greedy, "temperature": temperature}
        return CritiqueRound(
            prompts=self.prompts,
            actor=self.actor(roles.answer, **sampled),
            critic=self.runtime.role("critic", critic, roles.critique, **sampled),
            reviser=self.actor(roles.refinement, **sampled),
            key=(self.config.seed, *key),
            **settings,
        )

    def actor(self, settings: SamplingConfig, **sampled: Any) -> Role:
        """The actor's role: a model, an endpoint, or a rule of the tiny world.

        Args:
            sampled: as `Runtime.role` takes it.
        """
        who = self.config.actor
        if not isinstance(who, ActorRule):
            return self.runtime.role("actor", "actor", settings, **sampled)
        limit = Sampling(temperature=0.0, max_new_tokens=settings.max_new_tokens)
        data = self.config.data
        of_env = data.misconceptions if isinstance(data, ChainData) and who.misconceptions is None else None
        rule = verdict_actor(who.mend, who.spoil, who.misconceptions or of_env)
        return RuleRole("actor", rule, self.prompts, limit)

    def episodes(
        self,
        key: Sequence[object],
        tasks: Sequence[Task],
        *,
        answers: Mapping[str, Segment] | None = None,
        **settings: Any,
    ) -> list[Episode]:
        """One episode of each task, sampled, with the critic that is trained."""
        rounds = self.rounds(key, "critic", greedy=False, **settings)
        return self.read([e for group in self.episodes_of(rounds, tasks, answers) for e in group])

    def episodes_of(
        self,
        rounds: CritiqueRound,
        tasks: Sequence[Task],
        answers: Mapping[str, Segment] | None = None,
        *,
        num_samples: int = 1,
        is_counted: bool = True,
    ) -> list[list[Episode]]:
        """Episodes of each task, with the cached answers where there are any. A critique that failed, with what came of
        it, was played again on its own; what is lost for good is in no episode, nor an episode that is lost whole."""
        rounds = replace(rounds, retries=self.runtime.retries(is_counted=is_counted))
        which = [(task, sample) for task in tasks for sample in range(num_samples)]
        rollouts = [rounds(task, answer=(answers or {}).get(task.id), sample=i) for task, i in which]
        episodes = self.runtime.roll_out(rollouts, label="" if is_counted else "answers")
        groups = [episodes[at : at + num_samples] for at in range(0, len(episodes), num_samples)]
        return [[episode for episode in group if _is_there(episode)] for group in groups]

    def read(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Rounds as they were played, with whatever else a method reads of their texts."""
        return list(episodes)

    def traces(
        self, phase: str, step: int, episodes: Sequence[Episode], assigned: AssignedCredit
    ) -> list[dict[str, Any]]:
        """Of a step's first episodes, with what each critique earned."""
        shown = episodes[: self.config.traces_per_step]
        return list(
            trace_rows(shown, phase=phase, step=step, split="train", critic="training", credit=assigned.of_segments)
        )

    def collected(
        self,
        phase: str,
        step: int,
        episodes: Sequence[Episode],
        groups: Groups,
        assigned: AssignedCredit,
        reaches: Reaches,
    ) -> Batch:
        """A training step's rows, with what is logged, shown and watched of them.

        Args:
            episodes: paid.
            groups: of critiques.
            reaches: whether a critique does what is paid for.
        """
        critiques = [e.segments[i] for e in episodes for i in e.indices("critic")]
        refinements = [e.segments[i] for e in episodes for c in e.indices("critic") for i in e.children(c, "actor")]
        signs = [
            critique_signs(groups, critiques, reaches, assigned.baseline),
            graded_signs("answers", [e.segments[0] for e in episodes]),
            graded_signs("refinements", refinements),
        ]
        metrics = {
            **reward_metrics(groups), **flat_groups(groups, reaches), **self.step_metrics(episodes),
            **assigned.metrics,
        }  # fmt: skip
        return Batch(assigned.rows, metrics, self.traces(phase, step, episodes, assigned), signs=signs)

    # --- measuring ----------------------------------------------------------------------------------------------------

    def found_in(self, episodes: Sequence[Episode]) -> Metrics:
        """What critique rounds came to."""
        return measure(episodes)

    def step_metrics(self, episodes: Sequence[Episode]) -> dict[str, float | None]:
        """What a training step's critiques came to, by the names of the log."""
        lengths = [len(e.segments[i].tokens) for e in episodes for i in e.indices("critic")]
        measured = {f"critique/{name}": value for name, value in self.found_in(episodes).items()}
        exhausted = measured.pop("critique/reply_exhausted")
        failed = measured["critique/grader_errors"]
        return {
            **measured,
            "length/mean": sum(lengths) / len(lengths) if lengths else None,
            "length/truncated": measured.pop("critique/truncated"),
            "grader/errors": failed,
            "grader/reply_exhausted": exhausted,
        }

    def validate(self, phase: str, step: int) -> Batch:
        """One plain round whatever the test will be: a checkpoint is chosen by what its stage is to learn."""
        tasks = self.measured_tasks("validation")
        episodes = self.evaluated(tasks, "critic", num_rounds=1, keep_right=False)
        traces = trace_rows(episodes[:50], phase=phase, step=step, split="validation", critic="training")
        return Batch(metrics=self.found_in(episodes), traces=list(traces))

    def evaluated(self, tasks: Sequence[Task], critic: str, **changed: Any) -> list[Episode]:
        """Greedy answer, critique and refinement of each task, as the paper evaluates.

        Args:
            changed: settings of the round other than the config's.
        """
        protocol = self.rounds(("evaluation",), critic, greedy=True, **(self._protocol() | changed))
        return self.read([e for group in self.episodes_of(protocol, tasks, self._greedy(tasks)) for e in group])

    def _protocol(self) -> dict[str, Any]:
        options = self.config.evaluation
        return {"num_rounds": options.num_rounds, "history": options.history, "keep_right": options.oracle_verifier}

    def _greedy(self, tasks: Sequence[Task]) -> Mapping[str, Segment]:
        """The frozen actor's answers; made once."""
        missing = [task for task in tasks if task.id not in self.greedy_answers]
        if missing:
            rounds = self.rounds(("evaluation",), "critic", greedy=True, num_critiques=0)
            # Counted with the episodes that they are part of: a run that is resumed makes them anew.
            for group in self.episodes_of(rounds, missing, is_counted=False):
                for episode in group:
                    if episode.outcome not in FAULTS:  # else the actor is asked again, as part of the episode
                        self.greedy_answers[episode.task.id] = episode.segments[0]
        return self.greedy_answers

    # --- for the session and `whet eval` ------------------------------------------------------------------------------

    def conversations(self) -> list[Conversation]:
        return self._conversations("critic")

    def _conversations(self, critic: str) -> list[Conversation]:
        roles, rounds = self.config.roles, self.config.evaluation.num_rounds
        more = rounds * (roles.critique.max_new_tokens + roles.refinement.max_new_tokens)
        written = roles.answer.max_new_tokens + more
        return of_rounds(("actor", critic), self.prompts, self.questions, written, rounds)

    def eval_targets(self, *, of_run: bool) -> tuple[str, ...]:
        return (NO_CRITIC, *([name for name in self.kept if name in self.loop.policies] or ["critic"]))

    def measure(self, name: str, settings: EvalSettings, *, of_run: bool) -> Measured:
        num_samples, num_refinements = settings.num_samples, settings.num_refinements
        options = self.config.evaluation
        check_scaling(settings, options.num_rounds)
        temperature = TEMPERATURE if settings.temperature is None else settings.temperature
        rounds = self._measured_rounds(name, settings, temperature)
        rolled_out = self.episodes_of(rounds, self.measured_tasks(settings.split), num_samples=num_samples)
        episodes = [self.read(group) for group in rolled_out if len(group) == num_samples]
        every = [episode for group in episodes for episode in group]
        metrics = self.found_in(every)
        record = {"critic": name, "evaluation": options.model_dump(), "judgment": judgment_metrics(judged(every))}
        if num_samples > 1:
            metrics = {**metrics, **measure_samples(episodes)}
            record["scaling"] = scaling(episodes)
        if num_refinements > 1:
            metrics = {**metrics, **measure_refinements(every)}
        row = self.kept.get(name, name)
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
        return ScalingRoles(self.kept.get(name, name), sampled, greedy)

    def _rule_critic(self, name: str) -> RuleCritic:
        known = rule_critics(self.config.data.kind, self.prompts)
        if name not in known:
            raise ConfigError(
                f"the rule critic {name!r} knows the tiny world only: choose {', '.join(known)}, or one of the run's"
            )
        return known[name]

    def _measured_rounds(self, name: str, settings: EvalSettings, temperature: float) -> CritiqueRound:
        """The round with whoever is to sit in the critic's seat, sampled as asked for."""
        more = self._protocol() | {"num_refinements": settings.num_refinements}
        make = partial(self.rounds, ("eval",), greedy=settings.num_samples == 1, temperature=temperature)
        if name in (*RULE_CRITICS, *TRIVIAL_CRITICS):
            rounds = replace(make("critic", **more), critic=self._rule_critic(name))
        elif name == NO_CRITIC:
            rounds = make("critic", num_critiques=0)
        elif name == SELF and isinstance(self.config.actor, ActorRule):
            raise ConfigError(
                "actor.kind = rule writes no critiques, so there is no --critic self: name another critic"
            )
        elif name == SELF:
            check_prompts(self._conversations("actor"), self.loop.policies)
            rounds = make("actor", **more)
        elif name not in self.loop.policies or name == "actor":
            known = ", ".join(
                [*(n for n in self.loop.policies if n != "actor"), NO_CRITIC, SELF, *RULE_CRITICS, *TRIVIAL_CRITICS]
            )
            raise ConfigError(f"there is no critic {name!r}; choose of: {known}")
        else:
            rounds = make(name, **more)
        if settings.num_refinements == 1:
            return rounds
        reviser = self.actor(self.config.roles.refinement, temperature=temperature)
        return replace(rounds, reviser=reviser)


def _is_there(episode: Episode) -> bool:
    """False where it is lost, and no grading that failed in it is to be counted where it is measured."""
    return episode.outcome not in FAULTS or broken_grade(episode.segments) is not None


def check_scaling(settings: EvalSettings, num_rounds: int) -> None:
    """Raises: ConfigError where more is to be sampled in two ways at once."""
    if settings.num_refinements > 1 and (settings.num_samples > 1 or num_rounds > 1):
        raise ConfigError(
            f"{settings.num_refinements} refinements of one answer are measured with one sample and one round: ask for "
            "more of the one, and then of the other"
        )
