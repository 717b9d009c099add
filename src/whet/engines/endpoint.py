"""An OpenAI-compatible endpoint in a seat: a frozen actor, a teacher, a judge. Text in, text out, many at a time.

What goes wrong is a typed failure: after retries where that may help (429, 5xx, timeouts, dropped connections), at once
where it cannot (a wrong key, a wrong model name, a reply that is none). Replies are kept on disk by what was asked, so
that a run that is repeated sends nothing and gets the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from whet.config.base import ConfigError
from whet.config.parts import EndpointConfig
from whet.errors import EndOfPlay
from whet.types import Failure, Sampling, StopReason

BACKOFF_S, LONGEST_WAIT_S = 0.5, 60.0
"""Before the first retry, doubled each time; at most."""
STOPS: Mapping[str, StopReason] = {"stop": "eos", "length": "length"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What an endpoint is asked for."""

    messages: tuple[tuple[str, str], ...]
    """Role and content."""
    sampling: Sampling
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What it gave."""

    text: str
    stop_reason: StopReason
    num_read: int
    num_written: int
    """Tokens, as the server counts them."""
    logprobs: tuple[float, ...] | None = None
    """Of its tokens, where the server gives them."""


class BudgetSpent(EndOfPlay):
    """The endpoint has been asked for as many tokens as the settings allow."""


class EndpointEngine:
    """A service whose payloads are prompts. See the module's docstring.

    Args:
        name: the seat's, for sentences.
        cache: a folder, made when it is needed. None: nothing is kept.
    Raises: ConfigError where `openai` is not installed.
    """

    is_stepped = False
    queued: Collection[int] = ()

    def __init__(self, name: str, config: EndpointConfig, cache: Path | None = None) -> None:
        try:
            import openai
        except ImportError as error:
            raise ConfigError(f"{name}.kind = endpoint needs a package: pip install 'whet[endpoint]'") from error
        self.name, self.config, self.cache, self.openai = name, config, cache, openai
        self.counts: Counter[str] = Counter()
        """Requests sent, retried, answered from the cache; tokens read and written."""
        self._futures: dict[int, Future[Reply | Failure]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"endpoint {name}", daemon=True)
        self._thread.start()
        # Keys come from the environment and nowhere else: settings are written into run folders.
        self._client = openai.AsyncOpenAI(
            base_url=config.url, api_key=os.environ.get(config.key_env) or "none", max_retries=0,
            timeout=config.timeout_s,
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

    def restart(self) -> None:
        """As `Service.restart`. What was sent is paid for, and still kept in the cache where it comes."""
        self._futures.clear()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    # --- a request ----------------------------------------------------------------------------------------------------

    async def _reply(self, prompt: Prompt) -> Reply | Failure:
        asked = self._asked(prompt)
        place = self._place(asked)
        if place is not None and place.exists():
            self.counts["cached"] += 1
            return _read(place)
        async with self._places:
            found = await self._sent(asked, prompt)
        if place is not None and isinstance(found, Reply):
            _write(place, asked, found)
        return found

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
            asked["prompt"] = "\n\n".join(content for _, content in prompt.messages)
            return asked | ({"logprobs": 0} if config.logprobs else {})
        asked["messages"] = [{"role": role, "content": content} for role, content in prompt.messages]
        return asked | ({"logprobs": True} if config.logprobs else {})

    async def _sent(self, asked: Mapping[str, Any], prompt: Prompt) -> Reply | Failure:
        rng, failure = random.Random(prompt.seed), Failure(kind="endpoint_error", reason="never asked")
        for attempt in range(self.config.retries + 1):
            self._check_budget(prompt)
            self.counts["sent" if attempt == 0 else "retried"] += 1
            found, wait_s = await self._once(asked)
            if isinstance(found, Reply):
                self.counts["read"] += found.num_read
                self.counts["written"] += found.num_written
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
                f"{self.name}: {spent:,} tokens were read and written by {self.config.url}, and {self.name}.max_tokens "
                f"= {budget:,}: raise it to go on"
            )

    async def _once(self, asked: Mapping[str, Any]) -> tuple[Reply | Failure, float | None]:
        """A request and what came of it; of a failure that may pass, the seconds to wait at least. None: it won't."""
        openai, chat = self.openai, self.config.api == "chat"
        try:
            create = self._client.chat.completions.create if chat else self._client.completions.create
            found = await create(**asked)
        except openai.APITimeoutError as error:
            return self._failure("timeout", f"no answer within {self.config.timeout_s:g} s", error), 0.0
        except openai.RateLimitError as error:
            return self._failure("endpoint_error", f"HTTP 429: {_said(error)}", error), _retry_after(error)
        except openai.APIStatusError as error:
            wait_s = _retry_after(error) if error.status_code >= 500 or error.status_code == 408 else None
            return self._failure("endpoint_error", f"HTTP {error.status_code}: {_said(error)}", error), wait_s
        except openai.APIConnectionError as error:
            return self._failure("endpoint_error", f"cannot be reached: {error.__cause__ or error}", error), 0.0
        except (openai.APIError, ValueError, TypeError) as error:  # a body that is no JSON, or another one's
            return self._failure("endpoint_error", f"an answer that cannot be read: {_said(error)}", error), 0.0
        try:
            return self._read_reply(found, chat=chat)
        except (AttributeError, TypeError, ValueError) as error:  # JSON, and not of that shape
            return self._failure("endpoint_error", f"an answer that cannot be read: {error}", error), 0.0

    def _read_reply(self, found: Any, *, chat: bool) -> tuple[Reply | Failure, float | None]:
        wanted, named = self.config.model, str(getattr(found, "model", "") or "")
        if self.config.check_model and named and not _same_model(named, wanted):
            return self._failure("endpoint_error", f"asked for model {wanted!r}, and {named!r} answered"), None
        choices = getattr(found, "choices", None)
        if not choices:
            return self._failure("endpoint_error", "an answer without a choice"), 0.0
        choice = choices[0]
        text = choice.message.content if chat else choice.text
        if not isinstance(text, str):
            return self._failure("endpoint_error", "a choice without text"), 0.0
        if choice.finish_reason not in STOPS:
            return self._failure("endpoint_error", f"a reply that ended with {choice.finish_reason!r}"), None
        usage = getattr(found, "usage", None)
        return Reply(
            text=text, stop_reason=STOPS[choice.finish_reason], num_read=getattr(usage, "prompt_tokens", 0) or 0,
            num_written=getattr(usage, "completion_tokens", 0) or 0, logprobs=_logprobs(choice),
        ), None  # fmt: skip

    def _failure(self, kind: Any, reason: str, error: BaseException | None = None) -> Failure:
        trace = "" if error is None else f"{type(error).__module__}.{type(error).__name__}: {error}"
        return Failure(kind=kind, reason=f"{self.name} at {self.config.url}: {reason}", trace=trace)

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _place(self, asked: Mapping[str, Any]) -> Path | None:
        if self.cache is None:
            return None
        text = json.dumps({"url": self.config.url, "api": self.config.api, **asked}, sort_keys=True)
        key = sha256(text.encode()).hexdigest()
        return self.cache / key[:2] / f"{key[2:]}.json"


def endpoint_cache() -> Path:
    """Where replies are kept, for all runs of a user: `$WHET_CACHE/endpoints`, by default below `~/.cache/whet`."""
    return Path(os.environ.get("WHET_CACHE") or "~/.cache/whet").expanduser() / "endpoints"


def _read(place: Path) -> Reply:
    reply = json.loads(place.read_text(encoding="utf-8"))["reply"]
    logprobs = reply.pop("logprobs")
    return Reply(**reply, logprobs=None if logprobs is None else tuple(logprobs))


def _write(place: Path, asked: Mapping[str, Any], reply: Reply) -> None:
    """Whole or not at all: two of one kind write the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    fields = {name: getattr(reply, name) for name in ("text", "stop_reason", "num_read", "num_written", "logprobs")}
    aside = place.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    aside.write_text(json.dumps({"asked": asked, "reply": fields}, ensure_ascii=False), encoding="utf-8")
    aside.replace(place)


def _same_model(named: str, wanted: str) -> bool:
    """Servers add a revision (`tiny@main`), or leave a folder out."""
    bare = named.partition("@")[0]
    return wanted in (named, bare) or Path(bare).name == Path(wanted).name or bare.startswith(f"{wanted}-")


def _said(error: BaseException) -> str:
    text = str(getattr(error, "message", None) or error).strip().partition("\n")[0]
    return re.sub(r"^Error code: \d+ - ", "", text)[:300]


def _retry_after(error: Any) -> float:
    """Seconds that the server asks for."""
    try:
        return max(0.0, float(error.response.headers.get("retry-after", 0)))
    except (AttributeError, TypeError, ValueError):
        return 0.0


def _logprobs(choice: Any) -> tuple[float, ...] | None:
    found = getattr(choice, "logprobs", None)
    if found is None:
        return None
    tokens = getattr(found, "content", None)
    if tokens:
        return tuple(token.logprob for token in tokens)
    values = getattr(found, "token_logprobs", None)
    return tuple(value or 0.0 for value in values) if values else None
