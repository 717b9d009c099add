"""An OpenEnv server on loopback whose environment a test writes: for servers of others and their mistakes."""

from __future__ import annotations

import http
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from websockets.datastructures import Headers
from websockets.http11 import Response
from websockets.sync.server import serve

TEXT_ACTION = {"action": {"properties": {"text": {"type": "string"}, "metadata": {}}, "required": ["text"]}}


class OpenEnvServer:
    """Answers each message by a function.

    Args:
        answer: from a message to the data of an observation, to a whole message (with `type`), or to text as it is.
        pages: what `GET` answers, by path. Others: 404. `/schema` is that of an action with a text.
    """

    def __init__(self, answer: Callable[[dict[str, Any]], Any], pages: Mapping[str, Any] | None = None) -> None:
        self.answer, self.pages = answer, {"/schema": TEXT_ACTION, **(pages or {})}
        self.asked: list[dict[str, Any]] = []
        self._server = serve(self._play, "127.0.0.1", 0, process_request=self._page)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"

    def __enter__(self) -> OpenEnvServer:
        return self

    def __exit__(self, *args: Any) -> None:
        self._server.shutdown()

    def _page(self, _: Any, request: Any) -> Response | None:
        if request.path.endswith("/ws"):
            return None
        said = self.pages.get(request.path)
        status = http.HTTPStatus.OK if said is not None else http.HTTPStatus.NOT_FOUND
        body = json.dumps(said if said is not None else {"detail": "Not Found"}).encode()
        return Response(status, status.phrase, Headers({"Content-Length": str(len(body)), "Connection": "close"}), body)

    def _play(self, socket: Any) -> None:
        for text in socket:
            message = json.loads(text)
            self.asked.append(message)
            said = self.answer(message)
            if said is None:  # the connection is cut
                socket.socket.close()
                return
            if isinstance(said, dict):
                said = json.dumps(said if "type" in said else {"type": "observation", "data": said})
            socket.send(said)
            if '"CAPACITY_REACHED"' in said:
                return
