"""What methods share in which one policy answers alone: its seat, graded replies, and how good it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from whet.config import ConfigError
from whet.config.parts import SamplingConfig
from whet.config.runs import PolicyRunConfig, TrainingConfig
from whet.credit.assignment import AssignedCredit
from whet.credit.rewards import ScoredSegment
from whet.evaluation.solve import solve_metrics
from whet.methods.base import EvalSettings, Measured, Method, Metrics, ScalingRoles, Skills, Traces, no_refinements
from whet.models.prompts import Conversation, check_prompts, of_rounds
from whet.rollout.critique import CritiqueRound
from whet.rollout.solve import Solve
from whet.trainer.loop import Batch, Phase, Selection
from whet.trainer.terms import Update
from whet.types import Segment, Task

C = TypeVar("C", bound=PolicyRunConfig)
POLICY, BEST = "policy", "policy_best"
"""The policy that is trained, and its weights of the best validation."""
ROWS = {"before": POLICY, "best": BEST, "last": POLICY}
"""Rows of the final table, and the policy that each measures."""
OF_RUN = {"best": BEST, "last": POLICY}
BY_BEST = Selection(POLICY, BEST, "validation/acc")


class PolicyMethod(Method[C]):
    """A policy answers, a grader grades; the policy is trained between `before()` and `after()`."""

    roles: ClassVar[tuple[str, ...]] = (POLICY,)
    skills: ClassVar[Skills] = {POLICY: {"answer": "sampling"}}
    of_run: ClassVar[Mapping[str, str]] = OF_RUN
    """What `whet eval` measures of a run, and the policy behind each name."""

    @classmethod
    def final_policies(cls) -> tuple[str, ...]:
        return (POLICY, BEST)

    def rollout(self, policy: str, *key: object, greedy: bool = False, sampling: SamplingConfig | None = None) -> Solve:
        """A policy as solver.

        Args:
            key: the first part of the seeds of what is sampled, after the run's own seed.
            sampling: None: the run's.
        """
        role = self.runtime.policy_role("solver", policy, sampling or self.config.sampling, greedy=greedy)
        return Solve(self.prompts, role, (self.config.seed, *key))

    # --- phases -------------------------------------------------------------------------------------------------------

    def before(self) -> Phase:
        return self.test(["before"], phase="before")

    def after(self) -> Phase:
        return self.test(["best", "last"], phase="after")

    def trained(
        self, settings: TrainingConfig, collect: Callable[[int], Batch], updates: Callable[[int], Mapping[str, Update]],
        *, headline: tuple[str, ...],
    ) -> Iterator[Phase]:  # fmt: skip
        """The phases of a method with one stretch of training."""
        yield self.before()
        yield Phase(
            name="train",
            num_steps=settings.num_steps,
            collect=collect,
            updates=updates,
            validate=self.validate,
            validate_every=settings.validate_every,
            select=BY_BEST,
            main=POLICY,
            headline=headline,
        )
        yield self.after()

    def summary(self) -> dict[str, dict[str, Any]]:
        return self.logged({("before", 1): "before", ("after", 1): "best", ("after", 2): "last"})

    # --- measuring ----------------------------------------------------------------------------------------------------

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        return self.measured(tasks, ROWS[name], num_samples=self.config.evaluation.num_samples, label=name, **labels)

    def measured(
        self, tasks: Sequence[Task], policy: str, *, num_samples: int = 0, sampling: SamplingConfig | None = None,
        **labels: Any,
    ) -> tuple[Metrics, list[dict[str, Any]]]:  # fmt: skip
        """`solve_metrics` of a policy: one greedy reply a task, and `num_samples` sampled ones.

        Args:
            labels: for `trace`.
        Returns: the metrics, and a trace of each greedy reply.
        """
        greedy = [group[0] for group in self.runtime.by_task(self.rollout(policy, "evaluation", greedy=True), tasks)]
        rollout = self.rollout(policy, "evaluation", sampling=sampling)
        sampled = self.runtime.by_task(rollout, tasks, num_samples=num_samples) if num_samples else []
        return solve_metrics(greedy, sampled), [trace(e.task, e.segments[0], **labels) for e in greedy if e.segments]

    def validate(self, step: int, *, phase: str = "train") -> Batch:
        tasks = self.measured_tasks("validation")
        found, traces = self.measured(tasks, POLICY, phase=phase, step=step, split="validation", label="training")
        kept = {name: value for name, value in found.items() if value is not None and name not in ("n", "k")}
        return Batch(metrics=kept, traces=traces[:50])

    def traces(
        self, step: int, groups: Sequence[Sequence[ScoredSegment]], assigned: AssignedCredit, *, phase: str = "train"
    ) -> list[dict[str, Any]]:
        """Of the first problems, every reply with its reward and its mean credit a token."""
        return [
            trace(scored.episode.task, scored.segment, phase=phase, step=step, split="train", label="training")
            | {"reward": scored.reward, "credit": assigned.of_segments.get(scored.segment.seed)}
            for group in groups[: self.config.traces_per_step]
            for scored in group
        ]

    # --- for the session and `whet eval` ------------------------------------------------------------------------------

    def conversations(self) -> list[Conversation]:
        prompts, written = self.prompts, self.config.sampling.max_new_tokens
        return [Conversation(POLICY, self.questions, prompts.solve_messages, prompts.solve_prefill, written)]

    def eval_targets(self, *, of_run: bool) -> tuple[str, ...]:
        """`best` once a validation has chosen one."""
        kept = tuple(name for name, policy in self.of_run.items() if policy in self.loop.policies)
        return kept if of_run else (POLICY,)

    def measure(self, name: str, settings: EvalSettings, *, of_run: bool) -> Measured:
        no_refinements(settings)
        policy = self._policy_of(name, of_run=of_run)
        sampling = self.config.sampling
        if settings.num_samples > 1 and settings.temperature is not None:
            sampling = sampling.model_copy(update={"temperature": settings.temperature})
        tasks = self.measured_tasks(settings.split)
        count = settings.num_samples if settings.num_samples > 1 else 0
        metrics, traces = self.measured(
            tasks, policy, num_samples=count, sampling=sampling, phase="eval", step=0, split=settings.split,
            label=name,
        )  # fmt: skip
        place = f"{name}-{settings.split}-n{len(tasks)}-k{settings.num_samples}"
        place += f"-t{sampling.temperature:g}" if count else ""
        return Measured(name, place, metrics, traces, {"policy": name})

    def best_eval_target(self, *, of_run: bool) -> str:
        return self.eval_targets(of_run=of_run)[0]

    def scaling_roles(self, name: str, temperature: float | None, *, of_run: bool, judged: bool) -> ScalingRoles:
        """The policy in every seat: its own critic."""
        policy, sampling = self._policy_of(name, of_run=of_run), self.config.sampling
        if judged:
            written = 3 * sampling.max_new_tokens
            check_prompts(of_rounds((policy, policy), self.prompts, self.questions, written), self.loop.policies)

        def rounds(*, greedy: bool) -> CritiqueRound:
            actor, critic = (
                self.runtime.policy_role(role, policy, sampling, greedy=greedy, temperature=temperature)
                for role in ("actor", "critic")
            )
            return CritiqueRound(self.prompts, actor, critic, actor, key=(self.config.seed, "evaluation"))

        return ScalingRoles(name, rounds(greedy=False), rounds(greedy=True))

    def _policy_of(self, name: str, *, of_run: bool) -> str:
        """Raises: ConfigError where there is none of that name."""
        known = {each: self.of_run[each] if of_run else each for each in self.eval_targets(of_run=of_run)}
        if name not in known:
            is_late = of_run and name in self.of_run
            why = "no validation has chosen it yet" if is_late else "the run has none of that name"
            raise ConfigError(f"there is no policy {name!r} to measure, as {why}; choose of: {', '.join(known)}")
        return known[name]


def trace(task: Task, segment: Segment, *, phase: str, step: int, split: str, label: str) -> dict[str, Any]:
    """What the report shows of a reply.

    Args:
        label: whose weights wrote it: a row of the final table, or `training`.
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
