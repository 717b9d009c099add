"""uvicorn's protocol over httptools, with a limit on headers. Needs httptools."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES = 65_536
"""Of a request's line and headers; h11 has the same limit."""


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
