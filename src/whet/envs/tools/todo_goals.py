"""Goals of todo: what is asked or to be done, and which calls do it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

from whet.envs.protocol import EnvError, EnvironmentInfo
from whet.envs.tools.environment import Subgoals, ToolEnvironment, environment_info
from whet.envs.tools.goals import Family, Fields, Goal, Kind, Solver, Step, Unfit
from whet.envs.tools.todo import Project, Status, Task, Todo, make_todo, published_account, read_published

DONE = "done"
PUBLISHED_TEST = (104, 21, 115, 33, 73, 24, 32, 65, 41, 20, 34, 19, 76, 26, 37, 57, 28, 69, 67, 53)
"""AgentEval's items of todo, by their published numbers."""
Entries = Generator[Step, Any, list[dict[str, Any]]]
Asked = Generator[Step, Any, Any]


def _projects() -> Entries:
    return (yield "I list the projects.", "get_projects", {})


def _project(name: str) -> Asked:
    return next(entry for entry in (yield from _projects()) if entry["name"] == name)


def _tasks(project: Mapping[str, Any]) -> Entries:
    return (yield f"I list the tasks of {project['name']}.", "get_tasks", {"project_id": project["id"]})


def _tasks_of(fields: Fields) -> Entries:
    return (yield from _tasks((yield from _project(fields["project"]))))


def _task(fields: Fields) -> Asked:
    return next(entry for entry in (yield from _tasks_of(fields)) if entry["content"] == fields["task"])


def _duration(task: Mapping[str, Any]) -> Asked:
    thought = f"I ask how long the task {task['content']} takes."
    return (yield thought, "get_task_duration", {"task_id": task["id"]})["duration"]


def _attribute(name: str) -> Callable[[Fields], Solver]:
    def solve(fields: Fields) -> Solver:
        return (yield from _task(fields))[name]

    return solve


def _how_long(fields: Fields) -> Solver:
    return (yield from _duration((yield from _task(fields))))


def _place(fields: Fields) -> Solver:
    task = yield from _task(fields)
    found = yield f"I read the description of {task['content']}.", "get_task_description", {"task_id": task["id"]}
    return next(line.removeprefix("- Place: ") for line in found["description"].split("\n") if "Place" in line)


def _is_in(fields: Fields) -> Solver:
    contents = [entry["content"] for entry in (yield from _tasks_of(fields))]
    return "Yes" if fields["task"] in contents else "No"


def _change(tool: str, what: str, *more: str) -> Callable[[Fields], Solver]:
    def solve(fields: Fields) -> Solver:
        task = yield from _task(fields)
        yield (
            f"I {what} the task {task['content']}.",
            tool,
            {"task_id": task["id"], **{key: fields[key] for key in more}},
        )
        return DONE

    return solve


def _favourite(fields: Fields) -> Solver:
    project = yield from _project(fields["project"])
    thought = f"I make {project['name']} a favourite."
    yield thought, "update_project", {"project_id": project["id"], "is_favorite": "True"}
    return DONE


def _count(fields: Fields) -> Solver:
    total = 0
    for project in (yield from _projects()):
        total += len((yield from _tasks(project)))
    return total


def _due_before(fields: Fields) -> Solver:
    found = [entry["content"] for entry in (yield from _tasks_of(fields)) if entry["due_date"] < fields["day"]]
    if not found:
        raise Unfit
    return sorted(found)


def _most_urgent(fields: Fields) -> Solver:
    tasks = []
    for project in (yield from _projects()):
        tasks += yield from _tasks(project)
    best = [task["content"] for task in tasks if task["priority"] == max(each["priority"] for each in tasks)]
    if len(best) != 1:
        raise Unfit
    return best[0]


def _complete_short(fields: Fields) -> Solver:
    short = []
    for task in (yield from _tasks_of(fields)):
        if int((yield from _duration(task)).partition("(")[0]) < int(fields["minutes"]):
            short.append(task)
    if not short:
        raise Unfit
    for task in short:
        yield f"I complete the task {task['content']}.", "complete_task", {"task_id": task["id"]}
    return DONE


def _postpone(fields: Fields) -> Solver:
    today = yield "I need to know which day it is today.", "get_user_current_date", {}
    late = [entry for entry in (yield from _tasks_of(fields)) if entry["due_date"] < today]
    if not late:
        raise Unfit
    tomorrow = (date.fromisoformat(today) + timedelta(days=1)).isoformat()
    for task in late:
        yield f"I move the task {task['content']}.", "update_task", {"task_id": task["id"], "due_date": tomorrow}
    return DONE


def _any_task(todo: Todo, random: Random) -> Fields:
    task = random.choice(todo.tasks)
    return {"task": task.content, "project": _of(todo, task).name}


def _maybe_task(todo: Todo, random: Random) -> Fields:
    task, project = random.choice(todo.tasks), random.choice(todo.projects)
    return {"task": task.content, "project": _of(todo, task).name if random.random() < 0.4 else project.name}


def _task_and_day(todo: Todo, random: Random) -> Fields:
    when = date.fromisoformat(todo.today) + timedelta(days=random.randrange(15, 40))
    return {**_any_task(todo, random), "due_date": when.isoformat()}


def _any_project(todo: Todo, random: Random) -> Fields:
    return {"project": random.choice(todo.projects).name}


def _project_and_day(todo: Todo, random: Random) -> Fields:
    when = date.fromisoformat(todo.today) + timedelta(days=random.randrange(0, 12))
    return {**_any_project(todo, random), "day": when.isoformat()}


def _other_project(todo: Todo, random: Random) -> Fields:
    return {"project": random.choice([each for each in todo.projects if not each.is_favorite] or [_none()]).name}


def _project_and_minutes(todo: Todo, random: Random) -> Fields:
    return {**_any_project(todo, random), "minutes": str(random.choice((40, 50, 70)))}


def _nothing(todo: Todo, random: Random) -> Fields:
    return {}


def _none() -> Project:
    raise Unfit


def _of(todo: Todo, task: Task) -> Project:
    return next(project for project in todo.projects if project.id == task.project_id)


_DONE = "Finish with the answer 'done'."
_THE_TASK = "the task '{task}' of the project '{project}'"
KINDS = (
    Kind(
        "due date",
        f"When is {_THE_TASK} due? Answer with a date, as YYYY-MM-DD.",
        _any_task,
        _attribute("due_date"),
    ),
    Kind("priority", f"What is the priority of {_THE_TASK}? Answer with a number.", _any_task, _attribute("priority")),
    Kind("duration", f"How long does {_THE_TASK} take? Answer in the form 'number(unit)'.", _any_task, _how_long),
    Kind("place", f"Where is {_THE_TASK} to be done? Answer with the place as a text.", _any_task, _place),
    Kind("is in", "Is '{task}' a task of the project '{project}'? Answer with 'Yes' or 'No'.", _maybe_task, _is_in),
    Kind("count", "How many tasks do all projects have together? Answer with a number.", _nothing, _count),
    Kind(
        "due before",
        "Which tasks of the project '{project}' are due before {day}? Answer with a list of tasks.",
        _project_and_day,
        _due_before,
    ),
    Kind(
        "most urgent",
        "Which task of all projects has the highest priority, as a number? Answer with the task as a text.",
        _nothing,
        _most_urgent,
    ),
    Kind("complete", f"Mark {_THE_TASK} as completed. {_DONE}", _any_task, _change("complete_task", "complete")),
    Kind("delete", f"Delete {_THE_TASK}. {_DONE}", _any_task, _change("delete_task", "delete")),
    Kind(
        "move",
        f"Make {_THE_TASK} due on {{due_date}}. {_DONE}",
        _task_and_day,
        _change("update_task", "change the date of", "due_date"),
    ),
    Kind("favourite", f"Make the project '{{project}}' a favourite. {_DONE}", _other_project, _favourite),
    Kind(
        "complete short",
        f"Mark all tasks of the project '{{project}}' that take less than {{minutes}} minutes as completed. {_DONE}",
        _project_and_minutes,
        _complete_short,
    ),
    Kind(
        "postpone",
        f"Make all tasks of the project '{{project}}' that were due before today due tomorrow. {_DONE}",
        _any_project,
        _postpone,
    ),
)
FAMILY = Family("todo", KINDS, make_todo)


class TodoEnvironment(ToolEnvironment):
    """Questions and changes. After `finish` the reward is 1 where the account too is as the gold calls leave it."""

    family = FAMILY

    def __init__(self, *, subgoals: Subgoals = "answer", published: str | Path | None = None) -> None:
        """
        Args:
            subgoals: as of all environments of tools.
            published: a folder with AgentGym's `todo.jsonl` and `todo_projects.json`. Items are its goals. None: ours.
        Raises: EnvError where a file is not as it should be.
        """
        super().__init__(subgoals=subgoals)
        self._published: Sequence[Goal] | None = None if published is None else published_goals(Path(published))

    def find(self, item: int) -> Goal:
        if self._published is None:
            return super().find(item)
        if not 0 <= item < len(self._published):
            raise EnvError(f"the published goals of todo are 0 to {len(self._published) - 1}, not {item}")
        return self._published[item]

    def final_reward(self) -> float:
        ends: Any = self.goal.ends
        service: Any = self.service
        return float(self._reward == 1.0 and service.status() == ends.status())


def published_goals(folder: Path) -> list[Goal]:
    """The published goals, each with the published account.

    Raises: EnvError where they cannot be read.
    """
    goals, projects = read_published(folder)
    made = []
    for goal in goals:
        info = goal["additional_info"]
        begins = published_account(
            projects, info["init_config"]["current_date"], info["init_config"]["current_location"]
        )
        made.append(
            Goal(
                text=goal["goal"],
                kind="published",
                begins=begins,
                answer=goal["subgoals"][0],
                results=(),
                ends=Status(info["answer"]),
            )
        )
    return made


def of_settings(settings: Mapping[str, Any]) -> EnvironmentInfo:
    """With published goals: their numbers, and no expert, as goals are in anybody's words."""
    folder = settings.get("published")
    if folder is None:
        return TODO
    count = len(published_goals(Path(folder)))
    test = tuple(item for item in PUBLISHED_TEST if item < count)
    splits = {"train": tuple(item for item in range(count) if item not in test), "test": test}
    return replace(TODO, splits=lambda: splits, group=lambda item: "published", expert=None)


TODO: EnvironmentInfo = environment_info(FAMILY, TodoEnvironment, max_turns=15, item_id="todo", of_settings=of_settings)
