"""What beginning a run and going on with one have in common: it is made ready, and its engines are tried."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from whet.config.runs import RunConfig
from whet.errors import RunError
from whet.report.spec import to_json
from whet.run.plan import narrowed, plan
from whet.run.provenance import changed_inputs, compute_provenance, in_short
from whet.run.session import Session, check_agreement, prepare
from whet.run_folder.folder import RunFolder, environment
from whet.trainer.loop import Progress


def prepared(config: RunConfig, progress: Progress, folder: RunFolder) -> tuple[Session, dict[str, Any]]:
    """The session, and what it is made of: the same before and after it was loaded, or nobody knows what was read.

    Raises: RunError where an input changed meanwhile.
    """
    before = compute_provenance(config)
    session = prepare(config, progress, folder)
    after = compute_provenance(config)
    if changes := changed_inputs(before, after):
        session.close_services()
        raise RunError(f"while it was read, {in_short(changes)}: start again once nobody writes to it")
    if session.problems.parts:
        progress.tell("warning" if session.problems.leaks else "info", f"data: {session.problems.sentence}")
    for fact in session.algorithm.run.info:
        progress.tell("info", fact)
    for warning in session.algorithm.run.warnings:
        progress.tell("warning", warning)
    return session, after


def looked_at(session: Session) -> str:
    """What the run will do, in words; the endpoints are asked who they are.

    Raises: ConfigError, RunError: what would stop it.
    """
    lines = plan(session)
    for text in narrowed(session):
        session.loop.progress.tell("warning", text)
    return "; ".join(lines)


def begin(session: Session, origin: Mapping[str, Any], said: str) -> Session:
    """Write down that it begins. Args: said: see `looked_at`."""
    folder, session.loop.origin = session.loop.folder, origin
    folder.logs.rewind({})
    write_environment(session)
    folder.event("info", "started", said)
    check_engines(session)
    return session


def write_sheet(session: Session) -> None:
    """How the run is shown, into its folder."""
    algorithm = session.algorithm
    session.loop.folder.write("report_spec.json", to_json(algorithm.spec.report_of(algorithm.config)) + "\n")


def write_environment(session: Session) -> None:
    device = str(session.loop.policies[session.sampled[-1]].device) if session.sampled else "cpu"
    details = environment(session.loop.seed, device)
    sources = {name: policy.source for name, policy in session.loop.policies.items()}
    details |= {"models": {name: dict(source.record) for name, source in sources.items() if source is not None}}
    session.loop.folder.write("env.json", json.dumps(details, indent=1) + "\n")


def check_engines(session: Session) -> None:
    for name in session.sampled:
        difference_found = check_agreement(session.loop.policies[name], session)
        session.loop.folder.event(
            "info", "agreement", f"{name}: engine and trainer agree to {difference_found:.1e} in logprob",
            policy=name, difference=difference_found,
        )  # fmt: skip
