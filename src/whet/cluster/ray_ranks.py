"""Ranks that Ray places: one process a GPU, or several on a CPU. Each runs `whet.trainer.rank.Rank`."""

from __future__ import annotations

import logging
import pickle
import socket
import time
from collections.abc import Mapping
from typing import Any

import cloudpickle

from whet.cluster.ray_start import (
    SLOW_S,
    cause_of,
    check_ray,
    checked_facts,
    connect,
    facts_of_this_process,
    has_failed,
    resources,
    unstarted,
)
from whet.config.parts import ClusterConfig
from whet.errors import RunError, WhetError
from whet.models.group import is_lost_connection
from whet.trainer.sharded import RanksLost

logger = logging.getLogger(__name__)

OTHERS_S = 10.0
"""Seconds that ranks have to answer once one has failed. They may wait for it in an exchange."""


class RankProcess:
    """A Ray actor: one rank."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size

    def facts(self) -> Mapping[str, Any]:
        """Where it runs, and a port that is free there."""
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return facts_of_this_process() | {"port": port}

    def join(self, address: str, num_threads: int | None) -> tuple[str, Any]:
        """Meet the other ranks at rank 0's address."""
        from whet.models.sharding import join
        from whet.trainer.rank import Rank

        self.rank = Rank(join(self.number, self.size, address, 0))
        self.rank.settle(num_threads)
        return "answer", None

    def run(self, command: bytes, first: Any = None) -> tuple[str, Any]:
        """Run a command. Returns: ("answer", rank 0's answer), or ("error", what the command raised, for users)."""
        name, arguments = pickle.loads(command)
        try:
            answer = self.rank.run(name, *arguments, first=first)
        except (WhetError, ValueError) as error:
            return "error", error
        return "answer", answer if self.number == 0 else None


class RayRanks:
    """Ranks under Ray, as `whet.trainer.sharded.Ranks`. They start with the first command.

    Args:
        num_threads: CPU threads of each rank. None: torch's choice.
    """

    def __init__(self, settings: ClusterConfig, num_threads: int | None) -> None:
        check_ray(settings)
        self.settings, self.num_threads, self.size = settings, num_threads, settings.ranks
        self._ray: Any = None
        self._actors: list[Any] = []
        self.facts: list[Mapping[str, Any]] = []
        """Of each rank: its node, process and devices."""

    def call(self, command: str, *arguments: Any, first: Any = None) -> Any:
        if not self._actors:
            self._start()
        message = self._ray.put(cloudpickle.dumps((command, arguments)))
        weights = None if first is None else self._ray.put(first)
        return self._answer([a.run.remote(message, None if i else weights) for i, a in enumerate(self._actors)])

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []

    def _start(self) -> None:
        self._ray = ray = connect(self.settings)
        make = ray.remote(RankProcess).options(**resources(self.settings))
        self._actors = [make.remote(number, self.size) for number in range(self.size)]
        try:
            self.facts = self._await_facts()
        except WhetError:
            self.close()
            raise
        address = f"tcp://{self.facts[0]['node']}:{self.facts[0]['port']}"
        self._answer([actor.join.remote(address, self.num_threads) for actor in self._actors])

    def _await_facts(self) -> list[Mapping[str, Any]]:
        """The facts of all ranks. Raises: RunError where one cannot start. RanksLost where one dies meanwhile."""
        asked = [actor.facts.remote() for actor in self._actors]
        started, waiting = time.monotonic(), asked
        while waiting:
            _, waiting = self._ray.wait(waiting, num_returns=len(waiting), timeout=SLOW_S)
            if waiting:
                late = [f"rank {number}" for number, answer in enumerate(asked) if answer in waiting]
                logger.warning("%s", unstarted(late, time.monotonic() - started, is_idle=True))
        facts = []
        for number, answer in enumerate(asked):
            try:
                facts.append(checked_facts(self._ray.get(answer), f"rank {number}"))
            except self._ray.exceptions.RayError as error:
                kind = RunError if has_failed(error) else RanksLost
                raise kind(f"rank {number} could not start: it {cause_of(error, {})}") from error
        return facts

    def _answer(self, asked: list[Any]) -> Any:
        """Rank 0's answer, once all ranks have answered.

        Raises: what all ranks raised. RanksLost where one has died, or failed and the others did not.
        """
        waiting = dict(zip(asked, range(self.size), strict=True))
        answers, errors, lost = dict[int, Any](), dict[int, Exception](), dict[int, Exception]()
        while waiting:
            done, _ = self._ray.wait(list(waiting), num_returns=1, timeout=OTHERS_S if errors or lost else None)
            if not done:
                break  # they wait for the rank that failed
            number = waiting.pop(done[0])
            try:
                kind, value = self._ray.get(done[0])
            except Exception as error:  # the actor's death, or what it raised besides errors for users
                lost[number] = error
            else:
                (errors if kind == "error" else answers)[number] = value
        if len(errors) == self.size:
            raise errors[0]
        if errors or lost:
            self.close()
            raise self._lost(errors, lost)
        return answers[0]

    def _lost(self, errors: Mapping[int, Exception], lost: Mapping[int, Exception]) -> RanksLost:
        """Says which rank went first, as far as that can be told: others only lost the connection to it."""

        def order(number: int) -> int:
            error = lost.get(number)
            if error is None:
                return 1
            return 0 if not has_failed(error) else 2 if is_lost_connection(error) else 1

        number = min([*errors, *lost], key=order)
        facts = self.facts[number]
        if number in errors:
            cause = f"failed, and the others did not: {errors[number]}"
        else:
            cause = cause_of(lost[number], facts)
        text = f"rank {number} (process {facts['pid']} on {facts['node']}) {cause}"
        return RanksLost(text, cause.splitlines()[-1] if order(number) == 1 else "")
