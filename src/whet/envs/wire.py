"""The wire between `whet env serve` and whet's client: paths, error codes, answers, and what JSON makes of them.

Bodies are JSON in UTF-8. Numbers keep their bits: JSON's form of a float is the shortest that reads back as the same.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from whet.envs.protocol import ACTIONS, PICTURE, EnvironmentInfo, Info, Stepped, stepped
from whet.envs.rules import rules_text
from whet.errors import WhetError
from whet.types import MAX_REASON, in_brief, is_whole, shortened

PREFIX: Final = "/v1"
"""Before every path: create, reset, step, steps, observe, actions, fork, close, info, info/NAME, health."""
MAX_BATCH, MAX_KEY_CHARS = 1024, 64
"""Steps of a batch, and characters of the key that a client chooses for a session."""
MAX_SEED = 2**63
"""Seeds and items lie in [0, MAX_SEED)."""
MAX_ITEMS = 1_000_000
"""Items of all splits together that a description tells the subgroups of."""
UNSENT = "unsent"
"""In an info that came over the wire: the names of entries that JSON cannot hold. They were left out."""

STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "bad_request": 400,
        "unauthorized": 401,
        "unknown_environment": 404,
        "unknown_session": 404,
        "unknown_url": 404,
        "too_slow": 408,
        "not_begun": 409,
        "has_ended": 409,
        "out_of_order": 409,
        "busy": 409,
        "expired": 410,
        "too_large": 413,
        "env_error": 500,
        "server_error": 500,
        "full": 503,
        "timeout": 504,
    }
)
"""The HTTP status of each error code. After `env_error` and `timeout` the session is closed. `server_error` is a fault
of the server itself, `unknown_url` a path that it does not have, `too_slow` a body that did not arrive in time."""
RETRY_AFTER_S = 1
"""What the header `Retry-After` of a full server says."""


class WireError(WhetError):
    """A request that the server refused or could not answer.

    Args:
        code: one of `STATUSES`.
        message: one sentence: what is wrong, and what to do.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, shortened(message, MAX_REASON)

    @property
    def status(self) -> int:
        return STATUSES[self.code]

    def as_json(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}

    @classmethod
    def of_json(cls, data: Any) -> WireError:
        """The error in a body.

        Raises: ValueError where the body is no error of this wire.
        """
        error = data.get("error") if isinstance(data, dict) else None
        code, message = (error.get("code"), error.get("message")) if isinstance(error, dict) else (None, None)
        if not isinstance(code, str) or code not in STATUSES or not isinstance(message, str):
            raise ValueError(f"no error of this wire: {in_brief(data)}")
        return cls(code, message)


@dataclass(frozen=True, slots=True)
class Answer:
    """An environment's answer to a reset or a step."""

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Info = field(default_factory=dict)
    turn: int = 0
    """Steps taken in this episode. 0: it was reset."""
    state: str | None = None
    """As `state_digest`, if the session was created with `states`."""

    @property
    def is_over(self) -> bool:
        return self.terminated or self.truncated

    @property
    def as_stepped(self) -> Stepped:
        return self.observation, self.reward, self.terminated, self.truncated, self.info

    def as_json(self) -> dict[str, Any]:
        return {
            "observation": self.observation,
            "reward": self.reward,
            "terminated": self.terminated,
            "truncated": self.truncated,
            "info": info_json(self.info),
            "turn": self.turn,
            "state": self.state,
        }

    @classmethod
    def of_json(cls, data: Any) -> Answer:
        """A checked answer from a body.

        Raises: ValueError where it breaks the protocol.
        """
        if not isinstance(data, dict):
            raise ValueError(f"an answer has to be an object, and is {in_brief(data)}")
        names = ("observation", "reward", "terminated", "truncated", "info")
        if missing := [name for name in (*names, "turn") if name not in data]:
            raise ValueError(f"an answer lacks {missing[0]!r}")
        turn, state = data["turn"], data.get("state")
        if type(turn) is not int or turn < 0:
            raise ValueError(f"turn has to be a number from 0, and is {in_brief(turn)}")
        if state is not None and not isinstance(state, str):
            raise ValueError(f"state has to be a text or null, and is {in_brief(state)}")
        checked = stepped(tuple(data[name] for name in names))
        return cls(*checked[:4], info=info_of_json(checked[4]), turn=turn, state=state)


# --- values -----------------------------------------------------------------------------------------------------------


def encoded(data: Any) -> bytes:
    """A body. Numbers outside of JSON (NaN, infinity) are an error of ours."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def info_json(info: Info) -> Info:
    """An info as JSON holds it. Entries that it cannot hold are left out, and named under `UNSENT`."""
    held: Info = {}
    unsent = []
    for name, value in info.items():
        try:
            held[_key(name)] = _json(value)
        except ValueError:
            unsent.append(str(name).encode(errors="replace").decode())
    return {**held, UNSENT: unsent} if unsent else held


def info_of_json(info: Info) -> Info:
    """An info from the wire, with the actions and the picture as tuples, as environments in this process give them."""
    return {name: _tuples(value) if name in (ACTIONS, PICTURE) else value for name, value in info.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _key(name: Any) -> str:
    if not isinstance(name, str) or not is_whole(name):
        raise ValueError(f"JSON has no key {in_brief(name)}")
    return name


def _json(value: Any) -> Any:
    """Raises: ValueError where JSON cannot hold it."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _key(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, Mapping):
        return {_key(name): _json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    to_list = getattr(value, "tolist", None)  # arrays and numbers of NumPy
    if to_list is not None and not isinstance(value, type):
        listed = to_list()
        if type(listed) is not type(value):
            return _json(listed)
    raise ValueError(f"JSON cannot hold {in_brief(value)}")


def state_digest(key: Hashable) -> str:
    """A text that is equal for equal keys of states, in any process.

    Raises: ValueError where a part of the key has no text of its own, such as an object without `__repr__`.
    """
    return hashlib.sha256(_canonical(key).encode(errors="surrogatepass")).hexdigest()[:32]


def _canonical(value: Any) -> str:
    if isinstance(value, bool | int | float):  # 1, 1.0 and True are equal
        return repr(int(value) if math.isfinite(value) and value == int(value) else float(value))
    if isinstance(value, tuple):
        return f"({','.join(map(_canonical, value))})"
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(_canonical, value)))}}}"
    if repr(value) == object.__repr__(value):  # an address, which is another one in another process
        raise ValueError(f"a state key holds {type(value).__name__}, which has no text of its own: give it a __repr__")
    return repr(value)


# --- items and environments -------------------------------------------------------------------------------------------


def items_json(items: Sequence[int]) -> list[list[int]]:
    """Item numbers in their order, as ranges `[start, stop, step]` one after the other."""
    if isinstance(items, range):
        return [[items.start, items.stop, items.step]]
    ranges: list[list[int]] = []
    for item in items:
        last = ranges[-1] if ranges else None
        if last is not None and last[1] == last[0] + 1 and item != last[0]:  # of one item so far: any step fits
            last[2] = item - last[0]
            last[1] = item + (1 if last[2] > 0 else -1)
        elif last is not None and item == last[1] + last[2] - (1 if last[2] > 0 else -1) and last[2] != 0:
            last[1] = item + (1 if last[2] > 0 else -1)
        else:
            ranges.append([item, item + 1, 1])
    return ranges


def items_of_json(data: Any) -> Sequence[int]:
    """Item numbers from the wire: a range, or a tuple of at most `MAX_ITEMS`.

    Raises: ValueError where these are no ranges of numbers from 0.
    """
    if not isinstance(data, list) or not data:
        raise ValueError(f"items have to be a list of ranges, and are {in_brief(data)}")
    ranges = []
    for bounds in data:
        whole = isinstance(bounds, list) and len(bounds) == 3 and all(type(bound) is int for bound in bounds)
        if not whole or bounds[2] == 0:
            raise ValueError(f"a range of items has to be [start, stop, step], and is {in_brief(bounds)}")
        ranges.append(range(*bounds))
        if not ranges[-1] or min(ranges[-1][0], ranges[-1][-1]) < 0 or max(map(abs, bounds)) > MAX_SEED:
            raise ValueError(f"a range of items holds none, or one below 0: {in_brief(bounds)}")
    if len(ranges) == 1:
        return ranges[0]
    if sum(map(len, ranges)) > MAX_ITEMS:
        raise ValueError(f"there are more than {MAX_ITEMS:,} items in {len(ranges):,} ranges")
    return tuple(chain.from_iterable(ranges))


def description_json(info: EnvironmentInfo) -> dict[str, Any]:
    """What a client needs to know of an environment: the fields of `EnvironmentInfo`, without its functions."""
    splits = info.splits()
    return {
        "name": info.name,
        "splits": {split: items_json(items) for split, items in splits.items()},
        "groups": _groups_json(info, splits),
        "rules": rules_text(info.rules),
        "max_turns": info.max_turns,
        "rewards": list(info.rewards),
        "success_above": info.success_above,
        "kept_above": info.kept_above,
        "scale": info.scale,
        "item_ids": dict(info.item_ids),
        "parser": info.parser,
    }


def _groups_json(info: EnvironmentInfo, splits: Mapping[str, Sequence[int]]) -> dict[str, list[list[int]]] | None:
    """Items by subgroup. None: the environment has no subgroups, or too many items to tell them."""
    if info.group is None or sum(map(len, splits.values())) > MAX_ITEMS:
        return None
    groups: dict[str, list[int]] = {}
    for item in sorted(set(chain.from_iterable(splits.values()))):
        groups.setdefault(info.group(item), []).append(item)
    return {group: items_json(items) for group, items in groups.items()}
