"""Describes what a run will do and need, in lines: for `--dry-run`, and for the log of its start."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
import torch

from whet.config.base import Config, ConfigError
from whet.config.schedule import Constant, Gated, Linear, Schedule, Steps
from whet.models.policy import Policy
from whet.models.prompts import Lengths
from whet.models.scoring import LOGITS, head_chunk
from whet.run.selfchecks import narrow_sampling
from whet.run.session import Session
from whet.trainer.checkpoint import KEEP
from whet.trainer.losses import corrected
from whet.trainer.phase import Phase
from whet.trainer.terms import Update

GIB = 2**30
HIGH_RATE, MANY_WEIGHTS = 1e-4, 20_000_000
"""A learning rate and a number of weights that together break a pretrained model, unless only an adapter learns.
SmolLM2-135M writes nonsense after a few steps at 5e-5. The default rates of methods are those of the tiny model."""
NUM_CHECKPOINTS = KEEP + 1
"""While one is written, those that stay lie beside it."""
ADAM = 8
"""Bytes per weight of the optimiser's two moments, in float32."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What a run needs on one device, in sentences."""

    text: str
    problem: str
    """What to do where it may not fit. Empty: it fits."""


def plan(session: Session) -> list[str]:
    """The lines of a plan. Asks each endpoint for its models.

    Raises: what the phases raise when they are made, which would stop the run later; ConfigError where updates make
        nothing of `engine.correct`.
    """
    policies, algorithm = session.loop.policies, session.algorithm
    run, spec = algorithm.run, algorithm.spec
    tasks = ", ".join(f"{len(split_tasks)} {split}" for split, split_tasks in session.problems.tasks.items())
    lines = [f"data: {session.problems.sentence} ({tasks})", *run.info, *run.warnings]
    lines += [_policy_line(policy, session.lengths.get(name)) for name, policy in policies.items()]
    lines += [engine.look() for engine in run.runtime.endpoints.values()]
    lines += spec.plan(algorithm)
    phases = _known_phases(session)
    if spec.is_lazy:
        later = phases[1:]
        limit = f", at most {_steps(later)}" if later else ""
        lines.append(f"steps of the phases: {_steps(phases[:1])}, then what it finds decides{limit}")
    else:
        lines.append(f"steps of the phases: {_steps(phases)}")
    # What lazy methods explore counts too, and updates nothing.
    counted = [phase for phase in phases if spec.is_lazy or phase.updates(1)]
    lines += _schedule_lines(algorithm.config.__dict__["schedule"], sum(phase.num_steps for phase in counted))
    updates = [(phase, name, update) for phase in phases for name, update in phase.updates(1).items()]
    check_correction(session)
    lines += [_update_line(phase, name, update) for phase, name, update in updates]
    lines += _rate_warnings(policies, updates)
    lines += sampling_warnings(session)
    by_phase = [[(name, update) for of, name, update in updates if of is phase] for phase in phases]
    lines += [text for memory in _memory(session, by_phase) for text in (memory.text, memory.problem) if text]
    return [*lines, *_checkpoint_lines(policies, by_phase), *_cluster_lines(session, by_phase)]


def memory_of(session: Session) -> list[Memory]:
    """The estimate of the memory that a run needs on each device."""
    return _memory(session, _updates_by_phase(session))


def _updates_by_phase(session: Session) -> list[list[tuple[str, Update]]]:
    """For each phase with steps, the policies that learn in it, and how."""
    return [list(phase.updates(1).items()) for phase in _known_phases(session)]


def sampling_warnings(session: Session) -> list[str]:
    """Warnings about roles that a policy gradient learns from and that do not sample from all tokens."""
    algorithm = session.algorithm
    updates = [item for phase in _known_phases(session) for item in phase.updates(1).items()]
    learners = {name: None for name, update in updates if any(term.needs_old for term in update.terms)}
    endpoints = {name: engine.config for name, engine in algorithm.run.runtime.endpoints.items()}
    return list(narrow_sampling(algorithm.config, learners, algorithm.spec.skills, endpoints))


def check_correction(session: Session) -> None:
    """Raises: ConfigError where `engine.correct` is off, and would correct no update of the run."""
    engine, policies = vars(session.algorithm.config.engine), session.loop.policies  # a look-up that counts as no read
    updates = [
        update
        for phase in _updates_by_phase(session)
        for name, update in phase
        if name in policies and not policies[name].is_value
    ]
    if not engine["correct"] and all(corrected(update, engine["products"]) is update for update in updates):
        raise ConfigError(
            "engine.correct has no effect: no update of this run compares with the weights that sampled in other "
            "products. Leave engine.correct out."
        )


def _known_phases(session: Session) -> list[Phase]:
    """The phases that have steps. Of a lazy method: the first one, and those that may follow it."""
    algorithm = session.algorithm
    phases = (phase for phase in algorithm.phases() if phase.num_steps)
    if algorithm.spec.is_lazy:
        return [next(phases), *(phase for phase in algorithm.spec.later(algorithm) if phase.num_steps)]
    return list(phases)


def _steps(phases: Sequence[Phase]) -> str:
    return ", ".join(f"{phase.name} {phase.num_steps:,}" for phase in phases)


def _schedule_lines(schedules: Mapping[str, Schedule], max_steps: int) -> list[str]:
    """How scheduled values change, and which changes the run is too short for.

    Args:
        max_steps: the most steps that the run can make, without those that only measure.
    """
    lines = []
    for key, schedule in schedules.items():
        match schedule:
            case Steps():
                changes = zip(schedule.changes, schedule.values[1:], strict=True)
                text = ", ".join([str(schedule.values[0]), *(f"{value} from step {step}" for step, value in changes)])
                first, last = min(schedule.changes, default=0), max(schedule.changes, default=0)
            case Linear():
                text = f"from {schedule.start} to {schedule.end} over {schedule.over} steps after step {schedule.after}"
                first, last = schedule.after + 1, schedule.after + schedule.over
            case Gated():
                sign = f"above {schedule.above}" if schedule.above is not None else f"below {schedule.below}"
                times = f", {schedule.patience} times in a row" if schedule.patience > 1 else ""
                values = ", then ".join(map(str, schedule.values))
                text = f"{values}, each next one after {schedule.metric} was {sign}{times}"
                first = last = 0
            case Constant():
                continue
        if first > max_steps:
            text += f"; the run trains for {max_steps} steps, so that it stays at its first value"
        elif last > max_steps:
            text += f"; the run trains for {max_steps} steps, and does not come to its end"
        lines.append(f"{key}: {text}")
    return lines


def _policy_line(policy: Policy, lengths: Lengths | None) -> str:
    count = _num_trained(policy)
    kind = f"LoRA adapter on a shared base, {count:,} weights" if policy.adapter else f"{count:,} weights"
    text = f"{policy.title}: {kind}, on {policy.device}"
    if lengths is None:
        return text
    text += f"; prompts of at most {lengths.prompt} tokens"
    return text + (f", and {lengths.written} that models may write after them" if lengths.written else "")


def _update_line(phase: Phase, name: str, update: Update) -> str:
    learning = update.learning
    passes = f", {learning.num_epochs} passes over a step's rows" if learning.num_epochs > 1 else ""
    return (
        f"{phase.name} trains {name}: {update.num_updates:,} updates in {phase.num_steps:,} steps, each of at most "
        f"{learning.minibatch_rows} rows{passes}; {learning.rate_said}"
    )


def _rate_warnings(policies: Mapping[str, Policy], updates: Sequence[tuple[Phase, str, Update]]) -> list[str]:
    """Warnings about learning rates that a policy of its size seldom survives."""
    rates: dict[str, float] = {}
    for _, name, update in updates:
        rates[name] = max(rates.get(name, 0.0), update.learning.learning_rate)
    warnings = []
    for name, rate in rates.items():
        if rate < HIGH_RATE or name not in policies or policies[name].adapter is not None:
            continue
        count = _num_trained(policies[name])
        if count >= MANY_WEIGHTS:
            warnings.append(
                f"{policies[name].title}: a learning rate of {rate:g} is high for all of {count:,} weights, and may "
                "break it (that of the tiny model is 3e-4; 1e-6 is usual for a model of a billion weights)"
            )
    return warnings


def _num_trained(policy: Policy) -> int:
    """The number of weights that learn."""
    return sum(weights.numel() for _, weights in policy.trainable_parameters())


# --- memory -----------------------------------------------------------------------------------------------------------


def _memory(session: Session, phases: Sequence[Sequence[tuple[str, Update]]]) -> list[Memory]:
    """An estimate of the memory needed on each device, and what is free there. The program takes some 0.4 GiB more.

    The largest phase counts, as phases come in turn, with passes as full as they can be. A run whose replies end early
    takes half of it.

    Args:
        phases: for each phase, the policies that learn in it, and how.
    """
    policies, lengths, engine = session.loop.policies, session.lengths, session.algorithm.config.engine
    cluster, is_elsewhere = session.algorithm.config.cluster, engine.kind == "vllm"
    estimates = []
    for device in sorted({str(policy.device) for policy in policies.values()}):
        here = {name: policy for name, policy in policies.items() if str(policy.device) == device}
        weights = sum(_unique_bytes(p for policy in here.values() for p in policy.model.parameters()))
        learning = [
            sum(_learning_bytes(here[name], lengths.get(name), update) for name, update in phase if name in here)
            for phase in (() if cluster.ranks else phases)
        ]
        caches = [
            0 if cluster.workers or is_elsewhere else _cache_bytes(policy, lengths.get(name), engine.max_rows)
            for name, policy in here.items()
        ]
        num_prefixes = sum(map(bool, caches)) if engine.rollout == "free" else 0
        prefixes = round(num_prefixes * engine.prefix_gib * GIB)
        copies = [0 if cluster.workers else _copy_bytes(policy, engine.products) for policy in here.values()]
        parts = [  # a step rolls out, then learns
            {"learning": max(learning, default=0)},
            {
                "the engine's keys and values": max(caches),
                "what it keeps for turns that follow": prefixes,
                "its copies of weights": sum(copies),
            },
        ]
        needed, free = weights + max(sum(sizes.values()) for sizes in parts), _available(device)
        texts = [" and ".join(f"{_size(size)} {name}" for name, size in sizes.items() if size) for sizes in parts]
        in_turn = ", or in turn ".join(filter(None, texts))
        line = f"memory on {device}, at most about {_size(needed)} ({_size(weights)} weights"
        line += f", then {in_turn}, whichever is more" if all(texts) else f" and {in_turn}" if in_turn else ""
        line += f"; a frozen copy of a policy's weights adds {_size(max(map(_trained_bytes, here.values())))})"
        problem = (
            f"this may not fit on {device}: lower learning.token_budget, engine.max_rows or max_new_tokens, or set "
            "gradient_checkpointing=true or lora={rank: 16}"
        )
        estimates.append(Memory(f"{line}; {_size(free)} are free", problem if needed > free else ""))
    return estimates


def disk_warning(session: Session) -> str | None:
    """What to do where checkpoints may not fit on the disk of the run's folder. None: they fit."""
    folder = session.loop.folder.path.absolute()
    free = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free
    each, once = _checkpoint_bytes(session.loop.policies, _updates_by_phase(session))
    if (needed := once + NUM_CHECKPOINTS * each) <= free:
        return None
    return (
        f"checkpoints may take {_size(needed)}, and the disk of {folder} has {_size(free)} free: make room, choose "
        "another --out, or train an adapter (lora={rank: 16})"
    )


def _checkpoint_lines(policies: Mapping[str, Policy], phases: Sequence[Sequence[tuple[str, Update]]]) -> list[str]:
    each, once = _checkpoint_bytes(policies, phases)
    whole = _size(once + NUM_CHECKPOINTS * each)
    return [f"disk: at most about {whole} for checkpoints ({_size(each)} each; {KEEP} stay)"] if each else []


def _checkpoint_bytes(
    policies: Mapping[str, Policy], phases: Sequence[Sequence[tuple[str, Update]]]
) -> tuple[int, int]:
    """Bytes that each checkpoint adds on the disk, in the phase where it is largest, and bytes that lie there once.

    It adds the learners' weights, the best ones beside them, and the optimiser. Weights that did not change are shared.

    Args:
        phases: as in `_memory`.
    """
    sizes = {name: _saved_bytes(policy) for name, policy in policies.items()}
    learners = [[name for name, _ in phase if name in policies] for phase in phases]
    each = max((sum(2 * sizes[name] + _state_bytes(policies[name]) for name in names) for names in learners), default=0)
    return each, sum(sizes.values())


def _saved_bytes(policy: Policy) -> int:
    return _trained_bytes(policy) if policy.adapter else sum(_unique_bytes(policy.model.parameters()))


def _state_bytes(policy: Policy) -> int:
    """Of the optimiser as it is saved: its moments, and float32 copies of smaller types."""
    return _num_trained(policy) * (ADAM + (0 if policy.dtype.itemsize == 4 else 4))


def _copy_bytes(policy: Policy, products: str) -> int:
    """Bytes of an engine's packed copy of a policy's weights."""
    each = {"bfloat16": 2, "int8": 1}.get(products, 0)
    return each * sum(weights.numel() for weights in policy.causal_lm.parameters())


def _cluster_lines(session: Session, phases: Sequence[Sequence[tuple[str, Update]]]) -> list[str]:
    """What the processes beside this one hold, on which devices, and whether there is enough for all to do.

    Args:
        phases: as in `_memory`.
    """
    policies, lengths = session.loop.policies, session.lengths
    config = session.algorithm.config
    cluster, engine = config.cluster, config.engine
    weights = sum(_unique_bytes(p for policy in policies.values() for p in policy.model.parameters()))
    num_gpus, lines = torch.cuda.device_count(), []
    if cluster.ranks:
        states, activations = 0, 0
        for phase in phases:
            parts = [
                _learning_parts(policies[name], lengths.get(name), update) for name, update in phase if name in policies
            ]
            states = max(states, sum(state for state, _ in parts))
            activations = max(activations, *(part for _, part in parts), 0)
        layers = max(policy.causal_lm.config.get_text_config().num_hidden_layers for policy in policies.values())
        gathered = 2 * max(sum(_unique_bytes(p.model.parameters())) for p in policies.values()) // layers
        needed = (weights + states) // cluster.ranks + activations + gathered
        lines.append(
            f"ranks: {_processes(cluster.ranks, 0, num_gpus)}; each at most about {_size(needed)} "
            f"({_size(weights / cluster.ranks)} weights, {_size(states / cluster.ranks)} gradients and optimiser, "
            f"{_size(activations)} activations, {_size(gathered)} layers gathered)"
        )
    if cluster.workers:
        sizes = [_cache_bytes(policy, lengths.get(name), engine.max_rows) for name, policy in policies.items()]
        caches = max(sizes, default=0)  # where endpoints have all roles, workers hold no weights
        unit = cluster.rollouts_a_unit
        lines.append(
            f"workers: {_processes(cluster.workers, cluster.ranks, num_gpus)}; each at most about "
            f"{_size(weights + caches)} ({_size(weights)} weights, {_size(caches)} keys and values); units of {unit} "
            "rollouts"
        )
        least = min((problems * rollouts for problems, rollouts in step_sizes(config)), default=0)  # 0: unknown
        if unit and least and -(-least // unit) < 2 * cluster.workers:
            lines.append(
                f"a step has {least} rollouts, which are {-(-least // unit)} units for {cluster.workers} workers: some "
                "will wait for others; lower cluster.unit or cluster.workers, for two units a worker and more"
            )
    if cluster.servers:
        first = cluster.ranks or 1  # without ranks the run's own process trains on the first GPU
        size = max(_unique_bytes_of(policy) for policy in policies.values()) if policies else 0
        lines.append(
            f"servers: {_processes(cluster.servers, first, num_gpus)}, by {cluster.server_command!r}; each at least "
            f"about {_size(size)} of weights, and the keys and values that vLLM makes room for"
        )
    return lines


def _processes(count: int, first: int, num_gpus: int) -> str:
    """A number of processes, and where they are."""
    processes = f"{count} process{'es' if count > 1 else ''}"
    if not num_gpus:
        return f"{processes} on the CPU"
    last = first + count - 1
    return f"{processes} on GPU {first}" + (f" to {last}, one on each" if last > first else "")


def step_sizes(config: Config) -> Iterator[tuple[int, int]]:
    """Problems of a training step and rollouts of each, by settings of these names at any depth. Counts as no read."""
    settings = vars(config)
    if "prompts_per_step" in settings:
        yield settings["prompts_per_step"], settings.get("group_size", 1)
    for value in settings.values():
        if isinstance(value, Config):
            yield from step_sizes(value)


def _unique_bytes_of(policy: Policy) -> int:
    return sum(_unique_bytes(policy.causal_lm.parameters()))


def _unique_bytes(parameters: Iterable[Any]) -> list[int]:
    return list({id(p): p.numel() * p.element_size() for p in parameters}.values())


def _trained_bytes(policy: Policy) -> int:
    return sum(_unique_bytes(p for _, p in policy.trainable_parameters()))


def _learning_bytes(policy: Policy, lengths: Lengths | None, update: Update) -> int:
    """Bytes of gradients, the optimiser's moments and float32 copies, and of a full pass's activations."""
    return sum(_learning_parts(policy, lengths, update))


def _learning_parts(policy: Policy, lengths: Lengths | None, update: Update) -> tuple[int, int]:
    """As `_learning_bytes`: what ranks share, and what each needs for its passes.

    A row that is longer than the token budget, or a pair of them, is a pass of its own.
    """
    learning = update.learning
    count, size = _num_trained(policy), policy.dtype.itemsize
    state = count * (size + ADAM + (0 if size == 4 else 4 + 4))  # smaller types: copies and their gradients
    shape = policy.causal_lm.config.get_text_config()
    mlp_size = getattr(shape, "intermediate_size", None) or 4 * shape.hidden_size
    # Of a layer: norms, queries, keys, values, attention and sums; four of the MLP.
    layer_values = 10 * shape.hidden_size + 4 * mlp_size
    stored = shape.hidden_size if policy.recomputes else layer_values
    longest = lengths.prompt + lengths.written if lengths else learning.token_budget
    rows_together = 2 if any(term.of_bundles for term in update.terms) else 1
    fullest = min(learning.token_budget, learning.minibatch_rows * longest)
    num_tokens = max(fullest, rows_together * longest) if lengths else fullest
    activations = num_tokens * (stored * shape.num_hidden_layers + layer_values)
    logits = max(LOGITS[policy.device.type], head_chunk(policy) * shape.vocab_size)
    return state, activations * size + 3 * logits * 4


def _cache_bytes(policy: Policy, lengths: Lengths | None, max_rows: int) -> int:
    if lengths is None:
        return 0
    shape = policy.causal_lm.config.get_text_config()
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    head_size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    bytes_per_token = 2 * shape.num_hidden_layers * heads * head_size * policy.dtype.itemsize
    return max_rows * (lengths.prompt + lengths.written) * bytes_per_token


def _available(device: str) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else psutil.virtual_memory().available


def _size(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= GIB / 10 else f"{num_bytes / 2**20:.0f} MiB"
