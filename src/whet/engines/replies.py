"""An endpoint's requests and replies as records, the sizes that a reply may have, and the cache of replies on disk."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from whet.files import write_atomic
from whet.types import Sampling, StopReason, is_whole

STOPS: Mapping[str, StopReason] = {"stop": "eos", "length": "length"}
MAX_UNSEEN_TOKENS = 1_000_000
"""A server may read more than it was sent, such as a system prompt of its own. What it counts above this is believed of
no server: as read it is estimated, and as written it is spent up to here, and the reply refused."""
MAX_CHARS_A_TOKEN = 128
"""Characters that a token may have on average. Vocabularies hold few tokens as long (runs of spaces), so that a longer
reply has more tokens than its server says."""


class ReplyTooLong(ValueError):
    """An endpoint wrote more than it was asked for, or than its model has positions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A request to an endpoint."""

    messages: tuple[tuple[str, str], ...]
    """Role and content."""
    sampling: Sampling
    seed: int
    prefill: str = ""
    """What the reply begins with; only of endpoints that can be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An endpoint's answer."""

    text: str
    stop_reason: StopReason
    num_read: int
    num_written: int
    """Tokens, as the server counts them. Where it gives no number: characters / 4, rounded up."""
    model: str = ""
    """Who answered, by the server's word. Empty: it names nobody."""
    logprobs: tuple[float, ...] | None = None
    """Of its tokens, where the server gives them."""


# --- the cache ------------------------------------------------------------------------------------------------------


def endpoint_cache() -> Path:
    """Where replies are cached, for all runs of a user: `$WHET_CACHE/endpoints`, by default below `~/.cache/whet`."""
    return Path(os.environ.get("WHET_CACHE") or "~/.cache/whet").expanduser() / "endpoints"


def read_reply(path: Path) -> Reply | None:
    """None: there is none, or none that can be read, so that it is asked for again and written anew."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))["reply"]
        logprobs = record["logprobs"]
        reply = Reply(**record | {"logprobs": None if logprobs is None else tuple(map(float, logprobs))})
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    texts, numbers = (reply.text, reply.stop_reason, reply.model), (reply.num_read, reply.num_written)
    has_types = all(isinstance(text, str) for text in texts) and all(isinstance(number, int) for number in numbers)
    return reply if has_types and is_whole(reply.text) and reply.stop_reason in ("stop", *STOPS.values()) else None


def write_reply(path: Path, request: Mapping[str, Any], reply: Reply) -> None:
    """Whole or not at all: two of one kind write the same. Raises: OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps({"asked": request, "reply": asdict(reply)}).encode())


# --- sizes ----------------------------------------------------------------------------------------------------------


def usage_of(request: Mapping[str, Any], response: Any, *, chat: bool) -> tuple[int, int]:
    """Tokens read and written: the server's numbers, or where it gives none that can be, an estimate. How much was
    written has no upper limit here: see `check_size`."""
    usage, text = getattr(response, "usage", None), _text(response, chat=chat)
    read = "".join(message["content"] for message in request["messages"]) if chat else request["prompt"]
    most = len(read.encode(errors="replace")) + MAX_UNSEEN_TOKENS  # no token has less than a byte
    return (
        _count(getattr(usage, "prompt_tokens", None), read if text else "", most),
        _count(getattr(usage, "completion_tokens", None), text, None),
    )


def _count(number: Any, text: str, most: int | None) -> int:
    """The number, also one that is given as text. Of no number, of one above `most`, and of one that leaves no token
    for the text: an estimate, four characters a token."""
    try:
        count = int(number)
    except (TypeError, ValueError, OverflowError):
        count = -1
    is_possible = count >= (1 if text else 0) and (most is None or count <= most)
    return count if is_possible else math.ceil(len(text) / 4)


def check_size(request: Mapping[str, Any], reply: Reply, max_positions: int | None) -> None:
    """Whether a reply is no longer than it may be.

    Args:
        request: its `max_tokens`, or `max_completion_tokens`, is the limit.
        max_positions: of the model, for prompt and reply together. None: not known.
    Raises: ReplyTooLong.
    """
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    if isinstance(limit, int):
        count = "" if reply.logprobs is None else f", and {len(reply.logprobs):,} logprobs"
        if max(reply.num_written, len(reply.logprobs or ())) > limit:
            raise ReplyTooLong(f"a reply of {reply.num_written:,} tokens{count}, where {limit:,} were asked for")
        if len(reply.text) > limit * MAX_CHARS_A_TOKEN:
            raise ReplyTooLong(f"a reply of {len(reply.text):,} characters, where {limit:,} tokens were asked for")
    if max_positions is not None and reply.num_read + reply.num_written > max_positions:
        raise ReplyTooLong(
            f"a prompt of {reply.num_read:,} tokens and a reply of {reply.num_written:,}, where the model has "
            f"{max_positions:,} positions"
        )


def _text(response: Any, *, chat: bool) -> str:
    """What was written, whatever else is wrong with the answer. Empty: nothing, or nothing that can be found."""
    try:
        choice = response.choices[0]
        text = choice.message.content if chat else choice.text
    except (AttributeError, LookupError, TypeError):
        return ""
    return text if isinstance(text, str) else ""


def logprobs_of(choice: Any) -> tuple[float, ...] | None:
    """Logprobs of a choice's tokens. None: it has none. Raises: ValueError where one is not finite."""
    logprobs = getattr(choice, "logprobs", None)
    if logprobs is None:
        return None
    tokens = getattr(logprobs, "content", None)
    values = [token.logprob for token in tokens] if tokens else getattr(logprobs, "token_logprobs", None)
    if not values:
        return None
    finite = tuple(float(value or 0.0) for value in values)
    if not all(map(math.isfinite, finite)):
        raise ValueError("logprobs that are no finite numbers")
    return finite
