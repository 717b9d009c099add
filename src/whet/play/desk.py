"""The desk: policies and services at hand, by name. Flows ask it for roles; it makes an engine where one is first asked
for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from whet.config.parts import EngineConfig, SamplingConfig
from whet.engines.local import LocalEngine
from whet.models.policy import Policy
from whet.play.driver import GRADER, Flow, Service, play
from whet.play.roles import Role
from whet.types import Sampling

T = TypeVar("T")


class Desk(Mapping[str, Service]):
    """Services by name: the grader, and an engine for every policy.

    Args:
        policies: the run's own dict, which may come to hold more of them.
    """

    def __init__(self, policies: Mapping[str, Policy], grade: Service, settings: EngineConfig) -> None:
        self.policies, self.grade, self.settings = policies, grade, settings
        self._engines: dict[str, LocalEngine] = {}
        self._num_before = 0
        """Tokens of engines that are gone."""

    def __getitem__(self, name: str) -> Service:
        if name == GRADER:
            return self.grade
        policy = self.policies[name]
        engine = self._engines.get(name)
        if engine is None or engine.policy is not policy:
            self._num_before += engine.num_tokens if engine is not None else 0
            engine = LocalEngine(policy, max_rows=self.settings.max_rows, prefill_tokens=self.settings.prefill_tokens)
            self._engines[name] = engine
        return engine.generate

    @property
    def num_tokens(self) -> int:
        """Read and written by all engines so far."""
        return self._num_before + sum(engine.num_tokens for engine in self._engines.values())

    def __iter__(self) -> Iterator[str]:
        return iter((GRADER, *self.policies))

    def __len__(self) -> int:
        return 1 + len(self.policies)

    def role(
        self, name: str, policy: str, settings: SamplingConfig, *, greedy: bool = False,
        temperature: float | None = None,
    ) -> Role:  # fmt: skip
        """A seat: who sits in it, and how it samples.

        Args:
            temperature: in place of the settings', where not greedy. None: theirs.
        """
        sampling = Sampling(
            temperature=settings.temperature if temperature is None else temperature,
            top_p=settings.top_p,
            max_new_tokens=settings.max_new_tokens,
            stop=settings.stop,
        )
        if greedy:
            sampling = replace(sampling, temperature=0.0, top_p=1.0)
        return Role(name, policy, self.policies[policy].tokenizer, sampling)

    def play(self, flows: Iterable[Flow[T]]) -> list[T]:
        return play(flows, self)

    def by_task(
        self, flow: Callable[..., Flow[T]], tasks: Sequence[Any], *, num_samples: int = 1, **more: Any
    ) -> list[list[T]]:
        """`num_samples` plays of each task, next to each other.

        Args:
            flow: takes a task, and by name `sample`.
        """
        played = self.play([flow(task, sample=i, **more) for task in tasks for i in range(num_samples)])
        return [played[at : at + num_samples] for at in range(0, len(played), num_samples)]
