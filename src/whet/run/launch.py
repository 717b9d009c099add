"""A run folder opened: a run begun in it, or gone on with from its newest whole checkpoint, or shown as finished."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whet.config import ConfigError, check_all_read, difference, to_yaml
from whet.config.base import plain
from whet.config.loading import merged, of_tree, parse_override
from whet.config.runs import RunConfig
from whet.config.yaml_text import read_file
from whet.errors import RunError, WhetError
from whet.methods.registry import METHODS, preset_of
from whet.plugins import load_entry_points, load_plugins
from whet.run.data import with_commit
from whet.run.provenance import changed_inputs, changed_steps, changed_ways, compute_provenance
from whet.run.resume import go_on
from whet.run.session import Session
from whet.run.start import begin, looked_at, prepared, write_sheet
from whet.run_folder.files import made_by, older_layout
from whet.run_folder.folder import RunFolder
from whet.run_folder.logs import Logs
from whet.trainer.checkpoint import load_state, newest_first
from whet.trainer.loop import Progress


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
    if is_run and not overwrite and _did_no_step(out) and not _can_go_on(config, out):
        progress.tell("info", f"the run in {out} did no step of work: a new one begins in its place")
        overwrite = True
    config = with_commit(config, saved_config(out) if is_run and not overwrite else None)
    if out.exists() and not is_run and any(p.name not in (".lock", "traces") for p in out.iterdir()):
        raise RunError(f"{out} holds something that is no run; choose another --out")
    if is_run and not overwrite:
        _check_same(config, out)
        return _finished(out) or go_on(config, out, progress, accept_changes)
    folder = RunFolder(out)
    session, origin = prepared(config, progress, folder)
    check_all_read(config)
    said = looked_at(session)  # before the folder is this run's: who corrects a setting has no other run there
    try:
        folder.acquire()
    except BaseException:
        session.close_services()
        raise
    session.begins = True
    try:
        if overwrite:
            folder.clear()
        folder.write("config.yaml", to_yaml(config))
        write_sheet(session)
        return begin(session, origin, said)
    except BaseException:
        folder.discard()
        session.close()
        raise


def resume(
    out: Path, progress: Progress, *, overrides: Sequence[str] = (), accept_changes: bool = False
) -> Session | dict[str, Any]:
    """Go on with the run in `out` from its newest whole checkpoint; also with one that is finished, where it is to be
    longer.

    Args:
        overrides: more steps for the phase that is going on or was the last to train, `num_steps=400`.
        accept_changes: go on too where inputs, threads or logs are not those of the checkpoint; the events say so.
    Raises: RunError where `out` is in use, or cannot go on as it began; ConfigError where it is no run, and for other
    overrides.
    """
    overrides = [each for each in overrides if not _names_its_plugins(each, out)]
    if not overrides:
        return _finished(out) or go_on(saved_config(out), out, progress, accept_changes)
    longer = saved_config(out, overrides)
    if not _check_longer(saved_config(out), longer) and (summary := _finished(out)):
        return summary
    return go_on(longer, out, progress, accept_changes)


def _names_its_plugins(override: str, out: Path) -> bool:
    """Whether it says no more than which plug-ins the run has."""
    given = parse_override(override)
    if given.keys() != {"plugins"}:
        return False
    saved = saved_config(out)
    return plain(saved_config(out, [override]))["plugins"] == plain(saved)["plugins"]


def _check_longer(before: RunConfig, now: RunConfig) -> bool:
    """Whether it is to be longer.

    Raises: ConfigError where anything but a number of steps or a way to an endpoint changes, or that is not larger.
    """
    steps = changed_steps(plain(before), plain(now))
    ways = changed_ways(plain(before), plain(now))
    free = {key for key, *_ in steps} | ways
    others = [change for change in difference(before, now) if change.partition(":")[0] not in free]
    if others or not free:
        wrong = f"not {others[0]}" if others else "and these are what it has already"
        raise ConfigError(
            "a run that goes on can only be given more steps, where it has a number of them (num_steps=400), or "
            f"another way to an endpoint (actor.url=...), {wrong}"
        )
    for key, was, wanted in steps:
        if wanted < was:
            raise ConfigError(f"{key} = {wanted} is less than the run's {was}: a run can only be made longer")
    return bool(steps)


def saved_config(out: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The config that the run in `out` was started with, its plug-ins loaded.

    Raises: ConfigError where it holds none of ours, or its layout is older.
    """
    file = out / "config.yaml"
    if not file.exists():
        raise ConfigError(f"{out} holds no run (no config.yaml): give the folder of one, such as runs/NAME")
    given = read_file(file)
    if "method" not in given:
        raise ConfigError(older_layout(out, file))
    for override in overrides:
        given = merged(given, parse_override(override))
    load_entry_points()
    load_plugins([each for each in given.get("plugins") or () if isinstance(each, str)])
    name = given.get("method")
    if name not in METHODS:
        raise ConfigError(f"{file}: there is no method {name!r} here; it was written by {made_by(out)}")
    try:
        found: RunConfig = of_tree(type(preset_of(str(name)).config), given)
    except ConfigError as error:
        if overrides:
            raise
        raise ConfigError(f"{file}: {error}; it was written by {made_by(out)}") from error
    return found


def _is_run(out: Path) -> bool:
    """Whether a run of ours began here: other projects have a `config.yaml` too.

    Raises: ConfigError where one did, and its config cannot be read.
    """
    try:
        return "method" in read_file(out / "config.yaml") and (out / "env.json").exists()
    except ConfigError:
        if (out / "config.yaml").exists() and (out / "env.json").exists():
            raise
        return False


def _did_no_step(out: Path) -> bool:
    """Whether a run failed or was killed before a step trained somebody or kept something: at most it measured."""
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


def _can_go_on(config: RunConfig, out: Path) -> bool:
    """Whether the run is one with these settings, and with these inputs as they are now."""
    try:
        saved = saved_config(out)
        if type(saved) is not type(config) or difference(saved, config):
            return False
        origins = [load_state(place)["origin"] for place in newest_first(out)[:1]]
        return not origins or not changed_inputs(origins[0], compute_provenance(config))
    except (WhetError, OSError, ValueError, KeyError):  # its plug-in is gone, say
        return False


def _check_same(config: RunConfig, out: Path) -> None:
    saved = saved_config(out)
    if type(saved) is not type(config):
        raise RunError(f"{out} holds a run of another method, {saved.method}: choose another --out, or --overwrite")
    changes = difference(saved, config)
    if changes:
        listed = "".join(f"\n  {change}" for change in changes)
        steps = changed_steps(plain(saved), plain(config))
        if len(steps) == len(changes) and all(now > was for _, was, now in steps):
            listed += f"\n`whet resume {out} {' '.join(f'{key}={now}' for key, _, now in steps)}` makes the run longer"
        raise RunError(
            f"{out} holds a run with another config: choose another --out, give the same config to go on, or "
            f"--overwrite to start anew. What differs, there and here:{listed}"
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
