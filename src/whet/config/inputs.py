"""Marks settings that name files and models, which a run reads besides its settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from whet.config.base import Config

Kind = Literal["file", "model", "dataset"]


@dataclass(frozen=True, slots=True)
class Input:
    """Marks a field whose value is a place that is read."""

    kind: Kind


InputFile = Annotated[str, Input("file")]
"""A path, or a name of something that ships with whet."""
DatasetPlace = Annotated[str, Input("dataset")]
"""A folder, or a hub id."""
ModelPlace = Annotated[str, Input("model")]
"""A folder, a hub id, or the name of a model that ships with whet."""


def inputs_of(value: Any, key: str = "") -> Iterator[tuple[str, Kind, str]]:
    """(dotted key, kind, place) of every input that a config names. Counts as no read."""
    for name, inner in value.__dict__.items() if isinstance(value, Config) else ():
        place = f"{key}.{name}".lstrip(".")
        marks = _marks(type(value).model_fields[name])
        parts = {f"{place}.{at}": part for at, part in inner.items()} if isinstance(inner, Mapping) else {place: inner}
        for at, part in parts.items():
            yield from inputs_of(part, at)
        for mark in marks:
            for path in _each(inner):
                if path is not None:
                    yield place, mark.kind, path


def _each(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, tuple) else (value,)


def _marks(field: Any) -> list[Input]:
    marks = [mark for mark in field.metadata if isinstance(mark, Input)]
    return marks or list(dict.fromkeys(_inside(field.annotation)))


def _inside(annotation: Any) -> list[Input]:
    """The marks in `tuple[InputFile, ...]`, `dict[str, InputFile]` and `InputFile | None`."""
    marks = [mark for mark in getattr(annotation, "__metadata__", ()) if isinstance(mark, Input)]
    return marks or [mark for argument in getattr(annotation, "__args__", ()) for mark in _inside(argument)]
