"""Processes that Ray places and that take jobs: a job whose process died goes to another one, and none is lost."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.cluster.ray_start import SLOW_S, cause_of, checked_facts, has_failed, unstarted
from whet.errors import RunError

AHEAD = 2
"""Jobs that a process has at one time: the next one waits there, so that no process waits for the run's own."""


@dataclass(eq=False)
class Member:
    """One of the processes."""

    actor: Any
    name: str
    """For messages: "worker 0"."""
    placed: Any
    """Its facts to come."""
    starting: Any
    """The answer to come of its start. None: it has started."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Where it runs: see `facts_of_this_process`. Empty until it has started."""
    since: float = field(default_factory=time.monotonic)
    """When it was asked for, by `time.monotonic`."""
    is_told: bool = False
    """Whether a sentence said that its start takes long."""
    has: dict[str, Any] = field(default_factory=dict)
    """What it was given beside jobs, such as weights. A new process has nothing."""
    taken: dict[Any, int] = field(default_factory=dict)
    """Its jobs, by their answers to come."""
    ahead: dict[Any, int] = field(default_factory=dict)
    """Its jobs of `Processes.begin`, by their answers to come."""


class ProcessDied(Exception):
    """A process is gone. `Processes.work` starts another."""

    def __init__(self, member: Member, error: Exception) -> None:
        super().__init__(str(error))
        self.member, self.error = member, error


class Processes:
    """Ray actors of one kind. Each has the methods `facts()`, `start()` and `run(*job)`.

    `start` returns what is wrong with the settings, or None.

    Args:
        ray: the module, connected.
        make: makes an actor.
        count: of processes.
        restarts: processes that may die in all.
        kind: of process, for messages: "worker".
        tell: receives a sentence where a process died.
    Raises: RunError where one cannot start. One that is killed meanwhile is started again.
    """

    def __init__(
        self, ray: Any, make: Callable[[], Any], count: int, *, restarts: int, kind: str, tell: Callable[[str], None]
    ) -> None:
        self.ray, self.make, self.restarts, self.kind, self.tell = ray, make, restarts, kind, tell
        self.num_restarts = 0
        self.most_waiting = 0
        """Jobs that no process had taken, at most, since somebody set this to 0."""
        self._ended: list[tuple[int, Member | None, Any]] = []
        """Jobs of `begin` whose answers nobody has asked for yet."""
        self.members = [self._new(number) for number in range(count)]  # they start side by side
        while any(member.starting is not None for member in self.members):
            try:
                self._settle(*self._next())
            except ProcessDied as died:
                self._replace(died, deque())

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
                        if not (member.taken or member.ahead) and member.starting is None:
                            before(member)
                    self._give(waiting, jobs)
                    beat()
                    answer, member = self._next()
                    if answer in member.ahead:
                        self._end(answer, member)
                        continue
                    if answer not in member.taken:
                        self._settle(answer, member)
                        continue
                    value = self.answer(member, answer)
                except ProcessDied as died:
                    self._replace(died, waiting)
                    continue
                num_open -= 1
                yield member.taken.pop(answer), value
        finally:  # where somebody stopped half-way, what still comes is nobody's
            for member in self.members:
                member.taken.clear()

    # --- jobs that go on while this process does something else -------------------------------------------------------

    @property
    def idle(self) -> list[Member]:
        """The processes that have no job."""
        return [member for member in self.started if not (member.taken or member.ahead)]

    def begin(self, number: int, member: Member, job: tuple[Any, ...]) -> None:
        """Give a process a job whose answer `ended` brings."""
        member.ahead[member.actor.run.remote(*job)] = number

    def ended(self, wait_s: float) -> list[tuple[int, Member | None, Any]]:
        """Jobs of `begin` that have ended, with their processes and answers. None: the process died.

        Args:
            wait_s: the longest wait for the first one.
        Raises: RunError where more than `restarts` processes have died.
        """
        asked = {answer: member for member in self.members for answer in member.ahead}
        asked |= {member.starting: member for member in self.members if member.starting is not None}
        done: list[Any] = []
        if asked:
            self._say_unstarted()
            done, _ = self.ray.wait(list(asked), num_returns=1, timeout=0 if self._ended else wait_s)
            if done:  # and whatever else has come
                done, _ = self.ray.wait(list(asked), num_returns=len(asked), timeout=0)
        else:
            time.sleep(0 if self._ended else wait_s)
        for answer in done:
            try:
                if answer in asked[answer].ahead:
                    self._end(answer, asked[answer])
                else:
                    self._settle(answer, asked[answer])
            except ProcessDied as died:
                self._replace(died, deque())
        ended, self._ended = self._ended, []
        return ended

    def _end(self, answer: Any, member: Member) -> None:
        """Raises: ProcessDied."""
        value = self.answer(member, answer)
        self._ended.append((member.ahead.pop(answer), member, value))

    def answer(self, member: Member, asked: Any) -> Any:
        """What a process answers. Raises: ProcessDied."""
        try:
            return self.ray.get(asked)
        except self.ray.exceptions.RayError as error:
            raise ProcessDied(member, error) from error

    @property
    def started(self) -> list[Member]:
        """The processes that take jobs."""
        return [member for member in self.members if member.starting is None]

    def _give(self, waiting: deque[int], jobs: Sequence[tuple[Any, ...]]) -> None:
        while waiting and self.started:
            member = min(self.started, key=lambda member: len(member.taken) + len(member.ahead))
            if len(member.taken) >= AHEAD:
                break
            number = waiting.popleft()
            member.taken[member.actor.run.remote(*jobs[number])] = number
        self.most_waiting = max(self.most_waiting, len(waiting))

    def _next(self) -> tuple[Any, Member]:
        """An answer that has come, or the sign that its process died."""
        asked = {answer: member for member in self.members for answer in (*member.taken, *member.ahead)}
        asked |= {member.starting: member for member in self.members if member.starting is not None}
        while True:
            done, _ = self.ray.wait(list(asked), num_returns=1, timeout=SLOW_S)
            if done:
                return done[0], asked[done[0]]
            self._say_unstarted()

    def _say_unstarted(self) -> None:
        """Say which processes Ray has not started yet. Raises: RunError where nothing else is at work for long."""
        late = [m for m in self.members if m.starting is not None and not self.ray.wait([m.placed], timeout=0)[0]]
        if not late:
            return
        waited_s = time.monotonic() - min(member.since for member in late)
        text = unstarted([member.name for member in late], waited_s, is_idle=len(late) == len(self.members))
        if waited_s > SLOW_S and not all(member.is_told for member in late):
            self.tell(text)
            for member in late:
                member.is_told = True

    def _new(self, number: int) -> Member:
        actor = self.make()
        return Member(actor, f"{self.kind} {number}", actor.facts.remote(), actor.start.remote())

    def _settle(self, answer: Any, member: Member) -> None:
        """A process has started. Raises: RunError where it cannot. ProcessDied."""
        try:
            member.facts = checked_facts(self.ray.get(member.placed), member.name)
            problem = self.ray.get(answer)
        except self.ray.exceptions.RayError as error:
            if has_failed(error):
                raise RunError(f"{member.name} could not start: it {cause_of(error, member.facts)}") from error
            raise ProcessDied(member, error) from error
        if problem is not None:
            raise RunError(f"{member.name} on {member.facts['node']} could not start: {problem}") from problem
        member.starting = None

    def _replace(self, died: ProcessDied, waiting: deque[int]) -> None:
        """Start a process in the place of one that died. Its jobs wait again, before the others."""
        member, error = died.member, died.error
        number, facts = self.members.index(member), member.facts
        where = f" (process {facts['pid']} on {facts['node']})" if facts else ""
        cause = f"{member.name}{where} {cause_of(error, facts)}"
        if self.num_restarts >= self.restarts:
            raise RunError(
                f"{cause}\nThe run ends, as cluster.restarts = {self.restarts} processes have died before; "
                "`whet resume` goes on from its last checkpoint"
            )
        self.num_restarts += 1
        waiting.extendleft(sorted(member.taken.values(), reverse=True))
        self._ended += [(number_ahead, None, None) for number_ahead in member.ahead.values()]
        self.tell(f"{cause}\nA new one takes its place and its {len(member.taken) + len(member.ahead)} units")
        self.members[number] = self._new(number)

    def close(self) -> None:
        """End the processes."""
        for member in self.members:
            self.ray.kill(member.actor)
        self.members = []
