"""STaR for critics (after 2203.14465): a critic imitates those of its critiques after which the refinement was right.

    each round:   c ~ critic(x, y);  kept where y' ~ actor(x, y, c) is right;   -log critic(c | x, y) of those kept

A baseline of Critique-RL's Table 1, published only as iterated SFT on such critiques. Every round imitates what its
critic wrote. It starts from the warm start's critic (`anew`, as in STaR) or goes on from the round before. Where the
actor is often right, most of the kept critiques say so. `balanced` takes as many of wrong answers as of right ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from whet.credit import AssignedCredit, ScoredSegment, groups_of, refine_outcome, rewarded
from whet.evaluation.protocol import is_right
from whet.methods.critic.star_critic_config import StarConfig
from whet.methods.critics import (
    ACC_REFINE,
    SFT,
    CriticAlgorithm,
    critic_spec,
    critique_traces,
    sample_critiques,
    step_metrics,
)
from whet.methods.warm_start import example_row, imitation_phase
from whet.seeds import seed_of
from whet.trainer.buffers import Queue
from whet.trainer.loop import Batch, Phase, Selection
from whet.types import Row

BEST = "critic_star"
"""The critic of the best validation of all rounds, frozen."""
CLASSES = ("right", "wrong")
"""Of answers. The kind of a critique's row is the class of its answer."""


class Star(CriticAlgorithm[StarConfig]):
    """STaR for critics: iterated imitation of its own critiques after which the refinement was right"""

    spec = critic_spec(StarConfig, {BEST: "star"}, is_lazy=True)

    def phases(self) -> Iterator[Phase]:
        config, count = self.config, self.config.learning.minibatch_rows
        yield from self.warm_starts
        for number in range(1, config.num_rounds + 1):
            name = f"sample_{number}"
            yield Phase(
                name,
                config.num_steps,
                partial(self._sample, number),
                begin=self._begin,
                end=lambda: {kind: len(rows) for kind, rows in self._by_class().items()},
                headline=("kept/share", "critique/acc_dis", ACC_REFINE),
            )
            num_kept = num_taken(self.run.loop.found.get(name, {}), balanced=config.balanced)
            yield imitation_phase(
                f"learn_{number}",
                "critic",
                max(1, round(config.num_epochs * num_kept / count)),
                partial(self._draw, number),
                config.learning,
                count,
                begin=self._restart,
                validate=partial(self.evaluator.validate, phase=f"learn_{number}"),
                validate_every=config.validate_every,
                select=Selection("critic", BEST, "validation/acc_refine"),
            )
        yield self.evaluator.test_of([SFT, BEST])

    @property
    def _queue(self) -> Queue[Row]:
        return self.run.loop.store.rows("kept")

    def _by_class(self) -> dict[str, list[Row]]:
        return {name: [row for row in self._queue if row.kind == name] for name in CLASSES}

    def _begin(self) -> None:
        self.keep_sft()
        self._queue.clear()

    def _restart(self) -> None:
        if self.config.anew:
            self.run.loop.restart("critic", SFT)

    def _sample(self, number: int, step: int) -> Batch:
        """The critic writes critiques; those that helped go into the store."""
        config, key = self.config, f"sample_{number}"
        before = (number - 1) * config.num_steps * config.prompts_per_step
        tasks = self.run.next_tasks(step, config.prompts_per_step, first=before)
        episodes = sample_critiques(self, (key, step), tasks, num_critiques=config.group_size)
        episodes = rewarded(episodes, "critic", {"refine": refine_outcome()})
        scored = [critique for group in groups_of(episodes, "critic", "answer") for critique in group]
        helped = [critique for critique in scored if critique.reward == 1.0]
        self._queue.put(str(step), [imitated(critique) for critique in helped])
        metrics = {**step_metrics(episodes), "kept/share": len(helped) / max(1, len(scored))}
        return Batch(metrics=metrics, traces=critique_traces(self.config, key, step, episodes, AssignedCredit([])))

    def _draw(self, number: int, step: int) -> list[Row]:
        """A batch of the critiques that this round kept."""
        classes, rng = self._by_class(), random.Random(seed_of(self.config.seed, "pool", number))
        fewest = min(map(len, classes.values()))
        taken = [rng.sample(rows, fewest) if self.config.balanced else rows for rows in classes.values()]
        pool = [row for rows in taken for row in rows]
        rng = random.Random(seed_of(self.config.seed, "draw", number, step))
        return rng.sample(pool, min(len(pool), self.config.learning.minibatch_rows))


def imitated(scored: ScoredSegment) -> Row:
    """A critique as a row to imitate; its kind is the class of its answer."""
    kind = CLASSES[0] if is_right(scored.episode.segments[0]) else CLASSES[1]
    return example_row(scored.segment, kind)


def num_taken(num_kept: Mapping[str, Any], *, balanced: bool) -> int:
    """How many of the kept critiques are imitated.

    Args:
        num_kept: critiques by class.
    """
    counts = [num_kept.get(name, 0) for name in CLASSES]
    return 2 * min(counts) if balanced else sum(counts)
