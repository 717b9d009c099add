"""A run folder opened: a run begun in it, or gone on with from its newest whole checkpoint, or shown as finished."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whet.config import ConfigError, check_all_read, difference, to_yaml
from whet.config.loading import merged, of_tree, parse_override
from whet.config.runs import RunConfig
from whet.config.yaml_text import read_file
from whet.errors import RunError
from whet.plugins import load_entry_points, load_plugins
from whet.runs import sheet
from whet.runs.checkpoint import damage, load_state, newest_first, steps_between
from whet.runs.data import with_commit
from whet.runs.folder import RunFolder, environment
from whet.runs.former import upgraded
from whet.runs.loop import Progress
from whet.runs.origin import changed_inputs, changed_versions, check_settings, in_short, origin_of
from whet.runs.registry import METHODS, preset_of
from whet.runs.session import Session, check_agreement, plan, prepare


def start(
    config: RunConfig, out: Path, progress: Progress, *, overwrite: bool = False, accept_changes: bool = False
) -> Session | dict[str, Any]:
    """Begin a run in `out`, or go on with the one that is there if its config is the same.

    Returns: the session to `go()`, or the summary of a run that had finished already.
    Raises: RunError where the folder is in use, holds a run with another config (the difference is shown), or the run
    cannot go on as it began.
    """
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; choose another --out")
    is_run = _is_run(out)
    config = with_commit(config, saved_config(out) if is_run and not overwrite else None)
    if out.exists() and not is_run and any(p.name not in (".lock", "traces") for p in out.iterdir()):
        raise RunError(f"{out} holds something that is no run; choose another --out")
    if is_run and not overwrite:
        _check_same(config, out)
        return _finished(out) or _go_on(config, out, progress, accept_changes)
    folder = RunFolder(out)
    session, origin = _prepared(config, progress, folder)
    check_all_read(config)
    folder.acquire()
    if overwrite:
        folder.clear()
    folder.write("config.yaml", to_yaml(config))
    folder.write("sheet.json", sheet.to_json(session.method.sheet) + "\n")
    return _begin(session, origin)


def _prepared(config: RunConfig, progress: Progress, folder: RunFolder) -> tuple[Session, dict[str, Any]]:
    """The session, and what it is made of: the same before and after it was loaded, or nobody knows what was read.

    Raises: RunError where an input changed meanwhile.
    """
    before = origin_of(config)
    session = prepare(config, progress, folder)
    after = origin_of(config)
    if changes := changed_inputs(before, after):
        session.grader.close()
        raise RunError(f"while it was read, {in_short(changes)}: start again once nobody writes to it")
    if session.problems.parts:
        progress.tell("warning" if session.problems.leaks else "info", f"data: {session.problems.sentence}")
    return session, after


def resume(out: Path, progress: Progress, *, accept_changes: bool = False) -> Session | dict[str, Any]:
    """Go on with the run in `out` from its newest whole checkpoint.

    Args:
        accept_changes: go on too where inputs, threads or logs are not those of the checkpoint; the events say so.
    Raises: RunError where `out` is no run, is in use, or cannot go on as it began.
    """
    if not (out / "config.yaml").exists():
        raise RunError(f"{out} holds no run (no config.yaml); `whet train METHOD --out {out}` starts one")
    return _finished(out) or _go_on(saved_config(out), out, progress, accept_changes)


def saved_config(out: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The config that the run in `out` was started with, its plug-ins loaded.

    Raises: ConfigError where it holds none of ours.
    """
    file = out / "config.yaml"
    given = upgraded(read_file(file))
    for override in overrides:
        given = merged(given, parse_override(override))
    load_entry_points()
    load_plugins([each for each in given.get("plugins") or () if isinstance(each, str)])
    name = given.get("method")
    if name not in METHODS:
        raise ConfigError(f"{file}: there is no method {name!r} here; it was written by {_made_by(out)}")
    try:
        found: RunConfig = of_tree(type(preset_of(str(name)).config), given)
    except ConfigError as error:
        if overrides:
            raise
        raise ConfigError(f"{file}: {error}; it was written by {_made_by(out)}") from error
    return found


def _made_by(out: Path) -> str:
    try:
        return f"whet {json.loads((out / 'env.json').read_text())['whet']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a whet that env.json does not name"


def _is_run(out: Path) -> bool:
    """Whether a run of ours began here: other projects have a `config.yaml` too.

    Raises: ConfigError where one did, and its config cannot be read.
    """
    try:
        return "method" in upgraded(read_file(out / "config.yaml")) and (out / "env.json").exists()
    except ConfigError:
        if (out / "config.yaml").exists() and (out / "env.json").exists():
            raise
        return False


def _check_same(config: RunConfig, out: Path) -> None:
    saved = saved_config(out)
    if type(saved) is not type(config):
        raise RunError(f"{out} holds a run of another method, {saved.method}: choose another --out, or --overwrite")
    changes = difference(saved, config)
    if changes:
        raise RunError(
            f"{out} holds a run with another config ({'; '.join(changes)}): choose another --out, give the same "
            "config to go on, or --overwrite to start anew"
        )


def _finished(out: Path) -> dict[str, Any] | None:
    """The summary of a run that has one. None: it has not ended, or what says so cannot be read."""
    file = out / "summary.json"
    if not file.exists():
        return None
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
        whole = isinstance(summary["rows"], dict) and isinstance(summary["seconds"], int | float)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        whole = False
    return summary if whole else None


# --- going on ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """Where a run goes on."""

    saved: Path
    passed: tuple[str, ...] = ()
    """What is wrong with the newer checkpoints, a sentence each."""
    lost: int = 0
    """Steps to do again for it."""
    misfit: str | None = None
    """What is wrong with the logs and was accepted."""


def _go_on(config: RunConfig, out: Path, progress: Progress, accept: bool) -> Session:
    """Everything that can be refused is refused before a model is loaded or a log is cut."""
    folder = RunFolder(out)
    folder.acquire()
    try:
        point = _point(folder, accept)
        is_damaged = (out / "summary.json").exists()  # a whole one would have been shown
        if point is None:
            _check_nothing_is_lost(folder, config, is_damaged)
            progress.tell("info", f"{out} has no checkpoint yet: the run starts from the beginning")
            return _begin(*_prepared(config, progress, folder))
        before, now = load_state(point.saved).get("origin", {}), origin_of(config)
        check_settings(before, config, point.saved)
        changes = changed_inputs(before, now)
        if changes and not accept:
            is_gone = any(" is gone since " in change for change in changes)
            advice = "" if is_gone else "; or --accept-changes goes on all the same, and says so in events.jsonl"
            raise RunError(f"{out} cannot go on as it began: {in_short(changes)}. Put that back as it was{advice}")
        changes += [point.misfit] if point.misfit else []
        session, now = _prepared(config, progress, folder)
        _say(session, point, changes, changed_versions(before, now), is_damaged)
        session.loop.origin = now
        session.loop.resume(point.saved)
        folder.event("info", "resumed", f"goes on from {point.saved.name}", checkpoint=point.saved.name)
        if not (out / "env.json").exists():
            _write_environment(session)
        _check_engines(session)
        return session
    except BaseException:
        folder.release()
        raise


def _point(folder: RunFolder, accept: bool) -> Point | None:
    """The newest checkpoint that is whole and that the logs belong to. None: the run has not made one yet.

    Raises: RunError where there are checkpoints, and none can be gone on from.
    """
    passed: list[str] = []
    whole: list[tuple[Path, str, int]] = []
    everything = newest_first(folder.path)
    for saved in everything:
        wrong = damage(saved)
        if wrong is not None:
            passed.append(f"{saved.name} is damaged: {wrong}")
            continue
        misfit = folder.logs.misfit(load_state(saved).get("logs", {}))
        if misfit is None:
            return Point(saved, tuple(passed), steps_between(everything[0], saved))
        whole.append((saved, misfit, len(passed)))
        passed.append(f"{saved.name} does not fit the logs: {misfit}")
    if not passed:
        return None
    if not whole:
        raise RunError(
            f"no checkpoint in {folder.path} is whole ({'; '.join(passed)}): put the files back from a copy, or "
            "--overwrite starts anew"
        )
    saved, misfit, num_newer = whole[0]
    if not accept:
        raise RunError(
            f"the logs in {folder.path} fit none of its checkpoints ({saved.name}: {misfit}): put the file back from a "
            "copy; or --accept-changes goes on with what is there, and says so in events.jsonl"
        )
    return Point(saved, tuple(passed[:num_newer]), steps_between(everything[0], saved), misfit)


def _check_nothing_is_lost(folder: RunFolder, config: RunConfig, has_ended: bool) -> None:
    """Without a checkpoint a run starts over, unless its summary or its metrics show that there were some."""
    if has_ended:
        raise RunError(
            f"{folder.path / 'summary.json'} is damaged, and there is no checkpoint to make it again from: put either "
            "back from a copy, or --overwrite starts anew"
        )
    rows = folder.logs.rows("metrics.jsonl")
    every = config.checkpoint_every
    places = [(row.get("phase"), row.get("step")) for row in rows]
    late = [
        (phase, step) for phase, step in places if phase != places[0][0] or (every and step not in range(every + 1))
    ]
    if late:
        raise RunError(
            f"{folder.path} has no checkpoint, though its metrics.jsonl goes on to {late[-1][0]} step {late[-1][1]}: "
            "put its checkpoints/ back from a copy, or --overwrite starts anew"
        )


def _say(session: Session, point: Point, changes: Sequence[str], versions: Sequence[str], is_damaged: bool) -> None:
    """On the console and in the events: what was passed over, accepted, made again, or is another version."""
    steps = "1 step is" if point.lost == 1 else f"{point.lost} steps are"
    passed = f"{'; '.join(point.passed)}. Going on from {point.saved.name}: {steps} done again"
    accepted = f"goes on though {in_short(changes)}"
    other = f"goes on with other versions ({', '.join(versions)}): what follows may differ in its last bits"
    remade = "summary.json is damaged: it is made again from the last checkpoint"
    notes = [
        ("passed_over", passed, point.passed), ("changes_accepted", accepted, changes),
        ("other_versions", other, versions), ("summary_made_again", remade, ("summary.json",) * is_damaged),
    ]  # fmt: skip
    for event, message, which in notes:
        if which:
            session.loop.folder.event("warning", event, message, which=list(which))
            session.loop.progress.tell("warning", message)


def _begin(session: Session, origin: Mapping[str, Any]) -> Session:
    folder, session.loop.origin = session.loop.folder, origin
    folder.logs.rewind({})
    _write_environment(session)
    folder.event("info", "started", "; ".join(plan(session)))
    _check_engines(session)
    return session


def _write_environment(session: Session) -> None:
    details = environment(session.loop.seed, str(session.loop.policies[session.sampled[-1]].device))
    session.loop.folder.write("env.json", json.dumps(details, indent=1) + "\n")


def _check_engines(session: Session) -> None:
    for name in session.sampled:
        difference_found = check_agreement(session.loop.policies[name], session)
        session.loop.folder.event(
            "info", "agreement", f"{name}: engine and trainer agree to {difference_found:.1e} in logprob",
            policy=name, difference=difference_found,
        )  # fmt: skip
