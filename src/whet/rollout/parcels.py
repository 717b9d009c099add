"""Rollouts and episodes on their way to another process. What both sides have travels as a name."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import cloudpickle

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
# A chain of a thousand turns would nest too deeply for pickle, so segments travel side by side. Tokens as arrays would
# be no faster: rollouts, credit and views read tuples.


def _reduced(episode: Episode) -> Any:
    segments = list(episode.segments)
    places = {id(segment): place for place, segment in enumerate(segments)}
    for segment in segments:  # grows: a prefix may be of another episode
        if segment.prefix is not None and id(segment.prefix) not in places:
            places[id(segment.prefix)] = len(segments)
            segments.append(segment.prefix)
    prefixes = [None if s.prefix is None else places[id(s.prefix)] for s in segments]
    others = [tuple(getattr(segment, name) for name in OTHERS) for segment in segments]
    count = len(episode.segments)
    return _rebuilt, (episode.task, episode.outcome, episode.reason, count, prefixes, others)


def _rebuilt(
    task: Any,
    outcome: Any,
    reason: str,
    count: int,
    prefixes: list[int | None],
    others: list[tuple[Any, ...]],
) -> Episode:
    built = [Segment(**dict(zip(OTHERS, values, strict=True))) for values in others]
    for segment, prefix in zip(built, prefixes, strict=True):
        if prefix is not None:  # frozen once it is given away; a prefix may stand after what follows it
            object.__setattr__(segment, "prefix", built[prefix])
    return Episode(task=task, segments=tuple(built[:count]), outcome=outcome, reason=reason)


OTHERS = tuple(name for name in Segment.__dataclass_fields__ if name != "prefix")
