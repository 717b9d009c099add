"""The environments that a server offers, and the settings that they are made with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from whet.envs.protocol import EnvError, Environment, EnvironmentInfo
from whet.envs.registry import ENVIRONMENTS
from whet.envs.user_environment import refused_settings, takes
from whet.envs.wire import WireError, description_json
from whet.errors import text_of
from whet.registry import UnknownName
from whet.types import in_brief

QUICK = frozenset({"textcraft", "maze", "wordle", "weather", "movie", "academia", "sheet", "todo"})
"""Environments of whet whose calls take microseconds and wait for nothing. They run in the server's own thread; all
others get one each, as theirs may hang."""


@dataclass(frozen=True)
class Served:
    """An environment that is served."""

    info: EnvironmentInfo
    """Under the server's settings."""
    says: str
    """What it is, in one line."""
    is_quick: bool
    settings: Mapping[str, Any]
    """The server's own."""

    def with_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The server's settings, and a client's over them.

        Raises: WireError for a setting that the environment does not take, or that names a file of the server's.
        """
        files = self.info.file_settings()
        if named := [name for name in settings if name in files]:
            raise WireError(
                "bad_request",
                f"{named[0]!r} names a file on the server, which a client cannot choose: start the server with "
                f"--set {self.info.name}.{named[0]}=PATH",
            )
        joined = {**self.settings, **settings}
        if not takes(self.info.make, **joined):
            raise WireError("bad_request", f"{self.info.name} does not take these settings: {in_brief(settings)}")
        return joined

    def splits(self) -> Mapping[str, Sequence[int]]:
        """The items by split.

        Raises: WireError where they cannot be read.
        """
        with self._asked():
            return self.info.splits()

    def described(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The environment under these settings, for a client.

        Raises: WireError where it cannot be described.
        """
        with self._asked():
            return description_json(self.info.settled(settings))

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """What a user's function raises is an error of the environment."""
        try:
            yield
        except Exception as error:
            message = f"{self.info.name}: {type(error).__name__}: {text_of(error)}"
            raise WireError("env_error", message) from error

    def split(self, name: str) -> Sequence[int]:
        """The items of a split.

        Raises: WireError where there is no such split.
        """
        splits = self.splits()
        if name not in splits:
            message = f"{self.info.name} has no split {in_brief(name)}; choose of: {', '.join(splits)}"
            raise WireError("bad_request", message)
        return splits[name]

    def make(self, settings: Mapping[str, Any]) -> tuple[Environment, EnvironmentInfo]:
        """An environment, and its description under these settings.

        Raises: WireError where the settings do not fit; whatever else a user's environment raises.
        """
        try:
            return self.info.make(**settings), self.info if settings == self.settings else self.info.settled(settings)
        except TypeError as error:
            message = f"{self.info.name} cannot be made with these settings: {text_of(error)}"
            raise WireError("bad_request", message) from error


def served_environments(
    names: Sequence[str] = (), settings: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Served]:
    """The environments of these names, and the settings that the server makes each with.

    Args:
        names: empty: all there are.
        settings: by environment.
    Raises: EnvError for an unknown name, or settings with which an environment cannot be made.
    """
    settings = settings or {}
    names = list(dict.fromkeys(names or ENVIRONMENTS.names()))
    if missing := [name for name in settings if name not in names]:
        raise EnvError(f"--set names {missing[0]!r}, which is not served: serve it too, or leave its settings out")
    return {name: _served(name, settings.get(name, {})) for name in names}


def _served(name: str, settings: Mapping[str, Any]) -> Served:
    try:
        entry = ENVIRONMENTS.entry(name)
        info = entry.make()
    except UnknownName as error:
        raise EnvError(str(error)) from error
    try:
        if settings or name in QUICK:  # this also reads what all instances share
            info.make(**settings).close()
        return Served(info.settled(settings), entry.says, name in QUICK, settings)
    except TypeError as error:
        raise EnvError(f"--set {name}: {refused_settings(info, error)}") from error
