"""What goes to an endpoint and comes back, as records; what a reply says of its tokens; and replies kept on disk."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from whet.types import Sampling, StopReason, is_whole

STOPS: Mapping[str, StopReason] = {"stop": "eos", "length": "length"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What an endpoint is asked for."""

    messages: tuple[tuple[str, str], ...]
    """Role and content."""
    sampling: Sampling
    seed: int
    prefill: str = ""
    """What the reply begins with; only of endpoints that can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What it gave."""

    text: str
    stop_reason: StopReason
    num_read: int
    num_written: int
    """Tokens, as the server counts them. Where it gives no number: characters / 4, rounded up."""
    model: str = ""
    """Who answered, by the server's word. Empty: it names nobody."""
    logprobs: tuple[float, ...] | None = None
    """Of its tokens, where the server gives them."""


# --- what is kept ---------------------------------------------------------------------------------------------------


def endpoint_cache() -> Path:
    """Where replies are kept, for all runs of a user: `$WHET_CACHE/endpoints`, by default below `~/.cache/whet`."""
    return Path(os.environ.get("WHET_CACHE") or "~/.cache/whet").expanduser() / "endpoints"


def read_reply(place: Path) -> Reply | None:
    """None: there is none, or none that can be read, so that it is asked for again and written anew."""
    try:
        kept = json.loads(place.read_text(encoding="utf-8"))["reply"]
        logprobs = kept["logprobs"]
        reply = Reply(**kept | {"logprobs": None if logprobs is None else tuple(map(float, logprobs))})
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    texts, numbers = (reply.text, reply.stop_reason, reply.model), (reply.num_read, reply.num_written)
    has_types = all(isinstance(each, str) for each in texts) and all(isinstance(each, int) for each in numbers)
    return reply if has_types and is_whole(reply.text) and reply.stop_reason in STOPS.values() else None


def write_reply(place: Path, asked: Mapping[str, Any], reply: Reply) -> None:
    """Whole or not at all: two of one kind write the same."""
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = place.with_suffix(f".{os.getpid()}.{threading.get_ident()}")
    aside.write_text(json.dumps({"asked": asked, "reply": asdict(reply)}), encoding="utf-8")
    aside.replace(place)


# --- what a reply says ---------------------------------------------------------------------------------------------


def usage_of(asked: Mapping[str, Any], found: Any, *, chat: bool) -> tuple[int, int]:
    """Tokens read and written: the server's numbers, or where it gives none and has written something, an estimate."""
    usage, text = getattr(found, "usage", None), _text(found, chat=chat)
    read = "".join(each["content"] for each in asked["messages"]) if chat else asked["prompt"]
    return (
        _count(getattr(usage, "prompt_tokens", None), read if text else ""),
        _count(getattr(usage, "completion_tokens", None), text),
    )


def _count(given: Any, text: str) -> int:
    """The number, also one that is given as text; else estimated, four characters a token."""
    try:
        return max(0, int(given))
    except (TypeError, ValueError, OverflowError):
        return math.ceil(len(text) / 4)


def _text(found: Any, *, chat: bool) -> str:
    """What was written, whatever else is wrong with the answer. Empty: nothing, or nothing that can be found."""
    try:
        choice = found.choices[0]
        text = choice.message.content if chat else choice.text
    except (AttributeError, LookupError, TypeError):
        return ""
    return text if isinstance(text, str) else ""


def logprobs_of(choice: Any) -> tuple[float, ...] | None:
    found = getattr(choice, "logprobs", None)
    if found is None:
        return None
    tokens = getattr(found, "content", None)
    if tokens:
        return tuple(float(token.logprob) for token in tokens)
    values = getattr(found, "token_logprobs", None)
    return tuple(float(value or 0.0) for value in values) if values else None
