"""Ranks that Ray places: one process a GPU, or several on a CPU. Each runs `whet.trainer.rank.Rank`."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Mapping
from typing import Any

import cloudpickle

from whet.cluster.ray_start import (
    cause_of,
    check_ray,
    connect,
    facts_of,
    facts_of_this_process,
    resources,
)
from whet.config.parts import ClusterConfig
from whet.errors import WhetError
from whet.trainer.sharded import RanksLost


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

    def join(self, address: str, num_threads: int | None) -> None:
        """Meet the other ranks at rank 0's address."""
        from whet.models.sharding import join
        from whet.trainer.rank import Rank

        self.rank = Rank(join(self.number, self.size, address, 0))
        self.rank.settle(num_threads)

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
            self.facts = [facts_of(actor, f"rank {number}") for number, actor in enumerate(self._actors)]
        except WhetError:
            self.close()
            raise
        address = f"tcp://{self.facts[0]['node']}:{self.facts[0]['port']}"
        self._answer([actor.join.remote(address, self.num_threads) for actor in self._actors], is_command=False)

    def _answer(self, asked: list[Any], *, is_command: bool = True) -> Any:
        """Rank 0's answer, once all ranks have answered.

        Raises: RanksLost as soon as one rank has died or failed: the others would wait for it.
        """
        waiting, answers = dict(zip(asked, range(self.size), strict=True)), {}
        while waiting:
            done, _ = self._ray.wait(list(waiting), num_returns=1)
            number = waiting.pop(done[0])
            try:
                answers[number] = self._ray.get(done[0])
            except Exception as error:  # the actor's death, or what it raised besides errors for users
                facts = self.facts[number]
                self.close()
                raise RanksLost(
                    f"rank {number} (process {facts['pid']} on {facts['node']}) {cause_of(error, facts)}"
                ) from error
        if not is_command:
            return None
        kind, answer = answers[0]
        if kind == "error":
            raise answer
        return answer
