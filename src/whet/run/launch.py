"""Opens a run folder: starts a run in it, resumes the run that is there, or returns a finished run's summary."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from whet.cluster.ranks import check_launcher
from whet.config import ConfigError, check_all_read, difference, to_yaml
from whet.config.base import plain
from whet.config.loading import merged, of_tree, parse_override
from whet.config.runs import RunConfig
from whet.config.yaml_text import read_file
from whet.errors import RunError, WhetError
from whet.methods import METHODS
from whet.methods.registry import preset_of
from whet.plugins import load_entry_points, load_plugins
from whet.run.data import with_commit, with_products, with_unit
from whet.run.provenance import changed_access, changed_inputs, changed_steps, compute_provenance
from whet.run.resume import resume_run
from whet.run.session import Session
from whet.run.start import check_plan, log_start, prepare_with_provenance, write_report_spec
from whet.run_folder.files import TRACKING, WATCHING, made_by, older_layout
from whet.run_folder.folder import RunFolder
from whet.run_folder.logs import Logs
from whet.trainer.checkpoint import load_state, newest_first
from whet.trainer.loop import Progress
from whet.trainer.sharded import RanksLost

T = TypeVar("T")


def start(
    config: RunConfig, out: Path, progress: Progress, *, overwrite: bool = False, accept_changes: bool = False
) -> Session | dict[str, Any]:
    """Starts a run in `out`, or resumes the run that is there if its config is the same.

    Args:
        overwrite: delete the run that is there first.
        accept_changes: as in `resume`.
    Returns: the session to `go()`, or the summary of a run that had finished already.
    Raises: RunError where the folder is in use, holds something else, or holds a run that cannot be resumed as it
        began. Where that run has another config, the difference is shown.
    """
    check_launcher()
    work = partial(_start, config, out, progress, overwrite=overwrite, accept_changes=accept_changes)
    return _restarting(config, progress, work, lambda lost: work())


def _start(
    config: RunConfig, out: Path, progress: Progress, *, overwrite: bool, accept_changes: bool
) -> Session | dict[str, Any]:
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; choose another --out")
    config = with_unit(config)
    is_run = _is_run(out)
    is_idle = is_run and not overwrite and _has_no_step(out) and not _can_resume(config, out)
    if is_idle:
        progress.tell("info", f"the run in {out} did no step of work: a new one begins in its place")
    goes_on = is_run and not overwrite and not is_idle
    saved = saved_config(out) if goes_on else None
    config = with_products(with_commit(config, saved), progress, saved)
    if not is_run:
        _check_is_empty(out)
    if goes_on:
        _check_same(config, out)
        return _finished(out) or resume_run(config, out, progress, accept_changes)
    folder = RunFolder(out)
    session, provenance = prepare_with_provenance(config, progress, folder)
    check_all_read(config)
    description = check_plan(session)  # before the folder is this run's: a corrected setting then meets no other run
    try:
        folder.acquire()
        # Preparing takes long, and another process may have begun or finished a run here meanwhile.
        _check_still_free(out, overwrite=overwrite, is_idle=is_idle)
    except BaseException:
        session.close()
        raise
    session.is_new = True
    try:
        if overwrite or is_idle:
            folder.clear()
        folder.write("config.yaml", to_yaml(config))
        write_report_spec(session)
        return log_start(session, provenance, description)
    except BaseException:
        folder.discard()
        session.close()
        raise


def go(session: Session, out: Path, progress: Progress) -> tuple[Session, dict[str, Any]]:
    """Trains and measures to the end. Where ranks are lost, the run resumes from its last checkpoint.

    Returns: the session that ended, and its summary.
    Raises: as `Session.go`; RanksLost after `cluster.restarts` restarts.
    """
    config, current = session.algorithm.config, session

    def work() -> tuple[Session, dict[str, Any]]:
        return current, current.go()

    def work_again(lost: str) -> tuple[Session, dict[str, Any]]:
        nonlocal current
        current = resume_run(config, out, progress, accept=False)
        current.loop.folder.event("warning", "ranks_lost", lost)
        return work()

    return _restarting(config, progress, work, work_again)


def _restarting(config: RunConfig, progress: Progress, work: Callable[[], T], again: Callable[[str], T]) -> T:
    """What `work` gives. Each time that ranks are lost, what `again` gives, which is told why.

    Raises: RanksLost after `cluster.restarts` restarts, or where a rank raises the same error twice in turn.
    """
    attempt: Callable[[], T] = work
    num_lost, last_failure = 0, ""
    while True:
        try:
            return attempt()
        except RanksLost as error:
            num_lost += 1
            if num_lost > config.cluster.restarts or (error.failure and error.failure == last_failure):
                raise
            last_failure = error.failure
            left = config.cluster.restarts - num_lost
            lost = f"{error}. They start again, from the last checkpoint ({left} more such restarts)"
            progress.tell("warning", lost)
            attempt = partial(again, lost)


def resume(
    out: Path, progress: Progress, *, overrides: Sequence[str] = (), accept_changes: bool = False
) -> Session | dict[str, Any]:
    """Resumes the run in `out` from its newest whole checkpoint. More steps make a finished run unfinished.

    Args:
        overrides: more steps for the last phase that trained, `num_steps=400`, or another way to an endpoint.
        accept_changes: resume also where inputs, threads or logs are not those of the checkpoint. The events say so.
    Returns: the session to `go()`, or the summary of a run that had finished already.
    Raises: RunError where `out` is in use, or cannot be resumed as it began; ConfigError where it is no run, and for
        other overrides.
    """
    check_launcher()
    overrides = [override for override in overrides if not _names_same(override, out)]
    if not overrides:
        return _finished(out) or resume_run(saved_config(out), out, progress, accept_changes)
    longer = saved_config(out, overrides)
    if not _check_longer(saved_config(out), longer) and (summary := _finished(out)):
        return summary
    return resume_run(longer, out, progress, accept_changes)


def _names_same(override: str, out: Path) -> bool:
    """Whether an override only names the plug-ins or the ranks that the run has."""
    if parse_override(override).keys() not in ({"plugins"}, {"cluster"}):
        return False
    return plain(saved_config(out, [override])) == plain(saved_config(out))


def _check_longer(before: RunConfig, now: RunConfig) -> bool:
    """Whether the run has more steps now.

    Raises: ConfigError where something else changes than steps and access to endpoints, or where steps become fewer.
    """
    steps = changed_steps(plain(before), plain(now))
    free = {key for key, *_ in steps} | changed_access(plain(before), plain(now))
    others = [change for change in difference(before, now) if change.partition(":")[0] not in free]
    if others or not free:
        problem = f"not {others[0]}" if others else "and these are what it has already"
        raise ConfigError(
            "a run that goes on can only be given more steps, where it has a number of them (num_steps=400), or "
            "another way to an endpoint (actor.url=...), other processes (cluster.workers=4), or other trackers and "
            f"callbacks (track=[tensorboard]), {problem}"
        )
    for key, old, new in steps:
        if new < old:
            raise ConfigError(f"{key} = {new} is less than the run's {old}: a run can only be made longer")
    return bool(steps)


def saved_config(out: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The config that the run in `out` was started with. Loads its plug-ins.

    Args:
        overrides: settings to change, `key=value`.
    Raises: ConfigError where `out` holds no run of whet, or one of an older layout; PluginError.
    """
    file = out / "config.yaml"
    if not file.exists():
        model = "; it holds a model, which `whet serve` takes" if (out / "config.json").exists() else ""
        raise ConfigError(f"{out} holds no run (no config.yaml){model}: give the folder of one, such as runs/NAME")
    settings = read_file(file)
    if "method" not in settings:
        raise ConfigError(older_layout(out, file))
    for override in overrides:
        settings = merged(settings, parse_override(override))
    load_entry_points()
    load_plugins([path for path in settings.get("plugins") or () if isinstance(path, str)])
    name = settings.get("method")
    if name not in METHODS:
        raise ConfigError(
            f"{file}: there is no method {name!r} here; it was written by {made_by(out)}: install that "
            "one, or name the plug-in that has the method, --plugins FILE"
        )
    try:
        config: RunConfig = of_tree(type(preset_of(str(name)).config), settings)
    except ConfigError as error:
        if overrides:
            raise
        raise ConfigError(f"{file}: {error}; it was written by {made_by(out)}") from error
    return config


def _is_run(out: Path) -> bool:
    """Whether a folder holds a run of whet. Other projects have a `config.yaml` too.

    Raises: ConfigError where it does, and its config cannot be read.
    """
    try:
        return "method" in read_file(out / "config.yaml") and (out / "env.json").exists()
    except ConfigError:
        if (out / "config.yaml").exists() and (out / "env.json").exists():
            raise
        return False


def _check_is_empty(out: Path) -> None:
    """Raises: RunError where a folder holds other files than a run leaves that never began."""
    if out.exists() and any(path.name not in (".lock", "traces", TRACKING) for path in out.iterdir()):
        raise RunError(f"{out} holds something that is no run; choose another --out")


def _check_still_free(out: Path, *, overwrite: bool, is_idle: bool) -> None:
    """Checks under the lock that a new run may begin.

    Args:
        is_idle: a run without a step of work was there.
    Raises: RunError where another process began a run, or stored something else.
    """
    if not _is_run(out):
        _check_is_empty(out)
    elif not overwrite and not (is_idle and _has_no_step(out)):
        raise RunError(
            f"another process began a run in {out} meanwhile: choose another --out, repeat the command to go on with "
            "that run, or --overwrite to start anew"
        )


def _has_no_step(out: Path) -> bool:
    """Whether a run ended before a step trained or stored something. It measured at most."""
    if (out / "summary.json").exists():
        return False
    try:
        states = [load_state(saved) for saved in newest_first(out)]
        if any(state["has_worked"] for state in states):
            return False
        num_saved = max((state["total_steps"] for state in states), default=0)
    except (RunError, OSError, ValueError, KeyError, TypeError):  # a checkpoint is there, whatever it holds
        return False
    return sum(bool(row.get("step")) for row in Logs(out).rows("metrics.jsonl")) <= num_saved


def _can_resume(config: RunConfig, out: Path) -> bool:
    """Whether a run has these settings, and inputs as they are now."""
    try:
        saved = saved_config(out)
        if type(saved) is not type(config) or difference(saved, config):
            return False
        provenances = [load_state(checkpoint)["origin"] for checkpoint in newest_first(out)[:1]]
        return not provenances or not changed_inputs(provenances[0], compute_provenance(config))
    except (WhetError, OSError, ValueError, KeyError):  # its plug-in is gone, say
        return False


def _check_same(config: RunConfig, out: Path) -> None:
    """Raises: RunError where the run in `out` has another config."""
    saved = saved_config(out)
    if type(saved) is not type(config):
        raise RunError(f"{out} holds a run of another method, {saved.method}: choose another --out, or --overwrite")
    changes = [change for change in difference(saved, config) if change.partition(":")[0] not in WATCHING]
    if changes:
        listed = "".join(f"\n  {change}" for change in changes)
        steps = changed_steps(plain(saved), plain(config))
        if len(steps) == len(changes) and all(now > was for _, was, now in steps):
            settings = " ".join(f"{key}={now}" for key, _, now in steps)
            listed += f"\n`whet resume {shlex.quote(str(out))} {settings}` makes the run longer"
        raise RunError(
            f"{out} holds a run with another config: choose another --out, give the same config to go on, or "
            f"--overwrite to start anew. What differs, there and here:{listed}"
        )


def _finished(out: Path) -> dict[str, Any] | None:
    """The summary of a finished run. None: the run has not finished, or its summary is damaged."""
    file = out / "summary.json"
    if not file.exists():
        return None
    try:
        summary = json.loads(file.read_text(encoding="utf-8"))
        is_whole = isinstance(summary["rows"], dict) and isinstance(summary["seconds"], int | float)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        is_whole = False
    return summary if is_whole else None
