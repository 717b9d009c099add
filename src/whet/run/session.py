"""One run from settings to summary: loads, checks, trains, measures, saves. `whet train` and `whet resume` call it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from whet.callbacks import Begun, Callbacks, Ended, read_only, reason_of
from whet.chat import render
from whet.cluster.ranks import ranks_of
from whet.cluster.servers import RayServers, check_servers
from whet.cluster.workers import RayWorkers
from whet.config import ConfigError, read_all
from whet.config.base import plain
from whet.config.effects import acts
from whet.config.parts import CallbacksConfig, products_of_updates
from whet.config.runs import RunConfig
from whet.config.schedule import values_of
from whet.engines.agreement import agreement_of
from whet.engines.building import check_engine_settings
from whet.engines.products import lack_of
from whet.errors import RunError
from whet.grading import Grader, UserGrader
from whet.methods.base import Algorithm, RunContext
from whet.methods.registry import preset_of
from whet.models.policy import Policy, load_policies
from whet.models.prompts import Lengths, check_prompts
from whet.rewards import REWARDS
from whet.rollout.environments import Environments
from whet.rollout.free import Arrivals
from whet.run.data import load_grader, load_training
from whet.run.selfchecks import policy_warnings
from whet.run.worker import build, make_runtime
from whet.run_folder.folder import RunFolder
from whet.seeds import seed_of
from whet.tasks.files import DataError, parse_json, read_text
from whet.tasks.prompts import find_prompts, prompts_problem
from whet.tasks.splits import Problems
from whet.tracking.beside import Beside
from whet.trainer.checkpoint import newest_first
from whet.trainer.loop import Loop, Progress
from whet.trainer.losses import corrected
from whet.trainer.process import set_determinism
from whet.trainer.products import check_products
from whet.trainer.selfchecks import PROBE_BUDGET, difference_of
from whet.trainer.sharded import RanksLost
from whet.types import Request, Sampling, tail_row

logger = logging.getLogger(__name__)

UNEQUAL = "unequal_start"
"""The event where members of a group began with different prompts."""


@dataclass
class Session:
    """A run that is ready to train."""

    algorithm: Algorithm[Any]
    loop: Loop
    grader: Grader
    problems: Problems
    sampled: tuple[str, ...]
    """The policies that were loaded. All of them are sampled."""
    lengths: Mapping[str, Lengths]
    """By policy, the most tokens of a prompt and of what models write after it."""
    envs: Environments | None = None
    is_new: bool = False
    """Whether it starts a run, and does not resume one."""
    beside: Beside | None = None
    """The trackers that follow the run, while it goes on."""

    def go(self) -> dict[str, Any]:
        """Trains and measures to the end, then closes the session.

        Returns: the summary, as in `summary.json`.
        Raises: loop.Stopped, RunError, ValueError. The run can be resumed after each.
        """
        folder = self.loop.folder
        try:
            self._begin()
            self.loop.run(self.algorithm.phases())
            rows = self.algorithm.evaluator.summary()
            closing = self.algorithm.evaluator.closing(rows)
            summary = {
                "rows": rows,
                **({"closing": closing} if closing else {}),
                "seed": self.loop.seed,
                "seconds": round(self.loop.elapsed(), 1),
                "grader_timeouts": getattr(self.grader, "num_timeouts", 0),
            }
            self._link_best()
            folder.write("summary.json", json.dumps(summary, indent=1) + "\n")
            folder.event("info", "finished", f"finished after {summary['seconds']:.0f} s")
            self._end(summary)
            return summary
        except BaseException as error:
            self._end(None, reason_of(error))
            if self.is_new and self.loop.has_done_nothing and not isinstance(error, RanksLost):
                folder.discard()
            raise
        finally:
            self.close()

    def _begin(self) -> None:
        """Starts the trackers beside the run, and calls the user's callbacks."""
        loop, config = self.loop, self.algorithm.config
        self.beside = Beside(loop.folder.path, config.track, partial(_warn, loop, "tracker_failed"))
        self.beside.start()
        loop.after_step = self.beside.look
        begun = Begun(
            run=loop.folder.path,
            config=read_only(plain(config)),
            is_resumed=not self.is_new,
            total_steps=loop.total_steps,
        )
        loop.call_back("begin", lambda: begun)

    def _end(self, summary: Mapping[str, Any] | None, reason: str = "") -> None:
        """Calls the user's callbacks, and lets the trackers go on alone.

        Args:
            summary: None: the run has not finished, for the reason.
        """
        record = Ended(summary=None if summary is None else read_only(summary), reason=reason)
        self.loop.call_back("end", lambda: record)
        self.loop.callbacks.close()
        if self.beside is not None:
            self.beside.close()

    def _link_best(self) -> None:
        """Links `best` to the best policy's folder in the newest checkpoint, which is the last.

        There is none where nothing is trained, or where endpoints and rules have all roles.
        """
        if self.algorithm.spec.report.makes or not self.loop.policies:
            return
        best = self.algorithm.spec.best_of(self.loop.policies)
        folder = newest_first(self.loop.folder.path)[0] / "policies" / best
        if problem := self.loop.folder.link_best(folder):
            self.loop.folder.event("info", "no_link", problem)
            self.loop.progress.tell("info", problem)

    def close(self) -> None:
        """Closes grader and environments, and releases the folder."""
        self.close_services()
        self.loop.folder.release()

    def close_services(self) -> None:
        """Closes grader, environments, ranks, workers and servers, with their processes."""
        self.grader.close()
        runtime = self.algorithm.run.runtime
        for processes in (self.loop.ranks, runtime.pool, runtime.servers):
            if processes is not None:
                processes.close()
        if self.envs is not None:
            self.envs.close()


def _callbacks_of(config: CallbacksConfig, loop: Loop) -> Callbacks:
    """Raises: UnknownName where one is not registered."""
    stop = loop.stop_after_step if config.use and config.on_error == "stop" else None
    callbacks = Callbacks(config.use, partial(_warn, loop, "callback_failed"), stop)
    callbacks.check()
    return callbacks


def _warn(loop: Loop, event: str, text: str) -> None:
    """Writes a warning to the events and the console."""
    loop.folder.event("warning", event, text)
    loop.progress.tell("warning", text)


def prepare(
    config: RunConfig,
    progress: Progress,
    folder: RunFolder,
    measured: Problems | None = None,
    policies: dict[str, Policy] | None = None,
) -> Session:
    """Loads everything that the settings name, and makes the algorithm. Writes nothing.

    Args:
        measured: problems to measure, in a session that does not train. None: the settings' problems, to train with.
        policies: the models of the settings, loaded already. None: they are loaded.
    Raises: ConfigError, DataError, UnknownName: bad input, before any work is done.
    """
    algorithm_class = preset_of(config.method).algorithm
    spec = algorithm_class.spec
    # A look-up in `__dict__` counts as no read, so that prompts set in vain are reported.
    prompts_name = config.prompts if spec.uses_prompts else config.__dict__["prompts"]
    if problem := prompts_problem(prompts_name, config.data):
        raise ConfigError(problem)
    if config.cluster.servers:
        check_servers(config.cluster, config.engine)
    else:
        check_engine_settings(config.engine)
    for term in _added_terms(config):
        REWARDS.entry(term)  # an unknown name is refused now, and not at the first step that scores it
    set_determinism(config.num_threads)
    torch.manual_seed(config.seed)
    prompts = find_prompts(prompts_name)
    trains = measured is None
    problems = measured or load_training(config.data, config.seed)
    grader = load_grader(config.data)
    if isinstance(grader, UserGrader):
        grader.check(task for split in problems.tasks.values() for task in split)
    models = spec.models(config)
    if trains and config.cluster.ranks and (config.cluster.workers or config.cluster.servers):
        # This process neither trains nor samples: its copies leave the GPUs to those that do.
        models = {name: model.model_copy(update={"device": "cpu"}) for name, model in models.items()}
    policies = load_policies(models) if policies is None else policies
    names = tuple(policies)
    if trains and config.cluster.ranks and not policies:
        raise ConfigError(
            f"cluster.ranks = {config.cluster.ranks}, but endpoints and rules have all roles, so that no weights are "
            "trained: leave cluster.ranks out"
        )
    for policy in policies.values():
        if lack := lack_of(policy, config.engine.products):
            raise ConfigError(f"engine.products = {config.engine.products} {lack}: set engine.products=float32")
        if trains:
            check_products(policy, products_of_updates(vars(config)), num_ranks=config.cluster.ranks)
    if not config.cluster.ranks:
        _warn_of_bfloat16(policies, progress)
    warnings = [warning for policy in policies.values() for warning in policy_warnings(policy)]
    loop = Loop(policies, folder, config.seed, config.checkpoint_every, progress, config.watch, config.schedule)
    if trains:
        loop.ranks = ranks_of(config.cluster, config.num_threads)
        loop.callbacks = _callbacks_of(config.callbacks, loop)
    folder.max_trace_bytes = config.max_trace_bytes
    runtime = make_runtime(config, spec, policies, grader)
    loop.counts = runtime.counts
    if acts(config, "engine.correct") and config.engine.correct:
        loop.adapted = partial(corrected, engine_products=config.engine.products)
    loop.engine_of, runtime.engine_made = runtime.made_engine, loop.check_engine
    if config.engine.rollout == "free" and config.engine.latency is None:
        runtime.arrivals = arrivals_of(config.engine.arrivals, folder)
        loop.before_step = runtime.arrivals.at
    runtime.watchdog.stacks = folder.path / "stalls.txt"
    runtime.watchdog.say = partial(_report_stall, loop)
    runtime.say_unequal = partial(_report_unequal, loop)
    run_context = RunContext(loop, problems.tasks, grader.grade, prompts, runtime, trains=trains)
    algorithm = algorithm_class(config, run_context)
    runtime.unit = config.cluster.rollouts_a_unit
    if trains and config.cluster.workers:
        workers = _workers_of(config, run_context, algorithm)
        runtime.pool, loop.measures = workers, workers.metrics
    if config.cluster.servers:
        servers = RayServers(config.cluster, config.engine, partial(_tell_of_servers, loop, trains))
        runtime.servers = servers
        if trains:
            loop.measures = servers.metrics
    conversations = [conversation for conversation in spec.conversations(algorithm) if conversation.policy in policies]
    lengths = check_prompts(conversations, policies)
    run_context.warnings.extend(dict.fromkeys(warnings))
    read_all(config)
    return Session(algorithm, loop, grader, problems, names, lengths, runtime.envs)


def _tell_of_servers(loop: Loop, is_logged: bool, level: str, text: str) -> None:
    """Writes what happens to servers to the console and, of a run, to its events."""
    if is_logged:
        loop.folder.event(level, "servers", text)
    loop.progress.tell(level, text)


def _workers_of(config: RunConfig, run: RunContext, algorithm: Algorithm[Any]) -> RayWorkers:
    loop, runtime = run.loop, run.runtime
    stays = {"algorithm": algorithm, "context": run, "loop": loop, "runtime": runtime}
    return RayWorkers(
        config.cluster,
        runtime,
        build,
        plain(config),
        lambda name: loop.forks.get(name, name),
        {f"the run's {name}": part for name, part in stays.items()},
        partial(_warn, loop, "worker_died"),
    )


def arrivals_of(file: str | None, folder: RunFolder) -> Arrivals:
    """The log of this run's arrivals.

    Args:
        file: another run's `arrivals.jsonl`, whose order this run repeats. None: answers come as they come.
    Raises: DataError where the file cannot be read.
    """
    replayed = {}
    if file is not None:
        lines = read_text(Path(file), "engine.arrivals").splitlines()
        rows = [parse_json(line, f"{file}, line {number}") for number, line in enumerate(lines, 1)]
        try:
            replayed = Arrivals.read(rows)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"{file} is no log of arrivals: give the arrivals.jsonl of a run's folder") from error
    return Arrivals(replayed, partial(folder.logs.append, "arrivals.jsonl"))


def _report_stall(loop: Loop, text: str) -> None:
    """Called by the watchdog's thread while the loop waits."""
    loop.folder.event("warning", "stall", text)
    logger.warning("%s", text)


def _report_unequal(loop: Loop, text: str) -> None:
    """Warns once a phase. Raises: RunError where `watch.same_start` is stop."""
    if loop.watching.same_start == "stop":
        raise RunError(f"{text}; or set watch.same_start=warn")
    if UNEQUAL not in loop.watch.said:
        loop.watch = replace(loop.watch, said=tuple(sorted({*loop.watch.said, UNEQUAL})))
        loop.folder.event("warning", UNEQUAL, text)
        loop.progress.tell("warning", text)


def _warn_of_bfloat16(policies: Mapping[str, Policy], progress: Progress) -> None:
    for name, policy in policies.items():
        if policy.device.type == "cpu" and policy.dtype == torch.bfloat16:
            text = "is in bfloat16 on a CPU, where that is slower than float32 and less exact"
            progress.tell("warning", f"{policy.title} {text}: {name}.dtype=float32")


def _added_terms(config: RunConfig) -> set[str]:
    """Reward terms that settings name at any step. Counts as no read, as a method may not score them."""
    settings = config.__dict__
    scheduled = settings["schedule"].get("rewards")
    return {name for weights in (settings["rewards"], *(values_of(scheduled) if scheduled else ())) for name in weights}


def check_agreement(policy: Policy, session: Session) -> float:
    """Samples a probe batch with the run's engine and scores it with the trainer.

    Returns: the difference of a token's two logprobs, in nats: the largest or the mean, by `agreement_of`.
    Raises: RunError where it is past that, as the run would train on wrong probabilities.
    """
    prompts = session.algorithm.run.prompts
    sampling = Sampling(temperature=1.0, max_new_tokens=24)
    contexts = [
        render(policy.tokenizer, prompts.solve_messages(task.prompt), prompts.solve_prefill)
        for task in session.algorithm.run.tasks["train"][:8]
    ]
    requests = [
        Request(context=context, sampling=sampling, seed=seed_of(session.loop.seed, "probe", i, j))
        for i, context in enumerate(contexts)
        for j in range(2)
    ]
    completions = session.algorithm.run.runtime.engine(policy.name).generate(requests)
    rows = [
        tail_row(policy.name, request.context, completion.tokens, 0.0)
        for request, completion in zip(requests, completions, strict=True)
    ]
    sampled = [torch.tensor(completion.logprobs) for completion in completions]
    scored = session.loop.trainer(policy.name).score(rows, token_budget=PROBE_BUDGET)
    products = session.algorithm.run.runtime.settings.products
    which, allowed = agreement_of(policy.dtype, products)
    difference = difference_of(policy, sampled, scored, which)
    if not difference <= allowed:  # NaN is refused too
        raise RunError(
            f"the engine's logprobs of policy {policy.name!r} differ from the trainer's by {difference:.2g} (the "
            f"{which} difference, allowed {allowed:.0e}): the model computes differently with a key/value cache, so "
            "training on its samples would be silently off-policy; try another dtype or transformers version"
        )
    return difference
