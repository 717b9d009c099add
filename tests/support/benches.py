"""Methods put together without a session: for looking at their phases, and at single steps."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from support.commands import Quiet
from whet.config.runs import RunConfig
from whet.methods.base import RunContext
from whet.methods.registry import preset_of
from whet.models.policy import load_policies
from whet.rollout.runtime import Runtime
from whet.rollout.services import BatchFunction
from whet.run.data import load_grader, load_tasks
from whet.run_folder.folder import RunFolder
from whet.tasks.prompts import find_prompts
from whet.trainer.loop import Loop


def method_of(config: RunConfig, folder: Path, grade: BatchFunction | None = None) -> Any:
    """The method of a config at its bench, with a run that has not begun.

    Args:
        folder: of which its run folder is a new one.
        grade: in place of the data's own grader.
    """
    kind = preset_of(config.method).algorithm
    policies = load_policies(kind.spec.models(config))
    folder.mkdir(exist_ok=True)
    place = RunFolder(Path(mkdtemp(dir=folder)))
    loop = Loop(policies, place, config.seed, 0, Quiet(), schedule=config.schedule)
    place.acquire()
    grade = grade or load_grader(config.data).grade
    runtime = Runtime(policies, grade, config.engine, faults=config.faults)
    return kind(config, RunContext(loop, load_tasks(config.data).tasks, grade, find_prompts(config.prompts), runtime))


def phases_of(method: Any) -> dict[str, Any]:
    """Those that have steps, by name."""
    return {phase.name: phase for phase in method.phases() if phase.num_steps}
