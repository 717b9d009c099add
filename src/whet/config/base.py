"""The base classes of settings: `Config`, and `Registered` for settings that come in several kinds."""

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
    """Marks a field that is read anew at each step."""


PerStep = Annotated[T, PerStepMark()]
"""`kl_coef: PerStep[float] = Field(0.01, ge=0)`: the run reads the field anew at each step, so that a schedule may
change it (`whet.config.scheduled`). Every other field is fixed for the run."""


@dataclass(frozen=True, slots=True)
class NameOf:
    """Marks a field whose value names something registered. `describe` lists what plug-ins have added."""

    registry: str
    """The `what` of a registry (`whet.registry`), such as `reward term`."""


class ConfigError(WhetError, ValueError):
    """A config cannot be used. The sentence says what is wrong, at which dotted key, and what to do."""

    exit_code = 2


class Config(BaseModel):
    """Base of every config class: frozen, without unknown keys, and aware of which fields were read.

    The string under a field is its documentation (`describe` shows it). Its metadata says when it acts
    (`whet.config.acts`). Two configs are equal if their values are, whichever were read. A config remembers which
    fields were read as attributes, so that `check_all_read` can name keys that were set in vain. Serialising,
    comparing, printing and copying are no reads.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """A field that changes its parent's default keeps the parent's docstring, unless it has its own."""
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
        """The user's settings in the one form in which they are merged. A class may accept two forms of some."""
        return settings

    def _settings(self) -> dict[str, Any]:
        """The values by name, from which `load` makes an equal config. Counts as no read."""
        return self.__dict__

    def _acts_through(self, key: Key) -> tuple[Key, Key]:
        """The setting that a key is part of, and the key whose reading gives it its effect. Here both are the key."""
        return key, key

    def _replaced_by(self, key: Key) -> str:
        """The setting that is used in the key's place. Empty: none."""
        return ""


def plain(value: Any) -> Any:
    """The value as dicts, lists and scalars, for YAML. Counts as no read.

    Pydantic's dump would count as one, as it reads the tag of a union's members.
    """
    if isinstance(value, Config):
        return {name: plain(inner) for name, inner in value._settings().items()}
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, PurePath) else value


def dotted(key: Key) -> str:
    return ".".join(map(str, key))


class Registered(Config):
    """Base of settings that come in several kinds, each a class that is registered by name.

        class Pace(Registered):
            kinds = PACES

        PACES.add("slow", SlowPace)  # a subclass of Pace, with `kind: Literal["slow"] = "slow"`

    A field of type `Pace` then takes `{kind: slow, ...}`, with the keys of `SlowPace`. Plug-ins may add kinds.
    """

    kinds: ClassVar[Registry[Any]]
    kind: str
    """Which kind it is."""

    @model_validator(mode="wrap")
    @classmethod
    def of_kind(cls, settings: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Validates settings by the class that their `kind` names. Only the class with `kinds` does so.

        Raises: UnknownName, ValidationError.
        """
        if "kinds" not in cls.__dict__ or isinstance(settings, cls):
            return validate(settings)
        if not isinstance(settings, dict) or "kind" not in settings:
            return validate(settings)
        name = str(settings["kind"])
        kind: type[Self] = cls.kinds.get(name)
        try:
            return kind.model_validate(settings)
        except ValidationError as error:  # located below the kind, as in a union
            errors = [_below(name, details) for details in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(error.title, errors) from error


def _below(kind: str, details: Any) -> InitErrorDetails:
    """An error's details with the kind in front of its location."""
    located = InitErrorDetails(type=details["type"], loc=(kind, *details["loc"]), input=details["input"])
    if "ctx" in details:
        located["ctx"] = details["ctx"]
    return located
