"""Published servers whose sessions are bare numbers, `env_idx` in requests: WebShop, BIRD, search QA, the tools."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from whet.envs.server.dialect import Dialect, number, step
from whet.envs.server.session import Session
from whet.envs.wire import Answer


class _Bare(Dialect):
    """Ids are bare numbers, and called `env_idx`. An error is no status 200: these clients look at nothing else."""

    id_key = "env_idx"
    keeps_done = False
    error_status = 500

    def opened(self, id: int, begun: Any) -> Any:
        return id

    def item(self, number: int, session: Session) -> int:
        env: Any = session.made
        env.check_item(number)  # raises where there is none
        return number

    def known(self, session: Session, answered: Any) -> dict[str, Any]:
        return {}

    def observation(self, session: Session) -> Any:
        return session.has_begun().observation


class WebShop(_Bare):
    """The item is a session's number. `GET /state` is not answered: there are no pages in HTML."""

    item_key = "session_id"
    lists_ids = True
    questions = MappingProxyType(
        {
            "instruction_text": lambda env: f"Instruction: {env.goal.instruction}",
            "available_actions": lambda env: {
                "has_search_bar": env.where.kind == "search",
                "clickables": list(env.clickables()),
            },
        }
    )

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> Any:
        return [answer.observation, None]

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        return {"state": answer.observation, "reward": number(answer.reward), "done": answer.is_over, "info": None}


class Tools(Dialect):
    """Weather, movie, academia, sheet and todo: a bare number at create, a bare text at reset, and a running reward."""

    id_key = "env_idx"
    item_key = "id"
    begins_at_create = True
    keeps_done = False

    def item(self, number: int, session: Session) -> int:
        env: Any = session.made
        env.find(number)  # raises where there is none
        return number

    def first_number(self, id: int, body: Mapping[str, Any]) -> Any:
        return body.get("id", 0)

    def opened(self, id: int, begun: Any) -> Any:
        return id

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> str:
        session.notes["number"] = number  # a reset without one begins it again
        return answer.observation

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        return {**step(answer), "reward": number(session.total)}

    def known(self, session: Session, answered: Any) -> dict[str, Any]:
        if isinstance(answered, str):
            return {"observation": answered, "reward": 0, "done": False}
        return dict(answered)


class SqlGym(_Bare):
    """The action is a query. The item is one of the generated ones, or of the server's own folder of BIRD."""

    item_key = "item_id"
    lists_ids = True

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> Any:
        session.notes["first"] = answer.observation
        return [answer.observation, None]

    def observation(self, session: Session) -> Any:
        """The first one, also after a step."""
        return session.notes["first"]

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        env: Any = session.made
        stepped = step(answer)
        return {
            "state": stepped["observation"],
            "reward": stepped["reward"],
            "done": stepped["done"],
            "info": {"ground_truth": env.gold},
        }


class SearchQA(_Bare):
    """The action is a whole reply. The item is one of the generated ones, or of the server's own folder."""

    item_key = "id"

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> Any:
        session.notes["first"] = answer.observation
        return answer.observation

    def observation(self, session: Session) -> Any:
        """The first one, also after a step."""
        return session.notes["first"]

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        return {**step(answer), "info": None}
