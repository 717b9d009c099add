"""What clients send, checked field by field, and what they are sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.requests import Request
from starlette.responses import Response

from whet.envs.wire import MAX_SEED, RETRY_AFTER_S, WireError, encoded
from whet.types import in_brief, is_whole


def answered(data: Any, status: int = 200) -> Response:
    return Response(encoded(data), status, media_type="application/json")


def refused(error: WireError) -> Response:
    """An error in the wire's own shape."""
    response = answered(error.as_json(), error.status)
    if error.code == "full":
        response.headers["Retry-After"] = str(RETRY_AFTER_S)
    return response


async def body_of(request: Request) -> dict[str, Any]:
    """The object in a request's body. An empty body is an empty object.

    Raises: WireError where it is anything else.
    """
    raw = await request.body()
    return object_in(raw) if raw else {}


def object_in(raw: bytes | str) -> dict[str, Any]:
    """The object in a JSON text.

    Raises: WireError where it is anything else.
    """
    try:
        data = json.loads(raw, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise WireError("bad_request", f"the body is not JSON ({in_brief(error)}): send one object") from error
    if not isinstance(data, dict):
        raise WireError("bad_request", f"the body is {in_brief(data)}: send one object")
    return data


def text_in(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A text of whole characters.

    Raises: WireError.
    """
    value = body.get(name, default)
    if not isinstance(value, str):
        raise WireError("bad_request", f"{name!r} is {_shown(body, name)}: send a text")
    if not is_whole(value):
        raise WireError("bad_request", f"{name!r} has half a character (a lone surrogate): send whole ones")
    return value


def number_in(body: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number in [0, MAX_SEED).

    Raises: WireError.
    """
    value = body.get(name, default)
    if type(value) is not int or not 0 <= value < MAX_SEED:
        raise WireError("bad_request", f"{name!r} is {_shown(body, name)}: send a whole number from 0")
    return value


def flag_in(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise WireError("bad_request", f"{name!r} is {_shown(body, name)}: send true or false")
    return value


def table_in(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name, {})
    if not isinstance(value, dict):
        raise WireError("bad_request", f"{name!r} is {_shown(body, name)}: send an object")
    return value


def _shown(body: Mapping[str, Any], name: str) -> str:
    return in_brief(body[name]) if name in body else "missing"


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")
