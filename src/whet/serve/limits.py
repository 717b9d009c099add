"""Checks a request before its body is parsed: the API key, the body's length, and the time it takes."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from transformers import PreTrainedTokenizerBase

from whet.chat import text_ids
from whet.serve.schemas import ApiError

OPEN = ("/health",)
"""Paths that need no key."""
DRAIN_BYTES, DRAIN_S = 64_000_000, 5.0
"""How much of a refused body is still read, and discarded. A client that is cut off while it sends may never see
why."""
BODY_S = 60.0
"""Default limit on the seconds until a request's body has arrived."""
CHARS_A_TOKEN = 16
"""Characters of a text that are examined per position of the model: four times those of a token of prose."""


class Gate:
    """Refuses requests without the key (401), with too long a body (413) or too slow a one (408). Reads the bodies of
    the others.

    Args:
        max_body_bytes: of a request's body.
        body_s: seconds from the request's headers to the last byte of its body. At most.
        api_key: clients send it as `Authorization: Bearer KEY`. None: no key is needed.
    """

    def __init__(
        self, app: ASGIApp, *, max_body_bytes: int, api_key: str | None = None, body_s: float = BODY_S
    ) -> None:
        self.app, self.max_body_bytes, self.body_s = app, max_body_bytes, body_s
        self.api_key = None if api_key is None else api_key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if not self._is_known(scope["path"], headers.get("authorization", "")):
            problem = "this key is not the server's" if headers.get("authorization") else "a key is needed"
            error = ApiError(
                401, f"{problem}: send the server's as `Authorization: Bearer KEY`", code="invalid_api_key"
            )
            await _refuse(error, receive, send)
            return
        if self._is_longer(headers.get("content-length", "0")):
            body = None
        else:
            try:
                async with asyncio.timeout(self.body_s):
                    body = await self._body(receive)
            except TimeoutError:
                reason = f"the body did not come whole within {self.body_s:g} s: send it faster, or shorten it"
                await _refuse(ApiError(408, reason, code="body_too_slow"), receive, send)
                return
        if body is None:
            reason = f"the body has more than {self.max_body_bytes:,} bytes: shorten the messages"
            await _refuse(ApiError(413, reason, code="body_too_large"), receive, send)
            return
        await self.app(scope, _after(body, receive), send)

    def _is_longer(self, length: str) -> bool:
        """Checks the length that a client states. Anything but ASCII digits is no number, and is ignored."""
        digits = length.lstrip("0")
        if not (digits.isascii() and digits.isdigit()):
            return False
        # Python parses no number of thousands of digits.
        return len(digits) > len(str(self.max_body_bytes)) or int(digits) > self.max_body_bytes

    def _is_known(self, path: str, authorization: str) -> bool:
        if self.api_key is None or path in OPEN:
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


async def _refuse(error: ApiError, receive: Receive, send: Send) -> None:
    """Answer at once. Then discard what the client still sends, up to a limit, and close the connection."""
    response = error.response()
    headers = [*response.raw_headers, (b"connection", b"close")]
    headers += [(b"www-authenticate", b"Bearer")] if error.status == 401 else []
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
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


def is_certainly_longer(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase, positions: int) -> bool:
    """Whether texts have more tokens than a model has positions, judged by their beginnings. So a text of megabytes
    costs no more than one that may just fit. False: they may still be longer.

    The threshold is twice the positions, because a cut text may have a few tokens that the whole text lacks.
    """
    left, num_tokens = positions * CHARS_A_TOKEN, 0
    if sum(map(len, texts)) <= left:
        return False
    for text in texts:
        beginning = text.strip()[:left]  # templates strip white space
        num_tokens += len(text_ids(tokenizer, beginning, "outside")) if beginning else 0
        left -= len(beginning)
        if num_tokens > 2 * positions or left <= 0:
            break
    return num_tokens > 2 * positions
