"""`Config`: settings of a run as frozen objects that refuse unknown keys and know which of their fields were read.

Settings of which there are several kinds, each a class that is registered by name: ours, and those of plug-ins.

class Pace(Registered):
    kinds = PACES

PACES.add("slow", SlowPace)  # a subclass of Pace, with `kind: Literal["slow"] = "slow"`

A field of type `Pace` then takes `{kind: slow, ...}`, with the keys of `SlowPace`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, PrivateAttr, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from whet.errors import WhetError
from whet.registry import Registry

Key = tuple[str | int, ...]
"""Where a value lies: field names and dict keys, and positions in lists."""


T = TypeVar("T")


class PerStepMark:
    """In the metadata of a field that is read anew at each step."""


PerStep = Annotated[T, PerStepMark()]
"""`kl_coef: PerStep[float] = Field(0.01, ge=0)`: the run reads the field anew at each step, so that a schedule may
change it (`whet.config.scheduled`). Every other field is fixed for the run."""


@dataclass(frozen=True, slots=True)
class NameOf:
    """Marks a field whose value names something registered; `describe` shows what plug-ins have added to it."""

    registry: str
    """Title of a registry (`whet.registry`): `reward term`."""


class ConfigError(WhetError, ValueError):
    """A config cannot be used: one sentence that says what is wrong, at which dotted key, and what to do."""

    exit_code = 2


class Config(BaseModel):
    """Base of every config class.

    The string under a field is its documentation (`describe` shows it), and its metadata says when it acts
    (`whet.config.acts`). Two configs are equal if their values are, whatever was read of them. A config remembers
    which fields were read by attribute, so that `check_all_read` can name the keys that the user set in vain.
    Serialising, comparing, printing and copying are no reads.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """A field with another default than its parent's means the same, unless it says otherwise."""
        super().__pydantic_init_subclass__(**kwargs)
        for name, field in cls.__pydantic_fields__.items():
            for parent in cls.__mro__[1:]:
                inherited = getattr(parent, "__pydantic_fields__", {}).get(name)
                if not field.description and inherited is not None:
                    field.description = inherited.description

    _read: set[str] = PrivateAttr(default_factory=set)
    _given: tuple[Key, ...] = PrivateAttr(default=())
    """On the config that `load` returned: the keys that the user set, in the order given."""

    if not TYPE_CHECKING:  # a type checker that sees `__getattribute__` believes in every attribute

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if name[0] != "_" and name in type(self).__pydantic_fields__:
                private = self.__pydantic_private__
                if private is not None:  # None while the object is being made
                    private["_read"].add(name)
            return value

    def __eq__(self, other: object) -> bool:
        # pydantic's __eq__ also compares private attributes: two equal configs would differ once one is read.
        return type(self) is type(other) and self.__dict__ == other.__dict__

    @classmethod
    def canonical(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """The user's settings in the form in which they are merged. A class may accept some of them in two forms."""
        return settings

    def _acts_through(self, key: Key) -> tuple[Key, Key]:
        """The setting that a given key is part of, and the key whose reading gives it its effect: both itself."""
        return key, key

    def _replaced_by(self, key: Key) -> str:
        """The setting in whose favour the key is never used. Empty: none."""
        return ""


def plain(value: Any) -> Any:
    """The value as dicts, lists and scalars, for YAML. Counts as no read, unlike pydantic's dump, which asks the
    members of a union for their tag."""
    if isinstance(value, Config):
        return {name: plain(inner) for name, inner in value.__dict__.items()}
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, PurePath) else value


def dotted(key: Key) -> str:
    return ".".join(map(str, key))


# --- settings of which there are several kinds ------------------------------------------------------------------------


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
