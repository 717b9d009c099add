"""Processes that Ray places and that take jobs: a job whose process died goes to another one, and none is lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.cluster.ray_start import cause_of, facts_of
from whet.errors import RunError

AHEAD = 2
"""Jobs that a process has at one time: the next one waits there, so that no process waits for the run's own."""


@dataclass(eq=False)
class Member:
    """One of the processes."""

    actor: Any
    facts: Mapping[str, Any]
    """Where it runs: see `facts_of_this_process`."""
    has: dict[str, Any] = field(default_factory=dict)
    """What it was given beside jobs, such as weights. A new process has nothing."""
    taken: dict[Any, int] = field(default_factory=dict)
    """Its jobs, by their answers to come."""


class ProcessDied(Exception):
    """A process is gone. `Processes.work` starts another."""

    def __init__(self, member: Member, error: Exception) -> None:
        super().__init__(str(error))
        self.member, self.error = member, error


class Processes:
    """Ray actors of one kind. Each has the methods `facts()` and `run(*job)`.

    Args:
        ray: the module, connected.
        make: makes an actor.
        count: of processes.
        restarts: processes that may die in all.
        kind: of process, for messages: "worker".
        tell: receives a sentence where a process died.
    Raises: RunError where one cannot start.
    """

    def __init__(
        self, ray: Any, make: Callable[[], Any], count: int, *, restarts: int, kind: str, tell: Callable[[str], None]
    ) -> None:
        self.ray, self.make, self.restarts, self.kind, self.tell = ray, make, restarts, kind, tell
        self.num_restarts = 0
        self.most_waiting = 0
        """Jobs that no process had taken, at most, since somebody set this to 0."""
        actors = [make() for _ in range(count)]  # they start side by side
        self.members = [Member(actor, self._facts_of(actor, number)) for number, actor in enumerate(actors)]

    def work(
        self, jobs: Sequence[tuple[Any, ...]], before: Callable[[Member], None], beat: Callable[[], None]
    ) -> Iterator[tuple[int, Any]]:
        """Have jobs done. They are taken in order.

        Args:
            before: runs for each process that has no job, before it gets one. It may raise `ProcessDied`.
            beat: runs before each wait.
        Returns: the number of each job and its answer, as they come.
        Raises: RunError where more than `restarts` processes have died.
        """
        waiting = deque(range(len(jobs)))
        try:
            num_open = len(jobs)
            while num_open:
                try:
                    for member in self.members:
                        if not member.taken:
                            before(member)
                    self._give(waiting, jobs)
                    beat()
                    answer, member = self._next()
                    value = self.answer(member, answer)
                except ProcessDied as died:
                    self._replace(died, waiting)
                    continue
                num_open -= 1
                yield member.taken.pop(answer), value
        finally:  # where somebody stopped half-way, what still comes is nobody's
            for member in self.members:
                member.taken.clear()

    def answer(self, member: Member, asked: Any) -> Any:
        """What a process answers. Raises: ProcessDied."""
        try:
            return self.ray.get(asked)
        except self.ray.exceptions.RayError as error:
            raise ProcessDied(member, error) from error

    def _give(self, waiting: deque[int], jobs: Sequence[tuple[Any, ...]]) -> None:
        while waiting:
            member = min(self.members, key=lambda member: len(member.taken))
            if len(member.taken) >= AHEAD:
                break
            number = waiting.popleft()
            member.taken[member.actor.run.remote(*jobs[number])] = number
        self.most_waiting = max(self.most_waiting, len(waiting))

    def _next(self) -> tuple[Any, Member]:
        """An answer that has come, or the sign that its process died."""
        done, _ = self.ray.wait([answer for member in self.members for answer in member.taken], num_returns=1)
        return done[0], next(member for member in self.members if done[0] in member.taken)

    def _replace(self, died: ProcessDied, waiting: deque[int]) -> None:
        """Start a process in the place of one that died. Its jobs wait again, before the others."""
        member, error = died.member, died.error
        number, facts = self.members.index(member), member.facts
        cause = f"{self.kind} {number} (process {facts['pid']} on {facts['node']}) {cause_of(error, facts)}"
        if self.num_restarts >= self.restarts:
            raise RunError(
                f"{cause}\nThe run ends, as cluster.restarts = {self.restarts} processes have died before; "
                "`whet resume` goes on from its last checkpoint"
            )
        self.num_restarts += 1
        waiting.extendleft(sorted(member.taken.values(), reverse=True))
        self.tell(f"{cause}\nA new one takes its place and its {len(member.taken)} units")
        actor = self.make()
        self.members[number] = Member(actor, self._facts_of(actor, number))

    def _facts_of(self, actor: Any, number: int) -> Mapping[str, Any]:
        return facts_of(actor, f"{self.kind} {number}")

    def close(self) -> None:
        """End the processes."""
        for member in self.members:
            self.ray.kill(member.actor)
        self.members = []
