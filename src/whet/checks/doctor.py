"""Examines a run before it is started: its rows, texts, reward, settings, memory and time. It writes nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from whet.checks.findings import Finding
from whet.checks.plans import length_findings, prompts_per_step, sampling_findings, thread_findings
from whet.checks.rows import row_findings
from whet.checks.samples import FORMS
from whet.checks.scoring import Scored, gold_findings, slow_finding, term_findings
from whet.checks.steps import measure, signal_findings, time_finding
from whet.checks.texts import text_findings
from whet.config import check_all_read
from whet.config.parts import FileData, SamplingConfig
from whet.config.runs import RunConfig
from whet.errors import WhetError, text_of
from whet.run.data import load_tasks, with_products
from whet.run.plan import check_correction, memory_of
from whet.run.session import Session, prepare
from whet.run_folder.folder import RunFolder
from whet.sandbox.workers import NUM_WORKERS
from whet.trainer.phase import Phase


class _Listener:
    """Collects what a run would tell as it starts."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def begin(self, phase: str, done: int, total: int) -> None: ...
    def step(self, step: int, shown: Mapping[str, float | None]) -> None: ...
    def end(self) -> None: ...

    def tell(self, level: str, text: str) -> None:
        if level == "warning":
            self.warnings.append(text)


def examine(config: RunConfig, golden: str | None = None) -> Iterator[Finding]:
    """Findings about a run with these settings, in the order of its checks.

    Args:
        golden: how a right reply looks, with `{answer}`. None: usual forms are tried.
    """
    yield from thread_findings(config)
    data = config.__dict__["data"]  # a look-up that counts as no read
    listener = _Listener()
    with tempfile.TemporaryDirectory() as nowhere:
        try:
            if isinstance(data, FileData):
                yield from row_findings(load_tasks(data).tasks)
            session = prepare(with_products(config, listener), listener, RunFolder(Path(nowhere)))
        except WhetError as error:
            yield Finding("fail", "settings", text_of(error))
            return
        try:
            yield from _examined(session, listener, golden)
        except WhetError as error:
            yield Finding("fail", "step", text_of(error))
        finally:
            session.close_services()


def _examined(session: Session, listener: _Listener, golden: str | None) -> Iterator[Finding]:
    algorithm = session.algorithm
    config = algorithm.config
    yield from (Finding("warning", "settings", text) for text in (*listener.warnings, *algorithm.run.warnings))
    check_all_read(config)
    check_correction(session)
    yield from _memory(session)
    scored: Scored | None = None
    if session.envs is None:
        findings, scored = _answers(session, golden)
        yield from findings
    phases = _phases(session)
    yield from length_findings(config, phases, len(session.problems.tasks["train"]))
    if scored is not None:
        replies = prompts_per_step(config) * vars(config).get("group_size", 1)
        yield from slow_finding(scored, replies, NUM_WORKERS)
    if scored is not None and not scored.num_scored:
        yield Finding("ok", "time", "no step is measured, as the grader gives no score")
        return
    if session.algorithm.run.runtime.endpoints or config.cluster.has_processes:
        yield Finding("ok", "time", "no step is measured where endpoints answer, or where other processes take part")
        return
    results = measure(session, phases)
    if results:
        yield time_finding(session, phases, results)
        yield from signal_findings(results)
    else:
        yield Finding("ok", "time", "no phase trains, so no step is measured")


def _answers(session: Session, golden: str | None) -> tuple[list[Finding], Scored | None]:
    """Findings where a policy answers questions: texts, reward and sampling."""
    algorithm = session.algorithm
    tasks = [task for task in session.problems.tasks["train"] if task.answer is not None]
    if not tasks:
        return [], None
    forms = FORMS if golden is None else (golden,)
    findings, scored = gold_findings(session.grader.grade, tasks, algorithm.run.prompts, forms)
    rewards: dict[str, float] = algorithm.config.__dict__["rewards"]
    if not any("critique" in skills for skills in algorithm.spec.skills.values()):
        # Terms for critiques read replies that follow, which a sample of one reply has not.
        findings += term_findings(rewards, tasks, scored.forms[0] if scored.forms else forms[0])
    every = list(chain.from_iterable(session.problems.tasks.values()))
    for name, policy in session.loop.policies.items():
        findings += text_findings(policy, every, algorithm.run.prompts)
        if key := algorithm.spec.skills.get(name, {}).get("answer"):
            sampling: Any = attrgetter(key)(algorithm.config)
            if isinstance(sampling, SamplingConfig):
                findings += sampling_findings(key, sampling, policy, tasks)
    return list(dict.fromkeys(findings)), scored


def _memory(session: Session) -> Iterator[Finding]:
    for memory in memory_of(session):
        yield Finding("ok", "memory", memory.text)
        if memory.problem:
            yield Finding("fail", "memory", memory.problem)


def _phases(session: Session) -> list[Phase]:
    """The phases that have steps; of a lazy method those that are known."""
    algorithm = session.algorithm
    if algorithm.spec.is_lazy:
        return [next(phase for phase in algorithm.phases() if phase.num_steps), *algorithm.spec.later(algorithm)]
    return [phase for phase in algorithm.phases() if phase.num_steps]
