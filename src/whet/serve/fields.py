"""Fields that several requests share, and their checks, which come before any work on a request."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from whet.types import is_whole

MAX_CHOICES, MAX_STOPS, MAX_STOP_CHARS = 128, 4, 1000


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


def check_stop(stop: str | list[str] | None) -> str | list[str] | None:
    """Raises: ValueError where a stop string is empty, too long, or holds half a character."""
    texts = as_texts(stop)
    if not all(0 < len(text) <= MAX_STOP_CHARS for text in texts):
        raise ValueError(f"texts of 1 to {MAX_STOP_CHARS} characters")
    check_whole(*texts)
    return stop


class SamplingFields(Strict):
    """What every route that samples takes."""

    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    temperature: float | None = Field(None, ge=0, le=2)
    """None: 1."""
    top_p: float | None = Field(None, gt=0, le=1)
    stop: Annotated[
        str | list[str] | None, BeforeValidator(partial(at_most, MAX_STOPS)), AfterValidator(check_stop)
    ] = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    """None: a new one for each request."""
    frequency_penalty: float | None = Field(None, ge=0, le=0)
    """Nothing but 0, which has no effect; the next field too."""
    presence_penalty: float | None = Field(None, ge=0, le=0)
