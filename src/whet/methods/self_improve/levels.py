"""How hard questions are for a policy, from samples that serve for nothing else; in the run's store."""

from __future__ import annotations

from collections.abc import Sequence

from whet.evaluation.difficulty import level_of, level_shares
from whet.evaluation.protocol import is_right
from whet.trainer.buffers import Store
from whet.types import FAULTS, Episode, Task


class Levels:
    """Of each question, how many of how many samples were right."""

    def __init__(self, store: Store) -> None:
        self.counts = store.tasks("levels")
        """A batch for each question; the counts are in its `info`."""

    def put(self, groups: Sequence[Sequence[Episode]]) -> None:
        """Args: groups: the samples of a question each. What failed is no sample."""
        for group in groups:
            graded = [episode for episode in group if episode.outcome not in FAULTS]
            info = {"right": sum(is_right(episode.segments[0]) for episode in graded), "samples": len(graded)}
            self.counts.put(group[0].task.id, [Task(id=group[0].task.id, prompt="", info=info)])

    @property
    def by_id(self) -> dict[str, int]:
        """The level of each question that has samples."""
        levels = {task.id: level_of(task.info["right"], task.info["samples"]) for task in self.counts}
        return {name: level for name, level in levels.items() if level is not None}

    def shares(self, tasks: Sequence[Task]) -> dict[str, float]:
        """`difficulty/level_N`, of some questions."""
        levels = self.by_id
        shares = level_shares(levels[task.id] for task in tasks if task.id in levels)
        return {f"difficulty/level_{level}": share for level, share in shares.items()}
