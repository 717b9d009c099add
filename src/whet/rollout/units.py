"""Units of rollouts: how they travel to a worker, are rolled out there or here, and come home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from whet.rollout.free import Arrivals
from whet.rollout.parcels import pack, unpack
from whet.rollout.retries import Ended, EpisodeRecords
from whet.rollout.runtime import Call, Runtime

COUNTS = "episode counts"
"""The name of the counts that a unit's rollouts report to."""
OF_EPISODES = ("episodes/", "faults/")
"""Counts that come home one by one, as `Ended`."""
Recorded = Mapping[int, int]
"""The steps at which a call's answers came, by ticket: see `Arrivals`."""


@dataclass(frozen=True)
class UnitResult:
    """What a unit brings home."""

    results: list[Any]
    """Of its rollouts, in order."""
    endings: list[Ended]
    """Of its episodes, in the order in which they ended."""
    growth: Mapping[str, float]
    """Of the worker's other counts: tokens, requests of endpoints."""
    arrivals: Recorded = field(default_factory=dict)
    """Of rollouts without a set latency."""


def tokenizers(runtime: Runtime) -> dict[str, object]:
    """What the run and its workers both have, by name: rollouts hold the tokenizers of their policies."""
    return {f"tokenizer of {name}": policy.tokenizer for name, policy in runtime.policies.items()}


def pack_unit(
    calls: Sequence[Call[Any]], runtime: Runtime, names: Mapping[str, object], stays: Mapping[str, object]
) -> bytes:
    """Args: names, stays: as in `pack`."""
    return pack(list(calls), {**names, COUNTS: runtime.episode_counts}, stays)


def run_unit(parcel: bytes, runtime: Runtime, recorded: Recorded | None = None) -> UnitResult:
    """Roll out a unit.

    Args:
        recorded: arrivals to repeat, where rollouts have no set latency. None: they have.
    """
    records, lines = EpisodeRecords(), list[Mapping[str, Any]]()
    runtime.arrivals = Arrivals({"/0": recorded or {}}, lines.append)
    before = runtime.counts()
    results = runtime.roll_out(unpack(parcel, {**tokenizers(runtime), COUNTS: records}))
    growth = {
        name: value - before.get(name, 0.0)
        for name, value in runtime.counts().items()
        if not name.startswith(OF_EPISODES)
    }
    return UnitResult(results, records.records, growth, lines[0]["arrivals"] if lines else {})


def roll_out_unit(calls: Sequence[Call[Any]], runtime: Runtime) -> UnitResult:
    """Roll out a unit in the run's own process, whose counts its tokens are in already."""
    records, names = EpisodeRecords(), tokenizers(runtime)
    parcel = pack_unit(calls, runtime, names, {})
    return UnitResult(runtime.roll_out(unpack(parcel, {**names, COUNTS: records})), records.records, {})
