"""What methods share in which a critic is in the loop of an agent: seats, the rounds, and how much a critic helps.

A method names the critics that it keeps (`kept`: policy name to row name) and yields its own training before `test`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

from whet.config import ConfigError
from whet.config.environments import AgentCriticRunConfig, RuleConfig
from whet.config.parts import SamplingConfig
from whet.credit.metrics import failures
from whet.envs import EnvError
from whet.methods.agent.base import AgentMethod
from whet.methods.agent.critique_rollout import AgentCritique
from whet.methods.agent.oracles import RULE_CRITICS, Experts, action_critic, rule_critic
from whet.methods.agent.review import Reviewer
from whet.methods.agent.revisions import no_critic_metrics, revision_metrics, revision_traces
from whet.methods.base import EvalSettings, Measured, Metrics, Skills, Traces, no_refinements
from whet.methods.critics import NO_CRITIC, SFT
from whet.methods.environment_tasks import ENVIRONMENT
from whet.methods.solvers import POLICY
from whet.models.prompts import Conversation
from whet.trainer.loop import Batch
from whet.types import Episode, Task

C = TypeVar("C", bound=AgentCriticRunConfig)
CRITIC, ORACLE = "critic", "oracle"
RENAMED = {
    "turns_attempt": "turns/mean", "invalid": "turns/invalid", "cut": "episodes/cut",
    "cut_by_horizon": "episodes/cut_by_horizon", "cut_by_context": "episodes/cut_by_context",
    "truncated": "length/truncated",
}  # fmt: skip
"""Of a step's metrics: those that other methods of agents have, too."""
UNREAD = 0.2
"""The share of reviews without a verdict from which on it is said."""


class AgentCriticMethod(AgentMethod[C]):
    """An agent makes an attempt, a critic critiques it, the agent makes another."""

    roles: ClassVar[tuple[str, ...]] = (POLICY, CRITIC)
    kept: ClassVar[Mapping[str, str]] = {SFT: "sft_critic"}
    skills: ClassVar[Skills] = {POLICY: {"act": "sampling"}, CRITIC: {"critique": "critique"}}
    is_worded: ClassVar[bool] = True

    @classmethod
    def final_policies(cls) -> tuple[str, ...]:
        """A critic that is trained is kept under another name; one that is not is no outcome before the agent."""
        return (CRITIC, POLICY, *cls.kept)

    # --- playing ------------------------------------------------------------------------------------------------------

    @cached_property
    def experts(self) -> Experts:
        """Raises: ConfigError where an environment has none."""
        try:
            return Experts(
                self.infos, self.config.data.settings, self.config.max_plan,
                retries=self.config.pool.retries, timeout_s=self.config.pool.timeout_s,
            )  # fmt: skip
        except EnvError as error:
            raise ConfigError(str(error)) from error

    def rounds(
        self, critic: str, *key: object, max_turns: int | None, greedy: bool = False, temperature: float | None = None,
        sampling: SamplingConfig | None = None, **settings: Any,
    ) -> Callable[..., Any]:  # fmt: skip
        """The flow of a task with one of the critics, by its environment.

        Args:
            critic: a policy or endpoint by its name, a rule, or no_critic.
            key: the first part of the seeds of what is sampled, after the run's own seed.
            temperature: of agent and critic, where not greedy. None: each one's own.
            sampling: of the agent. None: the run's.
            settings: of `AgentCritique`.
        """
        config, reviews = self.config, self.config.of == "action"
        if temperature is not None:
            sampling = (sampling or config.sampling).model_copy(update={"temperature": temperature})
        agents = self.agents(POLICY, *key, max_turns=max_turns, greedy=greedy, sampling=sampling, leaves=True)
        role = self._sitting(critic, greedy=greedy, temperature=temperature)
        if critic == NO_CRITIC or reviews:
            settings["num_critiques"] = 0
        if critic != NO_CRITIC and reviews:
            review = Reviewer(role, self.prompts, config.max_reviews, config.max_attempt)
            agents = {name: replace(agent, review=review) for name, agent in agents.items()}
        shared = {"again": config.again, "max_shown": config.max_attempt, "retries": self.runtime.retries()}
        made = {
            name: AgentCritique(agent=agent, critic=role, prompts=self.prompts, **(shared | settings))
            for name, agent in agents.items()
        }
        return lambda task, *, sample: made[task.info[ENVIRONMENT]](task, sample=sample)

    def _sitting(self, name: str, *, greedy: bool, temperature: float | None) -> Any:
        """Who critiques: a policy or endpoint by its name, or a rule, of attempts or of actions."""
        own = self.config.critic
        rule = own.name if name in (CRITIC, NO_CRITIC) and isinstance(own, RuleConfig) else name
        if rule in RULE_CRITICS:
            make = action_critic if self.config.of == "action" else rule_critic
            return make(rule, self.experts, self.prompts)
        policy = CRITIC if name == NO_CRITIC else name  # it is asked for nothing then
        return self.runtime.role(CRITIC, policy, self.config.critique, greedy=greedy, temperature=temperature)

    def episodes(self, rollout: Callable[..., Any], tasks: Sequence[Task], num_samples: int = 1) -> list[Episode]:
        """Of each task so many. What failed in one was played again on its own; see `AgentCritique`."""
        return self.runtime.roll_out([rollout(task, sample=i) for task in tasks for i in range(num_samples)])

    def step_metrics(self, episodes: Sequence[Episode], config: C) -> dict[str, float | None]:
        """Of a step of training."""
        found = {RENAMED.get(name, f"critique/{name}"): v for name, v in revision_metrics(episodes).items()}
        lengths = [len(e.segments[i].tokens) for e in episodes for i in e.indices(CRITIC)]
        return {
            **found,
            "turns/horizon": self.horizon(config),
            "length/mean": sum(lengths) / len(lengths) if lengths else None,
            **failures(episodes),
        }

    # --- measuring ----------------------------------------------------------------------------------------------------

    @property
    def oracles(self) -> list[str]:
        """The oracle, to hold a critic against that is none itself, where the environments have experts."""
        knows = all(info.expert is not None for info in self.infos.values())
        return [ORACLE] if knows and not self.config.is_by_rule else []

    @property
    def rows(self) -> tuple[str, ...]:
        own = [row for policy, row in self.kept.items() if policy in self.loop.policies] or [CRITIC]
        return (NO_CRITIC, *own, *self.oracles)

    def summary(self) -> dict[str, dict[str, Any]]:
        return self.logged({("test", step): name for step, name in enumerate(self.rows, 1)})

    def validate(self, step: int, *, phase: str = "train") -> Batch:
        labels: dict[str, Any] = {"phase": phase, "step": step, "split": "validation"}
        found, traces = self.compared(CRITIC, self.tasks["validation"], 1, label="training", **labels)
        return Batch(metrics=found, traces=traces[:50])

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        label = self.kept.get(name, name)
        return self.compared(name, tasks, self.config.evaluation.num_samples, label=label, **labels)

    def compared(
        self, name: str, tasks: Sequence[Task], num_samples: int, *, temperature: float | None = None, label: str,
        **labels: Any,
    ) -> tuple[Metrics, list[dict[str, Any]]]:  # fmt: skip
        """`revision_metrics` with one of the critics, or without any.

        Args:
            num_samples: episodes of each task: 1 is greedy.
        """
        rollout = self.rounds(
            name, "evaluation", max_turns=self.config.evaluation.max_turns, greedy=num_samples == 1,
            temperature=temperature,
        )  # fmt: skip
        episodes = self.episodes(rollout, tasks, num_samples)
        is_bare = name == NO_CRITIC or self.config.of == "action"
        found = (no_critic_metrics if is_bare else revision_metrics)(episodes)
        if (found["unread"] or 0) > UNREAD:
            self._tell_unread(label, found)
        if self.config.of == "action":
            cut = [replace(each, reason=_reason(each)) for each in episodes]
            return found, [self.trace(episode, label=label, **labels) for episode in cut]
        return found, list(revision_traces(episodes, critic=label, **labels))

    def _tell_unread(self, label: str, found: Metrics) -> None:
        text = (
            f"{label}: {found['unread']:.0%} of its reviews have no verdict that can be read, so that the action is "
            f"taken as it was; the prompts asks for a line that begins {self.prompts.verdict_line!r}: read some of them"
        )
        if self.run_context.trains:  # else the run is another's
            self.loop.folder.event("warning", "unread_reviews", text)
        self.loop.progress.tell("warning", text)

    def eval_targets(self, *, of_run: bool) -> tuple[str, ...]:
        own = [name for name in self.kept if name in self.loop.policies]
        return (NO_CRITIC, *(own or [CRITIC]), *self.oracles)

    def measure(self, name: str, settings: EvalSettings, *, of_run: bool) -> Measured:
        no_refinements(settings)
        if name not in (known := tuple(dict.fromkeys([*self.eval_targets(of_run=of_run), *RULE_CRITICS]))):
            raise ConfigError(f"there is no critic {name!r}; choose of: {', '.join(known)}")
        row, count, tasks = self.kept.get(name, name), settings.num_samples, self.tasks[settings.split]
        heat = settings.temperature if count > 1 else None
        labels: dict[str, Any] = {"phase": "eval", "step": 0, "split": settings.split, "label": row}
        metrics, traces = self.compared(name, tasks, count, temperature=heat, **labels)
        place = f"{row}-{settings.split}-n{len(tasks)}-k{count}" + (f"-t{heat:g}" if heat is not None else "")
        return Measured(row, place, metrics, traces, {"critic": name})

    # --- for the session ----------------------------------------------------------------------------------------------

    def conversations(self) -> list[Conversation]:
        """Of the critic, those about an attempt of one letter: a longer one is cut to what fits."""
        found = super().conversations()
        return [
            *found,
            *(
                Conversation(CRITIC, each.texts, lambda told: self.prompts.critique_messages(told, "a"), "",
                             self.config.critique.max_new_tokens)
                for each in found
            ),
        ]  # fmt: skip


def _reason(episode: Episode) -> str:
    """What its one attempt was cut by, as its end says; of one that failed, its own."""
    grade = episode.segments[-1].grade if episode.segments else None
    return grade.reason if grade is not None else episode.reason
