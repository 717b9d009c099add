"""What AgentGym's published servers answer, one class for each.

Their clients read these very keys. Where the published servers contradict our environments, `docs/env-server.md` says
which way we went.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from whet.envs.maze import MOVES, STARTS
from whet.envs.protocol import EnvError
from whet.envs.sciworld.items import task_of
from whet.envs.server.session import Session
from whet.envs.wire import Answer, WireError

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

    def created(self) -> dict[str, Any]:
        """What is known of a session before its first reset."""
        return {"done": False, "reward": 0, "deleted": False}

    def given(self, id: int) -> Any:
        """The answer to a create that begins no episode."""
        return {"id": id}

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> Any:
        """The answer to a reset."""
        return {"id": id, "observation": answer.observation, "reward": 0, "score": 0, "done": False}

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        """The answer to a step."""
        return {**_step(answer), "score": number(session.total)}

    def known(self, session: Session, answered: Mapping[str, Any]) -> dict[str, Any]:
        """What the answer changes in what is known of a session: `detail` shows it."""
        return dict(answered)

    def observation(self, session: Session) -> Any:
        return session.notes["observation"]

    def detail(self, session: Session) -> Any:
        return {name: value for name, value in session.notes.items() if name != "id"}


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
        return _step(answer)


class BabyAI(Dialect):
    """A step that ends the task says so before the available actions."""

    def created(self) -> dict[str, Any]:
        return {"deleted": False, "done": False}

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> dict[str, Any]:
        return {"observation": answer.observation, "reward": 0, "score": 0, "deleted": False, "done": False}

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        before, mark, after = answer.observation.rpartition("\nAvailable actions")
        done = "\n The task is completed." if answer.terminated else ""
        return {**_step(answer), "observation": f"{before}{done}{mark}{after}", "score": number(session.total)}

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
        return {**_step(answer), "score": number(session.total)}


class _LmrlGym(Dialect):
    """Rewards add up in `detail` only."""

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        return _step(answer)

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


class _Bare(Dialect):
    """Ids are bare numbers, and called `env_idx`. An error is no status 200: these clients look at nothing else."""

    id_key = "env_idx"
    keeps_done = False
    error_status = 500

    def given(self, id: int) -> Any:
        return id

    def item(self, number: int, session: Session) -> int:
        env: Any = session.made
        env.check_item(number)  # raises where there is none
        return number

    def known(self, session: Session, answered: Any) -> dict[str, Any]:
        return {}

    def observation(self, session: Session) -> Any:
        """The first one, also after a step."""
        return session.notes["first"]


class SqlGym(_Bare):
    """The action is a query. The item is one of the generated ones, or of the server's own folder of BIRD."""

    item_key = "item_id"
    lists_ids = True

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> Any:
        session.notes["first"] = answer.observation
        return [answer.observation, None]

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        env: Any = session.made
        step = _step(answer)
        return {
            "state": step["observation"],
            "reward": step["reward"],
            "done": step["done"],
            "info": {"ground_truth": env.gold},
        }


class SearchQA(_Bare):
    """The action is a whole reply. The item is one of the generated ones, or of the server's own folder."""

    item_key = "id"

    def begun(self, id: int, number: int, session: Session, answer: Answer) -> Any:
        session.notes["first"] = answer.observation
        return answer.observation

    def stepped(self, session: Session, answer: Answer) -> dict[str, Any]:
        return {**_step(answer), "info": None}


def number(value: float) -> float:
    """A reward as the published servers write it: whole ones as integers."""
    return int(value) if value == int(value) else value


def _step(answer: Answer) -> dict[str, Any]:
    return {"observation": answer.observation, "reward": number(answer.reward), "done": answer.is_over}


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "textcraft": TextCraft(),
        "babyai": BabyAI(),
        "sciworld": SciWorld(),
        "maze": Maze(),
        "wordle": Wordle(),
        "sqlgym": SqlGym(),
        "searchqa": SearchQA(),
    }
)
OTHERS = Dialect()
