"""Addresses of remote environments, as settings name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from whet.envs.protocol import EnvError

Wire = Literal["whet", "agentgym", "openenv"]
SCHEMES: dict[str, tuple[Wire, str]] = {
    "http": ("whet", "http"),
    "https": ("whet", "https"),
    "agentgym+http": ("agentgym", "http"),
    "agentgym+https": ("agentgym", "https"),
    "openenv+http": ("openenv", "http"),
    "openenv+https": ("openenv", "https"),
    "openenv+ws": ("openenv", "http"),
    "openenv+wss": ("openenv", "https"),
}
"""Schemes, each with the wire that its servers speak and the scheme of their HTTP paths."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and which wire it speaks."""

    wire: Wire
    url: str
    """`http://host:port/path`, without a slash at its end."""


def is_address(text: str) -> bool:
    """Whether a text is meant as an address, and not as a name."""
    return "://" in text


def read_address(text: str) -> Address:
    """The address in a setting.

    Raises: EnvError where it is none, or holds a password.
    """
    scheme, mark, rest = text.strip().partition("://")
    if not mark or scheme not in SCHEMES:
        raise EnvError(
            f"{text[:200]!r} is no address of a server: begin it with {', '.join(f'{name}://' for name in SCHEMES)}"
        )
    wire, http = SCHEMES[scheme]
    try:
        parts = urlsplit(f"{http}://{rest}")
        _ = parts.port  # raises where it is no number
    except ValueError as error:
        raise EnvError(f"the address {text[:200]!r} cannot be read: {error}") from error
    if "@" in parts.netloc:
        raise EnvError("an address holds no password, as settings are saved: put the token into WHET_ENV_TOKEN")
    if not parts.hostname or parts.query or parts.fragment or any(c.isspace() or not c.isprintable() for c in rest):
        raise EnvError(f"the address {text[:200]!r} has to be a host, a port and a path, without ? and #")
    return Address(wire, f"{http}://{rest}".rstrip("/"))
