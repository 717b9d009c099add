"""From `data.kind=file` to problems: its files, or a set of the hub, read and divided into splits.

`load_files` gives what a run trains and is measured with; `load_measured` what `whet eval` measures, which is all of a
file that is there to be measured.

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
    given = data.__dict__
    own = {split: found for split in SPLITS if (found := _own(data, split)) is not None}
    missing = [split for split in SPLITS if split not in own]
    rest = None
    if missing and given["hub"] is not None:
        own |= _of_hub(data, missing)
    elif missing and given["path"] is not None:
        rest = _read(data, "path")
    names = [found.name for found in (*own.values(), rest) if found is not None]
    own = {split: _apart(found, names) for split, found in own.items()}
    rest = _apart(rest, names) if rest is not None else None
    return divide(own, rest, Shares(given["validation_share"], given["test_share"], seed), data.limit)


def load_measured(data: FileData, split: str, seed: int, changed: Collection[str] | None) -> Problems:
    """One split, to be measured; the others are empty. It is all of its file, where it has one of its own; or of
    `data.path`, where that is given to be measured; else the share that a run with these settings has.

    Args:
        changed: dotted keys of the settings that are not the run's own. None: there is no run.
    Raises: DataError.
    """
    given = data.__dict__
    found = None
    if split == "test" or changed is None or f"data.{split}_path" in changed:  # the others lose what test problems have
        found = _own(data, split)
        if found is None and given["hub"] is not None:
            found = _of_hub(data, [split]).get(split)
    is_path_for_it = split == "test" and given["path"] is not None and (changed is None or "data.path" in changed)
    if is_path_for_it and found is None:
        found = _prefixed(_read(data, "path"), split)
    elif is_path_for_it and changed is not None:
        raise DataError("data.path would have no effect: the test problems are those of data.test_path; give that one")
    if found is not None:
        return whole_of(found, split, data.limit)
    everything = load_files(data, seed)
    return replace(
        everything,
        tasks={each: tasks if each == split else () for each, tasks in everything.tasks.items()},
        parts={split: everything.parts[split]},
    )


def pinned(data: FileData) -> FileData:
    """With the commit in place of a revision that may come to be another.

    Raises: DataError where the hub and its cache know none.
    """
    hub, revision = data.__dict__["hub"], data.__dict__["revision"]
    if hub is None or local_folder(hub) is not None:
        return data
    return data.model_copy(update={"revision": commit_of(hub, revision)})


def _own(data: FileData, split: str) -> TaskSet | None:
    """What the split's own file holds, if it has one."""
    if data.__dict__[f"{split}_path"] is None:
        return None
    return _prefixed(_read(data, f"{split}_path"), split)


def _read(data: FileData, field: str) -> TaskSet:
    return read_tasks(data.__dict__[field], columns=data.columns.given(), setting=f"data.{field}")


def _prefixed(found: TaskSet, split: str) -> TaskSet:
    """Ids that are apart from those of other files: many number their rows from 0."""
    return replace(found, tasks=tuple(replace(task, id=f"{split}/{task.id}") for task in found.tasks))


def _apart(found: TaskSet, names: Sequence[str]) -> TaskSet:
    """Files of one name in two folders are called by their paths."""
    return replace(found, name=found.place) if names.count(found.name) > 1 else found


def _of_hub(data: FileData, wanted: Sequence[str]) -> dict[str, TaskSet]:
    """Those of the splits that the set has."""
    given = data.__dict__
    name, revision, subset = given["hub"], given["revision"], given["subset"]
    folder = local_folder(name)
    if folder is not None and revision is not None:
        raise DataError(f"data.revision is of sets on the hub, and {name} is a folder here: leave it out")
    shown = name
    if folder is None:
        commit = commit_of(name, revision)
        folder, shown = snapshot(name, commit), f"{name} at {commit[:12]}"
    splits = rows_of(folder, shown, subset)
    found = {}
    for split in wanted:
        asked = given["splits"].__dict__[split]
        if asked is not None and asked not in splits:
            raise DataError(f"{shown} has no split {asked!r} (data.splits.{split}); it has {', '.join(splits)}")
        if (asked or split) in splits:
            place = f"split {asked or split} of {shown}"
            tasks = tasks_of(splits[asked or split](), place, columns=data.columns.given())
            found[split] = _prefixed(replace(tasks, name=place), split)
    if not found and "train" in wanted:
        raise DataError(f"{shown} has splits {', '.join(splits)}: say which is which (data.splits.train=NAME)")
    return found
