"""How data may be older than the weights that train on them. Free of torch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from whet.config.base import Config
from whet.config.inputs import InputFile


class FreshData(Config):
    """Every batch is trained on in the step that sampled it."""

    kind: Literal["none"] = "none"
    steps_old: ClassVar[int] = 0
    """Steps that a whole batch may be old where it is trained on."""


class ReplayData(Config):
    """Every batch is trained on exactly so many steps after it was sampled."""

    kind: Literal["replay"] = "replay"
    staleness: int = Field(4, ge=1)
    """Steps that a batch waits, first in, first out. The first steps only fill the queue."""

    @property
    def steps_old(self) -> int:
        """As `FreshData.steps_old`."""
        return self.staleness


class PartialData(Config):
    """Long replies are written in several steps, the later parts by newer weights (partial rollout)."""

    kind: Literal["partial"] = "partial"
    steps_old: ClassVar[int] = 0
    """As `FreshData.steps_old`: parts of replies are older."""
    budget: int = Field(24, ge=1)
    """Tokens that a reply may grow in one step."""


class AsyncData(Config):
    """Rollouts go on while the policy trains. Needs cluster.workers, or engine.kind=vllm."""

    kind: Literal["async"] = "async"
    max_age: int = Field(2, ge=1, le=1000)
    """Steps that rollouts may be old where they are trained on. An update waits for those that would come out older
    after it; none is thrown away."""
    log: InputFile | None = None
    """The async.jsonl of another run, whose order of rollouts is to be repeated, to the same bits where whet's own
    engine samples. Needs no workers. null: none."""

    @property
    def steps_old(self) -> int:
        """As `FreshData.steps_old`."""
        return self.max_age


OffPolicy = Annotated[FreshData | ReplayData | PartialData | AsyncData, Field(discriminator="kind")]
