"""Shared by methods in which one policy answers alone: its role, phases, traces and evaluation.

`solve_metrics` measures one greedy reply to each problem, and k sampled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, TypeVar

from whet.config import ConfigError
from whet.config.parts import SamplingConfig
from whet.config.runs import PolicyRunConfig, TrainingConfig
from whet.credit.assignment import AssignedCredit
from whet.credit.rewards import ScoredSegment
from whet.evaluation.critique import average_at_k, majority_at_k, pass_at_k
from whet.evaluation.protocol import is_right, num_exhausted
from whet.methods.base import Algorithm, MethodSpec
from whet.methods.evaluator import EvalSettings, Evaluator, Measured, Metrics, ScalingRoles, Traces, no_refinements
from whet.methods.names import BEST, POLICY
from whet.methods.report_specs import load_report
from whet.models.prompts import Conversation, check_prompts, of_rounds
from whet.rollout.critique import CritiqueRound
from whet.rollout.solve import Solve
from whet.trainer.loop import Batch, Phase, Selection
from whet.trainer.terms import Update
from whet.types import FAULTS, Episode, Segment, Task

C = TypeVar("C", bound=PolicyRunConfig)
ROWS = {"before": POLICY, "best": BEST, "last": POLICY}
"""The rows of the final table, and the policy that each measures."""
OF_RUN = {"best": BEST, "last": POLICY}
"""What `whet eval` measures of a run, and the policy behind each name."""
BY_BEST = Selection(POLICY, BEST, "validation/acc")
"""Keeps the weights of the best validation accuracy."""


class PolicyAlgorithm(Algorithm[C]):
    """A policy answers, a grader grades; the policy is trained between `evaluator.before()` and `evaluator.after()`."""

    evaluator: PolicyEvaluator[C]


def solve_rollout(
    algorithm: Algorithm[C], policy: str, *key: object, greedy: bool = False, sampling: SamplingConfig | None = None
) -> Solve:
    """A policy as solver.

    Args:
        key: the first part of the seeds, after the run's seed.
        sampling: None: the run's.
    """
    run, config = algorithm.run, algorithm.config
    role = run.runtime.policy_role("solver", policy, sampling or config.sampling, greedy=greedy)
    return Solve(run.prompts, role, (config.seed, *key))


def training_phases(
    algorithm: PolicyAlgorithm[C],
    settings: TrainingConfig,
    collect: Callable[[int], Batch],
    updates: Callable[[int], Mapping[str, Update]],
    *,
    headline: tuple[str, ...],
) -> Iterator[Phase]:
    """The phases of a method with one stretch of training."""
    evaluator = algorithm.evaluator
    yield evaluator.before()
    yield Phase(
        name="train",
        num_steps=settings.num_steps,
        collect=collect,
        updates=updates,
        validate=evaluator.validate,
        validate_every=settings.validate_every,
        select=BY_BEST,
        main=POLICY,
        headline=headline,
    )
    yield evaluator.after()


def reply_traces(
    config: PolicyRunConfig,
    step: int,
    groups: Sequence[Sequence[ScoredSegment]],
    assigned: AssignedCredit,
    *,
    phase: str = "train",
) -> list[dict[str, Any]]:
    """Traces of the first problems: every reply with its reward and its mean credit a token."""
    return [
        trace(scored.episode.task, scored.segment, phase=phase, step=step, split="train", label="training")
        | {"reward": scored.reward, "credit": assigned.of_segments.get(scored.segment.seed)}
        for group in groups[: config.traces_per_step]
        for scored in group
    ]


def ask_policy(algorithm: Algorithm[C]) -> list[Conversation]:
    """The conversations in which the policy gets the questions."""
    run = algorithm.run
    prompts, max_new_tokens = run.prompts, algorithm.config.sampling.max_new_tokens
    return [Conversation(POLICY, run.questions, prompts.solve_messages, prompts.solve_prefill, max_new_tokens)]


class PolicyEvaluator(Evaluator[C]):
    """Measures one greedy reply to each problem, and samples: before training, with the best and the last weights."""

    of_run: Mapping[str, str] = OF_RUN
    measures = ROWS

    def before(self) -> Phase:
        return self.test(["before"], phase="before")

    def after(self) -> Phase:
        return self.test(["best", "last"], phase="after")

    def summary(self) -> dict[str, dict[str, Any]]:
        return self.logged({("before", 1): "before", ("after", 1): "best", ("after", 2): "last"})

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        return self.measured(tasks, ROWS[name], num_samples=self.config.evaluation.num_samples, label=name, **labels)

    def measured(
        self,
        tasks: Sequence[Task],
        policy: str,
        *,
        num_samples: int = 0,
        sampling: SamplingConfig | None = None,
        **labels: Any,
    ) -> tuple[Metrics, list[dict[str, Any]]]:
        """`solve_metrics` of a policy: one greedy reply a task, and `num_samples` sampled ones.

        Args:
            labels: for `trace`.
        Returns: the metrics, and a trace of each greedy reply.
        """
        rollout, by_task = partial(solve_rollout, self.algorithm, policy, "evaluation"), self.run.runtime.by_task
        greedy = [group[0] for group in by_task(rollout(greedy=True), tasks)]
        sampled = by_task(rollout(sampling=sampling), tasks, num_samples=num_samples) if num_samples else []
        traces = [trace(episode.task, episode.segments[0], **labels) for episode in greedy if episode.segments]
        return solve_metrics(greedy, sampled), traces

    def validate(self, step: int, *, phase: str = "train") -> Batch:
        tasks = self.measured_tasks("validation")
        metrics, traces = self.measured(tasks, POLICY, phase=phase, step=step, split="validation", label="training")
        metrics = {name: value for name, value in metrics.items() if value is not None and name != "k"}
        return Batch(metrics=metrics, traces=traces[:50])

    # --- `whet eval` --------------------------------------------------------------------------------------------------

    def targets(self, *, of_run: bool) -> tuple[str, ...]:
        """`best`, once a validation has chosen it, and `last`."""
        targets = tuple(name for name, policy in self.of_run.items() if policy in self.run.loop.policies)
        return targets if of_run else (POLICY,)

    def best_target(self, *, of_run: bool) -> str:
        return self.targets(of_run=of_run)[0]

    def measure(self, name: str, settings: EvalSettings, *, of_run: bool) -> Measured:
        no_refinements(settings)
        policy = self._policy_of(name, of_run=of_run)
        sampling = self.config.sampling
        if settings.num_samples > 1 and settings.temperature is not None:
            sampling = sampling.model_copy(update={"temperature": settings.temperature})
        tasks = self.measured_tasks(settings.split)
        count = settings.num_samples if settings.num_samples > 1 else 0
        labels = {"phase": "eval", "step": 0, "split": settings.split, "label": name}
        metrics, traces = self.measured(tasks, policy, num_samples=count, sampling=sampling, **labels)
        place = f"{name}-{settings.split}-n{len(tasks)}-k{settings.num_samples}"
        place += f"-t{sampling.temperature:g}" if count else ""
        return Measured(name, place, metrics, traces, {"policy": name})

    def scaling_roles(self, name: str, temperature: float | None, *, of_run: bool, judged: bool) -> ScalingRoles:
        """The policy in every role: it critiques its answers."""
        policy, sampling, run = self._policy_of(name, of_run=of_run), self.config.sampling, self.run
        if judged:
            written = 3 * sampling.max_new_tokens
            check_prompts(of_rounds((policy, policy), run.prompts, run.questions, written), run.loop.policies)

        def rounds(*, greedy: bool) -> CritiqueRound:
            actor, critic = (
                run.runtime.policy_role(role, policy, sampling, greedy=greedy, temperature=temperature)
                for role in ("actor", "critic")
            )
            return CritiqueRound(run.prompts, actor, critic, actor, key=(self.config.seed, "evaluation"))

        return ScalingRoles(name, rounds(greedy=False), rounds(greedy=True))

    def _policy_of(self, name: str, *, of_run: bool) -> str:
        """Raises: ConfigError if no policy has that name."""
        policies = {target: self.of_run[target] if of_run else target for target in self.targets(of_run=of_run)}
        if name not in policies:
            is_late = of_run and name in self.of_run
            why = "no validation has chosen it yet" if is_late else "the run has none of that name"
            raise ConfigError(f"there is no policy {name!r} to measure, as {why}; choose of: {', '.join(policies)}")
        return policies[name]


def solver_spec(config: type[PolicyRunConfig], **fields: Any) -> MethodSpec:
    """The spec of a method whose policy answers questions.

    Args:
        fields: what differs from the family, by fields of `MethodSpec`.
    """
    family: dict[str, Any] = {
        "roles": (POLICY,),
        "evaluator": PolicyEvaluator,
        "final_policies": (POLICY, BEST),
        "report": load_report("solve"),
        "skills": {POLICY: {"answer": "sampling"}},
        "conversations": ask_policy,
    }
    return MethodSpec(config=config, **(family | fields))


def trace(task: Task, segment: Segment, *, phase: str, step: int, split: str, label: str) -> dict[str, Any]:
    """The trace of a reply, for the report.

    Args:
        label: a row of the final table, or `training`.
    """
    return {
        "phase": phase,
        "step": step,
        "split": split,
        "policy": label,
        "task": task.id,
        "question": task.prompt,
        "reference": task.answer,
        "answer": segment.text,
        "answer_score": segment.grade.score if segment.grade else None,
        "stop": {"answer": segment.stop_reason},
        "outcome": "ok" if segment.grade is None or segment.grade.score is not None else "grader_error",
    }


def solve_metrics(greedy: Sequence[Episode], sampled: Sequence[Sequence[Episode]] = ()) -> Metrics:
    """Metrics of replies. A problem with a failed grading is left out of that metric, and counted.

    Args:
        greedy: one episode per problem.
        sampled: k episodes per problem. Empty: `average`, `pass` and `majority` are None.
    Returns: `acc`; `average`, `pass` (at k), `majority` (of k); `truncated`, `length` (tokens); `n` (problems),
        `k`, `grader_errors`, `reply_exhausted`.
    """
    graded = [e.segments[0] for e in greedy if e.outcome not in FAULTS]
    groups = [[e.segments[0] for e in group] for group in sampled if all(e.outcome not in FAULTS for e in group)]
    rights = [[is_right(segment) for segment in group] for group in groups]
    votes = [[segment.grade.extracted if segment.grade else None for segment in group] for group in groups]
    episodes = [*greedy, *(episode for group in sampled for episode in group)]
    replies = [episode.segments[0] for episode in episodes if episode.segments]
    return {
        "acc": fmean(map(is_right, graded)) if graded else None,
        "average": average_at_k(rights),
        "pass": pass_at_k(rights),
        "majority": majority_at_k(votes, rights),
        "truncated": fmean(s.stop_reason == "length" for s in replies) if replies else None,
        "length": fmean(len(s.tokens) for s in replies) if replies else None,
        "n": float(len(greedy)),
        "k": float(len(sampled[0])) if sampled else 0.0,
        "grader_errors": float(sum(episode.outcome in FAULTS for episode in episodes)),
        "reply_exhausted": float(num_exhausted(episodes)),
    }
