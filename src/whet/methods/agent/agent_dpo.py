"""DPO of an agent (AgentGym, arXiv:2406.04151; DPO, arXiv:2305.18290): of two episodes of an item, one is preferred.

explore  tau ~ pi_ref on training items, K times; pairs (better, worse) of equal beginnings.
learn    argmin sum of -log sigmoid(beta [log pi/pi_ref (better) - log pi/pi_ref (worse)])      in epochs.

An episode of the policy is compared with the scripted expert's in the same environment, or its best episode with its
worst. Or pairs are read from files, and nothing is rolled out. The log ratios are sums over what the agent wrote, by
the mask of cloning and RL. Episodes are rolled out before anything is learnt, by the reference. With episodes of a
policy that has moved on, what it avoids by now grows ever less likely, and so does all else. A further round explores
anew, and what explores is its reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from whet.config import ConfigError
from whet.methods.agent.agent_dpo_config import AgentDPOConfig
from whet.methods.agent.base import BY_SUCCESS, AgentAlgorithm, agent_spec
from whet.methods.agent.cloning import clone_row, experts_of, learnt_and_tested
from whet.methods.agent.evolution import by_environment, drawn, shown_items
from whet.methods.agent.given_episodes import check_pairs
from whet.methods.agent.openings import Given
from whet.methods.agent.pairs import BETTER, Pair, Scored, extremes, given_pairs, learnable, ordered, score_episode
from whet.methods.base import RunContext
from whet.methods.environment_tasks import ENVIRONMENT
from whet.methods.names import POLICY
from whet.methods.report_specs import load_report
from whet.methods.rounds import in_epochs
from whet.objectives import pairwise_loss
from whet.tasks.files import DataError
from whet.trainer import Term, Update, nll_term, on_pairs
from whet.trainer.loop import Batch, Phase
from whet.trajectories.preferences import read_pairs
from whet.trajectories.records import Trajectory
from whet.types import Row, Task

PAIRS = "pairs"
"""A queue of the run's store: the pairs of a round, a batch each, the better one first."""


class AgentDPO(AgentAlgorithm[AgentDPOConfig]):
    """DPO of an agent: the better of two episodes is preferred to the worse (2305.18290)"""

    spec = agent_spec(
        AgentDPOConfig, report=load_report("agent_dpo"), is_lazy=True, later=lambda algorithm: algorithm.later()
    )

    def __init__(self, config: AgentDPOConfig, run: RunContext) -> None:
        super().__init__(config, run)
        lacking = [name for name, info in self.rollouts.infos.items() if info.expert is None]
        if run.trains and lacking and not config.pairs and config.against == "expert":
            raise ConfigError(
                f"against = expert, and {', '.join(lacking)} has no scripted expert: set against = own, or give pairs"
            )
        if run.trains and not config.pairs and config.against == "expert":
            self._try_expert()
        self.given: list[Pair] = []
        if run.trains and config.pairs:
            as_row = partial(self._cloned, is_given=True)
            self.given, shown, notes = given_pairs(config.pairs, as_row, config.max_context)
            check_pairs(shown, config, self.rollouts.infos)
            if strange := sorted({trajectory.environment for trajectory in shown} - self.rollouts.infos.keys()):
                notes.append(
                    f"pairs of {', '.join(strange)} are learnt, which data.env does not name: nothing measures it"
                )
            self.run.warnings.extend(notes + learnt_and_tested(shown_items(shown, self.rollouts.infos), self.run.tasks))
        self.pairs = self.run.loop.store.rows(PAIRS)
        if run.trains:
            self.say_openings()

    def read_given(self) -> Given:
        return Given([pair.runs()[0] for file in self.config.pairs for pair in read_pairs(file)])

    def _try_expert(self) -> None:
        """Raises: ConfigError where the chat template takes no expert's episode, before any rollout."""
        tasks = [items[0] for items in by_environment(self.run.tasks["train"]).values()]
        for _, shown in experts_of(
            self.config, tasks, self.rollouts.infos, {task.id: 0 for task in tasks}, lambda *_: None
        ):
            try:
                self._cloned(shown)
            except DataError as error:
                raise ConfigError(f"against = expert: {error}, or set against = own") from error

    def _cloned(self, trajectory: Trajectory, *, is_given: bool = False) -> Row:
        policy, shows_rules = self.run.loop.policies[POLICY], partial(self.rollouts.shows_rules, POLICY)
        shown = self.rollouts.openings.as_shown(trajectory, is_given=is_given)
        return clone_row(shown, policy.name, policy.tokenizer, shows_rules=shows_rules)

    # --- the run ------------------------------------------------------------------------------------------------------

    def phases(self) -> Iterator[Phase]:
        yield self.evaluator.before()
        for gather, learn, _ in self._rounds():
            yield gather
            if count := self.run.loop.found.get(gather.name, {}).get(PAIRS, 0):
                yield self._learning(learn, count)
        yield self.evaluator.after()

    def later(self) -> list[Phase]:
        return [phase for gather, learn, most in self._rounds() for phase in (gather, self._learning(learn, most))]

    def _rounds(self) -> Iterator[tuple[Phase, str, int]]:
        """How pairs are made, the phase that learns them, and how many there are at most."""
        config = self.config
        if config.pairs:
            count = len(self.given)
            yield self._gathering("read", ceil(count / config.pairs_per_step), self._score), "learn", count
            return
        for number in range(1, config.num_rounds + 1):
            batches = self._batches(number)
            most = sum(map(len, batches)) * (config.group_size if config.against == "expert" else 1)
            gather = self._gathering(f"explore_{number}", len(batches), partial(self._explore, number))
            yield gather, f"learn_{number}", most

    def _gathering(self, name: str, num_steps: int, collect: Callable[[int], Batch]) -> Phase:
        return Phase(
            name,
            num_steps,
            collect,
            begin=self.pairs.clear,
            end=partial(self._count, name),
            headline=("reward/success", "pair/made"),
        )

    def _learning(self, name: str, count: int) -> Phase:
        config = self.config
        num_steps = ceil(config.num_epochs * count / config.pairs_per_step)
        return Phase(
            name,
            num_steps,
            partial(self._drawn, name),
            updates=partial(self._updates, num_steps),
            validate=partial(self.evaluator.validate, phase=name),
            validate_every=config.validate_every,
            select=BY_SUCCESS,
            main=POLICY,
            headline=("loss/mean", "pair/right", "optim/grad_norm"),
        )

    def _count(self, gather: str) -> Mapping[str, int]:
        if not len(self.pairs):
            text = f"{gather} made no pair, so there is nothing to learn and the agent stays as it is"
            self.run.loop.folder.event("warning", "no_pairs", text, phase=gather)
            self.run.loop.progress.tell("warning", text)
        return {PAIRS: len(self.pairs)}

    # --- pairs --------------------------------------------------------------------------------------------------------

    def _keep(self, step: int, pairs: Sequence[Pair]) -> None:
        """Stores the pairs. The policy as it is now is the reference of what is learnt next."""
        made = learnable(pairs, self.run.loop.policies[POLICY], token_budget=self.config.learning.token_budget)
        for place, pair in enumerate(made):
            self.pairs.put(f"{step}/{place}", pair)

    def _score(self, step: int) -> Batch:
        count = self.config.pairs_per_step
        self._keep(step, self.given[(step - 1) * count : step * count])
        return Batch()

    def _batches(self, number: int) -> list[list[Task]]:
        """A round's items, by step."""
        config = self.config
        tasks = drawn(self.run.tasks["train"], config.data.shares, config.num_explored, config.seed, "explore", number)
        return [tasks[at : at + config.items_per_step] for at in range(0, len(tasks), config.items_per_step)]

    def _explore(self, number: int, step: int) -> Batch:
        batches = self._batches(number)
        config = self.at((number - 1) * len(batches) + step)  # schedules go on from round to round
        tasks = batches[step - 1]
        agents = self.rollouts.agents(POLICY, "explore", number, max_turns=config.max_turns, sampling=config.sampling)
        groups = self.run.runtime.by_task(
            lambda task, *, sample: agents[task.info[ENVIRONMENT]](task, sample=sample),
            tasks,
            num_samples=config.group_size,
        )
        infos = [self.rollouts.infos[str(task.info[ENVIRONMENT])] for task in tasks]
        scored_groups = [
            [scored for episode in group if (scored := score_episode(episode, info)) is not None]
            for group, info in zip(groups, infos, strict=True)
        ]
        if config.against == "expert":
            seeds = {task.id: agents[info.name].env_seed(task, 0) for task, info in zip(tasks, infos, strict=True)}
            shown, num_broken = self._experts(tasks, seeds)
            candidates = [
                (shown[task.id], episode)
                for task, scored in zip(tasks, scored_groups, strict=True)
                if task.id in shown
                for episode in scored
            ]
        else:
            candidates = [extremes(scored) for scored in scored_groups if scored]
        pairs = ordered(candidates, reward_gap=config.reward_gap, threshold=config.threshold)
        self._keep(step, pairs)
        metrics = self.rollouts.explored_metrics(groups, config)
        made: dict[str, float | None] = {"pair/made": len(pairs) / len(candidates) if candidates else None}
        if config.against == "expert":
            made["expert/failed"] = float(num_broken)
        labels: dict[str, Any] = {"phase": f"explore_{number}", "step": step, "split": "train", "label": "training"}
        traces = [self.rollouts.trace(group[0], **labels) for group in groups[: config.traces_per_step]]
        return Batch(metrics={**metrics, **made}, traces=traces)

    def _experts(self, tasks: Sequence[Task], seeds: Mapping[str, int]) -> tuple[dict[str, Scored], int]:
        """The scripted experts' successes in the same environments, by task; and how many of these environments
        failed."""
        successes, broken = dict[str, Scored](), list[int]()
        for task, trajectory in experts_of(
            self.config, tasks, self.rollouts.infos, seeds, lambda item, _: broken.append(item)
        ):
            row = self._cloned(trajectory)
            if len(row.tokens) <= self.config.max_context and trajectory.reward is not None:
                successes[task.id] = self.rollouts.infos[trajectory.environment].score(trajectory.reward), [row]
        return successes, len(broken)

    # --- learning -----------------------------------------------------------------------------------------------------

    def _drawn(self, learn: str, step: int) -> Batch:
        pairs = in_epochs(list(self.pairs.batches.values()), step, self.config.pairs_per_step, self.config.seed, learn)
        return Batch([replace(row, bundle=f"{step}/{i}") for i, pair in enumerate(pairs) for row in pair])

    def _updates(self, num_steps: int, step: int) -> Mapping[str, Update]:
        config = self.config
        loss = on_pairs(pairwise_loss, mean=config.kind == "ipo", kind=config.kind, beta=config.beta)
        term = Term(loss, needs_old=False, needs_reference=True, of_bundles=True)
        terms = [term]
        if config.likelihood:
            terms.append(nll_term(kinds=frozenset({BETTER}), weight=config.likelihood, name=BETTER))
        num_updates = num_steps * config.learning.updates_a_step(2 * config.pairs_per_step)
        return {POLICY: Update(tuple(terms), config.learning, num_updates)}
