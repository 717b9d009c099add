"""Registries: things that settings name, and where they come from. What is ours is listed by the module that holds it,
and imported once it is asked for; what is a user's registers itself when its file is loaded (`whet.plugins`)."""

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
    """What it is, in a line."""
    origin: str
    """`whet`, or the plug-in or module that registered it."""
    make: Callable[[], T] = field(repr=False)
    module: str = ""
    """The one that registered it while it was imported, where another process finds it again."""


class Registry(Generic[T]):
    """Things of one kind by name.

    Args:
        what: one of them, in a sentence: `method`, `reward`.
    """

    current_origin = "whet"
    """Whose code registers now; set while a plug-in is loaded. Of other code it is the module."""
    num_registered = 0
    """In all registries, by others than ourselves, ever."""
    loaded: ClassVar[dict[str, Registry[Any]]] = {}
    """Every registry, by what it holds one of."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.loaded[what] = self
        self._entries: dict[str, Entry[T]] = {}

    def add(self, name: str, thing: T, *, says: str = "") -> T:
        """Register something that is there.

        Raises: ValueError where another origin holds the name; the same one may load its file again.
        """
        self._put(name, says, lambda: thing)
        return thing

    def late(self, name: str, place: str, *, says: str) -> None:
        """Register `package.module:attribute`, which is imported when it is asked for."""
        module, _, attribute = place.partition(":")
        self._put(name, says, lambda: getattr(import_module(module), attribute))

    def make_by(self, name: str, make: Callable[[], T], *, says: str) -> None:
        """Register what a function makes, anew each time that it is asked for.

        Raises: ValueError, as `add`.
        """
        self._put(name, says, make)

    def register(self, name: str, *, says: str = "") -> Callable[[Any], Any]:
        """A decorator. Without `says`, the first line of the docstring is what it is."""

        def decorate(thing: Any) -> Any:
            return self.add(name, thing, says=says or (thing.__doc__ or "").strip().partition("\n")[0])

        return decorate

    def _put(self, name: str, says: str, make: Callable[[], T]) -> None:
        held = self._entries.get(name)
        module = _importing()
        origin = self.current_origin if self.current_origin != "whet" else module
        if module.partition(".")[0] == "whet":  # also where a plug-in is the first to import one of our modules
            origin = "whet"
        if held is not None and held.origin != origin:
            article = "an" if self.what[0] in "aeiou" else "a"
            taken = f"there is {article} {self.what} {name!r} already, of {held.origin}"
            raise ValueError(f"{taken}: choose another name")
        self._entries[name] = Entry(name, says, origin, make, module)
        Registry.num_registered += origin != "whet"

    def get(self, name: str) -> T:
        """Raises: UnknownName, with the names that there are."""
        return self.entry(name).make()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._entries  # settings may hold anything in a name's place

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    def names(self) -> list[str]:
        return list(self._entries)

    def entry(self, name: str) -> Entry[T]:
        """Raises: UnknownName, with the names that there are."""
        if name not in self._entries:
            near = [each for each in self._entries if each.startswith(f"{name}_")]
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
    """The name of the module whose body runs now, the innermost one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""
