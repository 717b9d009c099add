"""How data may be older than the weights that train on them. Free of torch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from whet.config.base import Config


class FreshData(Config):
    """Every batch is trained on in the step that sampled it."""

    kind: Literal["none"] = "none"


class ReplayData(Config):
    """Every batch is trained on exactly so many steps after it was sampled."""

    kind: Literal["replay"] = "replay"
    staleness: int = Field(4, ge=1)
    """Steps that a batch waits, first in, first out. The first steps only fill the queue."""


class PartialData(Config):
    """Long replies are written in several steps, the later parts by newer weights (partial rollout)."""

    kind: Literal["partial"] = "partial"
    budget: int = Field(24, ge=1)
    """Tokens that a reply may grow in one step."""


OffPolicy = Annotated[FreshData | ReplayData | PartialData, Field(discriminator="kind")]
