"""What the loop has to say of a phase: updates that never came, weights that were best at the start, rates that moved
as the run is longer, gates that never opened. Written to the log; it changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from whet.config.schedule import Gated, Schedule
from whet.runs.folder import RunFolder
from whet.runs.phase import Phase, Progress
from whet.training.learner import Learner

logger = logging.getLogger(__name__)


def unlearnt(folder: RunFolder, phase: Phase, learners: Mapping[str, Learner]) -> None:
    """Of policies that a phase was to train and never did."""
    for name, learner in learners.items():
        if not learner.num_updates and phase.num_steps:
            text = f"{phase.name}: no update of {name} was made in {phase.num_steps} steps, as no row came to it"
            folder.event("warning", "no_update", text, phase=phase.name)
            logger.warning("%s made no update of %s: no row came to it", phase.name, name)


def start_kept(folder: RunFolder, phase: Phase, best: Mapping[str, float]) -> None:
    """Of a phase whose best weights are those that it began with.

    Args:
        best: the best value of each policy that holds best weights.
    """
    if phase.select is None:
        return
    key = phase.select.metric
    first = next((row for row in folder.read_metrics() if row["phase"] == phase.name and key in row), {})
    if first.get("step") == 0 and first[key] is not None and first[key] == best[phase.select.into]:
        text = f"{phase.name}: no validation was better than the first ({key} {first[key]:.3f}), so the best weights "
        text += f"({phase.select.into}) stay those that the phase began with"
        folder.event("info", "start_kept", text, phase=phase.name, policy=phase.select.into)


def rates_moved(folder: RunFolder, progress: Progress, phase: Phase, learners: Mapping[str, Learner]) -> None:
    """Of a phase that is longer now: its learning rates are spread over all of it from here on."""
    logged = [row for row in folder.read_metrics() if row["phase"] == phase.name]
    for name, learner in learners.items() if logged else ():
        is_main = len(learners) == 1 or name == phase.main
        before = logged[-1].get("optim/learning_rate" if is_main else f"{name}.optim/learning_rate")
        text = f"{phase.name} goes on to step {phase.num_steps}: the learning rate of {name}, spread over all of it, "
        text += f"goes on at {learner.learning_rate(learner.num_updates):.3g}"
        text += "" if before is None else f", where it was {before:.3g}"
        folder.event("info", "longer", text, phase=phase.name, policy=name)
        progress.tell("info", text)


def gates_shut(folder: RunFolder, schedule: Mapping[str, Schedule]) -> None:
    """Of gates whose metric was never logged in the whole run."""
    waited = {key: each.metric for key, each in schedule.items() if isinstance(each, Gated)}
    logged = {name for row in (folder.read_metrics() if waited else ()) for name in row}
    for key, metric in waited.items():
        if metric not in logged:
            text = f"schedule.{key} waited for {metric}, which this run never logged: its first value stood"
            folder.event("warning", "shut_gate", text)
            logger.warning("%s", text)
