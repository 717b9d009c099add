"""An OpenAI-compatible endpoint in a seat: a frozen actor, a teacher, a judge. Text in, text out, many at a time.

What goes wrong is a typed failure: after retries where that may help (429, 5xx, timeouts, dropped connections), at once
where it cannot (a wrong key, a wrong model name, a reply that is none). Replies are kept on disk by what was asked, so
that a run that is repeated sends nothing and gets the same.

HTTP to an endpoint, with a limit on what it may answer.
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
"""Before the first retry, doubled each time; at most."""
LOOK_S = 10.0
"""Seconds that a server has to say which models it has."""
SHORTEST_KEY = 4
"""Characters. A shorter word in the place of a key (`x`, for a server that wants none) is no secret."""
logger = logging.getLogger(__name__)


class BudgetSpent(TooManyFailures):
    """The endpoint has been asked for as many tokens as the settings allow."""


class EndpointEngine:
    """A service whose payloads are prompts. See the module's docstring.

    Args:
        name: the seat's, for sentences.
        cache: a folder for replies, made when it is needed. None, or `config.cache` is: nothing is kept.
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
        self._cannot_keep = False
        self.counts: Counter[str] = Counter()
        """Requests sent, retried, answered from the cache; tokens read and written."""
        self._futures: dict[int, Future[Reply | Failure]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"endpoint {name}", daemon=True)
        self._thread.start()
        # Keys come from the environment and nowhere else: settings are written into run folders.
        self._key = os.environ.get(config.key_env, "").strip()
        self._client = openai.AsyncOpenAI(
            base_url=config.url, api_key=self._key or "none", max_retries=0, timeout=config.timeout_s,
            http_client=limited_client(config.max_reply_bytes),
        )  # fmt: skip
        self._places = asyncio.Semaphore(config.max_concurrency)

    # --- a service ----------------------------------------------------------------------------------------------------

    def submit(self, ticket: int, payload: Prompt) -> None:
        self._futures[ticket] = asyncio.run_coroutine_threadsafe(self._reply(payload), self._loop)

    def advance(self, *, wait: bool) -> list[tuple[int, Reply | Failure]]:
        """What has come. Raises: BudgetSpent."""
        if wait and self._futures:
            wait_for(list(self._futures.values()), return_when=FIRST_COMPLETED)
        come = [ticket for ticket, future in self._futures.items() if future.done()]
        return [(ticket, self._futures.pop(ticket).result()) for ticket in come]

    def done(self, payloads: Sequence[Prompt]) -> None: ...

    def remembered(self, payload: Prompt) -> None:
        """Nothing, for `done`."""

    def look(self) -> str:
        """Who is there, in a sentence, before anything is asked of it.

        Raises: ConfigError where nobody is, or the server has models and not this one.
        """
        where = f"{self.name}: {self.config.model} at {self.config.url}"
        try:
            found = asyncio.run_coroutine_threadsafe(self._models(), self._loop).result()
        except self.openai.APIStatusError as error:  # many servers list none
            return f"{where}; it does not say which models it has ({self._said(error)})"
        except TimeoutError as error:
            raise ConfigError(f"{where} cannot be reached: no answer within {LOOK_S:g} s") from error
        except self.openai.APIConnectionError as error:
            raise ConfigError(f"{where} cannot be reached: {self._said(error.__cause__ or error)}") from error
        except Exception as error:  # a body from anywhere may break the client in any way
            raise ConfigError(
                f"{where} lists no models as such a server does ({self._said(error.__cause__ or error)}); look at "
                f"{self.name}.url, which mostly ends in /v1"
            ) from error
        if found and self.config.check_model and not any(_same_model(each, self.config.model) for each in found):
            raise ConfigError(f"{where}: there is no such model; it has {', '.join(found[:20])}")
        return f"{where}; it is there"

    async def _models(self) -> list[str]:
        async with asyncio.timeout(LOOK_S):  # the client's own limit is of each read
            return [str(each.id) async for each in self._client.with_options(timeout=LOOK_S).models.list()]

    def restart(self) -> None:
        """Nobody waits for what was asked: what is under way is broken off."""
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    # --- a request ----------------------------------------------------------------------------------------------------

    async def _reply(self, prompt: Prompt) -> Reply | Failure:
        asked = self._asked(prompt)
        place = self._place(asked)
        kept = None if place is None else read_reply(place)
        if kept is not None and not self._is_another(kept.model) and self._fits(asked, kept):
            self.counts["cached"] += 1
            return kept
        async with self._places:
            found = await self._sent(asked, prompt)
        if place is not None and isinstance(found, Reply):
            self._keep(place, asked, found)
        return found

    def _fits(self, asked: Mapping[str, Any], reply: Reply) -> bool:
        """Whether a reply that was kept is one that would be taken now."""
        try:
            check_size(asked, reply, self.config.max_model_len)
        except ReplyTooLong:
            return False
        return True

    def _asked(self, prompt: Prompt) -> dict[str, Any]:
        """The request as it is sent; what a reply is kept by."""
        sampling, config = prompt.sampling, self.config
        asked: dict[str, Any] = {
            "model": config.model, "temperature": sampling.temperature, "top_p": sampling.top_p,
            "max_tokens": sampling.max_new_tokens, "seed": prompt.seed % 2**31, **config.more,
        }  # fmt: skip
        if sampling.stop:
            asked["stop"] = list(sampling.stop)
        if config.api == "completion":
            asked["prompt"] = "\n\n".join(
                [*(content for _, content in prompt.messages), *filter(None, [prompt.prefill])]
            )
            return asked | ({"logprobs": 0} if config.logprobs else {})
        asked["messages"] = [{"role": role, "content": content} for role, content in prompt.messages]
        if prompt.prefill:
            asked["messages"].append({"role": "assistant", "content": prompt.prefill})
            more = {**asked.get("extra_body", {}), "continue_final_message": True, "add_generation_prompt": False}
            asked["extra_body"] = more
        return asked | ({"logprobs": True} if config.logprobs else {})

    async def _sent(self, asked: Mapping[str, Any], prompt: Prompt) -> Reply | Failure:
        rng, failure = random.Random(prompt.seed), Failure(kind="endpoint_error", reason="never asked")
        for attempt in range(self.config.retries + 1):
            self._check_budget(prompt)
            self.counts["sent" if attempt == 0 else "retried"] += 1
            found, wait_s = await self._once(asked)
            if isinstance(found, Reply):
                return found
            failure = found
            if wait_s is None:
                return found
            if attempt < self.config.retries:
                await asyncio.sleep(min(LONGEST_WAIT_S, max(wait_s, BACKOFF_S * 2**attempt * (1 + rng.random()))))
        tried = f" ({self.config.retries + 1} times)" if self.config.retries else ""
        return Failure(kind=failure.kind, reason=failure.reason + tried, trace=failure.trace)

    def _check_budget(self, prompt: Prompt) -> None:
        budget, spent = self.config.max_tokens, self.counts["read"] + self.counts["written"]
        if budget is not None and spent >= budget:
            raise BudgetSpent(
                f"{self.name}: {spent:,} tokens were read and written by {self.config.url} in this session, and "
                f"{self.name}.max_tokens = {budget:,}: `whet resume` begins a session, which may have as many again"
            )

    async def _once(self, asked: Mapping[str, Any]) -> tuple[Reply | Failure, float | None]:
        """A request and what came of it; of a failure that may pass, the seconds to wait at least. None: it won't."""
        openai, chat = self.openai, self.config.api == "chat"
        try:
            create = self._client.chat.completions.create if chat else self._client.completions.create
            async with asyncio.timeout(self.config.timeout_s):  # the client's own limit is of each read
                found = await create(**asked)
        except (openai.APITimeoutError, TimeoutError) as error:
            return self._failure("timeout", f"no answer within {self.config.timeout_s:g} s", error), 0.0
        except openai.RateLimitError as error:
            return self._failure("endpoint_error", f"HTTP 429: {self._said(error)}", error), _retry_after(error)
        except openai.APIStatusError as error:
            wait_s = _retry_after(error) if error.status_code >= 500 or error.status_code == 408 else None
            return self._failure("endpoint_error", f"HTTP {error.status_code}: {self._said(error)}", error), wait_s
        except openai.APIConnectionError as error:
            if isinstance(error.__cause__, ReplyTooLong):
                return self._too_long(error.__cause__), None
            return self._failure("endpoint_error", f"cannot be reached: {error.__cause__ or error}", error), 0.0
        except ReplyTooLong as error:  # as it is, or wrapped above, by the client's version
            return self._too_long(error), None
        except Exception as error:  # a body that is no JSON, or another one's, may break the client in any way
            return self._failure("endpoint_error", f"an answer that cannot be read: {self._said(error)}", error), 0.0
        try:
            num_read, num_written = usage_of(asked, found, chat=chat)
            self.counts["read"] += num_read  # before it is judged: what is refused was paid for too
            self.counts["written"] += min(num_written, MAX_UNSEEN_TOKENS)
            return self._read_reply(asked, found, num_read, num_written, chat=chat)
        except ReplyTooLong as error:
            return self._failure("endpoint_error", str(error)), None
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # JSON, and not of that shape
            return self._failure("endpoint_error", f"an answer that cannot be read: {error}", error), 0.0

    def _too_long(self, error: ReplyTooLong) -> Failure:
        return self._failure("endpoint_error", f"{error} ({self.name}.max_reply_bytes)")

    def _read_reply(
        self, asked: Mapping[str, Any], found: Any, num_read: int, num_written: int, *, chat: bool
    ) -> tuple[Reply | Failure, float | None]:
        """Raises: ReplyTooLong."""
        named = str(getattr(found, "model", "") or "")
        if self._is_another(named):
            reason = f"asked for model {self.config.model!r}, and {named!r} answered"
            return self._failure("endpoint_error", reason), None
        choices = getattr(found, "choices", None)
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
        reply = Reply(
            text=text, stop_reason=STOPS[choice.finish_reason], num_read=num_read, num_written=num_written,
            model=named, logprobs=logprobs_of(choice),
        )  # fmt: skip
        check_size(asked, reply, self.config.max_model_len)
        return reply, None

    def _is_another(self, named: str) -> bool:
        """Whether it is known that a model answered which nobody asked."""
        return self.config.check_model and bool(named) and not _same_model(named, self.config.model)

    def _failure(self, kind: Any, reason: str, error: BaseException | None = None) -> Failure:
        """Servers echo the keys that they do not like."""
        trace = "" if error is None else f"{type(error).__module__}.{type(error).__name__}: {error}"
        whole = f"{self.name} at {self.config.url}: {reason}"
        return Failure(kind=kind, reason=self._blotted(whole), trace=self._blotted(trace))

    def _blotted(self, text: str) -> str:
        """Without the key, and of whole characters: it goes to logs and to the console."""
        text = text.encode(errors="backslashreplace").decode()
        return text.replace(self._key, "[key]") if len(self._key) >= SHORTEST_KEY else text

    def _said(self, error: BaseException) -> str:
        """Its first line, blotted before it is cut: half a key is a secret too."""
        text = str(getattr(error, "message", None) or error).strip().partition("\n")[0]
        return re.sub(r"^Error code: \d+ - ", "", self._blotted(text))[:300]

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _place(self, asked: Mapping[str, Any]) -> Path | None:
        if self.cache is None:
            return None
        config = self.config
        key = {"url": config.url, "api": config.api, "cache": config.cache, "asked": asked}
        name = sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self.cache / name[:2] / f"{name[2:]}.json"

    def _keep(self, place: Path, asked: Mapping[str, Any], reply: Reply) -> None:
        """It was paid for: where it cannot be kept the run goes on with it."""
        try:
            write_reply(place, asked, reply)
        except OSError as error:
            if not self._cannot_keep:
                logger.warning("%s: replies cannot be kept in %s (%s); the run goes on", self.name, self.cache, error)
            self._cannot_keep = True


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
