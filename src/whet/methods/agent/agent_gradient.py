"""Multi-turn RL: a policy gradient over episodes in environments (AgentGym-RL, arXiv:2509.08755), with a horizon that
may grow (ScalingInter-RL: `schedule.max_turns`).

    o_1, a_1, o_2, a_2 .. ~ policy, environment;  R = its rewards;  A = advantage(R);  loss = policy loss(r, A)

over the agent's tokens alone. Every regime and loss of `policy_gradient` is there but partial rollout; episodes whose
environment failed are rolled out again, and never part of a baseline.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from statistics import fmean
from typing import Any

from whet.config import ConfigError
from whet.config.losses import VALUE_MODEL
from whet.credit.advantages import ADVANTAGES
from whet.credit.assignment import AssignedCredit
from whet.credit.metrics import failures, num_compared
from whet.evaluation.agents import broken_share, cut_shares, succeeded, turns_of
from whet.evaluation.intervals import paired_interval
from whet.methods.agent.agent_gradient_config import CLONED, AgentGradientConfig
from whet.methods.agent.base import BY_SUCCESS, SHARE, AgentAlgorithm, AgentEvaluator, agent_spec
from whet.methods.agent.names import ROWS
from whet.methods.agent.turn_credit import ScoredEpisode, TurnCredit, assign_turn_credit, assign_turn_credit_with_values
from whet.methods.ahead import ahead_of
from whet.methods.base import RunContext
from whet.methods.environment_tasks import ENVIRONMENT, parts
from whet.methods.evaluator import Metrics, Traces
from whet.methods.gradient import Gradient
from whet.methods.names import POLICY
from whet.methods.report_specs import load_columns, load_report
from whet.methods.sampling import kept
from whet.report.spec import ReportSpec
from whet.rewards import value_of
from whet.rollout.runtime import Call
from whet.trainer.loop import Batch, Phase
from whet.trainer.phase import Budget
from whet.trainer.watch import Signs
from whet.types import Episode, Segment, Task

MAIN = "after"
"""The row that the others are compared with: the best validated weights."""
LEAD = ("lead", "lead_low", "lead_high")
LEAD_ITEMS = "lead_items"
"""In a row of the summary: the items that both rows of a lead have, which failures of environments may leave fewer."""

ENV_STEPS = "turns/env_steps"
HEADLINE = ("reward/success", "turns/mean", "turns/horizon", "group/no_signal")


def others(config: AgentGradientConfig) -> list[str]:
    """The models that are only measured."""
    return [*([CLONED] if config.cloned else []), *config.beside]


def with_leads(report: ReportSpec, config: AgentGradientConfig) -> ReportSpec:
    """With the lead over other models, where there are any."""
    is_compared = ADVANTAGES.get(config.advantage).baseline == "group"
    report = replace(report, order=(*report.order, *config.beside), is_compared=is_compared)
    if not others(config):
        return report
    place = 1 + [column.key for column in report.columns].index("success_high")
    return replace(report, columns=(*report.columns[:place], *load_columns("agent_leads"), *report.columns[place:]))


def what_is_rolled_out(algorithm: AgentGradient) -> list[str]:
    config, horizon = algorithm.config, "schedule.max_turns says how many"
    if "max_turns" not in config.schedule:
        horizon = f"at most {algorithm.rollouts.horizon(config):g}"
    shares = parts(config.data.shares, config.prompts_per_step)
    items = ", ".join(f"{count} of {name}" for name, count in shares.items())
    lines = [*algorithm.gradient.plan(), f"items of a step: {items}; turns of an episode: {horizon}"]
    if config.max_env_steps is not None:
        lines.append(f"training ends with the step that reaches {config.max_env_steps:,} steps in environments")
    return lines


class AgentGradientEvaluator(AgentEvaluator[AgentGradientConfig]):
    """The agent before training and after, and the models beside it."""

    def after(self) -> Phase:
        return self.test(["after", "last", *others(self.config)], phase="after")

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        policy = ROWS.get(name, name)
        return self.measured(tasks, policy, self.config.evaluation.num_samples, label=name, **labels)

    def summary(self) -> dict[str, dict[str, Any]]:
        places = {("after", step): name for step, name in enumerate(("after", "last", *others(self.config)), 1)}
        rows = self.logged({("before", 1): "before", **places})
        shares = self._shares()
        for name in ("before", *others(self.config)) if others(self.config) else ():
            both = [task for task in shares.get(MAIN, {}) if task in shares.get(name, {})]
            if both:
                lead = paired_interval(*([shares[row][task] for task in both] for row in (MAIN, name)))
                rows[name] |= dict(zip(LEAD, lead, strict=True)) | {LEAD_ITEMS: float(len(both))}
        return rows

    def _shares(self) -> dict[str, dict[str, float]]:
        """By row of the table and test item, the share of episodes that succeeded."""
        shares: dict[str, dict[str, float]] = {}
        for phase in ("before", "after"):
            for trace in self.run.loop.folder.read_traces(phase):
                share = trace.get(SHARE, trace["answer_score"])
                if trace.get("split") == "test" and share is not None:
                    shares.setdefault(str(trace["policy"]), {})[str(trace["task"])] = float(share)
        return shares

    def closing(self, rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """The main gain: over the model beside it that is named first."""
        if not others(self.config) or rows[others(self.config)[0]].get("lead") is None:
            return []
        name = others(self.config)[0]
        lead, low, high = (100 * rows[name][key] for key in LEAD)
        success = [100 * rows[row]["success"] for row in (MAIN, name)]
        title = name.replace("_", " ")
        how = "sampled" if self.config.evaluation.num_samples > 1 else "greedy"
        return [
            f"RL succeeds in {success[0]:.1f} % of {how} test episodes, {title} in {success[1]:.1f} %: "
            f"{lead:+.1f} points (95 % interval {low:+.1f} to {high:+.1f}, paired over "
            f"{rows[name][LEAD_ITEMS]:.0f} items of this seed)"
        ]


class AgentGradient(AgentAlgorithm[AgentGradientConfig]):
    """Multi-turn RL in environments, by its settings; agent_grpo, agent_ppo and others are presets (2509.08755)"""

    spec = agent_spec(
        AgentGradientConfig,
        roles=(POLICY, CLONED),
        more_models=lambda config: config.beside,
        report=load_report("agent_rl"),
        report_by=with_leads,
        evaluator=AgentGradientEvaluator,
        plan=what_is_rolled_out,
    )

    def __init__(self, config: AgentGradientConfig, run: RunContext) -> None:
        super().__init__(config, run)
        for name in others(config):
            self.rollouts.check_tools(name)
        most = max(info.max_turns for info in self.rollouts.infos.values())
        self.gradient = Gradient(
            config, self.run.loop, length=config.sampling.max_new_tokens * (config.max_turns or most)
        )
        if config.credit.per == "gigpo" and self.gradient.advantage.baseline != "group":
            raise ConfigError(
                f"credit.per = gigpo compares turns within a group, and advantage = {config.advantage!r} does not: "
                "take grpo, dr_grpo, rloo or another that does, or credit.per = turn"
            )
        self.ahead = ahead_of(config, run, self._tasks, self._calls)
        if run.trains:
            self.rollouts.check_shares("prompts_per_step", config.prompts_per_step)
            self.say_openings()

    def phases(self) -> Iterator[Phase]:
        yield self.evaluator.before()
        train = self.gradient.phase(self.at, self._collect, self.evaluator.validate, BY_SUCCESS, headline=HEADLINE)
        most = self.config.max_env_steps
        yield train if most is None else replace(train, budget=Budget(ENV_STEPS, most))
        yield self.evaluator.after()

    # --- a step -------------------------------------------------------------------------------------------------------

    def _collect(self, step: int) -> Batch:
        """Roll out, reward, assign credit; then choose the rows to train on now."""
        config, ages = self.at(step), dict[str, float]()
        if self.ahead is not None:
            groups, ages = self.ahead.groups(step)
        else:
            runtime = self.run.runtime
            groups = runtime.in_groups(runtime.roll_out(self._calls(step, self._tasks(step))), config.group_size)
        scored = [[self.scored(episode, config.rewards) for episode in kept(group)] for group in groups]
        episodes = [[episode for episode in group if episode is not None] for group in scored]
        assigned = self._assign_credit(config, episodes)
        taught = [self._is_taught(config, group, assigned) for group in episodes]
        rows = self.gradient.due(config, step, assigned.rows)
        every = [episode for group in groups for episode in group]
        mute = [episode for group in groups for episode in kept(group) if not _said(episode)]
        if len(mute) == len(every):
            self._warn_no_turns(step)
        metrics = {
            **self._metrics(episodes, mute, config, taught),
            **failures(every),
            **self.gradient.buffer_metrics(),
            **ages,
            **assigned.metrics,
        }
        num_failed = len(every) - len(mute) - sum(map(len, episodes))
        traces = self._traces(step, episodes, assigned)
        return Batch(rows, metrics, traces, signs=[self._signs(episodes, num_failed, taught)])

    def _tasks(self, step: int) -> list[Task]:
        return self.rollouts.drawn(step, self.config.prompts_per_step)

    def _calls(self, step: int, tasks: Sequence[Task]) -> list[Call[Episode]]:
        """The episodes of some of a step's tasks."""
        config = self.at(step)
        rollout = self.rollouts.rollout(
            POLICY,
            "train",
            step,
            max_turns=config.max_turns,
            sampling=config.sampling,
            keeps_states=config.credit.per == "gigpo",
        )
        return self.run.runtime.calls_by_task(rollout, tasks, num_samples=config.group_size)

    def scored(self, episode: Episode, added: Mapping[str, float] | None = None) -> ScoredEpisode | None:
        """An episode with its reward in [0, 1], by its environment's scale, and what terms of the user's add. A turn's
        reward is what it moved the score by, so that turns add up to the whole also where the score has an end.

        Returns: None where the policy wrote nothing, or a term cannot tell.
        """
        info = self.rollouts.infos[str(episode.task.info[ENVIRONMENT])]
        turns = _said(episode)
        if not turns:
            return None
        scores = [info.score(sum_) for sum_ in accumulate(turn.parsed["reward"] for turn in turns)]
        gains = [score - before for before, score in pairwise([0.0, *scores])]
        for name, weight in (added or {}).items():
            value = value_of(name, episode, episode.segments.index(turns[-1]))
            if value is None:
                return None
            gains[-1] += weight * value
        return ScoredEpisode(episode, turns, tuple(gains), math.fsum(gains))

    def _assign_credit(self, config: AgentGradientConfig, groups: Sequence[Sequence[ScoredEpisode]]) -> AssignedCredit:
        how = TurnCredit(config.credit.per)
        if how.per != "episode" and config.advantage != "gae":
            how = replace(how, gamma=config.credit.gamma)
        if how.per == "gigpo":
            how = replace(how, weight=config.credit.weight)
        reference = self.gradient.reference(config)
        if config.advantage == "gae":
            return assign_turn_credit_with_values(
                groups, config.value, self.run.loop.policies[VALUE_MODEL], how, reference
            )
        return assign_turn_credit(groups, self.gradient.advantage, how, reference)

    def _is_taught(self, config: AgentGradientConfig, group: Sequence[ScoredEpisode], assigned: AssignedCredit) -> bool:
        """Whether the rewards of a group teach anything; what a KL adds does not count."""
        if config.credit.per == "episode":
            rewards = {scored.reward for scored in group}
            return any(rewards) if self.gradient.advantage.baseline == "none" else len(rewards) > 1
        return any(assigned.of_segments.get(turn.seed) for scored in group for turn in scored.turns)

    def _warn_no_turns(self, step: int) -> None:
        text = (
            f"train step {step}: no episode came to a turn, as they begin with more than max_context = "
            f"{self.config.max_context} tokens; raise it"
        )
        self.run.loop.folder.event("warning", "no_turns", text, phase="train", step=step)
        self.run.loop.progress.tell("warning", text)

    def _metrics(
        self,
        groups: Sequence[Sequence[ScoredEpisode]],
        mute: Sequence[Episode],
        config: AgentGradientConfig,
        taught: Sequence[bool],
    ) -> dict[str, float | None]:
        """Means over the episodes of a step, and the number of their steps in environments. Also the shares of groups
        that teach nothing, and success by environment where there are several.

        Args:
            mute: episodes that were cut before their first turn. They count as 0, and there is nothing in them to
            train.
        """
        every = [scored for group in groups for scored in group]
        if not every and not mute:
            return {}
        num = len(every) + len(mute)
        wins = {id(scored): succeeded(scored.episode, self.rollouts.above) for scored in every}
        turns = [turn for scored in every for turn in scored.turns]
        metrics: dict[str, float | None] = {
            "reward/mean": math.fsum(scored.reward for scored in every) / num,
            "reward/success": sum(wins.values()) / num,
            "turns/mean": len(turns) / num,
            "turns/horizon": self.rollouts.horizon(config),
            ENV_STEPS: float(len(turns)),
            **cut_shares([episode.reason for episode in (*(scored.episode for scored in every), *mute)]),
        }
        if turns:
            metrics["turns/invalid"] = fmean("note" in turn.parsed for turn in turns)
            metrics["turns/broken"] = broken_share(scored.episode for scored in every)
            metrics["length/mean"] = fmean(len(turn.tokens) for turn in turns)
            metrics["length/truncated"] = fmean(turn.stop_reason == "length" for turn in turns)
        compared = [(group, is_taught) for group, is_taught in zip(groups, taught, strict=True) if len(group) > 1]
        if compared:
            flat = [[wins[id(scored)] for scored in group] for group, is_taught in compared if not is_taught]
            metrics["group/no_signal"] = len(flat) / len(compared)
            metrics["group/all_right"] = sum(map(all, flat)) / len(compared)
            metrics["group/all_wrong"] = sum(not any(group) for group in flat) / len(compared)
        for name in self.rollouts.infos if len(self.rollouts.infos) > 1 else ():
            if env_episodes := [scored for scored in every if scored.episode.task.info[ENVIRONMENT] == name]:
                metrics[f"reward/success[{name}]"] = fmean(wins[id(scored)] for scored in env_episodes)
        return metrics

    def _signs(self, groups: Sequence[Sequence[ScoredEpisode]], num_failed: int, taught: Sequence[bool]) -> Signs:
        every = [scored for group in groups for scored in group]
        of_batch = self.gradient.advantage.baseline == "batch" and len({scored.reward for scored in every}) > 1
        return Signs(
            what="episodes",
            replies=len(every) + num_failed,
            right=sum(succeeded(scored.episode, self.rollouts.above) for scored in every),
            unread=sum(all("note" in turn.parsed for turn in scored.turns) for scored in every),
            cut=sum(any(turn.stop_reason == "length" for turn in scored.turns) for scored in every),
            ungraded=num_failed,
            taught=of_batch or any(taught),
            compared=num_compared(groups, self.gradient.advantage.baseline),
        )

    def _traces(
        self, step: int, groups: Sequence[Sequence[ScoredEpisode]], assigned: AssignedCredit
    ) -> list[dict[str, Any]]:
        """Of the first items, every episode with its reward and the mean credit a token of each turn."""
        return [
            self.rollouts.trace(
                scored.episode, phase="train", step=step, split="train", label="training", credit=assigned.of_segments
            )
            for group in groups[: self.config.traces_per_step]
            for scored in group
        ]


def _said(episode: Episode) -> tuple[Segment, ...]:
    """What the policy wrote."""
    return tuple(turn for turn in turns_of(episode) if turn.tokens)
