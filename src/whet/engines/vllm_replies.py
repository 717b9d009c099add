"""Requests to vLLM and its replies, and the checks of each reply: ids, tokens, logprobs, ends, spans of weights.

No check believes the server's word where it can be told from the reply. What a reply cannot tell, such as the logprobs'
temperature, is told by a sample of replies that the engine scores again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whet.engines.vllm_server import ServerError
from whet.errors import RunError
from whet.models.policy import Policy
from whet.seeds import seed_of
from whet.types import Completion, Request, StopReason

MOST_LOGPROB = 1e-4
"""Rounding may lift a logprob above 0, by less than this."""


class Aborted(Exception):
    """The server cut the reply off: it is no reply, and may be asked for again."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What a reply has to fit."""

    request: Request
    id: str
    prefix: str
    """What all request ids of this run begin with."""
    versions: Mapping[str, int]
    """Of the weights that may have written it, by label, the oldest first."""


def unfit(request: Request) -> str | None:
    """Why a vLLM server cannot answer a request as whet means it. None: it can."""
    if request.constraint is not None or request.num_top:
        return "it answers no requests with a form (JSON schema) or with the likeliest tokens: engine.kind=local"
    if request.sampling.top_p < 1 and request.sampling.temperature > 0:
        return (
            f"top_p = {request.sampling.top_p:g} is refused: its logprobs would be those of the tokens that top_p "
            "leaves, and the trainer's are those of all. Set top_p=1"
        )
    return None


def body_of(request: Request, id_: str, stop_ids: Collection[int]) -> dict[str, Any]:
    """The body of a request. All settings that a server may have defaults for are given."""
    sampling = request.sampling
    # A server's stream of numbers begins anew with each request, so a reply that goes on needs another seed.
    seed = request.seed if not request.num_drawn else seed_of(request.seed, "continued", request.num_drawn)
    return {
        "request_id": id_,
        "token_ids": list(request.context),
        "return_token_ids": True,
        "sampling_params": {
            "n": 1, "temperature": sampling.temperature, "top_p": 1.0, "top_k": 0, "min_p": 0.0,
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0,
            "max_tokens": sampling.max_new_tokens, "seed": seed & (2**63 - 1), "logprobs": 0,
            "stop": list(sampling.stop), "include_stop_str_in_output": True,
            "stop_token_ids": sorted({*stop_ids, *sampling.stop_ids}), "skip_special_tokens": False,
        },
    }  # fmt: skip


def read_reply(reply: Any, sent: Sent, policy: Policy, url: str) -> Completion:
    """A server's reply as a completion.

    Raises: Aborted where the server cut it off. ServerError where it cannot be the answer to this request.
    """
    try:
        check_id(reply, sent)
        choices = reply["choices"]
        if len(choices) != 1:
            raise _Wrong(f"it has {len(choices)} replies, and one was asked for")
        choice = choices[0]
        if choice["finish_reason"] == "abort":
            raise Aborted
        tokens = tuple(int(token) for token in choice["token_ids"])
        logprobs = _logprobs(choice, tokens)
        _check_tokens(tokens, policy, sent.request)
        reason = _stop_reason(choice, tokens, policy, sent.request)
        runs = spans(choice, len(tokens), sent.versions)
    except _Wrong as error:
        raise ServerError(
            f"a reply of the server {url} cannot be trained on: {error}. Look for a proxy or another program that uses "
            "this server, restart it and resume the run: its last checkpoint is whole"
        ) from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ServerError(
            f"a reply of the server {url} cannot be read ({type(error).__name__}: {error}): is it vLLM 0.32 or later?"
        ) from error
    return Completion(
        tokens=tokens, logprobs=logprobs, stop_reason=reason, version=runs[-1][0],
        versions=runs if len(runs) > 1 else (),
    )  # fmt: skip


class _Wrong(Exception):
    """A reply does not fit. Its text is a clause."""


def check_id(reply: Mapping[str, Any], sent: Sent) -> None:
    """A server gives ours within its own, and the prompt. Those of another request are another request's reply."""
    named = str(reply.get("request_id", ""))
    ours = re.search(re.escape(sent.prefix) + r"\d+", named)
    if ours is not None and ours.group() != sent.id:
        raise _Wrong(f"it answers the request {named}, and {sent.id} was asked")
    prompt = reply.get("prompt_token_ids")
    if prompt is not None and tuple(prompt) != sent.request.context:
        raise _Wrong(f"it answers another prompt than that of request {sent.id}")


def _logprobs(choice: Mapping[str, Any], tokens: Sequence[int]) -> tuple[float, ...]:
    content = choice["logprobs"]["content"]
    if len(content) != len(tokens):
        raise _Wrong(f"it has {len(tokens)} token ids and {len(content)} logprobs")
    for token, entry in zip(tokens, content, strict=True):
        if (named := entry.get("token_id", token)) != token:
            raise _Wrong(f"its logprobs are of other tokens: one is of token {named}, in the place of {token}")
    logprobs = tuple(float(entry["logprob"]) for entry in content)
    if odd := [value for value in logprobs if not math.isfinite(value) or value > MOST_LOGPROB]:
        raise _Wrong(f"a logprob is {odd[0]:g}")
    return logprobs


def _check_tokens(tokens: Sequence[int], policy: Policy, request: Request) -> None:
    size = policy.causal_lm.get_input_embeddings().weight.shape[0]
    if odd := [token for token in tokens if not 0 <= token < size]:
        raise _Wrong(f"it holds token {odd[0]}, and {policy.title} has {size:,} tokens: it has another vocabulary")
    if len(tokens) > request.sampling.max_new_tokens or not tokens:
        raise _Wrong(f"it has {len(tokens)} tokens, and 1 to {request.sampling.max_new_tokens} were asked for")


def _stop_reason(choice: Mapping[str, Any], tokens: Sequence[int], policy: Policy, request: Request) -> StopReason:
    """Why the reply ended, as its tokens say: a reply that was cut off may be called ended."""
    sampling, finish = request.sampling, choice["finish_reason"]
    ends = {*policy.stop_ids, *sampling.stop_ids}
    if any(token in ends for token in tokens[:-1]):
        raise _Wrong("it goes on after an end token")
    if finish == "length":
        if len(tokens) < sampling.max_new_tokens and tokens[-1] not in ends:
            raise _Wrong(f"it was cut at {len(tokens)} tokens, and {sampling.max_new_tokens} were allowed")
        return "eos" if tokens[-1] in ends else "length"
    if finish != "stop":
        raise _Wrong(f"it ended by {finish!r}")
    if tokens[-1] in ends:
        return "eos"
    if sampling.stop and any(stop in policy.tokenizer.decode(list(tokens)) for stop in sampling.stop):
        return "stop"
    raise _Wrong("it is said to have ended, and its last token is no end: it was cut off, or tokens are missing")


def spans(choice: Mapping[str, Any], count: int, versions: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    """Runs of `(version, number of tokens)`. Raises: _Wrong."""
    listed = choice.get("weight_versions")
    if not listed:
        raise _Wrong("it does not say which weights wrote it (weight_versions)")
    order, at, last = list(versions), 0, 0
    runs: list[tuple[int, int]] = []
    for span in listed:
        label, start, end = span["version"], int(span["start"]), int(span["end"])
        if label not in versions:
            raise _Wrong(f"it was written by weights labelled {label!r}, which this run has not sent")
        if start != at or end <= start or order.index(label) < last:
            raise _Wrong(f"its spans of weights do not follow one another: {str(listed)[:120]}")
        at, last = end, order.index(label)
        version = versions[label]
        if runs and runs[-1][0] == version:
            runs[-1] = (version, runs[-1][1] + end - start)
        else:
            runs.append((version, end - start))
    if at != count:
        raise _Wrong(f"its spans of weights cover {at} of its {count} tokens")
    return tuple(runs)


def read_prompt_logprobs(reply: Any, sent: Sent, url: str) -> list[float]:
    """[T - 1] the logprobs of all tokens of a prompt but the first, at temperature 1. Raises: RunError."""
    tokens = sent.request.context
    try:
        check_id(reply, sent)
        spans(reply["choices"][0], len(reply["choices"][0]["token_ids"]), sent.versions)
        listed = reply["prompt_logprobs"]
        if len(listed) != len(tokens):
            raise _Wrong(f"it scores {len(listed)} tokens of a prompt of {len(tokens)}")
        return [float(place[str(token)]["logprob"]) for token, place in zip(tokens[1:], listed[1:], strict=True)]
    except _Wrong as error:
        raise ServerError(f"an answer of the server {url} cannot be used: {error}") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise RunError(
            f"the server {url} scored no prompt as it was asked to ({type(error).__name__}: {error}): is it vLLM 0.32?"
        ) from error
