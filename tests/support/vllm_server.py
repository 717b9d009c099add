"""A server with vLLM's routes and phases, around a real model of ours: its tokens and logprobs are computed.

Routes and shapes of answers are those that a vLLM 0.32 gave on a CPU (docs/scale.md). `fault` plants one of twenty
faults, at any time.
"""

from __future__ import annotations

import copy
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch
from safetensors.torch import load_file

from whet.engines.local import LocalEngine
from whet.models.policy import Policy
from whet.models.scoring import score_here
from whet.types import Request, Sampling, tail_row

AT_SYNC = (
    *("stale", "half_loaded", "stale_head", "other_adapter", "label_only", "no_effect", "temperature_ignored"),
    *("seed_ignored", "other_logprobs", "other_vocabulary", "hang_update", "hang_resume", "cached_probe"),
)
"""Faults that an update of the weights has to find."""
IN_REPLIES = (*("no_spans", "future_spans", "reply_twice", "other_reply", "truncated_ids", "abort_as_stop", "restart"),)
"""Faults that a reply has to find, before anything is trained on it."""
FAULTS = (*AT_SYNC, *IN_REPLIES)
PHASES = ("/init_weight_transfer_engine", "/start_weight_update", "/update_weights", "/finish_weight_update")
BASE = "default"
"""The label of the weights that a server starts with."""


class FakeVllm(ThreadingHTTPServer):
    """A server, on loopback unless another address is asked for.

    Args:
        policy: the model that it starts with; it takes a copy.
        has_phases: whether it takes weights by start, update and finish. False: by `reload_weights` alone.
        chunk: tokens between two looks whether it is paused.
        port: 0: any that is free.
    """

    daemon_threads = False  # torch ends the process where a thread that has computed is cut off at the end
    request_queue_size = 256

    def __init__(
        self,
        policy: Policy,
        *,
        has_phases: bool = True,
        name: str = "tiny",
        fault: str = "",
        chunk: int = 64,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__((host, port), _Handler)
        self.policy = replace(policy, model=copy.deepcopy(policy.model), version=-1, scored_by=None)
        self.base = self._state()
        self.connections: list[socket.socket] = []
        self.engine = LocalEngine(self.policy)
        self.has_phases, self.name, self.fault, self.chunk = has_phases, name, fault, chunk
        self.missing: set[str] = set()
        """Routes that it lacks."""
        self.refuses: dict[str, tuple[int, str]] = {}
        """Routes that answer with a status and a reason."""
        self.world_size, self.label, self.pending = 1, BASE, ""
        self.calls: list[tuple[str, Any]] = []
        """Path and body of all calls."""
        self.lock, self.going, self.ends = threading.RLock(), threading.Event(), threading.Event()
        self.going.set()
        self.num_replies = self.num_bad = 0
        self.is_dead = False
        """Whether it drops every connection, as a server does whose process has ended."""
        self.dies_after: int | None = None
        """Replies until it dies. None: it does not."""
        self.aborts_left = 0
        """Replies that it cuts off, and says so."""
        self._former: dict[str, Any] = self.base
        self._answered: dict[str, Any] = {}
        self._last: tuple[Any, Any] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.append(connection)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are no news."""

    # --- weights ------------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        return {name: value.detach().clone() for name, value in self.policy.model.named_parameters()}

    def load(self, state: Mapping[str, Any]) -> None:
        with self.lock, torch.no_grad():
            for name, value in self.policy.model.named_parameters():
                if name in state:
                    value.copy_(state[name])
        self.engine.restart()

    def restart(self) -> None:
        """As a server that somebody started again: its first weights, without a word."""
        with self.lock:
            self.load(self.base)
            self.label, self.is_dead = BASE, False

    def take(self, folder: str) -> None:
        """Load a folder, as the fault lets it."""
        state: dict[str, Any] = dict(load_file(Path(folder) / "model.safetensors"))
        names, fault = list(state), self.fault
        if fault == "stale":
            state, self._former = self._former, state
        elif fault in ("label_only", "no_effect", "cached_probe"):
            return
        elif fault == "half_loaded":
            state = {name: state[name] for name in names[: len(names) // 2]}
        elif fault == "stale_head":
            lm = self.policy.model
            lm.lm_head.weight = torch.nn.Parameter(lm.get_input_embeddings().weight.detach().clone())
        elif fault == "other_adapter":
            name = next(name for name in names if name.endswith("mlp.up_proj.weight"))
            down, up = torch.ones(1, state[name].shape[1]), torch.ones(state[name].shape[0], 1)
            state[name] = state[name] + 0.05 * up @ down
        else:
            self._former = state
        if fault == "other_vocabulary":
            self.policy.model.resize_token_embeddings(len(self.policy.tokenizer) + 8, mean_resizing=False)
            self.engine = LocalEngine(self.policy)
            name = "model.embed_tokens.weight"
            more = self.policy.model.get_input_embeddings().weight.detach()[state[name].shape[0] :]
            state = {**state, name: torch.cat([state[name], more])}
        self.load(state)

    # --- routes -------------------------------------------------------------------------------------------------------

    def get(self, path: str) -> Any:
        if path == "/v1/models":
            model = {"id": self.name, "object": "model", "created": 1795768256, "owned_by": "vllm", "root": self.name,
                     "parent": None, "max_model_len": 1024, "permission": []}  # fmt: skip
            return {"object": "list", "data": [model]}
        return {
            "/health": None,
            "/is_paused": {"is_paused": not self.going.is_set()},
            "/weight_info": {"weight_version": self.label},
            "/get_world_size": {"world_size": self.world_size},
        }[path]

    def post(self, path: str, body: Any) -> Any:
        if path == "/pause":
            self.going.clear()
            with self.lock:  # what is being written comes to its end
                pass
            return {"status": "paused"}
        if path == "/resume":
            self._hang("hang_resume")
            self.going.set()
            return {"status": "resumed"}
        if path == "/inference/v1/generate":
            return self.generate(body)
        if path == "/collective_rpc":
            self._hang("hang_update")
            self.take(body["kwargs"]["weights_path"])
            return {"results": [None]}
        if path == "/update_weight_version":
            self._label(body["new_version"])
            return {"success": True, "new_version": body["new_version"]}
        if path == "/reset_prefix_cache":
            return {"success": True}
        return self._phase(path, body)

    def _phase(self, path: str, body: Any) -> Any:
        if path not in PHASES:
            raise _Status(404, "Not Found")
        if not self.has_phases:
            raise _Status(500, "Weight transfer not configured. Please set weight_transfer_config to enable it.")
        if path == "/init_weight_transfer_engine":
            return {"message": "Weight transfer initialized"}
        if path == "/start_weight_update":
            self.pending = "started"
            return {"message": "Weight update started"}
        if path == "/update_weights":
            if self.pending != "started":
                raise _Status(500, "start_weight_update must be called before update_weights")
            self._hang("hang_update")
            self.take(body["update_info"]["path"])
            self.pending = "updated"
            return {"message": "Weights updated"}
        if path == "/finish_weight_update":
            if self.pending != "updated":
                raise _Status(500, "No weight update to finish")
            self.pending = ""
            self._label(body["weight_version"])
        return {"message": "Weight update finished"}

    def _label(self, label: str) -> None:
        if self.fault != "no_effect":
            self.label = label

    def _hang(self, fault: str) -> None:
        if self.fault == fault:
            self.ends.wait(30)

    # --- replies ------------------------------------------------------------------------------------------------------

    def generate(self, body: Mapping[str, Any]) -> Any:
        settings, context = body["sampling_params"], tuple(body["token_ids"])
        size = self.policy.model.get_input_embeddings().weight.shape[0]
        if not context or max(context) >= size:
            raise _Status(400, f"Token id {max(context, default=0)} is out of vocabulary")
        if body["model"] != self.name:
            raise _Status(404, f"The model `{body['model']}` does not exist.")
        if "prompt_logprobs" in settings:
            return self._scored(body, context)
        if self.fault == "other_reply" and self._last is not None:  # under this request's names
            context = self._last[0]
        if self.fault == "reply_twice" and self._last is not None:
            return self._last[1]
        if self.dies_after is not None:
            self.dies_after -= 1
            self.is_dead = self.dies_after < 0
        reply = self._reply(body, context)
        self._last = tuple(body["token_ids"]), reply
        return reply

    def _reply(self, body: Mapping[str, Any], context: tuple[int, ...]) -> Any:
        settings = body["sampling_params"]
        temperature = 1.0 if self.fault == "temperature_ignored" else settings["temperature"]
        self.num_replies += 1
        seed = self.num_replies if self.fault == "seed_ignored" else settings["seed"]
        sampling = Sampling(
            temperature=temperature, stop=tuple(settings["stop"]), max_new_tokens=settings["max_tokens"]
        )
        tokens: list[int] = []
        logprobs: list[float] = []
        spans: list[dict[str, Any]] = []
        reason = "length"
        while reason == "length" and len(tokens) < settings["max_tokens"]:
            self.going.wait(30)
            with self.lock:
                if not self.going.is_set() and not self.ends.is_set():
                    continue  # paused since: no token is written by weights that are being loaded
                short = replace(sampling, max_new_tokens=min(self.chunk, settings["max_tokens"] - len(tokens)))
                request = Request(context=(*context, *tokens), sampling=short, seed=seed, num_drawn=len(tokens))
                [done] = self.engine.generate([request])
                label = "whet:999999" if self.fault == "future_spans" else self.label
                if not spans or spans[-1]["version"] != label:
                    spans.append({"version": label, "start": len(tokens), "end": 0})
            tokens += done.tokens
            logprobs += done.logprobs
            spans[-1]["end"], reason = len(tokens), done.stop_reason
        finish = "length" if reason == "length" else "stop"
        if self.fault == "other_logprobs" and temperature not in (0, 1):
            logprobs = self._logprobs(context, tokens, 1.0)
        if self.fault == "temperature_ignored":  # and what it says of its tokens is true
            logprobs = self._logprobs(context, tokens, settings["temperature"] or 1.0)
        cut = self.fault in ("truncated_ids", "abort_as_stop") and len(tokens) > 2
        if cut or self.aborts_left:
            at = max(1, len(tokens) - 2 if self.fault == "truncated_ids" else len(tokens) // 2)
            tokens, logprobs = tokens[:at], logprobs[:at]
            spans = [{**span, "end": min(span["end"], at)} for span in spans if span["start"] < at]
            finish = "stop" if self.fault == "abort_as_stop" else finish
        if self.aborts_left:
            self.aborts_left -= 1
            finish = "abort"
        return self._answer(body, tokens, logprobs, finish, spans)

    def _logprobs(self, context: Sequence[int], tokens: Sequence[int], temperature: float) -> list[float]:
        row = tail_row("fake", context, tokens, 0.0, temperature=temperature)
        with self.lock:
            scores: list[float] = score_here(self.policy, [row], token_budget=4096)[0].tolist()
        return scores

    def _answer(self, body: Any, tokens: list[int], logprobs: list[float], finish: str, spans: list[Any]) -> Any:
        content = [
            {"token_id": token, "logprob": logprob, "rank": 1, "top_logprobs": []}
            for token, logprob in zip(tokens, logprobs, strict=True)
        ]
        choice = {"index": 0, "finish_reason": finish, "stop_reason": None, "token_ids": tokens, "routed_experts": None,
                  "sampling_mask": None, "weight_versions": None if self.fault == "no_spans" else spans,
                  "logprobs": {"content": content}}  # fmt: skip
        usage = {"prompt_tokens": len(body["token_ids"]), "total_tokens": len(body["token_ids"]) + len(tokens),
                 "completion_tokens": len(tokens), "prompt_tokens_details": None,
                 "completion_tokens_details": None}  # fmt: skip
        nothing = dict.fromkeys(("prompt_logprobs", "prompt_token_id_logprobs", "mm_placeholders", "metrics",
                                 "kv_transfer_params", "ec_transfer_params"))  # fmt: skip
        prompt = body["token_ids"] if body.get("return_token_ids") else None
        return {"request_id": f"generate-tokens-{body['request_id']}", "model": self.name, "created": 1795768256,
                "usage": usage, **nothing, "prompt_token_ids": prompt, "output_mode": "tokens",
                "choices": [choice]}  # fmt: skip

    def _scored(self, body: Any, context: tuple[int, ...]) -> Any:
        key = str(context)
        if self.fault != "cached_probe" or key not in self._answered:
            scores = self._logprobs(context[:1], context[1:], 1.0)
            self._answered[key] = [None, *({str(token): {"logprob": score, "rank": 1, "decoded_token": None}}
                                           for token, score in zip(context[1:], scores, strict=True))]  # fmt: skip
        spans = [{"version": self.label, "start": 0, "end": 1}]
        return self._answer(body, [0], [-1.0], "length", spans) | {"prompt_logprobs": self._answered[key]}


class _Status(Exception):
    def __init__(self, status: int, reason: str) -> None:
        self.status, self.reason = status, reason


def _error(status: int, reason: str) -> dict[str, Any]:
    kind = {400: "BadRequestError", 404: "NotFoundError"}.get(status, "InternalServerError")
    return {"error": {"message": reason, "type": kind, "param": "model" if "model" in reason else None, "code": status}}


class _Handler(BaseHTTPRequestHandler):
    server: FakeVllm
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self._answer(lambda path: self.server.get(path), None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        self._answer(lambda path: self.server.post(path, body), body)

    def _answer(self, answer: Callable[[str], Any], body: Any) -> None:
        path = urlsplit(self.path).path
        if self.server.is_dead:
            self.close_connection = True
            self.connection.close()
            return
        self.server.calls.append((path, body))
        try:
            if path in self.server.missing:
                raise _Status(404, "Not Found")
            if path in self.server.refuses:
                raise _Status(*self.server.refuses[path])
            content = answer(path)
            if self.server.is_dead:
                self.connection.close()
                self.close_connection = True
                return
            self._send(200, content)
        except _Status as error:
            is_route = error.status == 404 and error.reason == "Not Found"
            self._send(error.status, {"detail": "Not Found"} if is_route else _error(error.status, error.reason))
        except (KeyError, RuntimeError, OSError) as error:
            self._send(500, _error(500, f"{type(error).__name__}: {error}"))

    def _send(self, status: int, content: Any) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(policy: Policy, **settings: Any) -> Iterator[FakeVllm]:
    """A server that runs within the block."""
    server = FakeVllm(policy, **settings)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ends.set()
        server.going.set()
        server.shutdown()
        for connection in server.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()  # waits for its threads


def wait_until(holds: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait for a condition. Raises: TimeoutError."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError("it has not become true")
        time.sleep(0.01)
