"""Rows of behavioural cloning: an agent's turns, to be learnt from trajectories, and the batches they are drawn in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from transformers import PreTrainedTokenizerBase

from whet.config.environments import AgentRunConfig, ExpertConfig
from whet.envs import EnvError, EnvironmentInfo
from whet.methods.agent.given_episodes import given_episodes
from whet.methods.agent.openings import Given
from whet.methods.agent.rollouts import AgentRollouts
from whet.methods.environment_tasks import ENVIRONMENT, format_of, rules_of
from whet.models.policy import Policy
from whet.rollout.agent import ITEM
from whet.seeds import seed_of
from whet.tasks.files import DataError
from whet.trajectories.experts import Care, expert_trajectories
from whet.trajectories.masks import sft_row
from whet.trajectories.records import FIRST_OBSERVATION, Trajectory, item_number
from whet.types import Row, Task

T = TypeVar("T")
MANY = 10_000
"""Episodes of experts, some milliseconds each. A run with more of them says so first."""


ShowsRules = Callable[[str], bool]
"""Whether prompts show the rules of an environment."""


def clone_row(
    trajectory: Trajectory, policy: str, tokenizer: PreTrainedTokenizerBase, *, shows_rules: ShowsRules
) -> Row:
    """A trajectory as one row, each token of the agent's with credit 1; its kind is the environment.

    Args:
        shows_rules: without rules, it begins with the first observation.
    """
    is_whole = shows_rules(trajectory.environment)
    shown = trajectory if is_whole else replace(trajectory, messages=trajectory.messages[FIRST_OBSERVATION:])
    made = sft_row(shown, tokenizer)
    places = np.flatnonzero(np.asarray(made.mask))
    return Row(
        policy=policy,
        tokens=np.asarray(made.ids, np.int32),
        trains=places.astype(np.int32),
        credit=np.ones(len(places), np.float32),
        logprobs=None,
        kind=trajectory.environment,
    )


@dataclass(frozen=True)
class Cloned:
    """What there is to learn from."""

    rows: list[Row]
    info: str
    """How many there are, as a sentence."""
    warnings: list[str]
    """What to check in them, a sentence each."""


def clone_rows(
    trajectories: Iterable[Trajectory],
    policy: Policy,
    *,
    shows_rules: ShowsRules,
    max_context: int,
    wants_failures: bool = False,
) -> Cloned:
    """The rows of all trajectories of at most `max_context` tokens.

    Args:
        wants_failures: whether failures among them are what the settings ask for, and nothing to look at.
    Raises: DataError where there is none.
    """
    examples = list(trajectories)
    if not examples:
        raise DataError(
            "there is no trajectory to learn from: the experts had no success; raise expert.max_turns, or set "
            "expert.keep_failures=true"
        )
    made = [clone_row(trajectory, policy.name, policy.tokenizer, shows_rules=shows_rules) for trajectory in examples]
    rows = [row for row in made if len(row.tokens) <= max_context]
    if not rows:
        raise DataError(f"no trajectory of at most max_context = {max_context} tokens to learn from: raise it")
    warnings = []
    if num_long := len(made) - len(rows):
        warnings.append(f"{num_long} trajectories of more than max_context = {max_context} tokens are left out")
    learnt = [trajectory for trajectory, row in zip(examples, made, strict=True) if len(row.tokens) <= max_context]
    info = f"{len(rows)} trajectories to learn from"
    if num_lost := sum(trajectory.success is False for trajectory in learnt):
        if wants_failures:
            info += f", {num_lost} of them failures"
        else:
            warnings.append(f"{num_lost} of the trajectories are marked as no success, and are learnt like the others")
    return Cloned(rows, info, warnings)


def demonstrated(
    rollouts: AgentRollouts,
    tasks: Sequence[Task],
    expert: ExpertConfig = ExpertConfig(),  # noqa: B008 - it is frozen
    tell: Callable[[str, str], None] = lambda level, text: None,
) -> tuple[list[Trajectory], list[str]]:
    """Trajectories of the run's files, or without any those of the scripted experts, as rollouts show them.

    Args:
        tasks: what the experts act on. Items whose environments failed are left out.
        expert: how well they act, and which of their episodes are learnt.
        tell: called with a level and a text, where the experts' work takes minutes.
    Returns: the trajectories, and what there is to say of them.
    Raises: DataError; EnvError where an environment has no expert, or more of the items fail than `faults.budget`
        allows.
    """
    config, infos = rollouts.config, rollouts.infos
    if rollouts.given.trajectories:
        imported = [rollouts.openings.as_shown(episode, is_given=True) for episode in rollouts.given.trajectories]
        notes = list(rollouts.given.notes)
        strange = sorted({trajectory.environment for trajectory in imported} - infos.keys())
        note = f"trajectories of {', '.join(strange)} are learnt, which data.env does not name: nothing measures it"
        return imported, [*notes, note] if strange else notes
    trajectories, broken = list[Trajectory](), list[str]()
    if (count := len(tasks) * expert.num_episodes) > MANY:
        tell(
            "info", f"the experts write {count:,} episodes before anything is learnt; expert.num_episodes says how many"
        )
    for name, info in infos.items():
        items = [task.info[ITEM] for task in tasks if task.info[ENVIRONMENT] == name]

        def failed(item: int, error: Exception, name: str = name) -> None:
            broken.append(f"{name}, item {item}: its expert failed at it: {error or type(error).__name__}")

        for number in range(expert.num_episodes):
            trajectories += expert_trajectories(
                info, items, rules=rules_of(info, config.format).text,
                seed=seed_of(config.seed, "play", number) % 2**31 if number else config.seed,
                settings=config.data.settings.get(name, {}), format=format_of(info, config.format),
                max_turns=expert.max_turns, only_successes=not expert.keep_failures, retries=config.pool.retries,
                timeout_s=config.pool.timeout_s, failed=failed, care=care_of(expert),
            )  # fmt: skip
    trajectories = [rollouts.openings.as_shown(trajectory, is_given=False) for trajectory in trajectories]
    if not broken:
        return trajectories, []
    count = len(tasks) * expert.num_episodes
    unit = "items" if expert.num_episodes == 1 else "episodes"
    note = f"{len(broken)} of {count} {unit} are left out, as their environments failed; the first: {broken[0]}"
    if len(broken) > config.faults.budget * count or not trajectories:
        raise EnvError(f"{note} (more may be left out by a higher faults.budget, a share)")
    return trajectories, [note]


def read_files(files: Sequence[str], config: AgentRunConfig, infos: Mapping[str, EnvironmentInfo]) -> Given:
    """The trajectories of files, as AgentGym publishes them; of environments that are not in the run, too.

    Raises: DataError.
    """
    read = [given_episodes(file, config, infos) for file in files]
    return Given(
        [trajectory for trajectories, _ in read for trajectory in trajectories],
        [note for _, notes in read for note in notes],
    )


def care_of(expert: ExpertConfig) -> Care:
    return Care(
        wrong_count=expert.wrong_count, wrong_action=expert.wrong_action, stuck=expert.stuck, wasteful=expert.wasteful
    )


def experts_of(
    config: AgentRunConfig,
    tasks: Sequence[Task],
    infos: Mapping[str, EnvironmentInfo],
    seeds: Mapping[str, int],
    failed: Callable[[int, Exception], None],
) -> Iterator[tuple[Task, Trajectory]]:
    """The scripted experts' successes, each with its task, in environments with given seeds.

    Args:
        seeds: of the environments, by task.
        failed: see `expert_trajectories`.
    Raises: EnvError where an environment has no expert.
    """
    for name, info in infos.items():
        tasks_by_item = {task.info[ITEM]: task for task in tasks if task.info[ENVIRONMENT] == name}
        for trajectory in expert_trajectories(
            info,
            tasks_by_item,
            rules=rules_of(info, config.format).text,
            seed=config.seed,
            settings=config.data.settings.get(name, {}),
            format=format_of(info, config.format),
            env_seeds={item: seeds[task.id] for item, task in tasks_by_item.items()},
            retries=config.pool.retries,
            timeout_s=config.pool.timeout_s,
            failed=failed,
        ):
            yield tasks_by_item[item_number(trajectory.item_id)], trajectory


def learnt_and_tested(shown: Iterable[tuple[str, int]], tasks: Mapping[str, Sequence[Task]]) -> list[str]:
    """A sentence for validation and test, where demonstrations are of items that they hold.

    Args:
        shown: environment and number of each item that is demonstrated.
    """
    items, warnings = set(shown), []
    for split in ("validation", "test"):
        both = sum((task.info[ENVIRONMENT], task.info[ITEM]) in items for task in tasks[split])
        if both:
            warnings.append(
                f"{both} of {len(tasks[split])} {split} items are demonstrated too: a figure of those says nothing of "
                "unseen ones"
            )
    return warnings
