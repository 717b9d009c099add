"""Going on with a run: from its newest whole checkpoint, or, where it is to be longer, from the end of a phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.config import to_yaml
from whet.config.base import plain
from whet.config.runs import RunConfig
from whet.errors import RunError
from whet.run.provenance import (
    changed_inputs,
    changed_steps,
    changed_versions,
    changed_ways,
    check_settings,
    compute_provenance,
    in_short,
)
from whet.run.session import Session
from whet.run.start import begin, check_engines, looked_at, prepared, write_environment, write_sheet
from whet.run_folder.folder import RunFolder, command_line
from whet.trainer.checkpoint import damage, load_state, newest_first, steps_between
from whet.trainer.loop import Progress


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


def go_on(config: RunConfig, out: Path, progress: Progress, accept: bool) -> Session:
    """Everything that can be refused is refused before a log is cut, and nearly all before a model is loaded."""
    folder = RunFolder(out)
    folder.acquire()
    try:
        point = _point(folder, accept)
        has_ended = (out / "summary.json").exists()
        if point is None:
            _check_nothing_is_lost(folder, config, has_ended)
            progress.tell("info", f"{out} has no checkpoint yet: the run starts from the beginning")
            session, now = prepared(config, progress, folder)
            write_sheet(session)
            return begin(session, now, looked_at(session))
        before, now = load_state(point.saved)["origin"], compute_provenance(config)
        check_settings(before, config, point.saved)
        is_longer = bool(changed_steps(before["settings"], plain(config)))
        changes = changed_inputs(before, now)
        if changes and not accept:
            is_gone = any(" is gone since " in change for change in changes)
            advice = "" if is_gone else "; or --accept-changes goes on all the same, and says so in events.jsonl"
            raise RunError(f"{out} cannot go on as it began: {in_short(changes)}. Put that back as it was{advice}")
        changes += [point.misfit] if point.misfit else []
        session, now = prepared(config, progress, folder)
        if is_longer:
            point = _point_of_longer(session, out)
            folder.lengthen(to_yaml(config))
            session.loop.is_longer = True
        elif changed_ways(before["settings"], plain(config)):
            folder.write("config.yaml", to_yaml(config))
        # A whole summary would have been shown.
        _say(session, point, changes, changed_versions(before, now), is_damaged=has_ended and not is_longer)
        write_sheet(session)
        session.loop.origin = now
        session.loop.resume(point.saved)
        folder.event("info", "resumed", f"goes on from {point.saved.name}", checkpoint=point.saved.name,
                     command=command_line())  # fmt: skip
        if not (out / "env.json").exists():
            write_environment(session)
        check_engines(session)
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
        misfit = folder.logs.misfit(load_state(saved)["logs"])
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


def _point_of_longer(session: Session, out: Path) -> Point:
    """The newest whole checkpoint that ends in the phase that is longer now, or lies before its end.

    Raises: RunError where there is none.
    """
    if session.algorithm.spec.is_lazy:
        raise RunError(f"{out} cannot be made longer: how long its phases are depends on what it finds")
    wanted = {phase.name: phase.num_steps for phase in session.algorithm.phases()}
    for saved in newest_first(out):
        if damage(saved) is not None:
            continue
        state = load_state(saved)
        grown = [done["name"] for done in state["done"] if wanted[done["name"]] > done["num_steps"]]
        if not grown:
            return Point(saved)
        if grown == [state["done"][-1]["name"]] and not state["step"]:
            if any((saved / "optim").iterdir()):
                return Point(saved)
            break
    raise RunError(
        f"{out} cannot be made longer: no checkpoint is left of the end of the phase that is to go on, with what its "
        "optimiser knew; only the phase that is going on, or the last one that trained, can be given more steps"
    )


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


def _say(session: Session, point: Point, changes: Sequence[str], versions: Sequence[str], *, is_damaged: bool) -> None:
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
