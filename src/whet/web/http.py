"""The parser of HTTP: httptools where it is installed, which takes a third of h11's time."""

from __future__ import annotations

from importlib.util import find_spec


def protocol() -> str:
    """uvicorn's setting `http`."""
    return "whet.web.bounded:BoundedProtocol" if find_spec("httptools") is not None else "h11"
