"""What a step of training samples: whole groups of replies, or replies that go on from step to step."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from whet.evals.protocol import num_exhausted
from whet.play.driver import play
from whet.play.roles import Role, seed_of
from whet.recipes.solve_answers import POLICY, Solvers
from whet.tasks.files import DataError
from whet.training.buffers import UnfinishedQueue
from whet.types import Episode, Segment, Task

Group = tuple[Task, list[Segment]]
"""A problem, and the graded replies to it; those whose grading failed are left out."""


@dataclass(frozen=True)
class Sampled:
    """What a step sampled."""

    groups: list[Group]
    """Those of which every reply has ended."""
    metrics: dict[str, float]
    num_tokens: int
    """Read and written by the engine."""
    num_failed: int
    """Replies whose grading failed."""


def has_signal(segments: Sequence[Segment]) -> bool:
    """Whether the scores differ, so that some replies are better than others."""
    return len({s.grade.score for s in segments if s.grade is not None}) > 1


class Rollouts:
    """The sampling side of training. Problems and seeds are functions of the step alone, so that a resumed run samples
    the same.

    Args:
        tasks: the training problems.
    """

    def __init__(self, solvers: Solvers, tasks: Sequence[Task]) -> None:
        self.solvers, self.config, self.tasks = solvers, solvers.config, tasks
        self.task_of = {task.id: task for task in tasks}

    def whole(self, step: int) -> Sampled:
        """Every reply from start to end: of this step's problems, or with dynamic sampling of more, until enough groups
        have a signal."""
        flow = self.solvers.flow(POLICY, "train", step)
        groups: list[Group] = []
        errors = exhausted = num_tokens = 0
        for tasks in self.batches_of(step):
            played = self.solvers.answers(flow, tasks, num_samples=self.config.group_size)
            errors += _num_errors(played)
            exhausted += num_exhausted(e for group in played for e in group)
            num_tokens += sum(len(e.segments[0].context) + len(e.segments[0].tokens) for each in played for e in each)
            groups += map(_group, tasks, played)
            if sum(has_signal(group) for _, group in groups) >= self.config.prompts_per_step:
                break
        metrics = {"grader/errors": float(errors), "grader/reply_exhausted": float(exhausted)}
        if self.config.resample:
            metrics["group/sampled"] = float(len(groups))
        return Sampled(groups, metrics, num_tokens, errors)

    def in_parts(self, step: int, queue: UnfinishedQueue, budget: int) -> Sampled:
        """Begin this step's problems, let all unfinished replies go on for one budget, the oldest first, and take the
        groups out of which every reply has ended (section 3.2 of the paper's partial rollout).

        Args:
            queue: the unfinished groups, which it changes.
            budget: tokens that a reply may grow by.
        """
        flow, services, size = self.solvers.flow(POLICY, "train", step), self.solvers.services(), self.config.group_size
        role = flow.solver
        for task in self.tasks_of(step):
            queue.groups[f"{step}/{task.id}"] = [flow.begin(task, i) for i in range(size)]
        waiting = [(key, i) for key, group in queue.groups.items() for i, s in enumerate(group) if not _ended(role, s)]
        requests = [role.request(queue.groups[key][i], budget) for key, i in waiting]
        completions = services[POLICY](requests)
        for (key, i), completion in zip(waiting, completions, strict=True):
            queue.groups[key][i] = flow.extended(queue.groups[key][i], completion)
        done = [key for key, group in queue.groups.items() if all(_ended(role, s) for s in group)]
        finished = [(self._task_of(key), queue.groups.pop(key)) for key in done]
        episodes = play([flow.graded(task, s) for task, group in finished for s in group], services)
        played = [episodes[at : at + size] for at in range(0, len(episodes), size)]
        errors = _num_errors(played)
        left = [s for group in queue.groups.values() for s in group if not _ended(role, s)]
        metrics = {
            "grader/errors": float(errors),
            "grader/reply_exhausted": float(num_exhausted(episodes)),
            "buffer/groups": float(len(queue.groups)),
            "buffer/unfinished": float(len(left)),
            "buffer/finished_groups": float(len(finished)),
        }
        num_tokens = sum(len(r.context) + len(c.tokens) for r, c in zip(requests, completions, strict=True))
        groups = [_group(task, found) for (task, _), found in zip(finished, played, strict=True)]
        return Sampled(groups, metrics, num_tokens, errors)

    def _task_of(self, key: str) -> Task:
        """Of a group in the queue.

        Raises: DataError where the problem is gone, as after `--accept-changes` with other data.
        """
        name = key.partition("/")[2]
        if name not in self.task_of:
            raise DataError(
                f"replies that were begun before the run was resumed are to problem {name!r}, which the data have no "
                "more: put the data back as they were"
            )
        return self.task_of[name]

    def tasks_of(self, step: int) -> list[Task]:
        """This step's problems, once round the set before any comes again."""
        count = self.config.prompts_per_step
        return [self.tasks[((step - 1) * count + i) % len(self.tasks)] for i in range(count)]

    def batches_of(self, step: int) -> Iterator[list[Task]]:
        """This step's problems, and for dynamic sampling more, drawn from the others: no problem twice in a step, as
        its replies would be the same ones."""
        own = self.tasks_of(step)
        yield own
        count, used = len(own), {task.id for task in own}
        rng = random.Random(seed_of(self.config.seed, "resample", step))
        wanted = min(self.config.resample * count, len(self.tasks) - count)
        drawn = rng.sample(range(len(self.tasks)), min(wanted + count, len(self.tasks)))
        others = [self.tasks[i] for i in drawn if self.tasks[i].id not in used][:wanted]
        for at in range(0, len(others), count):
            yield others[at : at + count]


def _group(task: Task, episodes: Sequence[Episode]) -> Group:
    return task, [e.segments[0] for e in episodes if e.outcome != "grader_error"]


def _num_errors(groups: Sequence[Sequence[Episode]]) -> int:
    return sum(e.outcome == "grader_error" for group in groups for e in group)


def _ended(role: Role, segment: Segment) -> bool:
    return bool(segment.tokens) and role.has_ended(segment)
