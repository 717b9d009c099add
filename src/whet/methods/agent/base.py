"""What methods share in which a policy acts in environments: their spec, how good it is, what is frozen of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from whet.config import ConfigError
from whet.config.environments import SCRIPTED_AGENTS, AgentRunConfig, ScriptedAgent
from whet.config.parts import SamplingConfig
from whet.evaluation.agents import agent_metrics, by_samples, by_turn, shares_of
from whet.methods.agent.names import ROWS
from whet.methods.agent.openings import Given
from whet.methods.agent.rollouts import AgentRollouts
from whet.methods.base import Algorithm, MethodSpec, RunContext
from whet.methods.environment_tasks import ENVIRONMENT
from whet.methods.evaluator import EvalSettings, Evaluator, Measured, Metrics, Traces, no_refinements
from whet.methods.names import BEST, POLICY
from whet.methods.report_specs import load_report
from whet.models.prompts import Conversation
from whet.rollout.agent import ITEM
from whet.rollout.environments import Environments
from whet.trainer.loop import Batch, Phase, Selection
from whet.types import FAULTS, Episode, Task

C = TypeVar("C", bound=AgentRunConfig)
BY_SUCCESS = Selection(POLICY, BEST, "validation/success")
"""Keeps the weights of the best success in validation."""
BY_SUCCESS_OR_LATER = replace(BY_SUCCESS, takes_later_at_zero=True)
"""Of weights that imitate."""
OF_RUN = {"after": BEST, "last": POLICY}
"""What `whet eval` measures of a run."""
SHARE = "share"
"""In a trace of a test or validation item: the share of its episodes that succeeded."""
OF_PLAY = ("max_turns", "sampling")
"""Settings whose steps count the rollouts, from phase to phase."""


class AgentAlgorithm(Algorithm[C]):
    """A policy acts in environments."""

    evaluator: AgentEvaluator[C]

    def __init__(self, config: C, run: RunContext) -> None:
        super().__init__(config, run)
        self.rollouts = AgentRollouts(config, run, self.read_given)
        run.loop.continuing_gates = OF_PLAY

    def read_given(self) -> Given:
        """The trajectories of files that the run learns, and that its rollouts open like. Base: none."""
        return Given()

    def say_openings(self) -> None:
        """Notes how episodes open, and warns where rollouts and trajectories differ."""
        notes, warnings = self.rollouts.openings.remarks(reads_rules=self.rollouts.reads_rules(POLICY))
        self.run.info.extend(notes)
        self.run.warnings.extend(warnings)


def agent_spec(config: type[AgentRunConfig], **overrides: Any) -> MethodSpec:
    """The spec of a method whose policy acts in environments.

    Args:
        overrides: what differs, by fields of `MethodSpec`.
    """
    family: dict[str, Any] = {
        "roles": (POLICY,),
        "evaluator": AgentEvaluator,
        "final_policies": (POLICY, BEST),
        "report": load_report("agent"),
        "skills": {POLICY: {"act": "sampling"}},
        "conversations": ask_agent,
        "uses_prompts": False,
        "environments": environments_of,
    }
    return MethodSpec(config=config, **(family | overrides))


def environments_of(config: AgentRunConfig) -> Environments:
    pool = config.pool
    return Environments(
        capacity=pool.capacity,
        timeout_s=pool.timeout_s,
        retries=pool.retries,
        max_observation_chars=pool.max_observation_chars,
        close_timeout_s=pool.close_timeout_s,
    )


def ask_agent(algorithm: AgentAlgorithm[C]) -> list[Conversation]:
    """First turns, which grow from turn to turn."""
    return algorithm.rollouts.conversations()


class AgentEvaluator(Evaluator[C]):
    """Episodes of the policy: before training, with the best weights, with the last ones."""

    measures = ROWS

    @property
    def rollouts(self) -> AgentRollouts:
        rollouts: AgentRollouts = self.algorithm.rollouts
        return rollouts

    def before(self) -> Phase:
        return self.test(["before"], phase="before")

    def after(self) -> Phase:
        """Where no phase has learnt anything, the best weights are those that the run began with."""
        return self.test(["after", "last"], phase="after", begin=self._keep_best)

    def _keep_best(self) -> None:
        self.run.loop.freeze(POLICY, BEST)

    def summary(self) -> dict[str, dict[str, Any]]:
        return self.logged({("before", 1): "before", ("after", 1): "after", ("after", 2): "last"})

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        return self.measured(tasks, ROWS[name], self.config.evaluation.num_samples, label=name, **labels)

    def measured(
        self,
        tasks: Sequence[Task],
        policy: str,
        num_samples: int,
        *,
        sampling: SamplingConfig | None = None,
        greedy: bool | None = None,
        label: str,
        **labels: Any,
    ) -> tuple[Metrics, list[dict[str, Any]]]:
        """`agent_metrics` of a policy, also by environment and by published subgroup where there are several. Also the
        share of successes by turn (`success@5`), and for several episodes of each task `pass@1`, `pass@2`, ...

        Args:
            num_samples: episodes of each task.
            greedy: None: where there is one episode of each.
        Returns: the metrics, and a trace of each task's first episode, with the task's share of successes (`SHARE`)
            where there are several.
        """
        rollout = self.rollouts.rollout(
            policy,
            "evaluation",
            max_turns=self.config.evaluation.max_turns,
            greedy=num_samples == 1 if greedy is None else greedy,
            sampling=sampling,
        )
        groups = self.run.runtime.by_task(rollout, tasks, num_samples=num_samples)
        shares = shares_of(groups, self.rollouts.above)
        traces = [self.rollouts.trace(group[0], label=label, **labels) for group in groups]
        if num_samples > 1:  # of one episode the trace's score says it
            traces = [trace | {SHARE: share} for trace, share in zip(traces, shares, strict=True)]
        return self._numbers(groups), traces

    def by_rule(
        self, player: ScriptedAgent, tasks: Sequence[Task], num_samples: int, *, label: str, **labels: Any
    ) -> tuple[Metrics, list[dict[str, Any]]]:
        """As `measured`, of an agent by rule."""
        groups = self.rollouts.scripted_episodes(player, tasks, num_samples)
        return self._numbers(groups), [self.rollouts.trace(group[0], label=label, **labels) for group in groups]

    def _numbers(self, groups: Sequence[Sequence[Episode]]) -> Metrics:
        limit = self.config.evaluation.max_turns
        metrics = dict(agent_metrics(groups, self.rollouts.above))
        metrics |= self._by_part(groups)
        metrics |= by_samples(groups, self.rollouts.above)
        most = limit or max(info.max_turns for info in self.rollouts.infos.values())
        shares = by_turn([e for group in groups for e in group if e.outcome not in FAULTS], self.rollouts.above, most)
        return metrics | {f"success@{turn}": share for turn, share in enumerate(shares, 1)}

    def _by_part(self, groups: Sequence[Sequence[Episode]]) -> Metrics:
        parts: dict[str, list[Sequence[Episode]]] = defaultdict(list)
        several = len(self.rollouts.infos) > 1
        for group in groups:
            task = group[0].task
            info = self.rollouts.infos[str(task.info[ENVIRONMENT])]
            if several:
                parts[info.name].append(group)
            if info.group is not None:
                parts[f"{info.name}, {info.group(task.info[ITEM])}"].append(group)
        metrics: dict[str, float | None] = {}
        for part, part_groups in parts.items():
            numbers = agent_metrics(part_groups, self.rollouts.above)
            metrics |= {f"{key}[{part}]": numbers[key] for key in ("success", "success_low", "success_high", "n")}
        return metrics

    def validate(self, step: int, *, phase: str = "train") -> Batch:
        tasks = self.run.tasks["validation"]
        count = self.config.evaluation.validation_samples
        metrics, traces = self.measured(
            tasks, POLICY, count, phase=phase, step=step, split="validation", label="training"
        )
        reported = {
            name: value for name, value in metrics.items() if value is not None and not name.startswith("success@")
        }
        return Batch(metrics=reported, traces=traces[:50])

    # --- `whet eval` --------------------------------------------------------------------------------------------------

    def targets(self, *, of_run: bool) -> tuple[str, ...]:
        """`after` once a validation has chosen one; and those that act by rule, to compare with."""
        policies = (
            tuple(name for name, policy in OF_RUN.items() if policy in self.run.loop.policies) if of_run else (POLICY,)
        )
        return (
            *policies,
            *(
                player
                for player in SCRIPTED_AGENTS
                if player != "expert" or all(i.expert for i in self.rollouts.infos.values())
            ),
        )

    def measure(self, name: str, settings: EvalSettings, *, of_run: bool) -> Measured:
        no_refinements(settings)
        if name not in (targets := self.targets(of_run=of_run)):
            raise ConfigError(f"there is no {name!r} to measure; choose of: {', '.join(targets)}")
        labels: dict[str, Any] = {"phase": "eval", "step": 0, "split": settings.split, "label": name}
        tasks, count = self.measured_tasks(settings.split), settings.num_samples
        place = f"{name}-{settings.split}-n{len(tasks)}-k{count}"
        if name in SCRIPTED_AGENTS:
            metrics, traces = self.by_rule(name, tasks, count, **labels)
            return Measured(name, place, metrics, traces, {"policy": name})
        sampling = self.config.sampling
        if settings.temperature is not None:
            sampling = sampling.model_copy(update={"temperature": settings.temperature})
        is_greedy = count == 1 and not settings.temperature
        place += "" if is_greedy else f"-t{sampling.temperature:g}"
        policy = OF_RUN[name] if of_run else name
        metrics, traces = self.measured(tasks, policy, count, sampling=sampling, greedy=is_greedy, **labels)
        return Measured(name, place, metrics, traces, {"policy": name})
