"""An OpenAI-compatible endpoint in a role: a frozen actor, a teacher, a judge. Text in, text out, many at a time.

Errors become typed failures. Some may pass and are retried: 429, 5xx, timeouts, dropped connections. Others fail at
once: a wrong key, a wrong model name, a body that is no reply. Replies are cached on disk by request, so that
a repeated run sends nothing and gets the same. The HTTP client limits the size of an answer (`limited_client`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from hashlib import sha256
from pathlib import Path
from typing import Any

from whet.config.base import ConfigError
from whet.config.parts import EndpointConfig
from whet.distribution import how_to_install
from whet.engines.replies import (
    MAX_UNSEEN_TOKENS,
    STOPS,
    Prompt,
    Reply,
    ReplyTooLong,
    check_size,
    logprobs_of,
    read_reply,
    usage_of,
    write_reply,
)
from whet.errors import TooManyFailures
from whet.types import Failure, is_whole

BACKOFF_S, LONGEST_WAIT_S = 0.5, 60.0
"""Seconds before the first retry, doubled each time; at most."""
LOOK_S = 10.0
"""Seconds that a server has to list its models."""
SHORTEST_KEY = 4
"""Characters. A shorter word in the place of a key (`x`, for a server that wants none) is no secret."""
logger = logging.getLogger(__name__)


class BudgetSpent(TooManyFailures):
    """The endpoint has been asked for as many tokens as the settings allow."""


class EndpointEngine:
    """A service (`whet.rollout.services`) whose payloads are prompts and whose answers are replies or failures.

    Args:
        name: of the role, for messages.
        cache: a folder for replies, made at its first use. None, or where `config.cache` is None: no cache.
    Raises: ConfigError where `openai` is not installed.
    """

    is_stepped = False
    queued: Collection[int] = ()

    def __init__(self, name: str, config: EndpointConfig, cache: Path | None = None) -> None:
        try:
            import openai
        except ImportError as error:
            raise ConfigError(f"{name}.kind = endpoint needs a package: {how_to_install('endpoint')}") from error
        self.name, self.config, self.openai = name, config, openai
        self.cache = None if config.cache is None else cache
        self._has_warned = False
        self.counts: Counter[str] = Counter()
        """Requests sent, retried, answered from the cache; tokens read and written."""
        self._futures: dict[int, Future[Reply | Failure]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"endpoint {name}", daemon=True)
        self._thread.start()
        # Keys come from the environment and nowhere else: settings are written into run folders.
        self._key = os.environ.get(config.key_env, "").strip()
        self._client = openai.AsyncOpenAI(
            base_url=config.url,
            api_key=self._key or "none",
            max_retries=0,
            timeout=config.timeout_s,
            http_client=limited_client(config.max_reply_bytes),
        )
        self._places = asyncio.Semaphore(config.max_concurrency)

    # --- a service ----------------------------------------------------------------------------------------------------

    def submit(self, ticket: int, payload: Prompt) -> None:
        self._futures[ticket] = asyncio.run_coroutine_threadsafe(self._reply(payload), self._loop)

    def advance(self, *, wait: bool) -> list[tuple[int, Reply | Failure]]:
        """The replies and failures since the last call, by ticket. Raises: BudgetSpent."""
        if wait and self._futures:
            wait_for(list(self._futures.values()), return_when=FIRST_COMPLETED)
        come = [ticket for ticket, future in self._futures.items() if future.done()]
        return [(ticket, self._futures.pop(ticket).result()) for ticket in come]

    def done(self, payloads: Sequence[Prompt]) -> None: ...

    def remembered(self, payload: Prompt) -> None:
        """Nothing, for `done`."""

    def look(self) -> str:
        """Checks the server before the first request.

        Returns: a sentence about it.
        Raises: ConfigError where it cannot be reached, or has other models alone.
        """
        where = f"{self.name}: {self.config.model} at {self.config.url}"
        try:
            models = asyncio.run_coroutine_threadsafe(self._models(), self._loop).result()
        except self.openai.APIStatusError as error:  # many servers list none
            return f"{where}; it does not say which models it has ({self._message(error)})"
        except TimeoutError as error:
            raise ConfigError(f"{where} cannot be reached: no answer within {LOOK_S:g} s") from error
        except self.openai.APIConnectionError as error:
            raise ConfigError(f"{where} cannot be reached: {self._message(error.__cause__ or error)}") from error
        except Exception as error:  # a body from anywhere may break the client in any way
            raise ConfigError(
                f"{where} lists no models as such a server does ({self._message(error.__cause__ or error)}); look at "
                f"{self.name}.url, which mostly ends in /v1"
            ) from error
        if models and self.config.check_model and not any(_same_model(name, self.config.model) for name in models):
            raise ConfigError(f"{where}: there is no such model; it has {', '.join(models[:20])}")
        return f"{where}; it is there"

    async def _models(self) -> list[str]:
        async with asyncio.timeout(LOOK_S):  # the client's own limit is of each read
            return [str(model.id) async for model in self._client.with_options(timeout=LOOK_S).models.list()]

    def restart(self) -> None:
        """Cancel all open requests."""
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    # --- a request ----------------------------------------------------------------------------------------------------

    async def _reply(self, prompt: Prompt) -> Reply | Failure:
        request = self._request(prompt)
        path = self._cache_path(request)
        cached = None if path is None else read_reply(path)
        if cached is not None and not self._is_another(cached.model) and self._fits(request, cached):
            self.counts["cached"] += 1
            return cached
        async with self._places:
            answer = await self._send_with_retries(request, prompt)
        if path is not None and isinstance(answer, Reply):
            self._store(path, request, answer)
        return answer

    def _fits(self, request: Mapping[str, Any], reply: Reply) -> bool:
        """Whether a cached reply passes the limits of now."""
        try:
            check_size(request, reply, self.config.max_model_len)
        except ReplyTooLong:
            return False
        return True

    def _request(self, prompt: Prompt) -> dict[str, Any]:
        """The request as it is sent, by which its reply is cached."""
        sampling, config = prompt.sampling, self.config
        request: dict[str, Any] = {
            "model": config.model,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens,
            "seed": prompt.seed % 2**31,
            **config.more,
        }
        if sampling.stop:
            request["stop"] = list(sampling.stop)
        if config.api == "completion":
            request["prompt"] = "\n\n".join(
                [*(content for _, content in prompt.messages), *filter(None, [prompt.prefill])]
            )
            return request | ({"logprobs": 0} if config.logprobs else {})
        request["messages"] = [{"role": role, "content": content} for role, content in prompt.messages]
        if prompt.prefill:
            request["messages"].append({"role": "assistant", "content": prompt.prefill})
            more = {**request.get("extra_body", {}), "continue_final_message": True, "add_generation_prompt": False}
            request["extra_body"] = more
        return request | ({"logprobs": True} if config.logprobs else {})

    async def _send_with_retries(self, request: Mapping[str, Any], prompt: Prompt) -> Reply | Failure:
        rng, failure = random.Random(prompt.seed), Failure(kind="endpoint_error", reason="never asked")
        for attempt in range(self.config.retries + 1):
            self.check_budget()
            self.counts["sent" if attempt == 0 else "retried"] += 1
            answer, wait_s = await self._send(request)
            if isinstance(answer, Reply) or wait_s is None:
                return answer
            failure = answer
            if attempt < self.config.retries:
                await asyncio.sleep(min(LONGEST_WAIT_S, max(wait_s, BACKOFF_S * 2**attempt * (1 + rng.random()))))
        tried = f" ({self.config.retries + 1} times)" if self.config.retries else ""
        return Failure(kind=failure.kind, reason=failure.reason + tried, trace=failure.trace)

    def check_budget(self, elsewhere: float = 0.0) -> None:
        """Check that tokens are left to spend.

        Args:
            elsewhere: tokens that this endpoint spent in other processes of the run.
        Raises: BudgetSpent where none are.
        """
        budget, spent = self.config.max_tokens, self.counts["read"] + self.counts["written"] + elsewhere
        if budget is not None and spent >= budget:
            raise BudgetSpent(
                f"{self.name}: {spent:,.0f} tokens were read and written by {self.config.url} in this session, and "
                f"{self.name}.max_tokens = {budget:,}: `whet resume` begins a session, which may have as many again"
            )

    async def _send(self, request: Mapping[str, Any]) -> tuple[Reply | Failure, float | None]:
        """Sends a request once.

        Returns: the reply or failure; and seconds to wait before the next try, at least. None: no retry helps.
        """
        openai, chat = self.openai, self.config.api == "chat"
        try:
            create = self._client.chat.completions.create if chat else self._client.completions.create
            async with asyncio.timeout(self.config.timeout_s):  # the client's own limit is of each read
                response = await create(**request)
        except (openai.APITimeoutError, TimeoutError) as error:
            return self._failure("timeout", f"no answer within {self.config.timeout_s:g} s", error), 0.0
        except openai.RateLimitError as error:
            return self._failure("endpoint_error", f"HTTP 429: {self._message(error)}", error), _retry_after(error)
        except openai.APIStatusError as error:
            wait_s = _retry_after(error) if error.status_code >= 500 or error.status_code == 408 else None
            return self._failure("endpoint_error", f"HTTP {error.status_code}: {self._message(error)}", error), wait_s
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, ReplyTooLong):
                return self._too_long(error.__cause__), None
            return self._failure("endpoint_error", f"cannot be reached: {error.__cause__ or error}", error), 0.0
        except ReplyTooLong as error:  # as it is, or wrapped above, by the client's version
            return self._too_long(error), None
        except Exception as error:  # a body that is no JSON, or another one's, may break the client in any way
            return self._failure("endpoint_error", f"an answer that cannot be read: {self._message(error)}", error), 0.0
        try:
            num_read, num_written = usage_of(request, response, chat=chat)
            self.counts["read"] += num_read  # before it is checked: refused replies cost tokens too
            self.counts["written"] += min(num_written, MAX_UNSEEN_TOKENS)
            return self._read_reply(request, response, num_read, num_written, chat=chat)
        except ReplyTooLong as error:
            return self._failure("endpoint_error", str(error)), None
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # JSON, and not of that shape
            return self._failure("endpoint_error", f"an answer that cannot be read: {error}", error), 0.0

    def _too_long(self, error: ReplyTooLong) -> Failure:
        return self._failure("endpoint_error", f"{error} ({self.name}.max_reply_bytes)")

    def _read_reply(
        self, request: Mapping[str, Any], response: Any, num_read: int, num_written: int, *, chat: bool
    ) -> tuple[Reply | Failure, float | None]:
        """Raises: ReplyTooLong."""
        named = str(getattr(response, "model", "") or "")
        if self._is_another(named):
            reason = f"asked for model {self.config.model!r}, and {named!r} answered"
            return self._failure("endpoint_error", reason), None
        choices = getattr(response, "choices", None)
        if not choices:
            return self._failure("endpoint_error", "an answer without a choice"), 0.0
        choice = choices[0]
        text = choice.message.content if chat else choice.text
        if not isinstance(text, str):
            return self._failure("endpoint_error", "a choice without text"), 0.0
        if not is_whole(text):
            return self._failure("endpoint_error", "a reply that holds half a character (a lone surrogate)"), 0.0
        if choice.finish_reason not in STOPS:
            return self._failure("endpoint_error", f"a reply that ended with {choice.finish_reason!r}"), None
        stop_reason, stop = STOPS[choice.finish_reason], getattr(choice, "stop_reason", None)
        if isinstance(stop, str) and stop in request.get("stop", ()):  # vLLM names the string that it cut off
            text, stop_reason = text + stop, "stop"
        reply = Reply(
            text=text,
            stop_reason=stop_reason,
            num_read=num_read,
            num_written=num_written,
            model=named,
            logprobs=logprobs_of(choice),
        )
        check_size(request, reply, self.config.max_model_len)
        return reply, None

    def _is_another(self, named: str) -> bool:
        """Whether the answer names another model than the request's."""
        return self.config.check_model and bool(named) and not _same_model(named, self.config.model)

    def _failure(self, kind: Any, reason: str, error: BaseException | None = None) -> Failure:
        """Servers echo the keys that they do not like."""
        trace = "" if error is None else f"{type(error).__module__}.{type(error).__name__}: {error}"
        whole = f"{self.name} at {self.config.url}: {reason}"
        return Failure(kind=kind, reason=self._redacted(whole), trace=self._redacted(trace))

    def _redacted(self, text: str) -> str:
        """Without the key, and of whole characters: it goes to logs and to the console."""
        text = text.encode(errors="backslashreplace").decode()
        return text.replace(self._key, "[key]") if len(self._key) >= SHORTEST_KEY else text

    def _message(self, error: BaseException) -> str:
        """Its first line, redacted before it is cut: half a key is a secret too."""
        text = str(getattr(error, "message", None) or error).strip().partition("\n")[0]
        return re.sub(r"^Error code: \d+ - ", "", self._redacted(text))[:300]

    # --- the cache ----------------------------------------------------------------------------------------------------

    def _cache_path(self, request: Mapping[str, Any]) -> Path | None:
        if self.cache is None:
            return None
        config = self.config
        key = {"url": config.url, "api": config.api, "cache": config.cache, "asked": request}
        name = sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self.cache / name[:2] / f"{name[2:]}.json"

    def _store(self, path: Path, request: Mapping[str, Any], reply: Reply) -> None:
        """Caches a reply. Where the disk refuses it, the run goes on with a warning."""
        try:
            write_reply(path, request, reply)
        except OSError as error:
            if not self._has_warned:
                logger.warning("%s: replies cannot be kept in %s (%s); the run goes on", self.name, self.cache, error)
            self._has_warned = True


def _same_model(named: str, wanted: str) -> bool:
    """Servers add a revision (`tiny@main`), or leave a folder out."""
    bare = named.partition("@")[0]
    return wanted in (named, bare) or Path(bare).name == Path(wanted).name or bare.startswith(f"{wanted}-")


def _retry_after(error: Any) -> float:
    """Seconds that the server asks for."""
    try:
        return max(0.0, float(error.response.headers.get("retry-after", 0)))
    except (AttributeError, TypeError, ValueError):
        return 0.0


# --- transport --------------------------------------------------------------------------------------------------------


DROPPED_HEADERS = ("content-encoding", "content-length", "transfer-encoding")
"""They describe a body in transit, and not one that was read."""


def limited_client(max_bytes: int) -> Any:
    """An `httpx.AsyncClient` that reads at most `max_bytes` of an answer's body, after decompression.

    Past that its `send` raises ReplyTooLong and closes the connection.

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
            headers = [header for header in response.headers.multi_items() if header[0].lower() not in DROPPED_HEADERS]
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
