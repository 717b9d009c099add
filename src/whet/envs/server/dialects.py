"""What AgentGym's published servers answer, one class for each.

Their clients read these very keys. Where the published servers contradict our environments, `docs/env-server.md` says
which way we went.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from whet.envs.household.environment import LISTED
from whet.envs.maze import MOVES, STARTS
from whet.envs.protocol import EnvError
from whet.envs.sciworld.items import task_of
from whet.envs.server.bare_dialects import SearchQA, SqlGym, Tools, WebShop
from whet.envs.server.dialect import Dialect, number, step
from whet.envs.server.session import Session
from whet.envs.wire import Answer, WireError


class TextCraft(Dialect):
    """The items of the server's own table: give it `recipes` and `openings` for those of the records."""

    begins_at_create = True
    keeps_done = False

    def item(self, number: int, session: Session) -> int:
        goals: Any = session.made
        return number % len(goals.goals)

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> dict[str, Any]:
        return {"id": id, "observation": answer.observation, "done": False, "reward": 0}

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        return step(answer)


class BabyAI(Dialect):
    """A step that ends the task says so before the available actions."""

    def created(self) -> dict[str, Any]:
        return {"deleted": False, "done": False}

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> dict[str, Any]:
        return {"observation": answer.observation, "reward": 0, "score": 0, "deleted": False, "done": False}

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        before, mark, after = answer.observation.rpartition("\nAvailable actions")
        done = "\n The task is completed." if answer.terminated else ""
        return {**step(answer), "observation": f"{before}{done}{mark}{after}", "score": number(session.total)}

    def observation(self, session: Session) -> Any:
        env: Any = session.made
        notes = session.notes
        if "observation" not in notes:
            raise WireError("not_begun", "The environment has not been reset.")
        goal, shown = f"Your goal: {env.goal}\n", notes["observation"]
        names = ("reward", "score", "done", "deleted")
        return {"observation": shown if shown.startswith(goal) else goal + shown} | {n: notes[n] for n in names}


class SciWorld(Dialect):
    """The score goes from -100 to 100; the reward is its change."""

    keeps_closed = True

    def item(self, number: int, session: Session) -> int:
        task_of(number)  # raises where there is none
        return number

    questions = MappingProxyType(
        {
            "task_description": lambda env: {"task_description": env.task_description},
            "action_hint": lambda env: dict(zip(("possible_actions", "possible_objects"), env.hints(), strict=True)),
            "goals": lambda env: {"goals": env.goal_progress()},
        }
    )

    def created(self) -> dict[str, Any]:
        return {"deleted": False, "done": False}

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> dict[str, Any]:
        env: Any = session.made
        task, variation = task_of(number)
        described = env.task_description
        return {
            "task_name": task.name,
            "var_num": variation,
            "task_description": described,
            "observation": answer.observation.removeprefix(f"{described}\n"),
            "reward": 0,
            "score": 0,
            "deleted": False,
            "done": False,
        }

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        return {**step(answer), "score": number(session.total)}


class _LmrlGym(Dialect):
    """Rewards add up in `detail` only."""

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        return step(answer)

    def known(self, session: Session, answered: Mapping[str, Any]) -> dict[str, Any]:
        return {**answered, "done": answered.get("done", False), "reward": number(session.total)}


class Maze(_LmrlGym):
    item_key = "game"
    lists = MappingProxyType({"available_actions": list(MOVES)})

    def item(self, number: int, session: Session) -> int:
        if number >= len(STARTS):
            raise EnvError(f"The game {number} is not valid.")
        return number

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> dict[str, Any]:
        return {"observation": answer.observation}

    def known(self, session: Session, answered: Mapping[str, Any]) -> dict[str, Any]:
        return {"maze_name": "double_t_maze", **super().known(session, answered)}


class Wordle(_LmrlGym):
    item_key = "seed"
    questions = MappingProxyType({"filtered_vocab": lambda env: list(env.candidates())})

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> dict[str, Any]:
        session.notes["seed"] = number
        return {"id": id, "observation": answer.observation}


class AlfWorld(Dialect):
    """Observations come without the list of actions, which has its own key. All is text, whatever `world_type` says."""

    item_key = "game"
    questions = MappingProxyType({"available_actions": lambda env: list(env.listed)})

    def item(self, number: int, session: Session) -> int:
        env: Any = session.made
        env.check_item(number)  # raises where there is none
        return number

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> dict[str, Any]:
        env: Any = session.made
        text = answer.observation.partition(f"\n{LISTED}")[0]
        return {"id": id, "observation": text, "available_actions": list(env.listed), "task_type": env.task}

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        env: Any = session.made
        return {**step(answer), "available_actions": list(env.listed)}

    def known(self, session: Session, answered: Mapping[str, Any]) -> dict[str, Any]:
        return {"done": False, "reward": 0, **answered}


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "textcraft": TextCraft(),
        "babyai": BabyAI(),
        "sciworld": SciWorld(),
        "maze": Maze(),
        "wordle": Wordle(),
        "webshop": WebShop(),
        "alfworld": AlfWorld(),
        **dict.fromkeys(("weather", "movie", "academia", "sheet", "todo"), Tools()),
        "sqlgym": SqlGym(),
        "searchqa": SearchQA(),
    }
)
OTHERS = Dialect()
