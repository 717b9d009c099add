"""How the policy of an agent's method acts in its environments, and which items it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from random import Random
from statistics import fmean
from typing import Any

from whet.config import ConfigError
from whet.config.environments import AgentRunConfig, ScriptedAgent
from whet.config.parts import SamplingConfig
from whet.credit.metrics import failures
from whet.envs import EnvError, EnvironmentInfo
from whet.envs.formats import PARSERS
from whet.envs.retries import Attempts, Late, beginnings, other_start
from whet.evaluation.agents import agent_metrics, broken_share, cut_shares, reward_of, succeeded, turns_trace
from whet.methods.agent.evolution import by_environment
from whet.methods.agent.openings import Given, Openings
from whet.methods.agent.scripted import tried_episode
from whet.methods.base import RunContext
from whet.methods.environment_tasks import ENVIRONMENT, format_of, load_infos, parts
from whet.methods.evaluator import Metrics
from whet.methods.names import POLICY
from whet.models.lean import steady_positions
from whet.models.prompts import Conversation
from whet.models.templates import calls_problem, tools_problem
from whet.models.tiny_agent import READS_RULES
from whet.rollout.agent import Agent
from whet.rollout.roles import PolicyRole
from whet.seeds import seed_of
from whet.tasks.prompts import Message
from whet.trajectories.format_detection import TOOLS
from whet.types import FAULTS, Episode, Task

NUM_LOOKED_AT = 4
"""Items of each environment whose first observations are looked at before a run begins."""
NUM_BEGUN_TWICE = 2
"""Of these, those that are begun twice under one seed."""


class AgentRollouts:
    """The agents, environments and items of a run."""

    def __init__(self, config: AgentRunConfig, run: RunContext, read_given: Callable[[], Given] = Given) -> None:
        """Args: read_given: reads what the run learns from files, where it does."""
        self.config, self.run, self._read_given = config, run, read_given

    @cached_property
    def infos(self) -> dict[str, EnvironmentInfo]:
        return load_infos(self.config.data)

    @property
    def above(self) -> dict[str, float]:
        """By environment, the reward that a success exceeds."""
        return {name: info.success_above for name, info in self.infos.items()}

    @cached_property
    def given(self) -> Given:
        """What the run learns from files.

        Raises: DataError.
        """
        return self._read_given()

    @cached_property
    def openings(self) -> Openings:
        return Openings(self.config, self.infos, self.given)

    def horizon(self, config: AgentRunConfig) -> float:
        """Turns that a training episode may take: by default the most that one of the environments usually takes."""
        return float(config.max_turns or max(info.max_turns for info in self.infos.values()))

    def reads_rules(self, policy: str) -> bool:
        """Whether this policy has learnt with rules, as far as is known."""
        policies = self.run.loop.policies
        return policy not in policies or bool(getattr(policies[policy].causal_lm.config, READS_RULES, True))

    def shows_rules(self, policy: str, environment: str) -> bool:
        """Whether this policy's prompts show the rules: see `AgentRunConfig.rules`."""
        return self.openings.shows_rules(environment, reads_rules=self.reads_rules(policy))

    def longest(self, policy: str, written: int) -> int:
        """Tokens that a turn may begin with: as set, and as many as leave positions for what it writes."""
        most = self.config.max_context
        if policy not in self.run.loop.policies:
            return most
        positions = steady_positions(self.run.loop.policies[policy].causal_lm)
        return most if positions is None else max(1, min(most, positions - written))

    def rollout(
        self,
        policy: str,
        *key: object,
        max_turns: int | None,
        greedy: bool = False,
        sampling: SamplingConfig | None = None,
        **settings: Any,
    ) -> Callable[..., Any]:
        """The rollout function, by the task's environment. Arguments as in `agents`."""
        agents = self.agents(policy, *key, max_turns=max_turns, greedy=greedy, sampling=sampling, **settings)
        return lambda task, *, sample: agents[task.info[ENVIRONMENT]](task, sample=sample)

    def agents(
        self,
        policy: str,
        *key: object,
        max_turns: int | None,
        greedy: bool = False,
        sampling: SamplingConfig | None = None,
        **settings: Any,
    ) -> dict[str, Agent]:
        """A policy as agent, by environment.

        Args:
            key: the first part of the seeds of what is sampled, after the run's own seed.
            max_turns: None: each environment's usual number.
            sampling: None: the run's.
            settings: of `Agent`.
        """
        config = self.config
        role = self.run.runtime.role("agent", policy, sampling or config.sampling, greedy=greedy)
        return {
            name: Agent(
                agent=replace(role, tools=self.openings.tools(name)) if isinstance(role, PolicyRole) else role,
                environment=info,
                opening=self.openings.messages(name, shown=self.shows_rules(policy, name)),
                parse=PARSERS.get(format_of(info, config.format)),
                key=(config.seed, *key),
                max_turns=max_turns or info.max_turns,
                max_context=self.longest(policy, (sampling or config.sampling).max_new_tokens),
                max_observation=config.max_observation,
                form=self.openings.form(name),
                settings=config.data.settings.get(name, {}),
                **settings,
            )
            for name, info in self.infos.items()
        }

    # --- items --------------------------------------------------------------------------------------------------------

    @cached_property
    def by_env(self) -> dict[str, list[Task]]:
        """Each environment's training items in an order of the run's own: published lists begin with the easy ones."""
        by_name = {name: list(tasks) for name, tasks in by_environment(self.run.tasks["train"]).items()}
        for name, tasks in by_name.items():
            Random(seed_of(self.config.seed, "items of", name)).shuffle(tasks)
        return by_name

    def check_shares(self, key: str, count: int) -> None:
        """Whether each environment has a part of so many items a step, and as many as its part.

        Args:
            key: of the setting that says how many.
        Raises: ConfigError.
        """
        if count < len(self.infos):
            raise ConfigError(
                f"{key} = {count} leaves none for some of the {len(self.infos)} environments: raise it, "
                "or name fewer in data.env"
            )
        for name, number in parts(self.config.data.shares, count).items():
            if number > (items := len(self.by_env[name])):
                text = f"{key} = {count} takes {number} items of {name} a step, which has {items} to train on: lower it"
                raise ConfigError(text + (", or its share in data.env" if len(self.infos) > 1 else ""))

    def drawn(self, step: int, count: int) -> list[Task]:
        """A step's items, of each environment by its share, once round its list before any comes again."""
        items = []
        for name, number in parts(self.config.data.shares, count).items():
            tasks = self.by_env[name]
            items += [tasks[((step - 1) * number + i) % len(tasks)] for i in range(min(number, len(tasks)))]
        return items

    # --- episodes -----------------------------------------------------------------------------------------------------

    def scripted_episodes(
        self, player: ScriptedAgent, tasks: Sequence[Task], num_samples: int, env_seeds: Mapping[str, int] | None = None
    ) -> list[list[Episode]]:
        """`num_samples` episodes of each task.

        Args:
            env_seeds: by task. None: each episode's own.
        Returns: failed episodes where an environment fails `pool.retries` times beyond the first.
        Raises: EnvError where there is no expert.
        """
        config, seeds = self.config, env_seeds or {}
        if player == "expert" and (silent := [name for name, info in self.infos.items() if info.expert is None]):
            raise EnvError(f"{silent[0]} has no scripted expert")
        with ExitStack() as stack:
            envs = {name: stack.enter_context(closing(self._env_of(info))) for name, info in self.infos.items()}

            def episodes(task: Task, sample: int) -> Episode:
                name = str(task.info[ENVIRONMENT])
                info, seed = self.infos[name], seed_of(config.seed, "evaluation", player, task.id, sample)
                most = config.evaluation.max_turns or info.max_turns
                return tried_episode(
                    player,
                    info,
                    envs[name],
                    task,
                    seed=seed,
                    max_turns=most,
                    env_seed=seeds.get(task.id),
                    max_observation_chars=config.pool.max_observation_chars,
                )

            return [[episodes(task, sample) for sample in range(num_samples)] for task in tasks]

    def _env_of(self, info: EnvironmentInfo, *, retries: int | None = None) -> Attempts:
        pool, settings = self.config.pool, self.config.data.settings.get(info.name, {})
        return Attempts(
            partial(info.make, **settings),
            retries=pool.retries if retries is None else retries,
            timeout_s=pool.timeout_s,
        )

    def explored_metrics(self, groups: Sequence[Sequence[Episode]], config: AgentRunConfig) -> Metrics:
        """Metrics of a step that explores: its episodes are learnt later."""
        metrics = agent_metrics(groups, self.above)
        every = [episode for group in groups for episode in group]
        whole = [episode for episode in every if episode.outcome not in FAULTS]
        scores = [self.infos[str(episode.task.info[ENVIRONMENT])].score(reward_of(episode)) for episode in whole]
        return {
            "reward/mean": fmean(scores) if scores else None,
            "reward/success": metrics["success"],
            "turns/mean": metrics["turns"],
            "turns/horizon": self.horizon(config),
            "turns/invalid": metrics["invalid"],
            "turns/broken": broken_share(whole),
            **(cut_shares([episode.reason for episode in whole]) if whole else {}),
            "length/mean": metrics["length"],
            "episodes/failed": metrics["faults"],
            **failures(every),
        }

    def trace(self, episode: Episode, *, label: str, **labels: Any) -> dict[str, Any]:
        score = None if episode.outcome in FAULTS else float(succeeded(episode, self.above))
        made = turns_trace(episode, score=score, label=label, **labels)
        return made | {"reward": None if episode.outcome in FAULTS else reward_of(episode)}

    # --- before a run begins ------------------------------------------------------------------------------------------

    def check_tools(self, policy: str) -> None:
        """Raises: ConfigError where a policy cannot act by calls of tools, and the settings say that it does."""
        if self.config.format != TOOLS:
            return
        other = "set format=function_calling, whose calls stand in the reply's text"
        if policy not in self.run.loop.policies:
            raise ConfigError(
                f"format = tools shows tools by a model's own chat template, and {policy} is behind an endpoint, whose "
                f"template whet does not see: {other}"
            )
        tokenizer = self.run.loop.policies[policy].tokenizer
        if problem := tools_problem(tokenizer) or calls_problem(tokenizer):
            raise ConfigError(f"format = tools does not go with {policy}: {problem}; {other}, or take another model")

    def conversations(self) -> list[Conversation]:
        """First turns, of some items of each environment, which grow from turn to turn until the limit of tokens."""
        self.check_tools(POLICY)
        conversations, written = [], self.config.sampling.max_new_tokens
        for info in self.infos.values():
            with closing(self._env_of(info, retries=0)) as attempts:
                try:
                    seen = beginnings(attempts, islice(info.splits()["test"], NUM_LOOKED_AT)) or [""]
                except Late as error:
                    raise EnvError(
                        f"{info.name} began none of its first {NUM_LOOKED_AT} test items: {error}"
                    ) from error
                self._check_seeded(info, attempts)
            opening = self.openings.messages(info.name, shown=self.shows_rules(POLICY, info.name))
            form = self.openings.form(info.name)
            texts = [(form.shown(observation, self.config.max_observation, is_first=True),) for observation in seen]
            tools = self.openings.tools(info.name)
            conversations.append(_turns(opening, texts, written, self.longest(POLICY, written), tools))
        return conversations

    def _check_seeded(self, info: EnvironmentInfo, attempts: Attempts) -> None:
        """Raises: EnvError where an environment begins an item in two ways under one seed, and `watch` says stop."""
        stops = self.config.watch.same_start == "stop"
        if problem := other_start(attempts, islice(info.splits()["test"], NUM_BEGUN_TWICE)):
            if stops:
                raise EnvError(f"{info.name} {problem}, or set watch.same_start=warn")
            self.run.warnings.append(f"{info.name} {problem}")


def _turns(
    opening: tuple[Message, ...], texts: Sequence[tuple[str, ...]], written: int, grows_to: int, tools: str
) -> Conversation:
    def messages(observation: str) -> list[Message]:
        return [*opening, {"role": "user", "content": observation}]

    return Conversation(POLICY, texts, messages, "", written, grows_to, tools)
