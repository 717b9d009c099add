"""DPO of an agent (AgentGym, arXiv:2406.04151; DPO, arXiv:2305.18290): of two episodes of an item, one is preferred.

    L = -log sigmoid(beta [log pi/pi_ref (better) - log pi/pi_ref (worse)])

The two are played in one world from one seed, so that they begin with the same words; the log ratios are sums over what
the agent wrote, by the mask of cloning and RL. What the policy plays is held against the scripted expert's episode, or
against the best of its own; or pairs are read from files, and nothing is played.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from whet.config import InputFile, LearningConfig, PerStep
from whet.config.parts import ModelConfig
from whet.config.worlds import AgentRunConfig
from whet.credit import with_reference
from whet.credit.metrics import failures
from whet.envs.preferences import EXPERT_THRESHOLD, REWARD_GAP, differ, read_pairs
from whet.evals.agents import agent_metrics
from whet.objectives import pairwise_loss
from whet.runs.agents import BY_SUCCESS, AgentMethod
from whet.runs.cloning import clone_row, experts_of, learnt_and_tested
from whet.runs.evolution import episode_rows, paid, shown_items
from whet.runs.loop import Batch, Phase
from whet.runs.method import Bench
from whet.runs.panels import ENTROPY, LENGTH, LOSS, NORM, TIME
from whet.runs.rounds import in_epochs
from whet.runs.sheet import Line, Panel, Sheet
from whet.runs.sheets import AGENT, SUCCEEDED
from whet.runs.solvers import POLICY
from whet.runs.worlds import ENVIRONMENT
from whet.tasks.files import DataError
from whet.training import Term, Update, on_pairs
from whet.types import Episode, Row, Task

REFERENCE = "policy_ref"
ORDERED = Panel("Pairs in the right order", "of those trained on", "percent", True,
                (Line("pair/right", "in order", "blue"),))  # fmt: skip
Scored = tuple[float, Row]
"""An episode's score, from 0 to 1, and its row."""


class AgentDPOConfig(AgentRunConfig):
    """DPO of an agent: the better of two episodes of an item is preferred to the worse."""

    method: Literal["agent_dpo"] = "agent_dpo"
    policy: ModelConfig = ModelConfig(path="tiny_agent_early")
    """The model that is trained."""
    pairs: tuple[InputFile, ...] = ()
    """Files of pairs (`id`, `prompt`, `chosen`, `rejected`), as AgentGym has them. (): pairs are made in play."""
    against: Literal["expert", "own"] = "expert"
    """What the policy's episodes are held against. expert: each against the scripted expert's of the same world. own:
    the worst of the policy's own against the best."""
    num_steps: int = Field(60, ge=1, le=10**9)
    """Steps: play, pair, update."""
    prompts_per_step: int = Field(16, ge=1)
    """Items played in a step; of files, pairs."""
    group_size: int = Field(4, ge=1)
    """Episodes of each item."""
    reward_gap: PerStep[float] = Field(REWARD_GAP, ge=0, le=1)
    """The least distance of a pair's scores."""
    threshold: PerStep[float] = Field(EXPERT_THRESHOLD, ge=0, le=1)
    """The least score of the better one."""
    kind: Literal["logistic", "ipo"] = "logistic"
    """Of the loss: DPO's, or IPO's (arXiv:2310.12036) squared distance."""
    beta: PerStep[float] = Field(0.1, gt=0)
    """How closely the policy is held to the model that the run starts from."""
    learning: LearningConfig = LearningConfig(learning_rate=1e-4, minibatch_rows=32)
    validate_every: int = Field(10, ge=1)
    """Steps between validations; the best validated weights are kept."""

    @model_validator(mode="after")
    def check_pairs(self) -> Self:
        seen = self.__dict__  # looking is no reading
        if seen["learning"].__dict__["minibatch_rows"] % 2:
            raise ValueError("learning.minibatch_rows has to be an even number: a pair is two rows")
        if not seen["pairs"] and seen["against"] == "own" and seen["group_size"] < 2:
            raise ValueError("against = own compares the episodes of an item: set group_size to 2 or more")
        if not seen["pairs"] and seen["against"] == "own" and seen["sampling"].__dict__["temperature"] == 0:
            raise ValueError("sampling.temperature = 0 makes all episodes of an item equal; use 0.6 to 1.0")
        return self

    def idle(self) -> set[str]:
        found = super().idle() | {"rewards"}  # which is better goes by the environments' own rewards
        played = {"against", "group_size", "reward_gap", "threshold", "max_turns", "traces_per_step"}
        return found | (played if self.pairs else set())


class AgentDPO(AgentMethod[AgentDPOConfig]):
    """DPO of an agent: the better of two episodes is preferred to the worse (2305.18290)"""

    config_class = AgentDPOConfig
    sheet: ClassVar[Sheet] = replace(
        AGENT, training=("reward/success", "validation/success"),
        panels=(SUCCEEDED, ORDERED, LOSS, LENGTH, ENTROPY, NORM, TIME),
    )  # fmt: skip

    def __init__(self, config: AgentDPOConfig, bench: Bench) -> None:
        super().__init__(config, bench)
        self.given: list[tuple[Row, Row]] = self._read() if bench.trains and config.pairs else []

    @property
    def own_sheet(self) -> Sheet:
        return replace(self.sheet, training=("validation/success",)) if self.config.pairs else self.sheet

    def _read(self) -> list[tuple[Row, Row]]:
        """The pairs of files.

        Raises: DataError.
        """
        most, policy = self.config.max_context, self.loop.policies[POLICY]
        runs = [pair.runs() for file in self.config.pairs for pair in read_pairs(file)]
        as_row = partial(
            clone_row, policy=policy.name, tokenizer=policy.tokenizer, shows_rules=self.shows_rules(POLICY)
        )
        rows = [(as_row(chosen), as_row(rejected)) for chosen, rejected in runs]
        found = [pair for pair in rows if max(len(row.tokens) for row in pair) <= most]
        if not found:
            raise DataError(f"no pair of episodes of at most max_context = {most} tokens to learn from: raise it")
        if num_long := len(rows) - len(found):
            self.remarks.append(f"{num_long} pairs of more than max_context = {most} tokens are left out")
        self.remarks.append(f"{len(found)} pairs to learn from")
        self.remarks += learnt_and_tested(shown_items(chosen for chosen, _ in runs), self.tasks)
        return found

    def phases(self) -> Iterator[Phase]:
        config = self.config
        yield self.before()
        yield Phase(
            "train", config.num_steps, self._given if config.pairs else self._played, updates=self._updates,
            begin=self._begin, validate=self.validate,
            validate_every=config.validate_every, select=BY_SUCCESS, main=POLICY,
            headline=("reward/success", "pair/right", "pair/made"),
        )  # fmt: skip
        yield self.after()

    def _begin(self) -> None:
        self.loop.fork(POLICY, REFERENCE)

    def _updates(self, step: int) -> Mapping[str, Update]:
        config = self.at(step)
        loss = on_pairs(pairwise_loss, mean=config.kind == "ipo", kind=config.kind, beta=config.beta)
        term = Term(loss, needs_old=False, needs_reference=True, of_bundles=True)
        per_item = config.group_size if not config.pairs and config.against == "expert" else 1
        most = 2 * config.prompts_per_step * per_item
        return {POLICY: Update((term,), config.learning, config.num_steps * config.learning.updates_a_step(most))}

    def _rows(self, pairs: Sequence[tuple[Row, Row]], step: int) -> list[Row]:
        """Each pair as a bundle, the better one first, with the reference's logprobs."""
        rows = [
            replace(row, credit=np.full(row.num_trained, sign, np.float32), bundle=f"{step}/{i}")
            for i, pair in enumerate(pairs)
            for row, sign in zip(pair, (1.0, -1.0), strict=True)
        ]
        return with_reference(rows, self.loop.policies[REFERENCE], token_budget=self.config.learning.token_budget)

    def _given(self, step: int) -> Batch:
        chosen = in_epochs(self.given, step, self.config.prompts_per_step, self.config.seed, "pairs")
        return Batch(self._rows(chosen, step))

    # --- pairs made in play -------------------------------------------------------------------------------------------

    def _played(self, step: int) -> Batch:
        config = self.at(step)
        agents = self.agents(POLICY, "train", step, max_turns=config.max_turns, sampling=config.sampling)
        tasks = self.drawn(step, config.prompts_per_step)
        groups = self.desk.by_task(
            lambda task, *, sample: agents[task.info[ENVIRONMENT]](task, sample=sample), tasks,
            num_samples=config.group_size,
        )  # fmt: skip
        own = [[scored for each in group if (scored := self._scored(each)) is not None] for group in groups]
        if config.against == "expert":
            seeds = {task.id: agents[str(task.info[ENVIRONMENT])].world_seed(task, 0) for task in tasks}
            shown = self._experts(tasks, seeds)
            candidates = [
                (shown[group[0].task.id], each)
                for group, found in zip(groups, own, strict=True)
                for each in found
                if group[0].task.id in shown
            ]
        else:
            candidates = [
                (max(found, key=lambda each: each[0]), min(found, key=lambda each: each[0])) for found in own if found
            ]
        pairs = [
            (better, worse)
            for one, two in candidates
            for (high, better), (low, worse) in [(one, two) if one[0] >= two[0] else (two, one)]
            if differ(high, low, reward_gap=config.reward_gap, threshold=config.threshold)
            and begin_alike(better, worse)
        ]
        every = [episode for group in groups for episode in group]
        found = agent_metrics(groups, self.above)
        metrics = {
            "reward/mean": fmean(score for each in own for score, _ in each) if any(own) else None,
            "reward/success": found["success"],
            "turns/mean": found["turns"],
            "length/mean": found["length"],
            "pair/made": len(pairs) / len(candidates) if candidates else None,
            **failures(every),
        }
        traces = [
            self.trace(group[0], phase="train", step=step, split="train", label="training")
            for group in groups[: config.traces_per_step]
        ]
        return Batch(self._rows(pairs, step), metrics, traces)

    def _scored(self, episode: Episode) -> Scored | None:
        """None where it failed, the policy wrote nothing, or its chat template writes the history anew (then it is
        several rows, and no sum over one)."""
        reward, rows = paid(episode), episode_rows(episode, 1.0)
        info = self.infos[str(episode.task.info[ENVIRONMENT])]
        return (info.score(reward), rows[0]) if reward is not None and len(rows) == 1 else None

    def _experts(self, tasks: Sequence[Task], seeds: Mapping[str, int]) -> dict[str, Scored]:
        """The scripted experts' successes in the same worlds, by task."""
        policy = self.loop.policies[POLICY]
        found = {}
        for task, trajectory in experts_of(self.config, tasks, self.infos, seeds):
            row = clone_row(
                trajectory, policy.name, policy.tokenizer, shows_rules=self.shows_rules(POLICY)
            )  # fmt: skip
            if len(row.tokens) <= self.config.max_context and trajectory.reward is not None:
                found[task.id] = self.infos[trajectory.environment].score(trajectory.reward), row
        return found


def begin_alike(one: Row, two: Row) -> bool:
    """Whether what comes before the first token that trains is the same."""
    first, second = (row.tokens[: row.trains[0]] for row in (one, two))
    return np.array_equal(first, second)
