"""The loop: phases in turn; in each, collect rows, update the policies they name, now and then validate and save.

A phase is data and callables that a recipe made. Nothing here knows what a critic is, which reward was paid, or how
many policies there are. Everything that the rest of a run depends on is in a checkpoint or derived from (seed, phase,
step), so a run that was killed goes on to the same bits.
"""

from __future__ import annotations

import logging
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any, Protocol

import torch

from whet.config.parts import WatchConfig
from whet.errors import WhetError
from whet.models.policy import Policy
from whet.play.roles import seed_of
from whet.training import checkpoint
from whet.training.files import RunError
from whet.training.folder import RunFolder
from whet.training.learner import Learner
from whet.training.rule import UpdateRule
from whet.training.watch import Signs, Watch, after_loss, after_replies
from whet.types import Row

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Batch:
    """What one step collected."""

    rows: Sequence[Row] = ()
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    traces: Sequence[Mapping[str, Any]] = ()
    num_tokens: int | None = None
    """Tokens read and written for it, for the throughput. None: those of the rows."""
    signs: Sequence[Signs] | None = None
    """What its replies say about learning, those that are paid first. None: the rows are texts that were given."""


@dataclass(frozen=True)
class Selection:
    """Keep the best weights by a validation metric."""

    policy: str
    into: str
    """The frozen policy that holds the best weights so far; made when first needed."""
    metric: str
    """Larger is better. The weights that the phase starts from take part."""


class Memory(Protocol):
    """What a phase has to remember beside weights and optimisers, to go on to the same bits: buffers."""

    def save(self, folder: Path) -> None: ...
    def load(self, folder: Path) -> None: ...
    def clear(self) -> None: ...


@dataclass(frozen=True)
class Phase:
    """A stretch of a run: who learns what from which rows."""

    name: str
    num_steps: int
    collect: Callable[[int], Batch]
    """The rows of step 1, 2, ...: a pure function of the step and of the policies' weights."""
    updates: Mapping[str, UpdateRule] = field(default_factory=dict)
    """By policy. A phase without any only measures."""
    begin: Callable[[], None] = lambda: None
    """Runs once before step 1, not when the phase is resumed: copies weights, makes references."""
    validate: Callable[[int], Batch] | None = None
    validate_every: int = 0
    """Steps. Step 0 and the last step are always validated."""
    select: Selection | None = None
    main: str | None = None
    """Of several policies that learn, the one whose metrics go by their bare names; the others' are prefixed."""
    headline: tuple[str, ...] = ()
    """The metrics that the progress line shows."""
    memory: Memory | None = None
    """What `collect` keeps from step to step. None: nothing."""


class Progress(Protocol):
    """Who watches a run."""

    def begin(self, phase: str, done: int, total: int) -> None: ...
    def step(self, step: int, shown: Mapping[str, float | None]) -> None: ...
    def tell(self, level: str, text: str) -> None: ...
    def end(self) -> None: ...


class Stopped(WhetError):
    """The user asked the run to stop; it was saved."""

    exit_code = 130

    def __init__(self, saved: Path) -> None:
        super().__init__(f"stopped and saved in {saved}; `whet resume {saved.parents[1]}` goes on")
        self.saved = saved


@dataclass
class Run:
    """One run: its policies, its folder, and where it stands."""

    policies: dict[str, Policy]
    folder: RunFolder
    seed: int
    checkpoint_every: int
    """Steps between checkpoints. 0: at the end of each phase only."""
    progress: Progress
    origin: Mapping[str, Any] = field(default_factory=dict)
    """What the run is made of (settings, inputs), for its checkpoints: who resumes compares."""
    phase: int = 0
    step: int = 0
    total_steps: int = 0
    best: dict[str, float] = field(default_factory=dict)
    """Best value so far, by the name of the policy that holds the best weights."""
    seconds: float = 0.0
    """Of earlier sessions of this run."""
    forks: dict[str, str] = field(default_factory=dict)
    """Policies made in the run, and the policy each was forked from."""
    watching: WatchConfig = field(default_factory=WatchConfig)
    watch: Watch = field(default_factory=Watch)
    """Where the phase stands with what it learns."""
    _resume_from: Path | None = None
    _started: float = field(default_factory=time.monotonic)
    _stop: bool = False
    _given_up: str = ""
    """Why the run is to end, where it learns nothing."""

    def fork(self, source: str, name: str) -> Policy:
        """The frozen policy `name` with the weights of `source`; made if there is none yet."""
        if name in self.policies:
            self.policies[name].copy_from(self.policies[source])
        else:
            self.policies[name] = self.policies[source].fork(name)
            self.forks[name] = source
        return self.policies[name]

    def elapsed(self) -> float:
        return self.seconds + time.monotonic() - self._started

    def resume(self, saved: Path) -> None:
        """Go back to a whole checkpoint."""
        state = checkpoint.load_state(saved)
        self.phase, self.step, self.total_steps = state["phase"], state["step"], state["total_steps"]
        self.best, self.seconds = state["best"], state["seconds"]
        self.watch = Watch.restored(state["watch"]) if "watch" in state else Watch()
        self.load_policies(saved)
        self.folder.logs.rewind(state["logs"])
        self._resume_from = saved

    def load_policies(self, saved: Path) -> None:
        """All policies as a checkpoint has them, the frozen copies included."""
        state = checkpoint.load_state(saved)
        for name, source in state["forks"].items():
            self.fork(source, name)
        for name, policy in self.policies.items():
            policy.restore(saved / "policies" / name, version=state["versions"][name])

    def run(self, phases: Sequence[Phase]) -> None:
        """Play the phases from where the run stands to the end.

        Raises: Stopped after Ctrl-C (the run is saved first), and whatever a phase raises.
        """
        with self._interruptible():
            for index, phase in enumerate(phases):
                if index >= self.phase:
                    self.phase = index
                    self._phase(phase)
                    self.phase, self.step = index + 1, 0
                    self._save({})
                    self._halt_if_asked()

    def _phase(self, phase: Phase) -> None:
        resumed = self._resume_from is not None and self.step > 0
        if not resumed:
            phase.begin()
            self.watch = Watch()
            if phase.memory is not None:
                phase.memory.clear()
        learners = {name: Learner(self.policies[name], rule) for name, rule in phase.updates.items()}
        if self._resume_from is not None and resumed:
            checkpoint.load_learners(self._resume_from, learners)
            if phase.memory is not None:
                phase.memory.load(self._resume_from / "phase")
        if self._resume_from is not None:
            checkpoint.load_rng(self._resume_from)
            self._resume_from = None
        self.progress.begin(phase.name, self.step, phase.num_steps)
        if not resumed:
            self._validate(phase, 0, {})
        for step in range(self.step + 1, phase.num_steps + 1):
            self._step(phase, step, learners)
            due = self.checkpoint_every and step % self.checkpoint_every == 0 and step < phase.num_steps
            if self._stop or self._given_up or due:
                self._save(learners, phase.memory)
                self._halt_if_asked()
        for name, learner in learners.items():
            learner.finish()
            if not learner.num_updates and phase.num_steps:
                self.folder.event("warning", "no_update", f"{phase.name}: no update of {name} was made in "
                                  f"{phase.num_steps} steps, as no row came to it", phase=phase.name)  # fmt: skip
                logger.warning("%s made no update of %s: no row came to it", phase.name, name)
        self.progress.end()

    def _step(self, phase: Phase, step: int, learners: Mapping[str, Learner]) -> None:
        begun = time.perf_counter()
        batch = phase.collect(step)
        collected = time.perf_counter()
        metrics = dict(batch.metrics)
        losses = []
        for name, learner in learners.items():
            rows = [row for row in batch.rows if row.policy == name]
            learnt = learner.update(rows, seed=seed_of(self.seed, phase.name, step, name))
            losses += [learnt["loss/mean"]] if learnt else []
            is_main = len(learners) == 1 or name == phase.main
            metrics |= learnt if is_main else {f"{name}.{key}": value for key, value in learnt.items()}
        ended = time.perf_counter()
        metrics |= {
            "time/rollout": collected - begun,
            "time/update": ended - collected,
            "time/total": ended - begun,
            "throughput/tokens_per_s": _num_tokens(batch) / (ended - begun),
        }
        self.step, self.total_steps = step, self.total_steps + 1
        self.folder.traces(phase.name, batch.traces)
        metrics |= self._validate(phase, step, metrics)
        self.folder.metrics(phase.name, step, metrics)
        self.progress.step(step, {name: metrics.get(name) for name in phase.headline})
        if learners and self.watching.steps:
            self._look(phase, step, batch.signs, losses)

    def _look(self, phase: Phase, step: int, signs: Sequence[Signs] | None, losses: Sequence[float]) -> None:
        """Say so where nothing is learnt; the run ends after this step if that was asked for."""
        found = None
        if signs is not None:
            self.watch, found = after_replies(self.watch, signs, self.watching.steps)
        elif losses:
            self.watch, found = after_loss(self.watch, fmean(losses), self.watching.steps)
        if found is None:
            return
        self.folder.event(found.level, found.event, f"{phase.name} step {step}: {found.text}", phase=phase.name,
                          step=step)  # fmt: skip
        if found.level != "warning" or self.watching.then != "stop":
            self.progress.tell(found.level, f"{phase.name} step {step}: {found.text}")
        else:
            self._given_up = f"stopped at {phase.name} step {step}, as watch.then = stop asks for: {found.text}"

    def _validate(self, phase: Phase, step: int, metrics: Mapping[str, float | None]) -> dict[str, float | None]:
        due = phase.validate_every and (step % phase.validate_every == 0 or step == phase.num_steps)
        if phase.validate is None or not due:
            return {}
        begun = time.perf_counter()
        batch = phase.validate(step)
        found = {f"validation/{name}": value for name, value in batch.metrics.items()}
        self.folder.traces(phase.name, batch.traces)
        if phase.select is not None:
            self._select(phase.select, phase, step, found)
        found["time/validate"] = time.perf_counter() - begun
        if step == 0:
            self.folder.metrics(phase.name, 0, found)
        return found

    def _select(self, select: Selection, phase: Phase, step: int, found: dict[str, float | None]) -> None:
        value = found.get(select.metric)
        if value is None:  # nothing could be measured; the start is kept all the same, for those who go on from it
            self.folder.event("warning", "unmeasured", f"{phase.name} step {step}: no {select.metric} to choose by")
            value = -math.inf
        if select.into not in self.best or value > self.best[select.into]:
            self.best[select.into] = value
            self.fork(select.policy, select.into)
            shown = f"{select.metric} = {value:.4f}"
            self.folder.event("info", "best", f"{phase.name} step {step}: {shown} is the best so far", phase=phase.name,
                              step=step, policy=select.into)  # fmt: skip

    def _save(self, learners: Mapping[str, Learner], memory: Memory | None = None) -> None:
        state = {
            "origin": self.origin,
            "phase": self.phase,
            "step": self.step,
            "total_steps": self.total_steps,
            "best": self.best,
            "seconds": self.elapsed(),
            "forks": self.forks,
            "versions": {name: policy.version for name, policy in self.policies.items()},
            "logs": self.folder.logs.marks(),
            "watch": asdict(self.watch),
        }
        # A phase's end is a state of its own, one past its last step.
        number = self.total_steps + self.phase
        self.last_saved = checkpoint.save_checkpoint(
            self.folder.path, number, self.policies, learners, state, None if memory is None else memory.save
        )

    def _halt_if_asked(self) -> None:
        if self._stop:
            raise Stopped(self.last_saved)
        if self._given_up:
            run = self.folder.path
            raise RunError(f"{self._given_up}. Saved: `whet report {run}` shows it, `whet resume {run}` goes on, until "
                           "another such finding")  # fmt: skip

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """The first Ctrl-C lets the step end and saves; the second one interrupts at once."""

        def ask(signum: int, frame: FrameType | None) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True
            logger.warning("stopping after this step; press Ctrl-C again to stop at once (work since the last "
                           "checkpoint is lost then)")  # fmt: skip

        before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
        # A run started in the background of a shell has Ctrl-C ignored for it; that is respected.
        before = {name: handler for name, handler in before.items() if handler is not signal.SIG_IGN}
        try:
            for name in before:
                signal.signal(name, ask)
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)


def _num_tokens(batch: Batch) -> int:
    return sum(len(row.tokens) for row in batch.rows) if batch.num_tokens is None else batch.num_tokens


def set_determinism(num_threads: int | None) -> None:
    """Same seed, same bits: deterministic kernels, and a fixed number of threads (sums depend on it)."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    if num_threads:
        torch.set_num_threads(num_threads)
