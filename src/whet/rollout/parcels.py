"""Rollouts and episodes on their way to another process: what both sides have travels as a name, tokens as arrays."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import cloudpickle
import numpy as np

from whet.errors import RunError
from whet.types import Episode, Segment


def pack(value: Any, names: Mapping[str, object], stays: Mapping[str, object] | None = None) -> bytes:
    """Bytes of a value.

    Args:
        names: objects that both sides have, such as a policy's tokenizer, by a name for each. They do not travel.
        stays: objects that the other side cannot have, by what they are.
    Raises: RunError where the value holds one of these, or anything else that cannot travel.
    """
    file = io.BytesIO()
    by_id: dict[int, str] = {}
    for name, held in names.items():
        by_id.setdefault(id(held), name)
    packer = _Packer(file, by_id, {id(held): what for what, held in (stays or {}).items()})
    try:
        packer.dump(value)
    except (TypeError, AttributeError, pickle.PicklingError) as error:
        raise RunError(
            f"a rollout cannot travel to a worker, as it holds something that does not pickle ({error}): give it what "
            "it needs by functools.partial"
        ) from error
    return file.getvalue()


def unpack(parcel: bytes, names: Mapping[str, object]) -> Any:
    """The value, with the objects that this side has under the names."""
    unpacker = _Unpacker(io.BytesIO(parcel))
    unpacker.names = names
    return unpacker.load()


class _Packer(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, names: Mapping[int, str], stays: Mapping[int, str]) -> None:
        super().__init__(file)
        self.names, self.stays = names, stays

    def persistent_id(self, value: object) -> str | None:
        if id(value) in self.stays:
            raise RunError(
                f"a rollout cannot travel to a worker, as it holds {self.stays[id(value)]}: give it what it needs of "
                "that by functools.partial"
            )
        return self.names.get(id(value))

    def reducer_override(self, value: Any) -> Any:
        return _reduced(value) if type(value) is Episode else super().reducer_override(value)


class _Unpacker(pickle.Unpickler):
    names: Mapping[str, object]

    def persistent_load(self, name: str) -> object:
        return self.names[name]


# --- episodes ---------------------------------------------------------------------------------------------------------
# As objects, an episode's tokens would take twice as long to read as all the rest, and a chain of a thousand turns
# would nest too deeply for pickle.


def _reduced(episode: Episode) -> Any:
    segments = list(episode.segments)
    places = {id(segment): place for place, segment in enumerate(segments)}
    for segment in segments:  # grows: a prefix may be of another episode
        if segment.prefix is not None and id(segment.prefix) not in places:
            places[id(segment.prefix)] = len(segments)
            segments.append(segment.prefix)
    ids = np.fromiter((i for s in segments for part in (s.added, s.tokens) for i in part), np.int32)
    logprobs = np.fromiter((value for s in segments for value in s.logprobs), np.float64)
    shapes = [(len(s.added), len(s.tokens), len(s.logprobs)) for s in segments]
    prefixes = [None if s.prefix is None else places[id(s.prefix)] for s in segments]
    others = [tuple(getattr(segment, name) for name in OTHERS) for segment in segments]
    count = len(episode.segments)
    return _rebuilt, (episode.task, episode.outcome, episode.reason, count, ids, logprobs, shapes, prefixes, others)


def _rebuilt(
    task: Any,
    outcome: Any,
    reason: str,
    count: int,
    ids: Any,
    logprobs: Any,
    shapes: list[tuple[int, int, int]],
    prefixes: list[int | None],
    others: list[tuple[Any, ...]],
) -> Episode:
    at = scored = 0
    built: list[Segment] = []
    for (num_added, num_tokens, num_logprobs), values in zip(shapes, others, strict=True):
        middle, end = at + num_added, at + num_added + num_tokens
        segment = Segment(
            added=tuple(ids[at:middle].tolist()),
            tokens=tuple(ids[middle:end].tolist()),
            logprobs=tuple(logprobs[scored : scored + num_logprobs].tolist()),
            **dict(zip(OTHERS, values, strict=True)),
        )
        built.append(segment)
        at, scored = end, scored + num_logprobs
    for segment, prefix in zip(built, prefixes, strict=True):
        if prefix is not None:  # frozen once it is given away; a prefix may stand after what follows it
            object.__setattr__(segment, "prefix", built[prefix])
    return Episode(task=task, segments=tuple(built[:count]), outcome=outcome, reason=reason)


OTHERS = tuple(name for name in Segment.__dataclass_fields__ if name not in ("added", "tokens", "logprobs", "prefix"))
