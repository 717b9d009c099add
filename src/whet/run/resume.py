"""Resumes a run from its newest whole checkpoint. A run that becomes longer resumes from the end of a phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.config import to_yaml
from whet.config.base import plain
from whet.config.runs import RunConfig
from whet.errors import RunError
from whet.run.provenance import (
    changed_access,
    changed_inputs,
    changed_steps,
    changed_versions,
    check_settings,
    compute_provenance,
    first_few,
)
from whet.run.session import Session
from whet.run.start import (
    check_engines,
    check_plan,
    log_start,
    prepare_with_provenance,
    write_environment,
    write_report_spec,
)
from whet.run_folder.folder import RunFolder, command_line
from whet.trainer.checkpoint import damage, load_state, newest_first, steps_between
from whet.trainer.loop import Progress


@dataclass(frozen=True)
class ResumePoint:
    """The checkpoint that a run resumes from."""

    checkpoint: Path
    skipped: tuple[str, ...] = ()
    """What is wrong with the newer checkpoints, a sentence each."""
    num_lost: int = 0
    """Steps to repeat because those are skipped."""
    misfit: str | None = None
    """An accepted difference between the logs and the checkpoint."""


def resume_run(config: RunConfig, out: Path, progress: Progress, accept: bool) -> Session:
    """Resumes the run in `out`, or starts it over where it has no checkpoint yet.

    All checks come before a log is cut, and nearly all before a model is loaded.

    Args:
        accept: resume also where inputs, threads or logs are not those of the checkpoint.
    Returns: the session to `go()`.
    Raises: RunError where `out` is in use, or cannot be resumed as it began.
    """
    folder, session = RunFolder(out), None
    folder.acquire()
    try:
        point = _newest_point(folder, accept)
        has_ended = (out / "summary.json").exists()
        if point is None:
            _check_nothing_is_lost(folder, config, has_ended)
            progress.tell("info", f"{out} has no checkpoint yet: the run starts from the beginning")
            session, now = prepare_with_provenance(config, progress, folder)
            folder.write("config.yaml", to_yaml(config))  # it may have more steps, or another way to an endpoint
            write_report_spec(session)
            return log_start(session, now, check_plan(session))
        before, now = load_state(point.checkpoint)["origin"], compute_provenance(config)
        check_settings(before, config, point.checkpoint)
        is_longer = bool(changed_steps(before["settings"], plain(config)))
        changes = changed_inputs(before, now)
        if changes and not accept:
            is_gone = any(" is gone since " in change for change in changes)
            advice = "" if is_gone else "; or --accept-changes goes on all the same, and says so in events.jsonl"
            raise RunError(f"{out} cannot go on as it began: {first_few(changes)}. Put that back as it was{advice}")
        changes += [point.misfit] if point.misfit else []
        session, now = prepare_with_provenance(config, progress, folder)
        if is_longer:
            point = _point_of_longer_run(session, out)
            folder.lengthen(to_yaml(config))
            session.loop.is_longer = True
        elif changed_access(before["settings"], plain(config)):
            folder.write("config.yaml", to_yaml(config))
        # With a whole summary, the run would count as finished and not be resumed.
        is_damaged = has_ended and not is_longer
        _warn(session, point, changes, changed_versions(before, now), is_damaged=is_damaged)
        write_report_spec(session)
        session.loop.origin = now
        session.loop.resume(point.checkpoint)
        name = point.checkpoint.name
        folder.event("info", "resumed", f"goes on from {name}", checkpoint=name, command=command_line())
        if not (out / "env.json").exists():
            write_environment(session)
        check_engines(session)
        return session
    except BaseException:
        if session is not None:
            session.close_services()
        folder.release()
        raise


def _newest_point(folder: RunFolder, accept: bool) -> ResumePoint | None:
    """The newest checkpoint that is whole and fits the logs. None: the run has no checkpoint yet.

    Raises: RunError where there are checkpoints, and the run can resume from none of them.
    """
    skipped: list[str] = []
    whole: list[tuple[Path, str, int]] = []
    checkpoints = newest_first(folder.path)
    for checkpoint in checkpoints:
        problem = damage(checkpoint)
        if problem is not None:
            skipped.append(f"{checkpoint.name} is damaged: {problem}")
            continue
        misfit = folder.logs.misfit(load_state(checkpoint)["logs"])
        if misfit is None:
            return ResumePoint(checkpoint, tuple(skipped), steps_between(checkpoints[0], checkpoint))
        whole.append((checkpoint, misfit, len(skipped)))
        skipped.append(f"{checkpoint.name} does not fit the logs: {misfit}")
    if not skipped:
        return None
    if not whole:
        raise RunError(
            f"no checkpoint in {folder.path} is whole ({'; '.join(skipped)}): put the files back from a copy, or "
            "--overwrite starts anew"
        )
    checkpoint, misfit, num_newer = whole[0]
    if not accept:
        raise RunError(
            f"the logs in {folder.path} fit none of its checkpoints ({checkpoint.name}: {misfit}): put the file back "
            "from a copy; or --accept-changes goes on with what is there, and says so in events.jsonl"
        )
    return ResumePoint(checkpoint, tuple(skipped[:num_newer]), steps_between(checkpoints[0], checkpoint), misfit)


def _point_of_longer_run(session: Session, out: Path) -> ResumePoint:
    """The newest whole checkpoint at the end of the phase that is longer now, or before its end.

    Raises: RunError where there is none.
    """
    if session.algorithm.spec.is_lazy:
        raise RunError(f"{out} cannot be made longer: how long its phases are depends on what it finds")
    num_steps = {phase.name: phase.num_steps for phase in session.algorithm.phases()}
    for checkpoint in newest_first(out):
        if damage(checkpoint) is not None:
            continue
        state = load_state(checkpoint)
        longer = [done["name"] for done in state["done"] if num_steps[done["name"]] > done["num_steps"]]
        if not longer:
            return ResumePoint(checkpoint)
        if longer == [state["done"][-1]["name"]] and not state["step"]:
            if any((checkpoint / "optim").iterdir()):
                return ResumePoint(checkpoint)
            break
    raise RunError(
        f"{out} cannot be made longer: no checkpoint is left of the end of the phase that is to go on, with what its "
        "optimiser knew; only the phase that is going on, or the last one that trained, can be given more steps"
    )


def _check_nothing_is_lost(folder: RunFolder, config: RunConfig, has_ended: bool) -> None:
    """Raises: RunError where a run without checkpoints has a summary or metrics which show that there were some."""
    if has_ended:
        raise RunError(
            f"{folder.path / 'summary.json'} is damaged, and there is no checkpoint to make it again from: put either "
            "back from a copy, or --overwrite starts anew"
        )
    rows = folder.logs.rows("metrics.jsonl")
    interval = config.checkpoint_every
    steps = [(row.get("phase"), row.get("step")) for row in rows]
    late = [
        (phase, step) for phase, step in steps if phase != steps[0][0] or (interval and step not in range(interval + 1))
    ]
    if late:
        raise RunError(
            f"{folder.path} has no checkpoint, though its metrics.jsonl goes on to {late[-1][0]} step {late[-1][1]}: "
            "put its checkpoints/ back from a copy, or --overwrite starts anew"
        )


def _warn(
    session: Session, point: ResumePoint, changes: Sequence[str], versions: Sequence[str], *, is_damaged: bool
) -> None:
    """Reports skipped checkpoints, accepted changes, other versions and a lost summary: console and events."""
    steps = "1 step is" if point.num_lost == 1 else f"{point.num_lost} steps are"
    skipped = f"{'; '.join(point.skipped)}. Going on from {point.checkpoint.name}: {steps} done again"
    accepted = f"goes on though {first_few(changes)}"
    other = f"goes on with other versions ({', '.join(versions)}): what follows may differ in its last bits"
    remade = "summary.json is damaged: it is made again from the last checkpoint"
    warnings = [
        ("passed_over", skipped, point.skipped),
        ("changes_accepted", accepted, changes),
        ("other_versions", other, versions),
        ("summary_made_again", remade, ("summary.json",) * is_damaged),
    ]
    for event, message, causes in warnings:
        if causes:
            session.loop.folder.event("warning", event, message, which=list(causes))
            session.loop.progress.tell("warning", message)
