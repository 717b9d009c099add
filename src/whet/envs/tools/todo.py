"""Todo: questions about projects and tasks, and changes to them, by twelve tools. Accounts are invented.

The account lies in memory. Upstream wipes and rebuilds the real Todoist account behind a token at every reset.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from whet.envs.protocol import EnvError
from whet.envs.tools.calls import Argument, Tool, ToolError
from whet.envs.tools.service import FINISH, VALID, Service
from whet.envs.tools.weather import read_date
from whet.envs.tools.words import places

_PROJECT = Argument("project_id", "string", "the project's id")
_TASK = Argument("task_id", "string", "the task's id")
TOOLS = (
    Tool("get_user_current_date", "Today's date, as YYYY-MM-DD."),
    Tool("get_user_current_location", "The name of the place where the user is."),
    Tool("get_projects", "All projects, with their ids."),
    Tool("update_project", "Makes a project a favourite, or one no more.", (
        _PROJECT, Argument("is_favorite", "string", "True or False"))),
    Tool("get_tasks", "All open tasks of a project, with their ids.", (_PROJECT,)),
    Tool("get_task_description", "A task's description.", (_TASK,)),
    Tool("get_task_duration", "A task's duration, such as 60(minute).", (_TASK,)),
    Tool("complete_task", "Marks a task as completed.", (_TASK,)),
    Tool("update_task", "Changes the date on which a task is due.", (
        _TASK, Argument("due_date", "string", "the date, YYYY-MM-DD"))),
    Tool("delete_task", "Deletes a task.", (_TASK,)),
    VALID,
    Tool(FINISH, "Ends the task. The answer to a change is the text done.", (
        Argument("answer", "any", "the answer: a text, a number or a list"),)),
)  # fmt: skip

_PROJECTS = (
    "Garden Work",
    "House Repairs",
    "Language Course",
    "Market Stall",
    "Music School",
    "Reading Club",
    "Spring Festival",
)
_VERBS = ("Arrange", "Check", "Clean", "Collect", "Discuss", "Order", "Plan", "Prepare", "Review", "Sort")
_OBJECTS = ("the chairs", "the flyers", "the invoices", "the instruments", "the notes", "the paint", "the recipes",
            "the schedule", "the seeds", "the tools")  # fmt: skip
_ROOMS = ("Attic", "Cellar", "Community Hall", "Kitchen", "Library", "Shed", "Studio", "Workshop")
_EXTRAS = ("a ladder", "two pencils", "the keys", "a torch", "gloves", "a list")


@dataclass(frozen=True, slots=True)
class Task:
    """An open task."""

    id: str
    project_id: str
    order: int
    content: str
    description: str
    due: str
    minutes: int
    priority: int

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "order": self.order,
            "content": self.content,
            "is_completed": False,
            "priority": self.priority,
            "due_date": self.due,
        }


@dataclass(frozen=True, slots=True)
class Project:
    """A project."""

    id: str
    order: int
    name: str
    is_favorite: bool = False

    def shown(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "order": self.order,
            "color": "charcoal",
            "name": self.name,
            "is_favorite": self.is_favorite,
        }


class Todo(Service):
    """The service: an account, today's date, and where the user is."""

    tools: ClassVar = TOOLS

    def __init__(self, projects: Sequence[Project], tasks: Sequence[Task], today: str, here: str) -> None:
        self.projects, self.tasks = tuple(projects), tuple(tasks)
        self.today, self.here = today, here

    def state(self) -> Hashable:
        return self.projects, self.tasks

    def status(self) -> dict[str, list[dict[str, Any]]]:
        """The account without ids, which two equal accounts share."""
        ordered = [task for project in self.projects for task in self.tasks if task.project_id == project.id]
        shown = {"projects": [each.shown() for each in self.projects], "tasks": [each.shown() for each in ordered]}
        return {name: [{key: entry[key] for key in entry if key != "id"} for entry in shown[name]] for name in shown}

    def get_user_current_date(self) -> str:
        return self.today

    def get_user_current_location(self) -> str:
        return self.here

    def get_projects(self) -> list[dict[str, Any]]:
        return [project.shown() for project in self.projects]

    def update_project(self, project_id: str, is_favorite: str) -> dict[str, Any]:
        project = self._project(project_id)
        if is_favorite.casefold() not in ("true", "false"):
            raise ToolError(f"is_favorite is {is_favorite[:60]!r}: write True or False.")
        changed = replace(project, is_favorite=is_favorite.casefold() == "true")
        self.projects = tuple(changed if each.id == project_id else each for each in self.projects)
        return {"message": "The project is updated.", "project": changed.shown()}

    def get_tasks(self, project_id: str) -> list[dict[str, Any]]:
        self._project(project_id)
        return [task.shown() for task in self.tasks if task.project_id == project_id]

    def get_task_description(self, task_id: str) -> dict[str, Any]:
        task = self._task(task_id)
        return {"id": task.id, "content": task.content, "description": task.description}

    def get_task_duration(self, task_id: str) -> dict[str, Any]:
        task = self._task(task_id)
        return {"id": task.id, "content": task.content, "duration": f"{task.minutes}(minute)"}

    def complete_task(self, task_id: str) -> dict[str, Any]:
        shown = self._task(task_id).shown()
        del shown["is_completed"]
        self._remove(task_id)
        return {"message": "The task is completed.", "task": shown}

    def update_task(self, task_id: str, due_date: str) -> dict[str, Any]:
        changed = replace(self._task(task_id), due=read_date(due_date).isoformat())
        self.tasks = tuple(changed if each.id == task_id else each for each in self.tasks)
        return {"message": "The task is updated.", "task": changed.shown()}

    def delete_task(self, task_id: str) -> dict[str, Any]:
        shown = self._task(task_id).shown()
        self._remove(task_id)
        return {"message": "The task is deleted.", "task": shown}

    def _remove(self, task_id: str) -> None:
        self.tasks = tuple(each for each in self.tasks if each.id != task_id)

    def _project(self, id: str) -> Project:
        project = next((each for each in self.projects if each.id == id), None)
        if project is None:
            raise ToolError(f"There is no project with the id {id[:60]!r}.")
        return project

    def _task(self, id: str) -> Task:
        task = next((each for each in self.tasks if each.id == id), None)
        if task is None:
            raise ToolError(f"There is no open task with the id {id[:60]!r}.")
        return task


def make_todo(random: Random) -> Todo:
    """Three projects with two to four tasks each."""
    today = date(2021, 1, 1) + timedelta(days=random.randrange(3 * 365))
    numbers = iter(random.sample(range(1_000_000, 9_999_999), 15))
    contents = iter(random.sample([f"{verb} {thing}" for verb in _VERBS for thing in _OBJECTS], 12))
    projects, tasks = [], []
    for order, name in enumerate(random.sample(_PROJECTS, 3), start=1):
        project = Project(str(next(numbers)), order, name, random.random() < 0.2)
        projects.append(project)
        for task_order in range(1, random.randrange(2, 5) + 1):
            tasks.append(
                Task(
                    id=str(next(numbers)),
                    project_id=project.id,
                    order=task_order,
                    content=next(contents),
                    description=f"- Place: {random.choice(_ROOMS)}\n- Bring: {random.choice(_EXTRAS)}",
                    due=(today + timedelta(days=random.randrange(-3, 15))).isoformat(),
                    minutes=15 * random.randrange(1, 9),
                    priority=random.randrange(1, 5),
                )
            )
    return Todo(projects, tasks, today.isoformat(), places(random, 1)[0])


class Status(Service):
    """An account of which only the status is known: how a published goal leaves it."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = dict(status)

    def status(self) -> dict[str, Any]:
        return self._status


def published_account(projects: Sequence[Mapping[str, Any]], today: str, here: str) -> Todo:
    """The published account (`todo_projects.json`) as a goal begins with it."""
    found, tasks = [], []
    for order, project in enumerate(projects, start=1):
        id = str(1000 * order)
        found.append(Project(id, order, project["name"], bool(project["is_favorite"])))
        for place, task in enumerate(project["tasks"], start=1):
            tasks.append(
                Task(
                    f"{1000 * order + place}",
                    id,
                    place,
                    task["content"],
                    task["description"],
                    task["due_date"],
                    int(task["duration"]),
                    int(task["priority"]),
                )
            )
    return Todo(found, tasks, today, here)


def read_published(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The published goals and projects in a folder of a user's.

    Raises: EnvError where a file is missing or is not as published.
    """
    try:
        lines = (folder / "todo.jsonl").read_text(encoding="utf-8").splitlines()
        goals = [json.loads(line) for line in lines if line.strip()]
        projects = json.loads((folder / "todo_projects.json").read_text(encoding="utf-8"))
        for goal in goals:
            goal["goal"], goal["subgoals"][0], goal["additional_info"]["answer"]["tasks"]
            goal["additional_info"]["init_config"]["current_date"]
        published_account(projects, "", "")
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise EnvError(
            f"the published goals of todo cannot be read from {folder}: {type(error).__name__}: {error}; the folder "
            "has to hold AgentGym's todo.jsonl and its projects as todo_projects.json"
        ) from error
    return goals, projects
