"""The loop: phases in turn. Each step collects rows and updates policies; now and then it validates and saves.

A method makes each phase (data and callables) when its turn has come. The loop knows no method, no reward, and no
number of policies. The rest of a run depends only on its checkpoint and on (seed, phase, step). So a run that was
killed resumes to the same bits.
"""

from __future__ import annotations

import logging
import math
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from whet.callbacks import Callbacks, Saved, StepMade, Validated, read_only
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
from whet.trainer.process import gpu_memory, interruptible
from whet.trainer.protocol import Trainer
from whet.trainer.selfchecks import Learnt, after_update, at_start, check_weights, flat_groups, learnt_of
from whet.trainer.sharded import Ranks
from whet.trainer.terms import Update
from whet.trainer.watch import Finding, Watch, after_loss, after_nll, after_replies
from whet.types import FAULTS, Row

__all__ = ["Batch", "Done", "Loop", "Phase", "Progress", "Selection", "Stopped"]

logger = logging.getLogger(__name__)

NOTHING_LEARNT = ("dead_batch", "no_credit", "flat_groups", "loss_rises", "loss_stuck", "loss_gone", "weights_still")
"""Events for which `watch.then = stop` ends a run."""


@dataclass(frozen=True)
class Done:
    """A phase that has ended, as checkpoints record it."""

    name: str
    num_steps: int
    found: Mapping[str, Any]
    """Results of all phases up to this one, by name: `Loop.found` as it was then."""
    spent: float = 0.0
    """The sum of the budget's metric. See `Loop.spent`."""


@dataclass
class Loop:
    """A run in progress: its policies, its folder, its store, and the phase and step that it has reached."""

    policies: dict[str, Policy]
    folder: RunFolder
    seed: int
    checkpoint_every: int
    """Steps between checkpoints. 0: at the end of each phase only."""
    progress: Progress
    watching: WatchConfig = field(default_factory=WatchConfig)
    schedule: Mapping[str, Schedule] = field(default_factory=dict)
    """Schedules by the setting that they change."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """The run's provenance (settings, inputs), for its checkpoints. A resume compares it."""
    store: Store = field(default_factory=Store)
    found: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Results of the phases that have ended, by name. The next phases may depend on them, and on nothing else that
    changes in a run."""
    gates: Mapping[str, Gate] = field(default_factory=dict)
    """Positions of the schedules that wait for a metric."""
    continuing_gates: Collection[str] = ()
    """Settings whose steps the method counts from phase to phase. The other gates start again with each phase."""
    done: list[Done] = field(default_factory=list)
    step: int = 0
    """Steps made of the present phase, which follows those in `done`."""
    total_steps: int = 0
    """Steps of all phases."""
    spent: float = 0.0
    """The sum of the budget's metric in the present phase, where it has a budget."""
    best: dict[str, float] = field(default_factory=dict)
    """The best value so far, by the policy that holds the best weights (see `Selection`)."""
    seconds: float = 0.0
    """Duration of earlier sessions of this run."""
    forks: dict[str, str] = field(default_factory=dict)
    """Policies that the run made, and the policy that each was forked from."""
    watch: Watch = field(default_factory=Watch)
    """Counts of the present phase, by which the loop warns where nothing is learnt."""
    before_step: Callable[[str], None] = lambda place: None
    """Runs before each step and each validation, with its place: `train/12`, `train/12/validation`."""
    counts: Callable[[], Mapping[str, float]] = dict
    """Counts of all rollouts so far. The loop logs their growth in a step; `tokens` give the throughput."""
    measures: Callable[[], Mapping[str, float]] = dict
    """Metrics of the workers since the last step."""
    engine_of: Callable[[str], Engine | None] = lambda name: None
    """The engine that samples from a policy in this run. None: the run has made none yet."""
    callbacks: Callbacks = field(default_factory=Callbacks)
    """The user's callbacks, which read what the loop does."""
    after_step: Callable[[], None] = lambda: None
    """Runs after each step, once it is logged."""
    adapted: Callable[[Update], Update] = lambda update: update
    """What each policy's update becomes in this run, by how its engine differs from its trainer."""
    ranks: Ranks | None = None
    """The processes that train the policies. None: this one does."""
    is_longer: bool = False
    """Whether this session makes a phase longer than it was when its checkpoint was made."""
    has_worked: bool = False
    """Whether a step of this run trained a policy or filled the store. False: so far the run only measured."""
    last_saved: Path | None = None
    """The checkpoint that this session wrote last."""
    _trainers: dict[str, Trainer] = field(default_factory=dict)
    _resume_from: Path | None = None
    _phase_name: str = ""
    """The phase that the last checkpoint was made in, or the present one."""
    _started: float = field(default_factory=time.monotonic)
    _stop_asked: bool = False
    """Whether the user asked the run to stop."""
    _stop_reason: str = ""
    """Why the run has to end after this step, such as that it learns nothing. Empty: it goes on."""

    # --- policies and their weights -----------------------------------------------------------------------------------

    def trainer(self, name: str) -> Trainer:
        """The trainer of a policy, a frozen one too. A run changes weights through it alone, and then calls `push`."""
        trainer = self._trainers.get(name)
        if trainer is None or trainer.policy is not self.policies[name]:
            trainer = self._trainers[name] = trainer_of(self.policies[name], self.ranks)
        return trainer

    def push(self, name: str) -> None:
        """Send a policy's changed weights to its engine, and check that the engine holds them.

        Raises: RunError where it does not.
        """
        if (engine := self.engine_of(name)) is not None:
            self.trainer(name).push(engine)
            self.check_engine(name, engine)

    def check_engine(self, name: str, engine: Engine) -> None:
        """Check that an engine holds the policy's weights. Raises: RunError where it does not."""
        check_weights(self.trainer(name), engine)

    def fork(self, source: str, name: str) -> Policy:
        """The frozen policy `name`, with the present weights of `source`. It is made where there is none yet."""
        if name in self.policies:
            self.trainer(name).copy(self.trainer(source))
            self.push(name)
        else:
            self._trainers[name] = self.trainer(source).fork(name)
            self.policies[name] = self._trainers[name].policy
            self.forks[name] = source
        return self.policies[name]

    def freeze(self, source: str, name: str) -> Policy:
        """A frozen copy of the policy `source` under `name`. Where there is one of that name, it stays as it is."""
        return self.policies[name] if name in self.policies else self.fork(source, name)

    def restart(self, name: str, source: str) -> None:
        """Give the policy `name` the weights of `source`. Its version grows: no number names two sets of weights."""
        trainer = self.trainer(name)
        trainer.copy(self.trainer(source), version=trainer.version + 1)
        self.push(name)

    # --- resuming -----------------------------------------------------------------------------------------------------

    @property
    def has_done_nothing(self) -> bool:
        """Whether this session made no step and saved nothing."""
        return not (self.total_steps or self.done or self.last_saved)

    def elapsed(self) -> float:
        """Seconds of all sessions of this run."""
        return self.seconds + time.monotonic() - self._started

    def resume(self, saved: Path) -> None:
        """Go back to a whole checkpoint.

        Raises: RunError where it has another format.
        """
        state = checkpoint.load_state(saved)
        self.done = [Done(**record) for record in state["done"]]
        self.step, self.total_steps, self._phase_name = state["step"], state["total_steps"], state["began"]
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
        """Give all policies their weights from a checkpoint, the frozen copies included.

        Args:
            but: policies that stay as they are.
        """
        state = checkpoint.load_state(saved)
        for name, source in state["forks"].items():
            self.fork(source, name)
        for name in self.policies:
            if name not in but:
                self.trainer(name).load(saved / "policies" / name, version=state["versions"][name])
                self.push(name)

    # --- phases and steps ---------------------------------------------------------------------------------------------

    def run(self, phases: Iterable[Phase]) -> None:
        """Run the phases from the present step to the end. Each is made when its turn has come.

        Raises: Stopped after Ctrl-C, once the run is saved. RunError where a finished or unfinished phase of the
            checkpoint is not the one that comes now, or the watch stops the run. Whatever a phase raises.
        """
        finished, self.done = self.done, []
        self.found = {}
        with interruptible(self._ask_to_stop):
            for phase in phases:
                if phase.num_steps == 0:
                    continue
                if len(self.done) < len(finished):
                    done = finished[len(self.done)]
                    if phase.num_steps <= done.num_steps:
                        self._finish(phase, done)
                        continue
                    # The phase is longer now: it continues from its former end.
                    finished, self.step, self._phase_name = self.done, done.num_steps, done.name
                    self.spent = done.spent
                if self.step and self._phase_name != phase.name:
                    raise RunError(_other_phase(self._phase_name, phase.name))
                trainers = self._phase(phase)
                results = {**self.found, phase.name: dict(phase.end())}
                self._finish(phase, Done(phase.name, phase.num_steps, results, self.spent))
                self.step = 0
                self._save(trainers)
                for trainer in trainers.values():
                    trainer.drop_optimizer()
                self._halt_if_asked()
        phase_warnings.warn_of_shut_gates(self.folder, self.schedule)

    def _finish(self, phase: Phase, done: Done) -> None:
        """Record a phase as done, in this session or in an earlier one."""
        if phase.name != done.name:
            raise RunError(_other_phase(done.name, phase.name))
        self.done.append(done)
        self.found = done.found

    def _phase(self, phase: Phase) -> Mapping[str, Trainer]:
        """Run a phase from the present step to its last one.

        Returns: the trainers of the policies that it trains.
        """
        is_resumed = self._resume_from is not None and self._phase_name == phase.name  # it may have failed in step 1
        self._phase_name = phase.name
        trainers = self._begin(phase, is_resumed=is_resumed)
        self.progress.begin(phase.name, self.step, phase.num_steps)
        if not is_resumed:
            self._validate(phase, 0)
        for step in range(self.step + 1, phase.num_steps + 1):
            if self._is_spent(phase):
                break
            try:
                self._step(phase, step, trainers)
            except TooManyFailures as error:
                first_line = str(error).partition("\n")[0]
                text = f"{phase.name} step {step}: {first_line}"
                self.folder.event("error", "end_of_play", text, phase=phase.name, step=step)
                if self.step < step:  # the step has only rolled out
                    self._save(trainers)
                raise
            due = self.checkpoint_every and step % self.checkpoint_every == 0 and step < phase.num_steps
            if self._stop_asked or self._stop_reason or due:
                self._save(trainers)
                self._halt_if_asked()
        for trainer in trainers.values():
            trainer.finish()
        if self._is_spent(phase):
            phase_warnings.log_budget(self.folder, self.progress, phase, self.spent)
        phase_warnings.warn_of_no_update(self.folder, phase, trainers)
        self.progress.end()
        phase_warnings.log_unimproved(self.folder, phase, self.best)
        return trainers

    def _begin(self, phase: Phase, *, is_resumed: bool) -> Mapping[str, Trainer]:
        """Prepare a phase and its trainers, from the checkpoint where it is resumed."""
        if not is_resumed:
            # Steps are counted within a phase, and so are those that a gate waits for.
            self.gates = {
                key: gate for key, gate in self.gates.items() if key.partition(".")[0] in self.continuing_gates
            }
            phase.begin()
            self.watch, self.spent = Watch(), 0.0
        for name in self.policies:  # from the phase's first step on, one side scores what is frozen, too
            self.trainer(name)
        rules = self._rules(phase, max(1, self.step))
        trainers = {name: self.trainer(name) for name in rules}
        for name, trainer in trainers.items():
            trainer.begin(rules[name])
        if self._resume_from is not None and is_resumed:
            checkpoint.load_optimizers(self._resume_from, trainers)
            if self.is_longer:
                phase_warnings.log_longer(self.folder, self.progress, phase, trainers)
        if self._resume_from is not None:
            checkpoint.load_rng(self._resume_from)
            self._resume_from = None
        return trainers

    def _step(self, phase: Phase, step: int, trainers: Mapping[str, Trainer]) -> None:
        """Collect a batch, update the policies with it, validate, and log the step."""
        self.before_step(f"{phase.name}/{step}")
        started, counts_before = time.perf_counter(), self.counts()
        batch = phase.collect(step)
        collected = time.perf_counter()
        metrics = dict(batch.metrics)
        if trainers:
            self._check_start(phase, step, batch)
        by_policy, learnings = self._update(phase, step, batch.rows, trainers)
        for name, update_metrics in by_policy.items():
            prefix = phase.prefix(name, trainers)
            metrics |= {f"{prefix}{key}": value for key, value in update_metrics.items()}
        ended = time.perf_counter()
        metrics |= {
            "time/rollout": collected - started,
            "time/update": ended - collected,
            "time/total": ended - started,
        }
        growth = self._growth_since(counts_before)
        # A step without rollouts counts the tokens that it trains on.
        if num_tokens := growth.pop("tokens", 0.0) or sum(len(row.tokens) for row in batch.rows):
            metrics["throughput/tokens_per_s"] = num_tokens / (ended - started)
        metrics |= {**growth, **gpu_memory(), **self.measures()}
        self.step, self.total_steps = step, self.total_steps + 1
        self.has_worked = self.has_worked or bool(trainers) or len(self.store) > 0
        if phase.budget is not None:
            self.spent += metrics.get(phase.budget.metric) or 0.0
        self.folder.traces(phase.name, batch.traces)
        metrics |= self._validate(phase, step)
        self._advance(phase, step, metrics)
        self.folder.metrics(phase.name, step, metrics)
        self.progress.step(step, {name: metrics.get(name) for name in phase.headline})
        for learnt in learnings:
            self.watch, findings = after_update(self.watch, learnt, self.watching)
            self._report(phase, step, findings)
        if trainers and self.watching.steps:
            failed = {kind: int(growth.get(f"faults/{kind}", 0)) for kind in FAULTS}
            self._check_learning(
                phase, step, batch, by_policy, {kind: count for kind, count in failed.items() if count}
            )
        self.call_back("step", lambda: self._step_made(phase, metrics))
        self.after_step()

    def _step_made(self, phase: Phase, metrics: Mapping[str, float | None]) -> StepMade:
        return StepMade(
            phase=phase.name,
            step=self.step,
            num_steps=phase.num_steps,
            total_steps=self.total_steps,
            metrics=read_only(metrics),
        )

    def call_back(self, hook: str, make_record: Callable[[], Any]) -> None:
        """Call the user's callbacks. Whatever they draw at random, the run's own draws stay as they were."""
        if self.callbacks.names:
            with torch.random.fork_rng(range(torch.cuda.device_count())):
                self.callbacks.call(hook, make_record)

    def stop_after_step(self, reason: str) -> None:
        """End the run, saved, once the present step is done."""
        self._stop_reason = self._stop_reason or f"stopped as {reason}"

    def _update(
        self, phase: Phase, step: int, rows: Sequence[Row], trainers: Mapping[str, Trainer]
    ) -> tuple[dict[str, dict[str, float]], list[Learnt]]:
        """Update each policy with its rows, and push its new weights.

        Returns: by policy, the update's metrics (empty: it had no rows); and what the policies with rows learnt.
        """
        rules = self._rules(phase, step)
        for name in trainers:
            if (engine := self.engine_of(name)) is not None:
                engine.rest()
        by_policy = dict[str, dict[str, float]]()
        learnings = list[Learnt]()
        for name, trainer in trainers.items():
            policy_rows = [row for row in rows if row.policy == name]
            version = trainer.version
            metrics = trainer.update(policy_rows, seed=seed_of(self.seed, phase.name, step, name), rule=rules[name])
            if metrics:
                self.push(name)
            if (error := metrics.get("optim/products_error")) is not None:
                self._tell_products_error(phase, step, name, rules[name].learning.products, error)
            by_policy[name] = metrics
            if learnt := learnt_of(name, metrics, policy_rows, version):
                learnings.append(learnt)
        return by_policy, learnings

    def _tell_products_error(self, phase: Phase, step: int, name: str, products: str, error: float) -> None:
        text = (
            f"learning.products = {products}: the gradient of policy {name} on one batch is {error:.2%} of its norm "
            "from that of float32"
        )
        self.folder.event("info", "products_error", text, phase=phase.name, step=step)
        self.progress.tell("info", text)

    def _rules(self, phase: Phase, step: int) -> dict[str, Update]:
        """How each policy learns in a step."""
        rules = phase.updates(step)
        return {name: rule if self.policies[name].is_value else self.adapted(rule) for name, rule in rules.items()}

    def _is_spent(self, phase: Phase) -> bool:
        """Whether the phase's budget is spent."""
        return phase.budget is not None and self.spent >= phase.budget.most

    def _growth_since(self, before: Mapping[str, float]) -> dict[str, float]:
        """Growth of the rollouts' counts. Where no episode has started, of `tokens` alone."""
        growth = {name: value - before.get(name, 0.0) for name, value in self.counts().items()}
        return growth if growth.get("episodes/started") else {"tokens": growth.get("tokens", 0.0)}

    # --- gates, and whether anything is learnt ------------------------------------------------------------------------

    def _advance(self, phase: Phase, step: int, metrics: Mapping[str, float | None]) -> None:
        """Move the gates of schedules that wait for a metric, and log those that have opened."""
        before, self.gates = self.gates, advanced(self.schedule, self.gates, metrics)
        for key, gate in self.gates.items():
            schedule = self.schedule[key]
            if isinstance(schedule, Gated) and gate.position != before.get(key, SHUT).position:
                text = f"{phase.name} step {step}: {key} = {schedule.values[gate.position]} from the next step on"
                self.folder.event("info", "gate", text, phase=phase.name, step=step)
                self.progress.tell("info", text)
        if step == 1:
            phase_warnings.warn_of_misspelt_gates(self.folder, self.progress, self.schedule, metrics)

    def _check_start(self, phase: Phase, step: int, batch: Batch) -> None:
        """Report the phase's level at its start, by its first replies and before it learns from them."""
        if batch.signs and not self.watch.begun and self.watching.steps:
            self._report(phase, step, at_start(batch.signs, batch.metrics.get("group/no_signal")))

    def _check_learning(
        self,
        phase: Phase,
        step: int,
        batch: Batch,
        by_policy: Mapping[str, Mapping[str, float]],
        failed: Mapping[str, int],
    ) -> None:
        """Report where nothing is learnt.

        Args:
            by_policy: metrics of each policy's update.
            failed: episodes of the step that failed, by kind.
        """
        every = self.watching.steps
        if batch.signs is not None:
            signs = [replace(signs, failed=failed) for signs in batch.signs]
            self.watch, finding = after_replies(self.watch, signs, every)
            no_signal = batch.metrics.get("group/no_signal")
            self.watch, findings = flat_groups(self.watch, signs, no_signal, self.watching)
            self._report(phase, step, [*filter(None, [finding]), *findings])
            return
        losses = [metrics["loss/mean"] for metrics in by_policy.values() if metrics]
        nlls = [metrics["loss/nll"] for metrics in by_policy.values() if "loss/nll" in metrics]
        if losses:
            self.watch, finding = after_loss(self.watch, fmean(losses), every)
            self._report(phase, step, [*filter(None, [finding])])
        if nlls:
            self.watch, finding = after_nll(self.watch, fmean(nlls), every)
            self._report(phase, step, [*filter(None, [finding])])

    def _report(self, phase: Phase, step: int, findings: Sequence[Finding]) -> None:
        """Write findings to the events and the console. An error ends the run after this step, as does `watch.then`."""
        for finding in findings:
            text = f"{phase.name} step {step}: {finding.text}"
            self.folder.event(finding.level, finding.event, text, phase=phase.name, step=step)
            if finding.level == "error":
                self._stop_reason = f"stopped at {text}"
            elif finding.level == "warning" and self.watching.then == "stop" and finding.event in NOTHING_LEARNT:
                why = "as watch.then = stop asks for"
                self._stop_reason = self._stop_reason or f"stopped at {phase.name} step {step}, {why}: {finding.text}"
            else:
                self.progress.tell(finding.level, text)

    # --- validation ---------------------------------------------------------------------------------------------------

    def _validate(self, phase: Phase, step: int) -> dict[str, float | None]:
        """Validate where the step is due, and select the best weights.

        Args:
            step: 0: before the first step.
        Returns: metrics. Empty: the step is not due.
        """
        is_last = step == phase.num_steps or self._is_spent(phase)
        due = phase.validate_every and (step % phase.validate_every == 0 or is_last)
        if phase.validate is None or not due:
            return {}
        self.before_step(f"{phase.name}/{step}/validation")
        started, counts_before = time.perf_counter(), self.counts()
        batch = phase.validate(step)
        metrics = {f"validation/{name}": value for name, value in batch.metrics.items()}
        growth = self._growth_since(counts_before)
        metrics |= {f"validation/{name}": growth[name] for name in growth if name.startswith(("episodes/", "faults/"))}
        self.folder.traces(phase.name, batch.traces)
        if phase.select is not None:
            self._select(phase.select, phase, step, metrics)
        metrics["time/validate"] = time.perf_counter() - started
        if step == 0:
            self.folder.metrics(phase.name, 0, metrics)
        self.call_back("validation", lambda: Validated(phase=phase.name, step=step, metrics=read_only(metrics)))
        return metrics

    def _select(self, select: Selection, phase: Phase, step: int, metrics: Mapping[str, float | None]) -> None:
        """Snapshot the policy's weights if a validation's metrics are the best so far."""
        value = metrics.get(select.metric)
        if value is None:  # nothing could be measured: still snapshot the start, from which later phases go on
            self.folder.event("warning", "unmeasured", f"{phase.name} step {step}: no {select.metric} to choose by")
            value = -math.inf
        if select.into not in self.best or select.prefers(value, self.best[select.into]):
            self.best[select.into] = value
            self.fork(select.policy, select.into)
            if value > -math.inf:
                text = f"{phase.name} step {step}: {select.metric} = {value:.4f} is the best so far"
                self.folder.event("info", "best", text, phase=phase.name, step=step, policy=select.into)

    # --- saving and stopping ------------------------------------------------------------------------------------------

    def _save(self, trainers: Mapping[str, Trainer]) -> None:
        """Write a checkpoint.

        Args:
            trainers: of the policies that the phase trains.
        """
        state = {
            "origin": self.origin,
            "done": [asdict(done) for done in self.done],
            "began": self._phase_name,
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
        # The state after a phase's end differs from that after its last step, so it gets the next number.
        number = self.total_steps + len(self.done)
        self.last_saved = saved = checkpoint.save_checkpoint(
            self.folder.path, number, {name: self.trainer(name) for name in self.policies}, trainers, state, self.store
        )
        phase, step, total_steps = self._phase_name, self.step, self.total_steps
        self.call_back("checkpoint", lambda: Saved(folder=saved, phase=phase, step=step, total_steps=total_steps))

    def _ask_to_stop(self) -> None:
        if self._stop_asked:
            raise KeyboardInterrupt
        self._stop_asked = True
        logger.warning(
            "stopping after this step; press Ctrl-C again to stop at once (work since the last checkpoint is lost then)"
        )

    def _halt_if_asked(self) -> None:
        """End the run, once it is saved, where the user or a finding asked for it."""
        if self._stop_asked:
            assert self.last_saved is not None, "it was saved before"
            raise Stopped(self.last_saved)
        if self._stop_reason:
            run = shlex.quote(str(self.folder.path))
            raise RunError(
                f"{self._stop_reason}. Saved: `whet report {run}` shows it, `whet resume {run}` goes on, until another "
                "such finding"
            )


def _other_phase(was: str, now: str) -> str:
    """Why a checkpoint cannot continue: the phase that comes now is not the one it was made in."""
    return (
        f"the checkpoint is of phase {was!r} where this whet comes to {now!r}: its phases are no function of the "
        "settings and of what earlier phases found; go on with the code that made it"
    )
