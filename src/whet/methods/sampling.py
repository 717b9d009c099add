"""Samples a training step: whole groups of replies, or replies that go on from step to step."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from whet.credit.metrics import failures
from whet.evaluation.protocol import num_exhausted
from whet.rollout.runtime import Runtime
from whet.rollout.solve import Solve
from whet.seeds import seed_of
from whet.trainer.buffers import Queue
from whet.types import FAULTS, Episode, Segment, Task


@dataclass(frozen=True)
class Sampled:
    """What a step sampled."""

    groups: list[list[Episode]]
    """The graded replies to each task whose replies have all ended. Replies whose grading failed are left out."""
    metrics: dict[str, float]
    num_failed: int
    """Replies whose grading failed."""


def whole(
    rollout: Solve,
    runtime: Runtime,
    batches: Iterator[list[Task]],
    group_size: int,
    *,
    teaches: Callable[[list[Segment]], bool] | None = None,
) -> Sampled:
    """Samples every reply from start to end, to the first batch of problems.

    Args:
        teaches: whether a group's replies have a signal. Dynamic sampling goes on until as many groups have one as the
            first batch has problems. None: the first batch alone.
    """
    episodes: list[list[Episode]] = []
    wanted = 0
    for tasks in batches:
        wanted = wanted or len(tasks)
        episodes += runtime.by_task(rollout, tasks, num_samples=group_size)
        if teaches is None or sum(map(teaches, map(graded, episodes))) >= wanted:
            break
    return sampled_of(episodes, {} if teaches is None else {"group/sampled": float(len(episodes))})


def in_parts(
    rollout: Solve,
    runtime: Runtime,
    tasks: Sequence[Task],
    group_size: int,
    *,
    queue: Queue[Episode],
    step: int,
    budget: int,
) -> Sampled:
    """A step of partial rollout (arXiv:2510.18927, section 3.2).

    Begins this step's problems and lets all unfinished replies go on for one budget, the oldest first. Takes the groups
    whose replies have all ended.

    Args:
        queue: the unfinished groups. It changes at the end, so that what is saved after an error is of the step before.
        budget: tokens by which a reply may grow.
    """
    role = rollout.solver

    def goes_on(episode: Episode) -> bool:
        segment = episode.segments[0]
        return not (segment.tokens and role.has_ended(segment))

    groups = {key: list(group) for key, group in queue.batches.items()}
    for task in tasks:
        groups[f"{step}/{task.id}"] = [
            Episode(task=task, segments=(rollout.begin(task, i),), outcome="unfinished") for i in range(group_size)
        ]
    waiting = [(key, i) for key, group in groups.items() for i, e in enumerate(group) if goes_on(e)]
    requests = [role.request(groups[key][i].segments[0], budget) for key, i in waiting]
    completions = runtime[role.policy](requests)
    for (key, i), completion in zip(waiting, completions, strict=True):
        episode = groups[key][i]
        groups[key][i] = replace(episode, segments=(rollout.extended(episode.segments[0], completion),))
    unfinished = {key: group for key, group in groups.items() if any(map(goes_on, group))}
    finished = [group for key, group in groups.items() if key not in unfinished]
    grading = [partial(rollout.graded, e.task, e.segments[0]) for group in finished for e in group]
    episodes = iter(runtime.roll_out(grading))
    rolled_out = [list(islice(episodes, len(group))) for group in finished]  # group_size may have changed since
    for group in rolled_out:
        for episode in group:  # grown over several steps, so none is retried
            runtime.episode_counts.count(episode, runtime.episode_counts.begin(), again=False)
    queue.batches = unfinished
    metrics = {
        "buffer/groups": float(len(queue)),
        "buffer/unfinished": float(sum(map(goes_on, queue))),
        "buffer/finished_groups": float(len(finished)),
    }
    return sampled_of(rolled_out, metrics)


def sampled_of(episodes: Sequence[Sequence[Episode]], metrics: dict[str, float]) -> Sampled:
    """What a step sampled, by its groups.

    Args:
        metrics: more of them.
    """
    every = [episode for group in episodes for episode in group]
    failed = sum(episode.outcome in FAULTS for episode in every)
    counts = {**failures(every), "grader/reply_exhausted": float(num_exhausted(every))}
    return Sampled([kept(group) for group in episodes], counts | metrics, failed)


def kept(group: Sequence[Episode]) -> list[Episode]:
    """The episodes that did not fail."""
    return [episode for episode in group if episode.outcome not in FAULTS]


def graded(group: Sequence[Episode]) -> list[Segment]:
    return [episode.segments[0] for episode in kept(group)]


def batches_of(
    step_tasks: list[Task], tasks: Sequence[Task], seed: int, step: int, resample: int
) -> Iterator[list[Task]]:
    """A step's problems, then for dynamic sampling more batches, drawn from the others.

    No problem comes twice in a step, as its replies would be the same.

    Args:
        step_tasks: the step's problems.
        tasks: all training problems.
        resample: how many more batches at most.
    """
    yield step_tasks
    count, used = len(step_tasks), {task.id for task in step_tasks}
    rng = random.Random(seed_of(seed, "resample", step))
    wanted = min(resample * count, len(tasks) - count)
    drawn = rng.sample(range(len(tasks)), min(wanted + count, len(tasks)))
    others = [tasks[i] for i in drawn if tasks[i].id not in used][:wanted]
    for at in range(0, len(others), count):
        yield others[at : at + count]
