"""Checks a request before its body is parsed: the key, the body's length, and the time it takes."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Collection, Sequence

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

DRAIN_BYTES, DRAIN_S = 64_000_000, 5.0
"""How much of a refused body is still read, and discarded. A client that is cut off while it sends may never see
why."""
BODY_S = 60.0
"""Default limit on the seconds until a request's body has arrived."""


class Gate:
    """Refuses requests without the key (401), with too long a body (413) or too slow a one (408). Reads the bodies of
    the others.

    Args:
        max_body_bytes: of a request's body.
        body_s: seconds from the request's headers to the last byte of its body. At most.
        api_key: clients send it as `Authorization: Bearer KEY`. None: no key is needed.
    """

    open_paths: Collection[str] = ("/health",)
    """Paths that need no key."""

    def __init__(
        self, app: ASGIApp, *, max_body_bytes: int, api_key: str | None = None, body_s: float = BODY_S
    ) -> None:
        self.app, self.max_body_bytes, self.body_s = app, max_body_bytes, body_s
        self.api_key = None if api_key is None else api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._is_known(scope["path"], headers.get("authorization", "")):
            problem = "this key is not the server's" if headers.get("authorization") else "a key is needed"
            refused = self.refusal(401, f"{problem}: send the server's as `Authorization: Bearer KEY`")
            await (_refuse if scope["type"] == "http" else _refuse_socket)(refused, receive, send)
            return
        if scope["type"] == "websocket":  # its server limits the length of messages
            await self.app(scope, receive, send)
            return
        if self._is_longer(headers.get("content-length", "0")):
            body = None
        else:
            try:
                async with asyncio.timeout(self.body_s):
                    body = await self._body(receive)
            except TimeoutError:
                reason = f"the body did not come whole within {self.body_s:g} s: send it faster, or shorten it"
                await _refuse(self.refusal(408, reason), receive, send)
                return
        if body is None:
            reason = f"the body has more than {self.max_body_bytes:,} bytes: send a shorter one"
            await _refuse(self.refusal(413, reason), receive, send)
            return
        if body[0]["type"] == "http.disconnect":  # the client left before its body was whole
            return
        await self.app(scope, _after(body, receive), send)

    def refusal(self, status: int, reason: str) -> Response:
        """The answer to a refused request, in the server's shape of errors."""
        raise NotImplementedError

    def _is_longer(self, length: str) -> bool:
        """Checks the length that a client states. Anything but ASCII digits is no number, and is ignored."""
        digits = length.lstrip("0")
        if not (digits.isascii() and digits.isdigit()):
            return False
        # Python parses no number of thousands of digits.
        return len(digits) > len(str(self.max_body_bytes)) or int(digits) > self.max_body_bytes

    def _is_known(self, path: str, authorization: str) -> bool:
        if self.api_key is None or path in self.open_paths:
            return True
        scheme, _, key = authorization.partition(" ")
        sent = key.strip().encode("latin-1")  # the bytes as sent: headers are decoded as Latin-1
        is_key = hmac.compare_digest(sent, self.api_key)  # in constant time
        return is_key and scheme.lower() == "bearer"

    async def _body(self, receive: Receive) -> Sequence[Message] | None:
        """The body's messages, merged into one. None: it is too long. A client's disconnect is a message too."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return [message]
            body += message.get("body", b"")
            if len(body) > self.max_body_bytes:
                return None
            if not message.get("more_body", False):
                return [{"type": "http.request", "body": bytes(body), "more_body": False}]


def _after(messages: Sequence[Message], receive: Receive) -> Receive:
    """Receives the messages that were read already, then new ones."""
    waiting = list(messages)

    async def replayed() -> Message:
        return waiting.pop(0) if waiting else await receive()

    return replayed


async def _refuse_socket(response: Response, receive: Receive, send: Send) -> None:
    """Answer the handshake of a WebSocket with an HTTP error."""
    await send(
        {"type": "websocket.http.response.start", "status": response.status_code, "headers": response.raw_headers}
    )
    await send({"type": "websocket.http.response.body", "body": response.body})


async def _refuse(response: Response, receive: Receive, send: Send) -> None:
    """Answer at once. Then discard what the client still sends, up to a limit, and close the connection."""
    headers = [*response.raw_headers, (b"connection", b"close")]
    headers += [(b"www-authenticate", b"Bearer")] if response.status_code == 401 else []
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    try:
        async with asyncio.timeout(DRAIN_S):
            await _drain(receive)
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    num_bytes, has_more = 0, True
    while has_more and num_bytes < DRAIN_BYTES:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        has_more = message["type"] == "http.request" and message.get("more_body", False)
