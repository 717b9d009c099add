"""Checks that fields of several requests share. They come before any work on a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from whet.types import is_whole

MAX_STOP_CHARS = 1000


class Strict(BaseModel):
    """Accepts no text for numbers, and no numbers for text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def keep_one_stranger(cls, data: Any) -> Any:
        """Keeps one unknown argument, which is enough to refuse a request. A body may hold half a million, and each
        would make an error."""
        if not isinstance(data, dict) or len(data) <= len(cls.model_fields):
            return data
        stranger = next(name for name in data if name not in cls.model_fields)
        return {name: value for name, value in data.items() if name in cls.model_fields or name == stranger}


def check_whole(*texts: str) -> None:
    """Raises: ValueError where a text has half a character, which JSON may hold and no tokenizer does."""
    for text in texts:
        if not is_whole(text):
            raise ValueError("half a character (a lone surrogate) is in it: send whole ones")


def at_most(most: int, value: Any) -> Any:
    """Limits the number of entries before each is checked.

    Raises: ValueError.
    """
    if isinstance(value, list | dict) and len(value) > most:
        raise ValueError(f"at most {most} of them")
    return value


def as_texts(stop: str | list[str] | None) -> tuple[str, ...]:
    """One text or several, as a client may write them."""
    return (stop,) if isinstance(stop, str) else tuple(stop or ())


def check_stops(texts: Sequence[str]) -> None:
    """Raises: ValueError where a stop string is empty, too long, or holds half a character."""
    if not all(0 < len(text) <= MAX_STOP_CHARS for text in texts):
        raise ValueError(f"texts of 1 to {MAX_STOP_CHARS} characters")
    check_whole(*texts)
