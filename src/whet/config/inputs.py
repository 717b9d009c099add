"""Which settings name files and models: what a run reads besides its settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from whet.config.base import Config

Kind = Literal["file", "model", "dataset"]


@dataclass(frozen=True, slots=True)
class Input:
    """Marks a field whose value is a place that is read."""

    kind: Kind


InputFile = Annotated[str, Input("file")]
"""A path, or a name that stands for something of ours."""
DatasetPlace = Annotated[str, Input("dataset")]
"""A folder, or a hub id."""
ModelPlace = Annotated[str, Input("model")]
"""A folder, a hub id, or the name of a model of ours."""


def inputs_of(value: Any, key: str = "") -> Iterator[tuple[str, Kind, str]]:
    """(dotted key, kind, place) of every input that a config names. Counts as no read."""
    for name, inner in value.__dict__.items() if isinstance(value, Config) else ():
        place = f"{key}.{name}".lstrip(".")
        marks = _marks(type(value).model_fields[name])
        if isinstance(inner, Config):
            yield from inputs_of(inner, place)
        for mark in marks:
            for each in inner if isinstance(inner, tuple) else (inner,):
                if each is not None:
                    yield place, mark.kind, each


def _marks(field: Any) -> list[Input]:
    found = [each for each in field.metadata if isinstance(each, Input)]
    return found or _inside(field.annotation)


def _inside(annotation: Any) -> list[Input]:
    """Of `tuple[InputFile, ...]` and `InputFile | None`."""
    own = [each for each in getattr(annotation, "__metadata__", ()) if isinstance(each, Input)]
    return own or [mark for argument in getattr(annotation, "__args__", ()) for mark in _inside(argument)]
