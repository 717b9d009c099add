"""The parts of a round in which an agent learns from its episodes: which items, which rows, and what became of them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from whet.config.runs import Merge
from whet.credit.views import joined
from whet.envs.protocol import EnvError, EnvironmentInfo
from whet.evaluation.agents import reward_of, turns_of
from whet.methods.environment_tasks import ENVIRONMENT, parts
from whet.methods.rounds import RoundSamples, Rows, round_of
from whet.rollout.agent import ITEM
from whet.seeds import seed_of
from whet.trainer.buffers import Store
from whet.trajectories.records import Trajectory, item_number
from whet.types import FAULTS, Episode, Row, Task

REWARD = "reward"
"""In the `info` of an item that was explored: the episode's reward. None: it failed."""
COUNTS = ("explored", "failed", "kept", "merged")
"""Columns of a manifest, in episodes: rolled out, of which failed; kept of the others; learnt."""
Manifest = Mapping[str, Mapping[str, int]]
"""By environment, `COUNTS`."""


def by_environment(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    by_name: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        by_name[str(task.info[ENVIRONMENT])].append(task)
    return by_name


def some_of(tasks: Sequence[Task], share: float, *key: object) -> list[Task]:
    """A part of each environment's items, one at least unless the share is 0; in their order.

    Args:
        share: in [0, 1].
        key: of the seed.
    """
    chosen = []
    for name, env_tasks in by_environment(tasks).items():
        count = max(1, round(share * len(env_tasks))) if share else 0
        places = random.Random(seed_of(*key, name)).sample(range(len(env_tasks)), count)
        chosen += [env_tasks[place] for place in sorted(places)]
    return chosen


def drawn(tasks: Sequence[Task], shares: Mapping[str, float], count: int | None, *key: object) -> list[Task]:
    """A round's items, shuffled.

    Args:
        shares: of the environments in the count.
        count: items, of all environments together; an environment that has fewer gives all it has. None: all items.
        key: of the seed.
    """
    items = []
    by_name = by_environment(tasks)
    counts = {} if count is None else parts({name: shares[name] for name in by_name}, count)
    for name, env_tasks in by_name.items():
        wanted = min(len(env_tasks), counts.get(name, len(env_tasks)))
        items += random.Random(seed_of(*key, name)).sample(env_tasks, wanted)
    random.Random(seed_of(*key, "order")).shuffle(items)
    return items


def shown_items(
    trajectories: Iterable[Trajectory], infos: Mapping[str, EnvironmentInfo] = MappingProxyType({})
) -> set[tuple[str, int]]:
    """Environment and number of each item; nothing of items that are named after a trial without a known number.

    Args:
        infos: the environments, which know the numbers of such names.
    """
    items = set()
    for trajectory in trajectories:
        env = trajectory.environment
        try:
            items.add((env, item_number(trajectory.item_id, infos[env].named_items if env in infos else None)))
        except EnvError:
            continue
    return items


def item_of(task: Task) -> tuple[str, int]:
    return str(task.info[ENVIRONMENT]), int(task.info[ITEM])


def episode_reward(episode: Episode) -> float | None:
    """The episode's reward. None: it failed, for a fault that is not the agent's."""
    return None if episode.outcome in FAULTS else reward_of(episode)


def episode_rows(episode: Episode, weight: float) -> list[Row]:
    """An episode to be imitated: the ids that were sampled, each turn's with the weight as credit. One row, or several
    where a chat template writes the history anew."""
    made = joined(turns_of(episode), lambda segment: weight, kind=str(episode.task.info[ENVIRONMENT]))
    return [replace(row, logprobs=None, temperature=1.0, versions=()) for row in made.rows]


class Rounds(RoundSamples):
    """What was explored and kept, in the run's store: a batch an episode, in the order of the rollouts.

    Args:
        base: the demonstrations, an episode each.
    """

    def __init__(self, store: Store, base: Sequence[Rows], merge: Merge) -> None:
        super().__init__(store, base, merge)
        self.explored = store.tasks("explored")
        """Items of the current round: a batch for each, whose `info` has an episode's reward."""

    def begin(self, number: int) -> None:
        super().begin(number)
        self.explored.clear()

    def take(self, number: int, group: Sequence[Episode], weights: Sequence[float]) -> int:
        """Keep those of an item's episodes that weigh anything.

        Returns: how many.
        """
        task = group[0].task
        self.explored.put(
            task.id, [replace(task, info={**task.info, REWARD: episode_reward(episode)}) for episode in group]
        )
        num_kept = 0
        for sample, (episode, weight) in enumerate(zip(group, weights, strict=True)):
            rows = episode_rows(episode, weight) if weight > 0 else []
            if rows:  # an agent that never had a turn wrote nothing to learn
                self.put(number, f"{task.id}/{sample}", rows)
                num_kept += 1
        return num_kept

    def manifest(self, number: int) -> Manifest:
        """What became of a round's episodes. Demonstrations may be of environments that the run does not use."""
        tasks = list(self.explored)
        counts = {
            "explored": Counter(str(task.info[ENVIRONMENT]) for task in tasks),
            "failed": Counter(str(task.info[ENVIRONMENT]) for task in tasks if task.info[REWARD] is None),
            "kept": Counter(rows[0].kind for key, rows in self.examples.batches.items() if round_of(key) == number),
            "merged": Counter(rows[0].kind for rows in self.merged(number)),
        }
        names = sorted({name for counter in counts.values() for name in counter})
        return {name: {fate: counts[fate][name] for fate in COUNTS} for name in names}
