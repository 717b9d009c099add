"""Registries of the things that settings name, such as methods and rewards.

whet lists its own things by the module that holds them, and imports them when they are needed. A user's things register
themselves when their file is loaded (`whet.plugins`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from types import FrameType
from typing import Any, ClassVar, Generic, TypeVar

from whet.errors import WhetError
from whet.near import near_names

T = TypeVar("T")


class UnknownName(WhetError, ValueError):
    """Nothing of that name is registered."""

    exit_code = 2


@dataclass(frozen=True)
class Entry(Generic[T]):
    """One registered thing."""

    name: str
    says: str
    """A description in one line."""
    origin: str
    """`whet`, or the plug-in or module that registered it."""
    make: Callable[[], T] = field(repr=False)
    module: str = ""
    """The module that registered it while it was imported. Another process imports it from there."""


class Registry(Generic[T]):
    """Things of one kind by name.

    Args:
        what: the word for one of them, such as `method` or `reward`.
    """

    current_origin = "whet"
    """Whose code registers now. A plug-in's path while it is loaded; for other code, the module counts."""
    num_registered = 0
    """How many things plug-ins and other packages have registered, in all registries."""
    loaded: ClassVar[dict[str, Registry[Any]]] = {}
    """All registries, by `what`."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.loaded[what] = self
        self._entries: dict[str, Entry[T]] = {}

    def add(self, name: str, value: T, *, says: str = "") -> T:
        """Registers an existing object.

        Raises: ValueError where another origin has the name. The same origin may register it again.
        """
        self._put(name, says, lambda: value)
        return value

    def late(self, name: str, place: str, *, says: str) -> None:
        """Registers `package.module:attribute`, which is imported when it is needed."""
        module, _, attribute = place.partition(":")
        self._put(name, says, lambda: getattr(import_module(module), attribute))

    def make_by(self, name: str, make: Callable[[], T], *, says: str) -> None:
        """Registers what a function makes, anew for each `get`.

        Raises: ValueError, as `add`.
        """
        self._put(name, says, make)

    def register(self, name: str, *, says: str = "") -> Callable[[Any], Any]:
        """A decorator that registers. Without `says`, the docstring's first line is the description."""

        def decorate(value: Any) -> Any:
            return self.add(name, value, says=says or (value.__doc__ or "").strip().partition("\n")[0])

        return decorate

    def _put(self, name: str, says: str, make: Callable[[], T]) -> None:
        present = self._entries.get(name)
        module = _importing()
        origin = self.current_origin if self.current_origin != "whet" else module
        if module.partition(".")[0] == "whet":  # also where a plug-in is the first to import one of our modules
            origin = "whet"
        if present is not None and present.origin != origin:
            article = "an" if self.what[0] in "aeiou" else "a"
            raise ValueError(
                f"there is {article} {self.what} {name!r} already, of {present.origin}: choose another name"
            )
        self._entries[name] = Entry(name, says, origin, make, module)
        Registry.num_registered += origin != "whet"

    def get(self, name: str) -> T:
        """The thing of a name.

        Raises: UnknownName, which lists the names that there are.
        """
        return self.entry(name).make()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries  # settings may hold anything in a name's place

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    def names(self) -> list[str]:
        return list(self._entries)

    def entry(self, name: str) -> Entry[T]:
        """The entry of a name.

        Raises: UnknownName, which lists the names that there are.
        """
        if name not in self._entries:
            near = [known for known in self._entries if known.startswith(f"{name}_")]
            near = near or near_names(name, self._entries)
            advice = f"did you mean {' or '.join(map(repr, near))}? There are" if near else "choose of"
            if not self._entries:
                raise UnknownName(
                    f"there is no {self.what} {name!r}, nor any other: `plugins` names the files of yours"
                )
            raise UnknownName(
                f"there is no {self.what} {name!r}; {advice}: {', '.join(self._entries)}. "
                "plugins=FILE.py adds those of yours"
            )
        return self._entries[name]


def _importing() -> str:
    """The name of the innermost module that is being imported. Empty: there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""
