"""Registries: things that settings name, and where they come from. What is ours is listed by the module that holds it,
and imported once it is asked for; what is a user's registers itself when its file is loaded (`whet.plugins`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Generic, TypeVar

from whet.errors import WhetError

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
    """`whet`, or the plug-in that registered it."""
    make: Callable[[], T] = field(repr=False)


class Registry(Generic[T]):
    """Things of one kind by name.

    Args:
        what: one of them, in a sentence: `method`, `reward`.
    """

    current_origin = "whet"
    """Whose code registers now; set while a plug-in is loaded."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._entries: dict[str, Entry[T]] = {}

    def add(self, name: str, thing: T, *, says: str = "") -> T:
        """Register something that is there.

        Raises: ValueError where another origin holds the name; the same one may load its file again.
        """
        return self._put(name, says, lambda: thing) or thing

    def late(self, name: str, place: str, *, says: str) -> None:
        """Register `package.module:attribute`, which is imported when it is asked for."""
        module, _, attribute = place.partition(":")
        self._put(name, says, lambda: getattr(import_module(module), attribute))

    def register(self, name: str, *, says: str = "") -> Callable[[Any], Any]:
        """A decorator. Without `says`, the first line of the docstring is what it is."""

        def decorate(thing: Any) -> Any:
            return self.add(name, thing, says=says or (thing.__doc__ or "").strip().partition("\n")[0])

        return decorate

    def _put(self, name: str, says: str, make: Callable[[], T]) -> None:
        held = self._entries.get(name)
        origin = Registry.current_origin
        if held is not None and held.origin != origin:
            raise ValueError(f"there is a {self.what} {name!r} already, of {held.origin}: choose another name")
        self._entries[name] = Entry(name, says, origin, make)

    def get(self, name: str) -> T:
        """Raises: UnknownName, with the names that there are."""
        if name not in self._entries:
            near = get_close_matches(name, self._entries, n=1)
            advice = f"did you mean {near[0]!r}? There are" if near else "choose of"
            raise UnknownName(f"there is no {self.what} {name!r}; {advice}: {', '.join(self._entries)}")
        return self._entries[name].make()

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    def names(self) -> list[str]:
        return list(self._entries)
