"""Events that the loop logs about a phase and its schedules. They report, and change nothing."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from difflib import get_close_matches

from whet.config.schedule import Gated, Schedule
from whet.run_folder.folder import RunFolder
from whet.trainer.phase import Phase, Progress
from whet.trainer.protocol import Trainer

logger = logging.getLogger(__name__)


def warn_of_no_update(folder: RunFolder, phase: Phase, trainers: Mapping[str, Trainer]) -> None:
    """Warn of policies that a phase should have trained and never did."""
    for name, trainer in trainers.items():
        if not trainer.num_updates and phase.num_steps:
            text = f"{phase.name}: no update of {name} was made in {phase.num_steps} steps, as no row came to it"
            folder.event("warning", "no_update", text, phase=phase.name)
            logger.warning("%s made no update of %s: no row came to it", phase.name, name)


def log_budget(folder: RunFolder, progress: Progress, phase: Phase, spent: float) -> None:
    """Log that a phase ended because its budget is spent.

    Args:
        spent: the sum of the budget's metric.
    """
    assert phase.budget is not None, "the phase has no budget"
    text = f"{phase.name} ends: {phase.budget.metric} has come to {spent:,.0f} of {phase.budget.most:,.0f}"
    folder.event("info", "budget_spent", text, phase=phase.name)
    progress.tell("info", text)


def log_unimproved(folder: RunFolder, phase: Phase, best: Mapping[str, float]) -> None:
    """Log that no validation was better than a phase's first, so that its best weights are the first or the last ones.

    Args:
        best: the best value of each policy that holds best weights.
    """
    if phase.select is None:
        return
    key = phase.select.metric
    first = next((row for row in folder.read_metrics() if row["phase"] == phase.name and key in row), {})
    if first.get("step") != 0 or first[key] is None or first[key] != best[phase.select.into]:
        return
    if phase.select.prefers(first[key], first[key]):
        event = "none_succeeded"
        text = (
            f"{phase.name}: nothing succeeded in any validation, so the best weights ({phase.select.into}) are the "
            "last ones that were validated"
        )
    else:
        event = "start_kept"
        text = (
            f"{phase.name}: no validation was better than the first ({key} {first[key]:.3f}), so the best weights "
            f"({phase.select.into}) stay those that the phase began with"
        )
    folder.event("info", event, text, phase=phase.name, policy=phase.select.into)


def log_longer(folder: RunFolder, progress: Progress, phase: Phase, trainers: Mapping[str, Trainer]) -> None:
    """Log the learning rates of a phase that is longer now: from here on they are spread over all of it."""
    logged = [row for row in folder.read_metrics() if row["phase"] == phase.name]
    for name, trainer in trainers.items() if logged else ():
        before = logged[-1].get(f"{phase.prefix(name, trainers)}optim/learning_rate")
        text = f"{phase.name} goes on to step {phase.num_steps}: the learning rate of {name}, spread over all of it, "
        text += f"goes on at {trainer.learning_rate(trainer.num_updates):.3g}"
        text += "" if before is None else f", where it was {before:.3g}"
        folder.event("info", "longer", text, phase=phase.name, policy=name)
        progress.tell("info", text)


def warn_of_misspelt_gates(
    folder: RunFolder, progress: Progress, schedules: Mapping[str, Schedule], logged: Collection[str]
) -> None:
    """Warn early of gates whose metric the first step did not log, where it logged one of nearly that name.

    Args:
        logged: names of the step's metrics.
    """
    for key, schedule in schedules.items():
        if isinstance(schedule, Gated) and (metric := schedule.metric) not in logged:
            near = get_close_matches(metric, logged, n=1, cutoff=0.8)
            if near and near[0].count("/") == metric.count("/"):
                text = f"schedule.{key} waits for {metric}, which the first step has not logged: it has {near[0]}"
                folder.event("warning", "misspelt_gate", text)
                progress.tell("warning", text)


def warn_of_shut_gates(folder: RunFolder, schedules: Mapping[str, Schedule]) -> None:
    """Warn of gates whose metric the whole run never logged."""
    awaited = {key: schedule.metric for key, schedule in schedules.items() if isinstance(schedule, Gated)}
    logged = {name for row in (folder.read_metrics() if awaited else ()) for name in row}
    for key, metric in awaited.items():
        if metric not in logged:
            text = f"schedule.{key} waited for {metric}, which this run never logged: its first value stood"
            folder.event("warning", "shut_gate", text)
            logger.warning("%s", text)
