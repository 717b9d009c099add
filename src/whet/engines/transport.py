"""HTTP to an endpoint, with a limit on what it may answer."""

from __future__ import annotations

from typing import Any

from whet.engines.replies import ReplyTooLong

DROPPED_HEADERS = ("content-encoding", "content-length", "transfer-encoding")
"""What they say is true of a body on its way, and not of one that was read."""


def limited_client(max_bytes: int) -> Any:
    """An `httpx.AsyncClient` that reads at most `max_bytes` of an answer's body, as it is after decompression. Past
    that its `send` raises ReplyTooLong and closes the connection.

    Raises: ImportError where httpx is not installed; it comes with `openai`.
    """
    import httpx

    class LimitedClient(httpx.AsyncClient):
        async def send(self, request: httpx.Request, *, stream: bool = False, **more: Any) -> httpx.Response:
            response = await super().send(request, stream=True, **more)
            if stream:
                return response
            try:
                body = await _read(response, max_bytes)
            finally:
                await response.aclose()
            headers = [each for each in response.headers.multi_items() if each[0].lower() not in DROPPED_HEADERS]
            # `history` and `elapsed` of the answer as it came are lost: nothing reads them.
            return httpx.Response(response.status_code, headers=headers, content=body, request=response.request)

    # Compression would let a small answer become a large one between two looks at its size.
    return LimitedClient(follow_redirects=True, headers={"Accept-Encoding": "identity"})


async def _read(response: Any, max_bytes: int) -> bytes:
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > max_bytes:
            raise ReplyTooLong(f"an answer of more than {max_bytes:,} bytes")
    return bytes(body)
