"""Settings of which there are several kinds, each a class that is registered by name: ours, and those of plug-ins.

class Pace(Registered):
    kinds = PACES

PACES.add("slow", SlowPace)  # a subclass of Pace, with `kind: Literal["slow"] = "slow"`

A field of type `Pace` then takes `{kind: slow, ...}`, with the keys of `SlowPace`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from pydantic import ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from whet.config.base import Config
from whet.registry import Registry


class Registered(Config):
    """Base of a family of kinds: the class that says in `kinds` where they are registered. A kind extends it."""

    kinds: ClassVar[Registry[Any]]
    kind: str
    """Which of them it is."""

    @model_validator(mode="wrap")
    @classmethod
    def of_kind(cls, given: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Of the family itself: what was given, validated by the class that its `kind` names."""
        if "kinds" not in cls.__dict__ or isinstance(given, cls):
            return validate(given)
        if not isinstance(given, dict) or "kind" not in given:
            return validate(given)
        kind: type[Self] = cls.kinds.get(str(given["kind"]))
        try:
            return kind.model_validate(given)
        except ValidationError as error:  # located as in a union, below the kind
            raise ValidationError.from_exception_data(
                error.title, [_below(str(given["kind"]), details) for details in error.errors(include_url=False)]
            ) from error


def _below(kind: str, details: Any) -> InitErrorDetails:
    located = InitErrorDetails(type=details["type"], loc=(kind, *details["loc"]), input=details["input"])
    if "ctx" in details:
        located["ctx"] = details["ctx"]
    return located
