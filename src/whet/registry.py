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
    places_of_load: ClassVar[dict[tuple[str, str], tuple[str, int]] | None] = None
    """File and line, by kind and name, of what the plug-in that is loaded now has registered. None: none is loaded."""
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
        if problem := _name_problem(name) or ("" if isinstance(says, str) else "says has to be a text"):
            raise ValueError(f"a {self.what} cannot be registered as {repr(name)[:60]}: {problem}")
        present = self._entries.get(name)
        module, place = _importing()
        origin = self.current_origin if self.current_origin != "whet" else module
        if module.partition(".")[0] == "whet":  # also where a plug-in is the first to import one of our modules
            origin = "whet"
        if present is not None and present.origin != origin:
            article = "an" if self.what[0] in "aeiou" else "a"
            raise ValueError(
                f"there is {article} {self.what} {name!r} already, of {present.origin}: choose another name"
            )
        if self.places_of_load is not None:
            first = self.places_of_load.setdefault((self.what, name), place)
            if first != place:  # the same one comes again where modules import each other
                raise ValueError(
                    f"the {self.what} {name!r} is registered twice, first by {first[0]}, line {first[1]}: give one of "
                    "the two another name"
                )
        self._entries[name] = Entry(name, " ".join(says.split()), origin, make, module)
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
        if not isinstance(name, str):
            raise UnknownName(f"there is no {self.what} {repr(name)[:60]}: give its name, as a text")
        if name not in self._entries:
            near = [known for known in self._entries if known.startswith(f"{name}_")]
            near = near or near_names(name, self._entries)
            advice = f"did you mean {' or '.join(map(repr, near))}? There are" if near else "choose of"
            if not self._entries:
                raise UnknownName(f"there is no {self.what} {name!r}, nor any other: `--plugins FILE.py` adds yours")
            raise UnknownName(
                f"there is no {self.what} {name!r}; {advice}: {', '.join(self._entries)}. "
                "`--plugins FILE.py` adds yours"
            )
        return self._entries[name]


MAX_NAME = 100
"""Characters of a name: it becomes part of file names."""


def _name_problem(name: object) -> str:
    """What keeps a value from being a name in settings and on the command line. Empty: nothing."""
    if not isinstance(name, str):
        return "a name is a text"
    if not name or len(name) > MAX_NAME:
        return f"a name has 1 to {MAX_NAME} characters"
    if not name.isprintable() or name != name.strip():
        return "a name is one line of printable characters, without space around it"
    if name.startswith("-") or "=" in name:
        return "a name begins with no dash, which marks options, and has no =, which marks settings"
    return ""


def _importing() -> tuple[str, tuple[str, int]]:
    """The name of the innermost module that is being imported, and the file and line. Empty: there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    if frame is None:
        return "", ("", 0)
    return str(frame.f_globals.get("__name__", "")), (frame.f_code.co_filename, frame.f_lineno)
