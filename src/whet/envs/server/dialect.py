"""What a published environment's server may do in its own way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from whet.envs.server.session import Session
from whet.envs.wire import Answer

Question = Callable[[Any], Any]
"""Asks an environment, in the thread where it runs."""


class Dialect:
    """The published form of an environment. This one serves environments that were never published: plug-ins."""

    id_key = "id"
    """What requests call the session."""
    item_key = "data_idx"
    """What a reset calls the item."""
    error_status = 200
    """Of an answer that is an error."""
    lists_ids = False
    """Whether `GET /list_envs` gives the ids of all sessions."""
    begins_at_create = False
    keeps_done = True
    """Whether calls other than reset are refused once an episode is done."""
    keeps_closed = False
    """Whether a closed session is told from one that never was."""
    questions: Mapping[str, Question] = MappingProxyType({})
    """Further paths for GET, each with an id."""
    lists: Mapping[str, Any] = MappingProxyType({})
    """Further paths for GET that need no id."""

    def item(self, number: int, session: Session) -> int:
        """Our item of a published number.

        Raises: EnvError where there is none.
        """
        return number

    def first_number(self, id: int, body: Mapping[str, Any]) -> Any:
        """The item with which a session begins, where it `begins_at_create`."""
        return id

    def opened(self, id: int, begun: Any) -> Any:
        """The answer to a create.

        Args:
            begun: the answer to a reset, where the session `begins_at_create`; else None.
        """
        return {"id": id} if begun is None else begun

    def created(self) -> dict[str, Any]:
        """What is known of a session before its first reset."""
        return {"done": False, "reward": 0, "deleted": False}

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> Any:
        """The answer to a reset."""
        return {"id": id, "observation": answer.observation, "reward": 0, "score": 0, "done": False}

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        """The answer to a step."""
        return {**step(answer), "score": number(session.total)}

    def known(self, session: Session, answered: Any) -> dict[str, Any]:
        """What the answer changes in what is known of a session: `detail` shows it."""
        return dict(answered)

    def observation(self, session: Session) -> Any:
        return session.notes["observation"]

    def detail(self, session: Session) -> Any:
        return {name: value for name, value in session.notes.items() if name != "id"}


def number(value: float) -> float:
    """A reward as the published servers write it: whole ones as integers."""
    return int(value) if value == int(value) else value


def step(answer: Answer) -> dict[str, Any]:
    return {"observation": answer.observation, "reward": number(answer.reward), "done": answer.is_over}
