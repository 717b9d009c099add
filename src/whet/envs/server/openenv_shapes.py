"""OpenEnv's messages as JSON Schemas, and the errors of its WebSocket."""

from __future__ import annotations

from typing import Any

from whet.envs.wire import Answer, info_json

METADATA = {"type": "object", "additionalProperties": True, "default": {}}
ACTION = {
    "title": "TextAction",
    "type": "object",
    "additionalProperties": False,
    "properties": {"text": {"type": "string", "description": "The agent's action."}},
    "required": ["text"],
}
"""Exactly one field, so that clients can take a bare reply for it."""
OBSERVATION = {
    "title": "TextObservation",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "text": {"type": "string", "description": "What the environment says."},
        "done": {"type": "boolean", "default": False, "description": "Whether the episode has ended."},
        "reward": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None, "description": "Of this step."},
        "metadata": METADATA | {"description": "terminated, truncated, turn, item, split, index, seed, and info."},
    },
    "required": ["text"],
}
STATE = {
    "title": "State",
    "type": "object",
    "additionalProperties": True,
    "properties": {
        "episode_id": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "step_count": {"type": "integer", "minimum": 0, "default": 0},
    },
}


class SocketError(Exception):
    """An error message of OpenEnv's WebSocket.

    Args:
        code: INVALID_JSON, UNKNOWN_TYPE, VALIDATION_ERROR or EXECUTION_ERROR: the session goes on. CAPACITY_REACHED,
            FACTORY_ERROR or SESSION_ERROR: the connection ends.
        more: what else the message holds.
    """

    def __init__(self, code: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code, self.more = code, more

    @property
    def is_last(self) -> bool:
        return self.code in ("CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR")

    def as_json(self) -> dict[str, Any]:
        return {"type": "error", "data": {"message": str(self), "code": self.code, **self.more}}

    @classmethod
    def of_field(cls, name: str, problem: str) -> SocketError:
        errors = [{"type": "value_error", "loc": [name], "msg": problem}]
        return cls("VALIDATION_ERROR", f"Invalid message: {name!r} {problem}", errors=errors)


def observed(answer: Answer, about: dict[str, Any]) -> dict[str, Any]:
    """An answer as OpenEnv sends it: its metadata stands in two places, for older and newer clients.

    Args:
        about: the item and its seed.
    """
    metadata = {
        "terminated": answer.terminated,
        "truncated": answer.truncated,
        "turn": answer.turn,
        **about,
        "info": info_json(answer.info),
    }
    data = {
        "observation": {"text": answer.observation, "metadata": metadata},
        "reward": None if answer.turn == 0 else answer.reward,
        "done": answer.is_over,
        "metadata": metadata,
    }
    return {"type": "observation", "data": data}
