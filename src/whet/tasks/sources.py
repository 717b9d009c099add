"""From `data.kind=file` to problems: its files, or a set of the hub, read and divided into splits.

`load_files` gives the problems that a run trains and is measured with; `load_measured` those that `whet eval` measures.

Fields are taken from `__dict__`, which counts as no read: beside each stands when it has an effect.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from whet.config.parts import SPLITS, FileData
from whet.tasks.files import TaskSet, read_tasks, tasks_of
from whet.tasks.hub import commit_of, local_folder, rows_of, snapshot
from whet.tasks.row_formats import DataError
from whet.tasks.splits import Problems, Shares, divide, whole_of


def load_files(data: FileData, seed: int) -> Problems:
    """All splits, to train with.

    Args:
        seed: of the hash that divides a file.
    Raises: DataError.
    """
    settings = data.__dict__
    task_sets = {split: task_set for split in SPLITS if (task_set := _own(data, split)) is not None}
    missing = [split for split in SPLITS if split not in task_sets]
    rest = None
    if missing and settings["hub"] is not None:
        task_sets |= _of_hub(data, missing)
    elif missing and settings["path"] is not None:
        rest = _read(data, "path")
    names = [task_set.name for task_set in (*task_sets.values(), rest) if task_set is not None]
    task_sets = {split: _apart(task_set, names) for split, task_set in task_sets.items()}
    rest = _apart(rest, names) if rest is not None else None
    return divide(task_sets, rest, Shares(settings["validation_share"], settings["test_share"], seed), data.limit)


def load_measured(data: FileData, split: str, seed: int, changed: Collection[str] | None) -> Problems:
    """One split, to be measured; the others are empty. It is all of the split's file, if it has one. Else it is all of
    `data.path`, if that is given to be measured. Else it is the share that a run with these settings has.

    Args:
        changed: dotted keys of the settings that are not the run's own. None: there is no run.
    Raises: DataError.
    """
    settings = data.__dict__
    task_set = None
    if split == "test" or changed is None or f"data.{split}_path" in changed:  # the others lose what test problems have
        task_set = _own(data, split)
        if task_set is None and settings["hub"] is not None:
            task_set = _of_hub(data, [split]).get(split)
    is_path_for_it = split == "test" and settings["path"] is not None and (changed is None or "data.path" in changed)
    if is_path_for_it and task_set is None:
        task_set = _prefixed(_read(data, "path"), split)
    elif is_path_for_it and changed is not None:
        raise DataError("data.path would have no effect: the test problems are those of data.test_path; give that one")
    if task_set is not None:
        return whole_of(task_set, split, data.limit)
    everything = load_files(data, seed)
    return replace(
        everything,
        tasks={name: tasks if name == split else () for name, tasks in everything.tasks.items()},
        parts={split: everything.parts[split]},
    )


def pinned(data: FileData) -> FileData:
    """The settings with a commit in place of a revision that may move.

    Raises: DataError where the hub and its cache know none.
    """
    hub, revision = data.__dict__["hub"], data.__dict__["revision"]
    if hub is None or local_folder(hub) is not None:
        return data
    return data.model_copy(update={"revision": commit_of(hub, revision)})


def _own(data: FileData, split: str) -> TaskSet | None:
    """The tasks of the split's file, if it has one."""
    if data.__dict__[f"{split}_path"] is None:
        return None
    return _prefixed(_read(data, f"{split}_path"), split)


def _read(data: FileData, field: str) -> TaskSet:
    return read_tasks(data.__dict__[field], columns=data.columns.given(), setting=f"data.{field}")


def _prefixed(task_set: TaskSet, split: str) -> TaskSet:
    """Prefixes ids with the split: many files number their rows from 0."""
    return replace(task_set, tasks=tuple(replace(task, id=f"{split}/{task.id}") for task in task_set.tasks))


def _apart(task_set: TaskSet, names: Sequence[str]) -> TaskSet:
    """Files of one name in two folders are called by their paths."""
    return replace(task_set, name=task_set.place) if names.count(task_set.name) > 1 else task_set


def _of_hub(data: FileData, wanted: Sequence[str]) -> dict[str, TaskSet]:
    """Those of the splits that the set has."""
    settings = data.__dict__
    name, revision, subset = settings["hub"], settings["revision"], settings["subset"]
    folder = local_folder(name)
    if folder is not None and revision is not None:
        raise DataError(f"data.revision is of sets on the hub, and {name} is a folder here: leave it out")
    shown = name
    if folder is None:
        commit = commit_of(name, revision)
        folder, shown = snapshot(name, commit), f"{name} at {commit[:12]}"
    splits = rows_of(folder, shown, subset)
    task_sets = {}
    for split in wanted:
        split_name = settings["splits"].__dict__[split]
        if split_name is not None and split_name not in splits:
            raise DataError(f"{shown} has no split {split_name!r} (data.splits.{split}); it has {', '.join(splits)}")
        if (split_name or split) in splits:
            place = f"split {split_name or split} of {shown}"
            tasks = tasks_of(splits[split_name or split](), place, columns=data.columns.given())
            task_sets[split] = _prefixed(replace(tasks, name=place), split)
    if not task_sets and "train" in wanted:
        raise DataError(f"{shown} has splits {', '.join(splits)}: say which is which (data.splits.train=NAME)")
    return task_sets
