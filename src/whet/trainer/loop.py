"""The loop: phases in turn; in each, collect rows, update the policies they name, now and then validate and save.

A phase is data and callables that a method made, when its turn came. Nothing here knows what a critic is, which reward
was paid, or how many policies there are. Everything that the rest of a run depends on is in a checkpoint or derived
from (seed, phase, step), so a run that was killed goes on to the same bits.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from whet.config.parts import WatchConfig
from whet.config.schedule import SHUT, Gate, Gated, Schedule, advanced
from whet.engines.protocol import Engine
from whet.errors import RunError, TooManyFailures
from whet.models.policy import Policy
from whet.run_folder.folder import RunFolder
from whet.seeds import seed_of
from whet.trainer import checkpoint, phase_warnings
from whet.trainer.buffers import Store
from whet.trainer.local import trainer_of
from whet.trainer.phase import Batch, Phase, Progress, Selection, Stopped
from whet.trainer.process import interruptible
from whet.trainer.protocol import Trainer
from whet.trainer.selfchecks import Learnt, after_update, at_start, check_weights, flat_groups, learnt_of
from whet.trainer.watch import Finding, Watch, after_loss, after_nll, after_replies
from whet.types import FAULTS

logger = logging.getLogger(__name__)
NOTHING_LEARNT = ("dead_batch", "no_credit", "flat_groups", "loss_rises", "loss_stuck", "loss_gone", "weights_still")
"""Events for which `watch.then = stop` ends a run."""


__all__ = ["Batch", "Done", "Loop", "Phase", "Progress", "Selection", "Stopped"]


@dataclass(frozen=True)
class Done:
    """A phase that has ended, as a checkpoint knows it."""

    name: str
    num_steps: int
    found: Mapping[str, Any]
    """What all phases up to its end had found, by their names."""
    spent: float = 0.0
    """See `Loop.spent`."""


@dataclass
class Loop:
    """A run that goes on: its policies, its folder, what it keeps, and where it stands."""

    policies: dict[str, Policy]
    folder: RunFolder
    seed: int
    checkpoint_every: int
    """Steps between checkpoints. 0: at the end of each phase only."""
    progress: Progress
    watching: WatchConfig = field(default_factory=WatchConfig)
    schedule: Mapping[str, Schedule] = field(default_factory=dict)
    """Of the settings that go with the step."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """What the run is made of (settings, inputs), for its checkpoints: who resumes compares."""
    store: Store = field(default_factory=Store)
    found: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What phases that have ended returned, by name. Which phases come next may depend on this, and on nothing else
    that changes in a run."""
    gates: Mapping[str, Gate] = field(default_factory=dict)
    """Where schedules stand that wait for a metric."""
    going_on: Collection[str] = ()
    """Settings whose steps the method counts from phase to phase, so that their gates do not begin anew with each."""
    done: list[Done] = field(default_factory=list)
    step: int = 0
    """Of the phase after those that are done."""
    total_steps: int = 0
    spent: float = 0.0
    """Of the phase's budget, where it has one."""
    best: dict[str, float] = field(default_factory=dict)
    """Best value so far, by the name of the policy that holds the best weights."""
    seconds: float = 0.0
    """Of earlier sessions of this run."""
    forks: dict[str, str] = field(default_factory=dict)
    """Policies made in the run, and the policy each was forked from."""
    watch: Watch = field(default_factory=Watch)
    """Where the phase stands with what it learns."""
    stepping: Callable[[str], None] = lambda place: None
    """Is told of each step, and of each validation, before it plays: `train/12`, `train/12/validation`."""
    counts: Callable[[], Mapping[str, float]] = dict
    """What plays have come to so far, whose growth in a step is logged; `tokens` are for the throughput."""
    engine_of: Callable[[str], Engine | None] = lambda name: None
    """The engine that samples from a policy in this run. None: nothing has asked for one yet."""
    is_longer: bool = False
    """Whether this session makes a phase longer than it was when its checkpoint was made."""
    has_worked: bool = False
    """Whether a step of this run trained somebody or kept something: so far others only measured."""
    last_saved: Path | None = None
    """The checkpoint that this session wrote last."""
    _trainers: dict[str, Trainer] = field(default_factory=dict)
    _resume_from: Path | None = None
    _began: str = ""
    """The phase that a checkpoint was made in."""
    _started: float = field(default_factory=time.monotonic)
    _stop: bool = False
    _given_up: str = ""
    """Why the run is to end, where it learns nothing."""

    def trainer(self, name: str) -> Trainer:
        """Of a policy, a frozen one too. Through it alone a run changes weights: see `push`."""
        trainer = self._trainers.get(name)
        if trainer is None or trainer.policy is not self.policies[name]:
            trainer = self._trainers[name] = trainer_of(self.policies[name])
        return trainer

    def push(self, name: str) -> None:
        """A policy's weights have changed: send them to its engine, and see that they came.

        Raises: RunError where they did not.
        """
        if (engine := self.engine_of(name)) is not None:
            self.trainer(name).push(engine)
            self.check_engine(name, engine)

    def check_engine(self, name: str, engine: Engine) -> None:
        """Raises: RunError where an engine does not hold the policy's weights."""
        check_weights(self.trainer(name), engine)

    def fork(self, source: str, name: str) -> Policy:
        """The frozen policy `name` with the weights of `source`; made if there is none yet."""
        if name in self.policies:
            self.trainer(name).copy(self.trainer(source))
            self.push(name)
        else:
            self._trainers[name] = self.trainer(source).fork(name)
            self.policies[name] = self._trainers[name].policy
            self.forks[name] = source
        return self.policies[name]

    def freeze(self, source: str, name: str) -> Policy:
        """The policy `source` as it is now, frozen under `name`; where there is one of that name, it stays."""
        return self.policies[name] if name in self.policies else self.fork(source, name)

    def restart(self, name: str, source: str) -> None:
        """The policy `name` begins anew with the weights of `source`. Its version goes on: no number stands twice."""
        trainer = self.trainer(name)
        trainer.copy(self.trainer(source), version=trainer.version + 1)
        self.push(name)

    @property
    def has_done_nothing(self) -> bool:
        """Whether no step was made, and nothing saved, in this session."""
        return not (self.total_steps or self.done or self.last_saved)

    def elapsed(self) -> float:
        return self.seconds + time.monotonic() - self._started

    def resume(self, saved: Path) -> None:
        """Go back to a whole checkpoint."""
        state = checkpoint.load_state(saved)
        self.done = [Done(**each) for each in state["done"]]
        self.step, self.total_steps, self._began = state["step"], state["total_steps"], state["began"]
        self.spent = state.get("spent", 0.0)
        self.best, self.seconds = state["best"], state["seconds"]
        self.gates = {name: Gate(**gate) for name, gate in state["gates"].items()}
        self.watch = Watch.restored(state["watch"])
        self.has_worked = state["has_worked"]
        self.load_policies(saved)
        self.store.load(saved / "store")
        self.folder.logs.rewind(state["logs"])
        self._resume_from = saved

    def load_policies(self, saved: Path, *, but: Collection[str] = ()) -> None:
        """All policies as a checkpoint has them, the frozen copies included.

        Args:
            but: those that stay as they are.
        """
        state = checkpoint.load_state(saved)
        for name, source in state["forks"].items():
            self.fork(source, name)
        for name in self.policies:
            if name not in but:
                self.trainer(name).load(saved / "policies" / name, version=state["versions"][name])
                self.push(name)

    def run(self, phases: Iterable[Phase]) -> None:
        """Play the phases from where the run stands to the end, each made when its turn has come.

        Raises: Stopped after Ctrl-C (the run is saved first), RunError where a phase that is done or begun is not the
        one that comes now, and whatever a phase raises.
        """
        before, self.done = self.done, []
        self.found = {}
        with interruptible(self._ask_to_stop):
            for phase in phases:
                if phase.num_steps == 0:
                    continue
                if len(self.done) < len(before):
                    done = before[len(self.done)]
                    if phase.num_steps <= done.num_steps:
                        self._pass_over(phase, done)
                        continue
                    before, self.step, self._began = self.done, done.num_steps, done.name  # it goes on
                    self.spent = done.spent
                if self.step and self._began != phase.name:
                    raise RunError(_other_phase(self._began, phase.name))
                trainers = self._phase(phase)
                found = {**self.found, phase.name: dict(phase.end())}
                self._pass_over(phase, Done(phase.name, phase.num_steps, found, self.spent))
                self.step = 0
                self._save(trainers)
                for trainer in trainers.values():
                    trainer.drop_optimizer()
                self._halt_if_asked()
        phase_warnings.gates_shut(self.folder, self.schedule)

    def _pass_over(self, phase: Phase, done: Done) -> None:
        if phase.name != done.name:
            raise RunError(_other_phase(done.name, phase.name))
        self.done.append(done)
        self.found = done.found

    def _phase(self, phase: Phase) -> Mapping[str, Trainer]:
        resumed = self._resume_from is not None and self.step > 0
        self._began = phase.name
        if not resumed:
            # Steps are counted within a phase, and so are those that a gate waits for.
            self.gates = {key: gate for key, gate in self.gates.items() if key.partition(".")[0] in self.going_on}
            phase.begin()
            self.watch, self.spent = Watch(), 0.0
        rules = phase.updates(max(1, self.step))
        trainers = {name: self.trainer(name) for name in rules}
        for name, trainer in trainers.items():
            trainer.begin(rules[name])
        if self._resume_from is not None and resumed:
            checkpoint.load_optimizers(self._resume_from, trainers)
            if self.is_longer:
                phase_warnings.rates_moved(self.folder, self.progress, phase, trainers)
        if self._resume_from is not None:
            checkpoint.load_rng(self._resume_from)
            self._resume_from = None
        self.progress.begin(phase.name, self.step, phase.num_steps)
        if not resumed:
            self._validate(phase, 0, {})
        for step in range(self.step + 1, phase.num_steps + 1):
            if self._is_spent(phase):
                break
            try:
                self._step(phase, step, trainers)
            except TooManyFailures as error:
                first = str(error).partition("\n")[0]
                self.folder.event("error", "end_of_play", f"{phase.name} step {step}: {first}", phase=phase.name,
                                  step=step)  # fmt: skip
                if self.step < step:  # nothing of the step is done but its play
                    self._save(trainers)
                raise
            due = self.checkpoint_every and step % self.checkpoint_every == 0 and step < phase.num_steps
            if self._stop or self._given_up or due:
                self._save(trainers)
                self._halt_if_asked()
        for trainer in trainers.values():
            trainer.finish()
        if self._is_spent(phase):
            phase_warnings.budget_spent(self.folder, self.progress, phase, self.spent)
        phase_warnings.unlearnt(self.folder, phase, trainers)
        self.progress.end()
        phase_warnings.start_kept(self.folder, phase, self.best)
        return trainers

    def _step(self, phase: Phase, step: int, trainers: Mapping[str, Trainer]) -> None:
        self.stepping(f"{phase.name}/{step}")
        begun, before = time.perf_counter(), self.counts()
        batch = phase.collect(step)
        collected = time.perf_counter()
        metrics = dict(batch.metrics)
        if trainers:
            self._look_at_start(phase, step, batch)
        losses, nlls = list[float](), list[float]()
        learnings = list[Learnt | None]()
        rules = phase.updates(step)
        for name, trainer in trainers.items():
            rows = [row for row in batch.rows if row.policy == name]
            version = trainer.version
            learnt = trainer.update(rows, seed=seed_of(self.seed, phase.name, step, name), rule=rules[name])
            if learnt:
                self.push(name)
            learnings.append(learnt_of(name, learnt, rows, version))
            losses += [learnt["loss/mean"]] if learnt else []
            nlls += [learnt["loss/nll"]] if "loss/nll" in learnt else []
            is_main = len(trainers) == 1 or name == phase.main
            metrics |= learnt if is_main else {f"{name}.{key}": value for key, value in learnt.items()}
        ended = time.perf_counter()
        metrics |= {
            "time/rollout": collected - begun,
            "time/update": ended - collected,
            "time/total": ended - begun,
        }
        grown = self._grown(before)
        # Of a step that plays nothing those that it trains on.
        if num_tokens := grown.pop("tokens", 0.0) or sum(len(row.tokens) for row in batch.rows):
            metrics["throughput/tokens_per_s"] = num_tokens / (ended - begun)
        metrics |= grown
        self.step, self.total_steps = step, self.total_steps + 1
        self.has_worked = self.has_worked or bool(trainers) or len(self.store) > 0
        if phase.budget is not None:
            self.spent += metrics.get(phase.budget.metric) or 0.0
        self.folder.traces(phase.name, batch.traces)
        metrics |= self._validate(phase, step, metrics)
        self._advance(phase, step, metrics)
        self.folder.metrics(phase.name, step, metrics)
        self.progress.step(step, {name: metrics.get(name) for name in phase.headline})
        for learning in filter(None, learnings):
            self.watch, findings = after_update(self.watch, learning, self.watching)
            self._say(phase, step, findings)
        if trainers and self.watching.steps:
            failed = {kind: int(grown.get(f"faults/{kind}", 0)) for kind in FAULTS}
            self._look(phase, step, batch, losses, {kind: count for kind, count in failed.items() if count})
            if batch.signs is None and nlls:
                self.watch, found = after_nll(self.watch, fmean(nlls), self.watching.steps)
                self._say(phase, step, [*filter(None, [found])])

    def _is_spent(self, phase: Phase) -> bool:
        return phase.budget is not None and self.spent >= phase.budget.most

    def _grown(self, before: Mapping[str, float]) -> dict[str, float]:
        """What plays have come to since then: the tokens, and where episodes were begun, what became of them."""
        grown = {name: value - before.get(name, 0.0) for name, value in self.counts().items()}
        return grown if grown.get("episodes/started") else {"tokens": grown.get("tokens", 0.0)}

    def _advance(self, phase: Phase, step: int, metrics: Mapping[str, float | None]) -> None:
        """Move the gates of schedules that wait for a metric, and say which have opened."""
        before, self.gates = self.gates, advanced(self.schedule, self.gates, metrics)
        for key, gate in self.gates.items():
            schedule = self.schedule[key]
            if isinstance(schedule, Gated) and gate.position != before.get(key, SHUT).position:
                text = f"{phase.name} step {step}: {key} = {schedule.values[gate.position]} from the next step on"
                self.folder.event("info", "gate", text, phase=phase.name, step=step)
                self.progress.tell("info", text)
        if step == 1:
            phase_warnings.gates_misspelt(self.folder, self.progress, self.schedule, metrics)

    def _look_at_start(self, phase: Phase, step: int, batch: Batch) -> None:
        """Say what a phase starts from, by its first replies and before it learns from them."""
        if batch.signs and not self.watch.begun and self.watching.steps:
            self._say(phase, step, at_start(batch.signs, batch.metrics.get("group/no_signal")))

    def _look(
        self, phase: Phase, step: int, batch: Batch, losses: Sequence[float], failed: Mapping[str, int]
    ) -> None:  # fmt: skip
        """Say so where nothing is learnt.

        Args:
            failed: episodes of the step that failed, by kind.
        """
        if batch.signs is not None:
            signs = [replace(each, failed=failed) for each in batch.signs]
            self.watch, found = after_replies(self.watch, signs, self.watching.steps)
            no_signal = batch.metrics.get("group/no_signal")
            self.watch, findings = flat_groups(self.watch, signs, no_signal, self.watching)
            self._say(phase, step, [*filter(None, [found]), *findings])
        elif losses:
            self.watch, found = after_loss(self.watch, fmean(losses), self.watching.steps)
            self._say(phase, step, [*filter(None, [found])])

    def _say(self, phase: Phase, step: int, findings: Sequence[Finding]) -> None:
        """To the events and the console; the run ends after this step where a finding or the settings ask for it."""
        for found in findings:
            text = f"{phase.name} step {step}: {found.text}"
            self.folder.event(found.level, found.event, text, phase=phase.name, step=step)
            if found.level == "error":
                self._given_up = f"stopped at {text}"
            elif found.level == "warning" and self.watching.then == "stop" and found.event in NOTHING_LEARNT:
                asked = "as watch.then = stop asks for"
                self._given_up = self._given_up or f"stopped at {phase.name} step {step}, {asked}: {found.text}"
            else:
                self.progress.tell(found.level, text)

    def _validate(self, phase: Phase, step: int, metrics: Mapping[str, float | None]) -> dict[str, float | None]:
        is_last = step == phase.num_steps or self._is_spent(phase)
        due = phase.validate_every and (step % phase.validate_every == 0 or is_last)
        if phase.validate is None or not due:
            return {}
        self.stepping(f"{phase.name}/{step}/validation")
        begun, before = time.perf_counter(), self.counts()
        batch = phase.validate(step)
        found = {f"validation/{name}": value for name, value in batch.metrics.items()}
        grown = self._grown(before)
        found |= {f"validation/{name}": grown[name] for name in grown if name.startswith(("episodes/", "faults/"))}
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
        if select.into not in self.best or select.prefers(value, self.best[select.into]):
            self.best[select.into] = value
            self.fork(select.policy, select.into)
            if value > -math.inf:
                shown = f"{select.metric} = {value:.4f}"
                self.folder.event("info", "best", f"{phase.name} step {step}: {shown} is the best so far",
                                  phase=phase.name, step=step, policy=select.into)  # fmt: skip

    def _save(self, trainers: Mapping[str, Trainer]) -> None:
        state = {
            "origin": self.origin,
            "done": [asdict(done) for done in self.done],
            "began": self._began,
            "step": self.step,
            "total_steps": self.total_steps,
            "spent": self.spent,
            "best": self.best,
            "seconds": self.elapsed(),
            "forks": self.forks,
            "versions": {name: policy.version for name, policy in self.policies.items()},
            "gates": {name: asdict(gate) for name, gate in self.gates.items()},
            "logs": self.folder.logs.marks(),
            "watch": asdict(self.watch),
            "has_worked": self.has_worked,
        }
        # A phase's end is a state of its own, one past its last step.
        number = self.total_steps + len(self.done)
        self.last_saved = checkpoint.save_checkpoint(
            self.folder.path, number, {name: self.trainer(name) for name in self.policies}, trainers, state, self.store
        )

    def _ask_to_stop(self) -> None:
        if self._stop:
            raise KeyboardInterrupt
        self._stop = True
        logger.warning("stopping after this step; press Ctrl-C again to stop at once (work since the last "
                       "checkpoint is lost then)")  # fmt: skip

    def _halt_if_asked(self) -> None:
        if self._stop:
            assert self.last_saved is not None, "it was saved before"
            raise Stopped(self.last_saved)
        if self._given_up:
            run = self.folder.path
            raise RunError(f"{self._given_up}. Saved: `whet report {run}` shows it, `whet resume {run}` goes on, until "
                           "another such finding")  # fmt: skip


def _other_phase(was: str, now: str) -> str:
    return (
        f"the checkpoint is of phase {was!r} where this whet comes to {now!r}: its phases are no function of the "
        "settings and of what earlier phases found; go on with the code that made it"
    )
