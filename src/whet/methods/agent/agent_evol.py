"""AgentEvol (AgentGym, arXiv:2406.04151, section 4): an agent learns from what it explores beyond its demonstrations.

clone    argmax sum over D_s of log pi(tau)                      the base agent, from demonstrations of some items
again and again:
explore  tau ~ pi_m on all training items, K times; w(tau)       the E-step: weights by reward
merge    D = kept episodes + D_s                                 or other parts of what was kept before
learn    argmax sum over D of w(tau) log pi(tau)                 the M-step, anew from the initial model or going on

What is published differs from its own paper; `docs/agentevol.md` says where, and which is the default here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from whet.config import ConfigError
from whet.methods.agent.agent_evol_config import AgentEvolConfig
from whet.methods.agent.base import BY_SUCCESS_OR_LATER, AgentAlgorithm, AgentEvaluator, agent_spec
from whet.methods.agent.cloning import clone_rows, demonstrated, learnt_and_tested, read_files
from whet.methods.agent.evolution import COUNTS, Manifest, Rounds, drawn, episode_reward, item_of, shown_items, some_of
from whet.methods.agent.openings import Given
from whet.methods.base import RunContext
from whet.methods.environment_tasks import ENVIRONMENT
from whet.methods.evaluator import Metrics, Traces
from whet.methods.names import BEST, POLICY
from whet.methods.report_specs import load_report
from whet.methods.rounds import INITIAL, Rows, episode_weights, learning_phase, merged
from whet.report.spec import ReportSpec
from whet.run_folder.folder import ROUNDS
from whet.trainer.loop import Batch, Phase
from whet.types import Episode, Task


def round_names(config: AgentEvolConfig) -> list[str]:
    return [f"round_{number}" for number in range(1, config.num_rounds + 1)]


def with_rounds(report: ReportSpec, config: AgentEvolConfig) -> ReportSpec:
    return replace(report, order=("before", "base", *round_names(config), "after", "last"))


class AgentEvolEvaluator(AgentEvaluator[AgentEvolConfig]):
    """The agent before the rounds and after each of them."""

    def tested(self, name: str, tasks: Sequence[Task], labels: Mapping[str, Any]) -> tuple[Metrics, Traces]:
        policy = BEST if name == "after" else POLICY
        return self.measured(tasks, policy, self.config.evaluation.num_samples, label=name, **labels)

    def summary(self) -> dict[str, dict[str, Any]]:
        names = ("before", "base", *round_names(self.config))
        return self.logged({(name, 1): name for name in names} | {("after", 1): "after", ("after", 2): "last"})


class AgentEvol(AgentAlgorithm[AgentEvolConfig]):
    """AgentEvol: an agent learns from what it explores beyond its demonstrations, in rounds (2406.04151)"""

    spec = agent_spec(
        AgentEvolConfig,
        report=load_report("agent_evol"),
        report_by=with_rounds,
        evaluator=AgentEvolEvaluator,
        is_lazy=True,
        later=lambda algorithm: algorithm.later(),
    )

    def __init__(self, config: AgentEvolConfig, run: RunContext) -> None:
        super().__init__(config, run)
        above = config.kept_above if config.weighting == "binary" else {}
        if strangers := sorted(above.keys() - self.rollouts.infos.keys()):
            raise ConfigError(
                f"kept_above names {', '.join(strangers)}, which data.env does not: add it, or leave it out"
            )
        self.base: list[Rows] = []
        self.pool: Sequence[Task] = self.run.tasks["train"]
        if run.trains:
            self._demonstrate()
            self.say_openings()
        self.rounds = Rounds(self.run.loop.store, self.base, config.merge)

    def _demonstrate(self) -> None:
        """Reads the demonstrations, or has the experts make them.

        Raises: DataError, EnvError.
        """
        config = self.config
        shown_by_experts = not config.trajectories
        tasks = some_of(self.run.tasks["train"], config.base_share, config.seed, "base") if shown_by_experts else ()
        if shown_by_experts and not tasks:
            return
        trajectories, warnings = demonstrated(self.rollouts, tasks, config.expert, self.run.loop.progress.tell)
        cloned = clone_rows(
            trajectories,
            self.run.loop.policies[POLICY],
            shows_rules=partial(self.rollouts.shows_rules, POLICY),
            max_context=config.max_context,
        )
        self.base = [[row] for row in cloned.rows]
        self.run.info.append(cloned.info)
        shown = shown_items(trajectories, self.rollouts.infos)
        self.run.warnings.extend(warnings + cloned.warnings + learnt_and_tested(shown, self.run.tasks))
        if config.explore == "beyond":
            self.pool = [task for task in self.pool if item_of(task) not in shown]
        if not self.pool:
            raise ConfigError(
                "the demonstrations are of every training item, so explore = beyond leaves none to "
                "explore; set explore = all, or lower base_share"
            )
        self.run.info.append(f"{len(self.pool)} items to explore")

    def read_given(self) -> Given:
        return read_files(self.config.trajectories, self.config, self.rollouts.infos)

    # --- the run ------------------------------------------------------------------------------------------------------

    def phases(self) -> Iterator[Phase]:
        yield self.evaluator.before()
        if self.base:
            yield self._cloning()
            if self.config.test_rounds:
                yield self.evaluator.test(["base"], phase="base")
        for number, name in enumerate(round_names(self.config), 1):
            yield from self._round(number)
            if self.config.test_rounds:
                yield self.evaluator.test([name], phase=name)
        yield self.evaluator.after()

    def later(self) -> list[Phase]:
        phases = [self._cloning()] if self.base else []
        episodes = list[Sequence[Rows]]()
        for number, batches in enumerate(map(self._batches, range(1, self.config.num_rounds + 1)), 1):
            most_kept = self.config.group_size if self.config.keep == "all" else 1  # of an item
            episodes.append([()] * sum(map(len, batches)) * most_kept)
            most = len(merged(self.base, episodes, self.config.merge))
            phases += [self._exploring(number), self._learning(f"learn_{number}", most, list, self._restart)]
        return phases

    def _cloning(self) -> Phase:
        return self._learning("clone", len(self.base), lambda: self.base, self._remember)

    def _exploring(self, number: int) -> Phase:
        return Phase(
            f"explore_{number}",
            len(self._batches(number)),
            partial(self._explore, number),
            begin=partial(self._begin, number),
            headline=("reward/success", "kept/share"),
        )

    def _round(self, number: int) -> Iterator[Phase]:
        merge = f"merge_{number}"
        yield self._exploring(number)
        yield Phase(
            merge,
            1,
            partial(self._merge, number),
            end=partial(self._end, number),
            headline=("round/kept", "round/merged"),
        )
        num_merged = sum(counts["merged"] for counts in self.run.loop.found.get(merge, {}).values())
        if num_merged:
            yield self._learning(f"learn_{number}", num_merged, partial(self.rounds.merged, number), self._restart)

    def _learning(self, name: str, count: int, pool: Callable[[], Sequence[Rows]], begin: Callable[[], None]) -> Phase:
        """Imitation of a pool of episodes, of which there will be `count`."""
        config = self.config
        return learning_phase(
            name, POLICY, count, pool, config.learning, seed=config.seed, num_epochs=config.num_epochs,
            rows_per_step=config.rows_per_step, begin=begin, validate=self.evaluator.validate,
            validate_every=config.validate_every, select=BY_SUCCESS_OR_LATER,
        )  # fmt: skip

    # --- exploring ----------------------------------------------------------------------------------------------------

    def _batches(self, number: int) -> list[list[Task]]:
        """A round's items, by step."""
        config = self.config
        tasks = drawn(self.pool, config.data.shares, config.num_explored, config.seed, "explore", number)
        return [tasks[at : at + config.items_per_step] for at in range(0, len(tasks), config.items_per_step)]

    def _remember(self) -> None:
        if self.config.start == "initial":
            self.run.loop.freeze(POLICY, INITIAL)

    def _begin(self, number: int) -> None:
        self._remember()
        self.rounds.begin(number)

    def _explore(self, number: int, step: int) -> Batch:
        """Episodes by the agent as it is; those that weigh anything go into the store."""
        batches = self._batches(number)
        config = self.at((number - 1) * len(batches) + step)  # schedules go on from round to round
        rollout = self.rollouts.rollout(POLICY, "explore", number, max_turns=config.max_turns, sampling=config.sampling)
        groups = self.run.runtime.by_task(rollout, batches[step - 1], num_samples=config.group_size)
        num_kept = sum(self.rounds.take(number, group, self._weights(group)) for group in groups)
        shown = [group[0] for group in groups[: config.traces_per_step]]
        labels: dict[str, Any] = {"phase": f"explore_{number}", "step": step, "split": "train"}
        traces = [self.rollouts.trace(episode, label="training", **labels) for episode in shown]
        share = {"kept/share": num_kept / sum(map(len, groups))}
        return Batch(metrics={**self.rollouts.explored_metrics(groups, config), **share}, traces=traces)

    def _weights(self, group: Sequence[Episode]) -> list[float]:
        config, info = self.config, self.rollouts.infos[str(group[0].task.info[ENVIRONMENT])]
        above = config.kept_above.get(info.name, info.kept_above) if config.weighting == "binary" else 0.0
        return episode_weights(
            [episode_reward(episode) for episode in group],
            weighting=config.weighting,
            keep=config.keep,
            above=above,
            score=info.score,
        )

    # --- merging and learning -----------------------------------------------------------------------------------------

    def _merge(self, number: int, step: int) -> Batch:
        manifest = self.rounds.manifest(number)
        metrics = {f"round/{fate}": float(sum(counts[fate] for counts in manifest.values())) for fate in COUNTS}
        for name, counts in manifest.items() if len(manifest) > 1 else ():
            metrics |= {f"round/{fate}[{name}]": float(count) for fate, count in counts.items()}
        return Batch(metrics=metrics)

    def _end(self, number: int) -> Manifest:
        """Write what became of the rounds so far."""
        manifest = self.rounds.manifest(number)
        before = [self.run.loop.found[f"merge_{earlier}"] for earlier in range(1, number)]
        rounds = [{"round": place, "episodes": counts} for place, counts in enumerate([*before, manifest], 1)]
        self.run.loop.folder.write(ROUNDS, json.dumps(rounds, indent=1) + "\n")
        if not any(counts["merged"] for counts in manifest.values()):
            text = f"round {number} kept nothing and has nothing to learn from, so the agent stays as it is"
            self.run.loop.folder.event("warning", "nothing_kept", text, phase=f"merge_{number}")
            self.run.loop.progress.tell("warning", text)
        return manifest

    def _restart(self) -> None:
        if self.config.start == "initial":
            self.run.loop.restart(POLICY, INITIAL)
