"""What methods share in which a critic is in the loop of an agent: roles, the rounds, and how much a critic helps.

A method names the critics that it freezes (`snapshots`: policy name to row name), and yields its own training before
the test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

from whet.config import ConfigError
from whet.config.environments import AgentCriticRunConfig, RuleConfig
from whet.config.parts import SamplingConfig
from whet.credit.metrics import failures
from whet.envs import EnvError
from whet.methods.agent.base import OF_PLAY, agent_spec
from whet.methods.agent.critique_rollout import AgentCritique
from whet.methods.agent.names import CRITIC, ORACLE
from whet.methods.agent.oracles import RULE_CRITICS, Experts, action_critic, rule_critic
from whet.methods.agent.review import Reviewer
from whet.methods.agent.revisions import no_critic_metrics, revision_metrics, revision_traces
from whet.methods.agent.rollouts import AgentRollouts
from whet.methods.base import Algorithm, MethodSpec, RunContext
from whet.methods.critics import NO_CRITIC, SFT
from whet.methods.environment_tasks import ENVIRONMENT
from whet.methods.evaluator import EvalSettings, Evaluator, Measured, Metrics, Traces, no_refinements
from whet.methods.names import POLICY
from whet.models.prompts import REPLY, Conversation
from whet.trainer.loop import Batch
from whet.types import Episode, Task

C = TypeVar("C", bound=AgentCriticRunConfig)
RENAMED = {
    "turns_attempt": "turns/mean",
    "invalid": "turns/invalid",
    "cut": "episodes/cut",
    "cut_by_horizon": "episodes/cut_by_horizon",
    "cut_by_context": "episodes/cut_by_context",
    "truncated": "length/truncated",
}
"""Names of a step's metrics that other methods of agents have, too."""
UNREAD = 0.2
"""A larger share of reviews without a verdict is warned of."""


class AgentCriticAlgorithm(Algorithm[C]):
    """An agent makes an attempt, a critic critiques it, the agent makes another."""

    evaluator: AgentCriticEvaluator[C]

    def __init__(self, config: C, run: RunContext) -> None:
        super().__init__(config, run)
        run.loop.continuing_gates = OF_PLAY
        self.rollouts = AgentRollouts(config, run)
        self.critiques = CritiqueRollouts(config, run, self.rollouts)


def agent_critic_spec(config: type[AgentCriticRunConfig], snapshots: Mapping[str, str], **overrides: Any) -> MethodSpec:
    """The spec of a method with a critic in the loop of an agent.

    Args:
        snapshots: the critics that a run freezes after the warm start, and their table rows.
        overrides: what differs, by fields of `MethodSpec`.
    """
    every = {SFT: "sft_critic", **snapshots}
    family: dict[str, Any] = {
        "roles": (POLICY, CRITIC),
        "evaluator": AgentCriticEvaluator,
        "snapshots": every,
        "uses_prompts": True,
        # A trained critic is frozen under another name; one that is not trained comes before the agent.
        "final_policies": (CRITIC, POLICY, *every),
        "conversations": ask_agent_and_critic,
        "skills": {POLICY: {"act": "sampling"}, CRITIC: {"critique": "critique"}},
    }
    return agent_spec(config, **(family | overrides))


def ask_agent_and_critic(algorithm: AgentCriticAlgorithm[C]) -> list[Conversation]:
    """Of the critic, those about an attempt of one letter: a longer one is cut to what fits."""
    conversations, run, limit = (
        algorithm.rollouts.conversations(),
        algorithm.run,
        algorithm.config.critique.max_new_tokens,
    )
    about = [
        Conversation(
            CRITIC, conversation.texts, lambda question: run.prompts.critique_messages(question, REPLY), "", limit
        )
        for conversation in conversations
    ]
    return [*conversations, *about]


class CritiqueRollouts:
    """Attempts, critiques and further attempts."""

    def __init__(self, config: AgentCriticRunConfig, run: RunContext, agents: AgentRollouts) -> None:
        self.config, self.run, self.agents = config, run, agents

    @cached_property
    def experts(self) -> Experts:
        """Raises: ConfigError where an environment has none."""
        try:
            return Experts(
                self.agents.infos,
                self.config.data.settings,
                self.config.max_plan,
                retries=self.config.pool.retries,
                timeout_s=self.config.pool.timeout_s,
            )
        except EnvError as error:
            raise ConfigError(str(error)) from error

    def rounds(
        self,
        critic: str,
        *key: object,
        max_turns: int | None,
        greedy: bool = False,
        temperature: float | None = None,
        sampling: SamplingConfig | None = None,
        **settings: Any,
    ) -> Callable[..., Any]:
        """The rollout function with one of the critics, by the task's environment.

        Args:
            critic: a policy or endpoint by its name, a rule, or no_critic.
            key: the first part of the sampling seeds, after the run's.
            temperature: where not greedy. None: each role's.
            sampling: of the agent. None: the run's.
            settings: of `AgentCritique`.
        """
        config, reviews = self.config, self.config.of == "action"
        if temperature is not None:
            sampling = (sampling or config.sampling).model_copy(update={"temperature": temperature})
        agents = self.agents.agents(POLICY, *key, max_turns=max_turns, greedy=greedy, sampling=sampling, leaves=True)
        role = self._critic_role(critic, greedy=greedy, temperature=temperature)
        if critic == NO_CRITIC or reviews:
            settings["num_critiques"] = 0
        if critic != NO_CRITIC and reviews:
            review = Reviewer(role, self.run.prompts, config.max_reviews, config.max_attempt)
            agents = {name: replace(agent, review=review) for name, agent in agents.items()}
        shared = {"again": config.again, "max_shown": config.max_attempt, "retries": self.run.runtime.retries()}
        made = {
            name: AgentCritique(agent=agent, critic=role, prompts=self.run.prompts, **(shared | settings))
            for name, agent in agents.items()
        }
        return lambda task, *, sample: made[task.info[ENVIRONMENT]](task, sample=sample)

    def _critic_role(self, name: str, *, greedy: bool, temperature: float | None) -> Any:
        """The role that critiques attempts or actions: a policy or endpoint by its name, or a rule."""
        critic = self.config.critic
        rule = critic.name if name in (CRITIC, NO_CRITIC) and isinstance(critic, RuleConfig) else name
        if rule in RULE_CRITICS:
            make = action_critic if self.config.of == "action" else rule_critic
            return make(rule, self.experts, self.run.prompts)
        policy = CRITIC if name == NO_CRITIC else name  # nothing asks it then
        return self.run.runtime.role(CRITIC, policy, self.config.critique, greedy=greedy, temperature=temperature)

    def episodes(self, rollout: Callable[..., Any], tasks: Sequence[Task], num_samples: int = 1) -> list[Episode]:
        """`num_samples` episodes of each task. What failed in one was retried on its own; see `AgentCritique`."""
        return self.run.runtime.roll_out(
            [partial(rollout, task, sample=i) for task in tasks for i in range(num_samples)]
        )

    def step_metrics(self, episodes: Sequence[Episode], config: AgentCriticRunConfig) -> dict[str, float | None]:
        """Of a step of training."""
        metrics = {RENAMED.get(name, f"critique/{name}"): v for name, v in revision_metrics(episodes).items()}
        lengths = [len(e.segments[i].tokens) for e in episodes for i in e.indices(CRITIC)]
        return {
            **metrics,
            "turns/horizon": self.agents.horizon(config),
            "length/mean": sum(lengths) / len(lengths) if lengths else None,
            **failures(episodes),
        }

    @property
    def oracles(self) -> list[str]:
        """The oracle, to compare other critics with, where the environments have experts."""
        knows = all(info.expert is not None for info in self.agents.infos.values())
        return [ORACLE] if knows and not self.config.is_by_rule else []


class AgentCriticEvaluator(Evaluator[C]):
    """Episodes without a critic, then with each one."""

    @property
    def rows(self) -> tuple[str, ...]:
        critics = [
            row for policy, row in self.algorithm.spec.snapshots.items() if policy in self.run.loop.policies
        ] or [CRITIC]
        return (NO_CRITIC, *critics, *self.algorithm.critiques.oracles)

    def validate(self, step: int, *, phase: str = "train") -> Batch:
        labels: dict[str, Any] = {"phase": phase, "step": step, "split": "validation"}
        metrics, traces = self.compared(CRITIC, self.run.tasks["validation"], 1, label="training", **labels)
        return Batch(metrics=metrics, traces=traces[:50])

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        label = self.algorithm.spec.snapshots.get(name, name)
        return self.compared(name, tasks, self.config.evaluation.num_samples, label=label, **labels)

    def compared(
        self,
        name: str,
        tasks: Sequence[Task],
        num_samples: int,
        *,
        temperature: float | None = None,
        label: str,
        **labels: Any,
    ) -> tuple[Metrics, list[dict[str, Any]]]:
        """`revision_metrics` with one of the critics, or without any.

        Args:
            num_samples: episodes of each task: 1 is greedy.
        """
        rollout = self.algorithm.critiques.rounds(
            name,
            "evaluation",
            max_turns=self.config.evaluation.max_turns,
            greedy=num_samples == 1,
            temperature=temperature,
        )
        episodes = self.algorithm.critiques.episodes(rollout, tasks, num_samples)
        is_bare = name == NO_CRITIC or self.config.of == "action"
        metrics = (no_critic_metrics if is_bare else revision_metrics)(episodes)
        if (metrics["unread"] or 0) > UNREAD:
            self._tell_unread(label, metrics)
        if self.config.of == "action":
            cut = [replace(episode, reason=_reason(episode)) for episode in episodes]
            return metrics, [self.algorithm.rollouts.trace(episode, label=label, **labels) for episode in cut]
        return metrics, list(revision_traces(episodes, critic=label, **labels))

    def _tell_unread(self, label: str, metrics: Metrics) -> None:
        text = (
            f"{label}: {metrics['unread']:.0%} of its reviews have no verdict that can be read, so that the action is "
            f"taken as it was; the prompts ask for a line that begins {self.run.prompts.verdict_line!r}: read some"
        )
        if self.run.trains:  # else the run is another's
            self.run.loop.folder.event("warning", "unread_reviews", text)
        self.run.loop.progress.tell("warning", text)

    def targets(self, *, of_run: bool) -> tuple[str, ...]:
        critics = [name for name in self.algorithm.spec.snapshots if name in self.run.loop.policies]
        return (NO_CRITIC, *(critics or [CRITIC]), *self.algorithm.critiques.oracles)

    def measure(self, name: str, settings: EvalSettings, *, of_run: bool) -> Measured:
        no_refinements(settings)
        if name not in (targets := tuple(dict.fromkeys([*self.targets(of_run=of_run), *RULE_CRITICS]))):
            raise ConfigError(f"there is no critic {name!r}; choose of: {', '.join(targets)}")
        row, count, tasks = (
            self.algorithm.spec.snapshots.get(name, name),
            settings.num_samples,
            self.run.tasks[settings.split],
        )
        heat = settings.temperature if count > 1 else None
        labels: dict[str, Any] = {"phase": "eval", "step": 0, "split": settings.split, "label": row}
        metrics, traces = self.compared(name, tasks, count, temperature=heat, **labels)
        place = f"{row}-{settings.split}-n{len(tasks)}-k{count}" + (f"-t{heat:g}" if heat is not None else "")
        return Measured(row, place, metrics, traces, {"critic": name})


def _reason(episode: Episode) -> str:
    """What its one attempt was cut by, as its end says; of one that failed, its own."""
    grade = episode.segments[-1].grade if episode.segments else None
    return grade.reason if grade is not None else episode.reason
