"""How a remote environment fails. Each kind is a class, whose name begins the reason of the failed episode."""

from __future__ import annotations

from whet.envs.protocol import EnvError
from whet.envs.retries import Late


class RemoteError(EnvError):
    """A remote environment failed. The message says which server, what happened and what to do."""


class Unreachable(RemoteError):
    """There is no connection, or it was cut."""


class TooSlow(RemoteError, Late):
    """The server did not answer in time."""


class Full(RemoteError):
    """The server has no room, and was waited for in vain."""


class Refused(RemoteError):
    """The server does not do what it was asked for: the token, the name or the settings are wrong."""


class Lost(RemoteError):
    """The server no longer has the episode: its lease ran out, or the server was started again."""


class Failed(RemoteError):
    """The environment failed on its server."""


class BadAnswer(RemoteError):
    """The server's answer breaks the protocol, so nothing of it is used."""
