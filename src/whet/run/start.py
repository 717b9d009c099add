"""What starting and resuming a run share: preparing it, checking its plan, and trying its engines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from whet.config.runs import RunConfig
from whet.errors import RunError
from whet.report.spec import to_json
from whet.run.plan import disk_warning, plan, sampling_warnings
from whet.run.provenance import changed_inputs, compute_provenance, first_few
from whet.run.session import Session, check_agreement, prepare
from whet.run_folder.folder import RunFolder, environment
from whet.trainer.loop import Progress


def prepare_with_provenance(config: RunConfig, progress: Progress, folder: RunFolder) -> tuple[Session, dict[str, Any]]:
    """The prepared session and its provenance. Tells the method's info and warnings.

    Raises: what `prepare` raises; RunError where an input changed meanwhile, as it is unknown what was read then.
    """
    before = compute_provenance(config)
    session = prepare(config, progress, folder)
    after = compute_provenance(config)
    if changes := changed_inputs(before, after):
        session.close_services()
        raise RunError(f"while it was read, {first_few(changes)}: start again once nobody writes to it")
    if session.problems.parts:
        progress.tell("warning" if session.problems.leaks else "info", f"data: {session.problems.sentence}")
    for info in session.algorithm.run.info:
        progress.tell("info", info)
    for warning in session.algorithm.run.warnings:
        progress.tell("warning", warning)
    return session, after


def check_plan(session: Session) -> str:
    """The run's plan, in one line. Asks endpoints for their models, and tells warnings.

    Raises: ConfigError, RunError: what would stop the run.
    """
    lines = plan(session)
    for warning in filter(None, (*sampling_warnings(session), disk_warning(session))):
        session.loop.progress.tell("warning", warning)
    return "; ".join(lines)


def log_start(session: Session, provenance: Mapping[str, Any], description: str) -> Session:
    """Logs that the run starts, and tries its engines.

    Args:
        description: of the run, by `check_plan`.
    Returns: the session.
    Raises: RunError where an engine disagrees with its trainer.
    """
    folder = session.loop.folder
    session.loop.origin = provenance
    folder.logs.rewind({})
    write_environment(session)
    folder.event("info", "started", description)
    check_engines(session)
    return session


def write_report_spec(session: Session) -> None:
    """Writes the method's report spec into the run folder."""
    algorithm = session.algorithm
    session.loop.folder.write("report_spec.json", to_json(algorithm.spec.report_of(algorithm.config)) + "\n")


def write_environment(session: Session) -> None:
    """Writes `env.json`: versions, hardware, command, and the provenance of each model."""
    device = str(session.loop.policies[session.sampled[-1]].device) if session.sampled else "cpu"
    details = environment(session.loop.seed, device)
    sources = {name: policy.source for name, policy in session.loop.policies.items()}
    details |= {"models": {name: dict(source.record) for name, source in sources.items() if source is not None}}
    session.loop.folder.write("env.json", json.dumps(details, indent=1) + "\n")


def check_engines(session: Session) -> None:
    """Compares the logprobs of engine and trainer for each policy, and logs the difference.

    Raises: RunError where they disagree.
    """
    for name in session.sampled:
        difference = check_agreement(session.loop.policies[name], session)
        message = f"{name}: engine and trainer agree to {difference:.1e} in logprob"
        session.loop.folder.event("info", "agreement", message, policy=name, difference=difference)
