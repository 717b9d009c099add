"""One vLLM server: its routes, each with a limit of time, and errors that say what to start the server with.

The routes are those of vLLM 0.32 with `VLLM_SERVER_DEV_MODE=1`. They ask for no password.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from whet.config.base import ConfigError
from whet.distribution import how_to_install
from whet.engines.endpoint import limited_client
from whet.errors import RunError

MAX_BYTES = 64_000_000
"""Of one answer. A token with its logprob takes about a hundred."""
CONNECTIONS = 96
"""Requests under way at one server: as many as the HTTP client has connections."""
LOOK_S = 20.0
"""Seconds that a server has to say which model it has."""
GENERATE = "/inference/v1/generate"
"""The route of token ids in and out."""
NOT_CONFIGURED = "Weight transfer not configured"
"""What a server answers that was started without `--weight-transfer-config`."""
START = "VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --enable-scale-out --logprobs-mode processed_logprobs --dtype {dtype}"
"""How a server is started that has all routes."""


class ServerError(RunError):
    """A server answered wrongly: nothing that it says can be trained on."""


class ServerLost(ServerError):
    """A server cannot be reached, or has lost its weights: its requests may go to another one."""


class LostMeanwhile(ServerLost):
    """An answer from before the server was lost: the request is asked again. The server may be back by now."""


class ServerHangs(ServerError):
    """A server said nothing within its limit."""


class Refused(ServerError):
    """A server answered with an error.

    Args:
        status: of HTTP.
        reason: the server's own words.
    """

    def __init__(self, text: str, status: int, reason: str) -> None:
        super().__init__(text)
        self.status, self.reason = status, reason


class Server:
    """Calls of one server. All its methods run in one event loop.

    Args:
        url: without a path: http://127.0.0.1:8000.
        limit_s: seconds for each phase.
        dtype: of the trainer's weights, for advice.
    Raises: ConfigError where `httpx` is not installed.
    """

    def __init__(self, url: str, limit_s: float, dtype: str) -> None:
        try:
            self._client = limited_client(MAX_BYTES)
        except ImportError as error:
            raise ConfigError(f"engine.kind = vllm needs a package: {how_to_install('vllm')}") from error
        self.url, self.limit_s = url.rstrip("/").removesuffix("/v1"), limit_s
        self.start = START.format(dtype=dtype)
        self._places = asyncio.Semaphore(CONNECTIONS)
        self.num_open = 0
        """Requests under way."""
        self.model = ""
        """Its name there, once the server has said it."""
        self.has_phases = False
        """Whether it takes weights by start, update and finish. False: by `reload_weights` alone."""

    # --- asking -------------------------------------------------------------------------------------------------------

    async def call(self, phase: str, path: str, body: Any = None, *, limit_s: float | None = None) -> Any:
        """Send a request: POST with a body, else GET.

        Args:
            phase: what the server is doing meanwhile, for messages: "update weights".
        Returns: the JSON of the answer. None: it has none.
        Raises: ServerLost, ServerHangs, Refused, ServerError.
        """
        limit, method = limit_s or self.limit_s, "GET" if body is None else "POST"
        # After an error of its own, vLLM closes the connection without a word: each call of a phase takes a new one.
        headers = {} if path == GENERATE else {"Connection": "close"}
        try:
            async with asyncio.timeout(limit):
                answer = await self._client.request(method, self.url + path, json=body, headers=headers, timeout=None)
        except TimeoutError as error:
            raise ServerHangs(
                f"the server {self.url} hangs: it was asked to {phase} ({path}) and has not answered in {limit:g} s "
                "(engine.limit_s). Look at its log, restart it and resume the run: the last checkpoint is whole"
            ) from error
        except Exception as error:  # of httpx, which has many: refused, reset, half an answer
            raise ServerLost(
                f"the server {self.url} cannot be reached, where it was to {phase} ({path}): "
                f"{type(error).__name__}: {str(error).rstrip('.')}. Start it with: {self.start}"
            ) from error
        if answer.status_code >= 300:
            raise self._refused(phase, path, answer.status_code, answer.text)
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            text = f"the server {self.url} was to {phase}, and its answer to {path} is no JSON: {answer.text[:80]!r}"
            raise ServerError(f"{text}. Is it a vLLM server?") from error

    def _refused(self, phase: str, path: str, status: int, text: str) -> Refused:
        reason = _reason(text)
        head = f"the server {self.url} was to {phase}, and {path} answered {status}"
        if status == 404 and "model" not in reason:
            return Refused(f"{head}: it lacks the route. Start it with: {self.start}", status, reason)
        if NOT_CONFIGURED in reason:
            more = """ --weight-transfer-config '{"backend": "disk"}'"""
            return Refused(f"{head} ({reason}). Start it with: {self.start}{more}", status, reason)
        return Refused(f"{head}: {reason or 'without a reason'}", status, reason)

    # --- what it is ---------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Ask which model it has, and how it takes weights. Raises: ServerLost, ServerError."""
        limit = min(LOOK_S, self.limit_s)
        models = await self.call("list its models", "/v1/models", limit_s=limit)
        try:
            self.model = str(models["data"][0]["id"])
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ServerError(f"the server {self.url} lists no model: {str(models)[:80]!r}") from error
        world = await self.call("say its size", "/get_world_size", limit_s=limit)
        if (size := world.get("world_size") if isinstance(world, Mapping) else None) != 1:
            raise ServerError(
                f"the server {self.url} spreads its model over {size} processes (--tensor-parallel-size), which has "
                "not been run on a GPU yet, and is refused until it has: start one server a GPU"
            )
        try:
            await self.call("prepare for weights", "/init_weight_transfer_engine", {"init_info": {}}, limit_s=limit)
            self.has_phases = True
        except Refused as error:
            # Another backend, or none: then it loads a folder by the worker's own method.
            self.has_phases = False
            if error.status not in (400, 404, 422, 500):
                raise

    async def weight_label(self) -> str | None:
        """The label of the weights that it says it has. None: it says none."""
        answer = await self.call("say its weights", "/weight_info")
        return answer.get("weight_version") if isinstance(answer, Mapping) else None

    # --- weights ------------------------------------------------------------------------------------------------------

    async def sync(self, folder: str, label: str, *, is_writing: bool = False) -> None:
        """Load a folder's weights under a label. Replies under way wait, and go on with the new ones.

        Args:
            is_writing: whether there are any. Their keys and values are computed again by the new weights.
        Raises: ServerLost, ServerError: it may hold anything then.
        """
        await self.call("pause", "/pause?mode=keep", {})
        if self.has_phases:
            await self.call("start an update", "/start_weight_update", {})
            await self.call("update weights", "/update_weights", {"update_info": {"path": folder}})
            await self.call("finish the update", "/finish_weight_update", {"weight_version": label})
        else:
            rpc = {"method": "reload_weights", "kwargs": {"weights_path": folder}}
            await self.call("update weights", "/collective_rpc", rpc)
            await self.call("finish the update", "/update_weight_version", {"new_version": label})
        more = "?reset_running_requests=true" if is_writing else ""
        emptied = await self.call("empty its cache", f"/reset_prefix_cache{more}", {})
        if isinstance(emptied, Mapping) and emptied.get("success") is False:
            raise ServerError(
                f"the server {self.url} did not empty its cache, which holds keys and values of the old weights: "
                "another program's requests are under way there, and it has to leave the server to this run"
            )
        await self.call("resume", "/resume", {})
        said = await self.weight_label()
        if said != label:
            raise ServerError(
                f"the server {self.url} did not take the weights: it was given those labelled {label!r}, answered 200 "
                f"to each phase, and says that it has {said!r}. Restart it and resume the run: its last checkpoint is "
                "whole"
            )

    # --- replies ------------------------------------------------------------------------------------------------------

    async def generate(self, body: Mapping[str, Any]) -> Any:
        """Token ids in and out. Raises: ServerLost, ServerError."""
        self.num_open += 1
        try:
            async with self._places:
                return await self.call("reply", GENERATE, {**body, "model": self.model})
        finally:
            self.num_open -= 1

    async def close(self) -> None:
        await self._client.aclose()


def _reason(text: str) -> str:
    """The first 300 characters of the server's reason, whatever form its error has."""
    try:
        found = json.loads(text)
    except ValueError:
        return text.strip()[:300]
    for key in ("error", "message", "detail"):
        if isinstance(found, Mapping) and key in found:
            found = found[key]
    return str(found)[:300]
