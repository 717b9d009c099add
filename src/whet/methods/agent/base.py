"""What methods share in which a policy acts in environments: its flow, how good it is, what is kept of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from random import Random
from statistics import fmean
from typing import Any, ClassVar, TypeVar

from whet.config import ConfigError
from whet.config.environments import AgentRunConfig
from whet.config.parts import SamplingConfig
from whet.credit.metrics import failures
from whet.envs import ENVIRONMENTS, EnvError, EnvironmentInfo
from whet.envs.formats import PARSERS
from whet.envs.retries import Attempts, Late, beginnings, other_start
from whet.evaluation.agents import (
    agent_metrics,
    broken_share,
    by_samples,
    by_turn,
    cut_shares,
    reward_of,
    shares_of,
    succeeded,
)
from whet.evaluation.turns import turns_trace
from whet.methods.agent.evolution import by_environment
from whet.methods.base import EvalSettings, Measured, Method, Metrics, RunContext, Skills, Traces, no_refinements
from whet.methods.environment_tasks import ENVIRONMENT, format_of, parts, rules_of
from whet.methods.solvers import BEST, POLICY
from whet.models.lean import steady_positions
from whet.models.prompts import Conversation
from whet.models.tiny_agent import READS_RULES
from whet.rollout.agent import ITEM, Agent
from whet.rollout.environments import Environments
from whet.rollout.scripted import PLAYERS, Player, tried_episode
from whet.seeds import seed_of
from whet.tasks.prompts import Message
from whet.trainer.loop import Batch, Phase, Selection
from whet.types import FAULTS, Episode, Task, shortened

C = TypeVar("C", bound=AgentRunConfig)
BY_SUCCESS = Selection(POLICY, BEST, "validation/success")
BY_SUCCESS_OR_LATER = replace(BY_SUCCESS, takes_later_at_zero=True)
"""Of weights that imitate."""
ROWS = {"before": POLICY, "after": BEST, "last": POLICY}
"""Rows of the final table, and the policy that each measures: after is the best validated one."""
OF_RUN = {"after": BEST, "last": POLICY}
"""What `whet eval` measures of a run."""
SHARE = "share"
"""In a trace of a test or validation item: the share of its episodes that succeeded."""
OF_PLAY = ("max_turns", "sampling")
"""Settings whose steps are those of play, from phase to phase."""
NUM_LOOKED_AT = 4
"""Items of each environment whose first observations are looked at before a run begins."""
NUM_BEGUN_TWICE = 2
"""Of these, those that are begun twice under one seed."""


class AgentMethod(Method[C]):
    """A policy acts in environments."""

    roles: ClassVar[tuple[str, ...]] = (POLICY,)
    skills: ClassVar[Skills] = {POLICY: {"act": "sampling"}}
    is_worded: ClassVar[bool] = False

    def __init__(self, config: C, run_context: RunContext) -> None:
        super().__init__(config, run_context)
        self.loop.going_on = OF_PLAY

    @classmethod
    def final_policies(cls) -> tuple[str, ...]:
        return (POLICY, BEST)

    @classmethod
    def envs(cls, config: C) -> Environments:
        pool = config.pool
        return Environments(
            capacity=pool.capacity, timeout_s=pool.timeout_s, retries=pool.retries,
            max_observation_chars=pool.max_observation_chars, close_timeout_s=pool.close_timeout_s,
        )  # fmt: skip

    @cached_property
    def infos(self) -> dict[str, EnvironmentInfo]:
        data = self.config.data
        return {name: ENVIRONMENTS.get(name).settled(data.settings.get(name, {})) for name in data.shares}

    @property
    def above(self) -> dict[str, float]:
        """By environment, the reward that a success comes to more than."""
        return {name: info.success_above for name, info in self.infos.items()}

    def horizon(self, config: C) -> float:
        """Turns that a training episode may take; of several worlds that are each played as usual, the most."""
        return float(config.max_turns or max(info.max_turns for info in self.infos.values()))

    def shows_rules(self, policy: str) -> bool:
        """Whether this policy is told the rules: see `AgentRunConfig.rules`."""
        if self.config.rules is not None or policy not in self.loop.policies:
            return self.config.rules is not False
        return bool(getattr(self.loop.policies[policy].causal_lm.config, READS_RULES, True))

    def longest(self, policy: str, written: int) -> int:
        """Tokens that a turn may begin with: as set, and as many as leave positions for what it writes."""
        most = self.config.max_context
        if policy not in self.loop.policies:
            return most
        positions = steady_positions(self.loop.policies[policy].causal_lm)
        return most if positions is None else max(1, min(most, positions - written))

    def rollout(
        self, policy: str, *key: object, max_turns: int | None, greedy: bool = False,
        sampling: SamplingConfig | None = None, **settings: Any,
    ) -> Callable[..., Any]:  # fmt: skip
        """The flow of a task, by its environment. Arguments as in `agents`."""
        agents = self.agents(policy, *key, max_turns=max_turns, greedy=greedy, sampling=sampling, **settings)
        return lambda task, *, sample: agents[task.info[ENVIRONMENT]](task, sample=sample)

    def agents(
        self, policy: str, *key: object, max_turns: int | None, greedy: bool = False,
        sampling: SamplingConfig | None = None, **settings: Any,
    ) -> dict[str, Agent]:  # fmt: skip
        """A policy as agent, by environment.

        Args:
            key: the first part of the seeds of what is sampled, after the run's own seed.
            max_turns: None: as each environment is usually played.
            sampling: None: the run's.
            settings: of `Agent`.
        """
        config = self.config
        role = self.runtime.role("agent", policy, sampling or config.sampling, greedy=greedy)
        return {
            name: Agent(
                agent=role,
                environment=info,
                opening=rules_of(info, config.format).opening(shown=self.shows_rules(policy)),
                parse=PARSERS.get(format_of(info, config.format)),
                key=(config.seed, *key),
                max_turns=max_turns or info.max_turns,
                max_context=self.longest(policy, (sampling or config.sampling).max_new_tokens),
                max_observation=config.max_observation,
                settings=config.data.settings.get(name, {}),
                **settings,
            )
            for name, info in self.infos.items()
        }

    # --- items --------------------------------------------------------------------------------------------------------

    @cached_property
    def by_env(self) -> dict[str, list[Task]]:
        """Each environment's training items in an order of the run's own: published lists begin with the easy ones."""
        found = {name: list(tasks) for name, tasks in by_environment(self.tasks["train"]).items()}
        for name, own in found.items():
            Random(seed_of(self.config.seed, "items of", name)).shuffle(own)
        return found

    def check_shares(self, key: str, count: int) -> None:
        """Whether each environment has a part of so many items a step, and as many as its part.

        Args:
            key: of the setting that says how many.
        Raises: ConfigError.
        """
        if count < len(self.infos):
            raise ConfigError(f"{key} = {count} leaves none for some of the {len(self.infos)} environments: raise it, "
                              "or name fewer in data.env")  # fmt: skip
        for name, number in parts(self.config.data.shares, count).items():
            if number > (there := len(self.by_env[name])):
                told = f"{key} = {count} takes {number} items of {name} a step, which has {there} to train on: lower it"
                raise ConfigError(told + (", or its share in data.env" if len(self.infos) > 1 else ""))

    def drawn(self, step: int, count: int) -> list[Task]:
        """A step's items, of each environment by its share, once round its list before any comes again."""
        found = []
        for name, number in parts(self.config.data.shares, count).items():
            own = self.by_env[name]
            found += [own[((step - 1) * number + i) % len(own)] for i in range(min(number, len(own)))]
        return found

    # --- phases -------------------------------------------------------------------------------------------------------

    def before(self) -> Phase:
        return self.test(["before"], phase="before")

    def after(self) -> Phase:
        """Where no phase has learnt anything, the best weights are those that the run began with."""
        return self.test(["after", "last"], phase="after", begin=self._keep_best)

    def _keep_best(self) -> None:
        self.loop.freeze(POLICY, BEST)

    def summary(self) -> dict[str, dict[str, Any]]:
        return self.logged({("before", 1): "before", ("after", 1): "after", ("after", 2): "last"})

    # --- measuring ----------------------------------------------------------------------------------------------------

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        return self.measured(tasks, ROWS[name], self.config.evaluation.num_samples, label=name, **labels)

    def measured(
        self, tasks: Sequence[Task], policy: str, num_samples: int, *, sampling: SamplingConfig | None = None,
        label: str, **labels: Any,
    ) -> tuple[Metrics, list[dict[str, Any]]]:  # fmt: skip
        """`agent_metrics` of a policy, also by environment and by published subgroup where there are several, and the
        share of successes by turn (`success@5`); of several episodes of each task also `pass@1`, `pass@2`, ...

        Args:
            num_samples: episodes of each task: 1 is greedy.
        Returns: the metrics, and a trace of each task's first episode, with the task's share of successes (`SHARE`)
            where there are several.
        """
        rollout = self.rollout(
            policy, "evaluation", max_turns=self.config.evaluation.max_turns, greedy=num_samples == 1,
            sampling=sampling,
        )  # fmt: skip
        groups = self.runtime.by_task(rollout, tasks, num_samples=num_samples)
        shares = shares_of(groups, self.above)
        traces = [self.trace(group[0], label=label, **labels) for group in groups]
        if num_samples > 1:  # of one episode the trace's score says it
            traces = [trace | {SHARE: share} for trace, share in zip(traces, shares, strict=True)]
        return self._numbers(groups), traces

    def by_rule(
        self, player: Player, tasks: Sequence[Task], num_samples: int, *, label: str, **labels: Any
    ) -> tuple[Metrics, list[dict[str, Any]]]:
        """As `measured`, of a player by rule."""
        groups = self.scripted_episodes(player, tasks, num_samples)
        return self._numbers(groups), [self.trace(group[0], label=label, **labels) for group in groups]

    def scripted_episodes(
        self, player: Player, tasks: Sequence[Task], num_samples: int, env_seeds: Mapping[str, int] | None = None
    ) -> list[list[Episode]]:
        """Of each task so many episodes.

        Args:
            world_seeds: by task. None: each episode's own.
        Returns: of a world that fails `pool.retries` times beyond the first, failed episodes.
        Raises: EnvError where there is no expert.
        """
        config, known = self.config, env_seeds or {}
        if player == "expert" and (silent := [name for name, info in self.infos.items() if info.expert is None]):
            raise EnvError(f"{silent[0]} has no scripted expert")
        with ExitStack() as stack:
            envs = {name: stack.enter_context(closing(self._env_of(info))) for name, info in self.infos.items()}

            def episodes(task: Task, sample: int) -> Episode:
                name = str(task.info[ENVIRONMENT])
                info, seed = self.infos[name], seed_of(config.seed, "evaluation", player, task.id, sample)
                most = config.evaluation.max_turns or info.max_turns
                return tried_episode(
                    player, info, envs[name], task, seed=seed, max_turns=most, env_seed=known.get(task.id),
                    max_observation_chars=config.pool.max_observation_chars,
                )  # fmt: skip

            return [[episodes(task, sample) for sample in range(num_samples)] for task in tasks]

    def _env_of(self, info: EnvironmentInfo, *, retries: int | None = None) -> Attempts:
        pool, settings = self.config.pool, self.config.data.settings.get(info.name, {})
        return Attempts(
            partial(info.make, **settings), retries=pool.retries if retries is None else retries,
            timeout_s=pool.timeout_s,
        )  # fmt: skip

    def _numbers(self, groups: Sequence[Sequence[Episode]]) -> Metrics:
        limit = self.config.evaluation.max_turns
        metrics = dict(agent_metrics(groups, self.above))
        metrics |= self._by_part(groups)
        metrics |= by_samples(groups, self.above)
        most = limit or max(info.max_turns for info in self.infos.values())
        shares = by_turn([e for group in groups for e in group if e.outcome not in FAULTS], self.above, most)
        return metrics | {f"success@{turn}": share for turn, share in enumerate(shares, 1)}

    def _by_part(self, groups: Sequence[Sequence[Episode]]) -> Metrics:
        parts: dict[str, list[Sequence[Episode]]] = defaultdict(list)
        several = len(self.infos) > 1
        for group in groups:
            task = group[0].task
            info = self.infos[str(task.info[ENVIRONMENT])]
            if several:
                parts[info.name].append(group)
            if info.group is not None:
                parts[f"{info.name}, {info.group(task.info[ITEM])}"].append(group)
        found: dict[str, float | None] = {}
        for part, own in parts.items():
            numbers = agent_metrics(own, self.above)
            found |= {f"{key}[{part}]": numbers[key] for key in ("success", "success_low", "success_high", "n")}
        return found

    def explored_metrics(self, groups: Sequence[Sequence[Episode]], config: C) -> Metrics:
        """Of a step in which episodes are played, to be learnt from later."""
        found = agent_metrics(groups, self.above)
        every = [episode for group in groups for episode in group]
        whole = [episode for episode in every if episode.outcome not in FAULTS]
        scores = [self.infos[str(each.task.info[ENVIRONMENT])].score(reward_of(each)) for each in whole]
        return {
            "reward/mean": fmean(scores) if scores else None,
            "reward/success": found["success"],
            "turns/mean": found["turns"],
            "turns/horizon": self.horizon(config),
            "turns/invalid": found["invalid"],
            "turns/broken": broken_share(whole),
            **(cut_shares([episode.reason for episode in whole]) if whole else {}),
            "length/mean": found["length"],
            "episodes/failed": found["faults"],
            **failures(every),
        }

    def trace(self, episode: Episode, *, label: str, **labels: Any) -> dict[str, Any]:
        score = None if episode.outcome in FAULTS else float(succeeded(episode, self.above))
        made = turns_trace(episode, score=score, label=label, **labels)
        return made | {"reward": None if episode.outcome in FAULTS else reward_of(episode)}

    def validate(self, step: int, *, phase: str = "train") -> Batch:
        tasks = self.tasks["validation"]
        count = self.config.evaluation.validation_samples
        found, traces = self.measured(
            tasks, POLICY, count, phase=phase, step=step, split="validation", label="training"
        )
        kept = {name: value for name, value in found.items() if value is not None and not name.startswith("success@")}
        return Batch(metrics=kept, traces=traces[:50])

    # --- for the session and `whet eval` ------------------------------------------------------------------------------

    def conversations(self) -> list[Conversation]:
        """First turns, of some items of each environment, which grow from turn to turn until the limit of tokens."""
        found, written = [], self.config.sampling.max_new_tokens
        for info in self.infos.values():
            with closing(self._env_of(info, retries=0)) as attempts:
                try:
                    seen = beginnings(attempts, islice(info.splits()["test"], NUM_LOOKED_AT)) or [""]
                except Late as error:
                    raise EnvError(
                        f"{info.name} began none of its first {NUM_LOOKED_AT} test items: {error}"
                    ) from error
                self._check_seeded(info, attempts)
            opening = rules_of(info, self.config.format).opening(shown=self.shows_rules(POLICY))
            texts = [(shortened(each, self.config.max_observation),) for each in seen]
            found.append(_turns(opening, texts, written, self.longest(POLICY, written)))
        return found

    def _check_seeded(self, info: EnvironmentInfo, attempts: Attempts) -> None:
        """Raises: EnvError where an environment begins an item in two ways under one seed, and `watch` says stop."""
        stops = self.config.watch.same_start == "stop"
        if problem := other_start(attempts, islice(info.splits()["test"], NUM_BEGUN_TWICE)):
            if stops:
                raise EnvError(f"{info.name} {problem}, or set watch.same_start=warn")
            self.warnings.append(f"{info.name} {problem}")

    def eval_targets(self, *, of_run: bool) -> tuple[str, ...]:
        """`after` once a validation has chosen one; and those that play by rule, to hold it against."""
        own = tuple(name for name, policy in OF_RUN.items() if policy in self.loop.policies) if of_run else (POLICY,)
        return (*own, *(each for each in PLAYERS if each != "expert" or all(i.expert for i in self.infos.values())))

    def measure(self, name: str, settings: EvalSettings, *, of_run: bool) -> Measured:
        no_refinements(settings)
        if name not in (known := self.eval_targets(of_run=of_run)):
            raise ConfigError(f"there is no {name!r} to measure; choose of: {', '.join(known)}")
        labels: dict[str, Any] = {"phase": "eval", "step": 0, "split": settings.split, "label": name}
        tasks, count = self.measured_tasks(settings.split), settings.num_samples
        place = f"{name}-{settings.split}-n{len(tasks)}-k{count}"
        if name in PLAYERS:
            metrics, traces = self.by_rule(name, tasks, count, **labels)
            return Measured(name, place, metrics, traces, {"policy": name})
        sampling = self.config.sampling
        if settings.temperature is not None:
            sampling = sampling.model_copy(update={"temperature": settings.temperature})
        place += f"-t{sampling.temperature:g}" if count > 1 else ""
        policy = OF_RUN[name] if of_run else name
        metrics, traces = self.measured(tasks, policy, count, sampling=sampling, **labels)
        return Measured(name, place, metrics, traces, {"policy": name})

    def measured_tasks(self, split: str) -> Sequence[Task]:
        return self.tasks[split]


def _turns(
    opening: tuple[Message, ...], texts: Sequence[tuple[str, ...]], written: int, grows_to: int
) -> Conversation:  # fmt: skip
    def messages(observation: str) -> list[Message]:
        return [*opening, {"role": "user", "content": observation}]

    return Conversation(POLICY, texts, messages, "", written, grows_to)
