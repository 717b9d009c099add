"""The parser of HTTP: httptools where it is installed, which takes a third of h11's time."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

MAX_HEAD_BYTES = 65_536
"""Of a request's line and headers; h11 has the same limit."""


def protocol() -> Any:
    """uvicorn's setting `http`."""
    return _bounded() if find_spec("httptools") is not None else "h11"


def _bounded() -> Any:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class BoundedProtocol(HttpToolsProtocol):
        """Refuses endless headers, which httptools would gather in memory."""

        num_head_bytes: int | None = 0
        """Of the request that is read. None: its headers are complete."""

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.num_head_bytes is not None and not self.transport.is_closing():
                self.num_head_bytes += len(data)
                if self.num_head_bytes > MAX_HEAD_BYTES:
                    self.send_400_response("The headers are too long.")

        def on_message_begin(self) -> None:
            self.num_head_bytes = 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self.num_head_bytes = None
            super().on_headers_complete()

    return BoundedProtocol
