"""What the loop has to say of a phase: updates that never came, weights that were best at the start, rates that moved
as the run is longer, gates that never opened. Written to the log; it changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from difflib import get_close_matches

from whet.config.schedule import Gated, Schedule
from whet.run_folder.folder import RunFolder
from whet.trainer.phase import Phase, Progress
from whet.trainer.protocol import Trainer

logger = logging.getLogger(__name__)


def unlearnt(folder: RunFolder, phase: Phase, trainers: Mapping[str, Trainer]) -> None:
    """Of policies that a phase was to train and never did."""
    for name, trainer in trainers.items():
        if not trainer.num_updates and phase.num_steps:
            text = f"{phase.name}: no update of {name} was made in {phase.num_steps} steps, as no row came to it"
            folder.event("warning", "no_update", text, phase=phase.name)
            logger.warning("%s made no update of %s: no row came to it", phase.name, name)


def budget_spent(folder: RunFolder, progress: Progress, phase: Phase, spent: float) -> None:
    """Of a phase that ended with its budget, after fewer steps than it might have made or as many."""
    assert phase.budget is not None, "nothing else is spent"
    text = f"{phase.name} ends: {phase.budget.metric} has come to {spent:,.0f} of {phase.budget.most:,.0f}"
    folder.event("info", "budget_spent", text, phase=phase.name)
    progress.tell("info", text)


def start_kept(folder: RunFolder, phase: Phase, best: Mapping[str, float]) -> None:
    """Of a phase whose best weights are those that it began with, or the last ones for want of a success.

    Args:
        best: the best value of each policy that holds best weights.
    """
    if phase.select is None:
        return
    key = phase.select.metric
    first = next((row for row in folder.read_metrics() if row["phase"] == phase.name and key in row), {})
    if first.get("step") != 0 or first[key] is None or first[key] != best[phase.select.into]:
        return
    name, text = "start_kept", f"{phase.name}: no validation was better than the first ({key} {first[key]:.3f}), so "
    text += f"the best weights ({phase.select.into}) stay those that the phase began with"
    if phase.select.prefers(first[key], first[key]):
        name, text = "none_succeeded", f"{phase.name}: nothing succeeded in any validation, so the best weights "
        text += f"({phase.select.into}) are the last ones that were validated"
    folder.event("info", name, text, phase=phase.name, policy=phase.select.into)


def rates_moved(folder: RunFolder, progress: Progress, phase: Phase, trainers: Mapping[str, Trainer]) -> None:
    """Of a phase that is longer now: its learning rates are spread over all of it from here on."""
    logged = [row for row in folder.read_metrics() if row["phase"] == phase.name]
    for name, trainer in trainers.items() if logged else ():
        is_main = len(trainers) == 1 or name == phase.main
        before = logged[-1].get("optim/learning_rate" if is_main else f"{name}.optim/learning_rate")
        text = f"{phase.name} goes on to step {phase.num_steps}: the learning rate of {name}, spread over all of it, "
        text += f"goes on at {trainer.learning_rate(trainer.num_updates):.3g}"
        text += "" if before is None else f", where it was {before:.3g}"
        folder.event("info", "longer", text, phase=phase.name, policy=name)
        progress.tell("info", text)


def gates_misspelt(
    folder: RunFolder, progress: Progress, schedule: Mapping[str, Schedule], logged: Collection[str]
) -> None:  # fmt: skip
    """Of gates that wait for what a phase's first step has not logged, where it has logged something of nearly that
    name: said now, and not when the run is over.

    Args:
        logged: names of the step's metrics.
    """
    for key, each in schedule.items():
        if isinstance(each, Gated) and each.metric not in logged:
            near = get_close_matches(each.metric, logged, n=1, cutoff=0.8)
            if near and near[0].count("/") == each.metric.count("/"):
                text = f"schedule.{key} waits for {each.metric}, which the first step has not logged: it has {near[0]}"
                folder.event("warning", "misspelt_gate", text)
                progress.tell("warning", text)


def gates_shut(folder: RunFolder, schedule: Mapping[str, Schedule]) -> None:
    """Of gates whose metric was never logged in the whole run."""
    waited = {key: each.metric for key, each in schedule.items() if isinstance(each, Gated)}
    logged = {name for row in (folder.read_metrics() if waited else ()) for name in row}
    for key, metric in waited.items():
        if metric not in logged:
            text = f"schedule.{key} waited for {metric}, which this run never logged: its first value stood"
            folder.event("warning", "shut_gate", text)
            logger.warning("%s", text)
