"""What a run would do and need, in lines: for `--dry-run`, and for the log when it begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psutil
import torch

from whet.config.schedule import Constant, Gated, Linear, Schedule, Steps
from whet.models.policy import Policy
from whet.models.prompts import Lengths
from whet.models.scoring import LOGITS
from whet.run.selfchecks import narrow_sampling
from whet.run.session import Session
from whet.trainer.phase import Phase
from whet.trainer.terms import Update

GIB = 2**30
HIGH_RATE, MANY_WEIGHTS = 1e-4, 20_000_000
"""Together, where an adapter is not all that learns, they break a pretrained model: SmolLM2-135M writes nonsense after
a few steps at 5e-5. The rates that methods start with are those of the tiny model."""
ADAM = 8
"""Bytes a weight of the optimiser's two moments, float32."""


def plan(session: Session) -> list[str]:
    """Raises: what the phases raise when they are made: whatever would stop the run later and can be known now."""
    policies, algorithm = session.loop.policies, session.algorithm
    run, spec = algorithm.run, algorithm.spec
    tasks = ", ".join(f"{len(found)} {split}" for split, found in session.problems.tasks.items())
    lines = [f"data: {session.problems.sentence} ({tasks})", *run.info, *run.warnings]
    lines += [_of_policy(policy, session.lengths.get(name)) for name, policy in policies.items()]
    lines += [engine.look() for engine in run.runtime.endpoints.values()]
    lines += spec.plan(algorithm)
    known = _known_phases(session)
    if spec.is_lazy:
        later = known[1:]
        most = f", at most {_steps(later)}" if later else ""
        lines.append(f"steps of the phases: {_steps(known[:1])}, then what it finds decides{most}")
    else:
        lines.append(f"steps of the phases: {_steps(known)}")
    lines += _of_schedules(algorithm.config.__dict__["schedule"], sum(phase.num_steps for phase in known))
    rules = [(phase, name, rule) for phase in known for name, rule in phase.updates(1).items()]
    lines += [_of_updates(*each) for each in rules]
    lines += _of_rates(policies, rules)
    lines += narrowed(session)
    together = [[(name, rule) for of, name, rule in rules if of is phase] for phase in known]
    return [*lines, *_memory(session, together)]


def narrowed(session: Session) -> list[str]:
    """Of roles that do not sample from all tokens, where a policy gradient learns from what they write."""
    algorithm = session.algorithm
    rules = [rule for phase in _known_phases(session) for rule in phase.updates(1).items()]
    learners = {name: None for name, rule in rules if any(term.needs_old for term in rule.terms)}
    endpoints = {name: engine.config for name, engine in algorithm.run.runtime.endpoints.items()}
    return list(narrow_sampling(algorithm.config, learners, algorithm.spec.skills, endpoints))


def _known_phases(session: Session) -> list[Phase]:
    """Those that have steps; of a lazy method the first, and what may come after it."""
    algorithm = session.algorithm
    phases = (phase for phase in algorithm.phases() if phase.num_steps)
    if algorithm.spec.is_lazy:
        return [next(phases), *(phase for phase in algorithm.spec.later(algorithm) if phase.num_steps)]
    return list(phases)


def _steps(phases: Sequence[Phase]) -> str:
    return ", ".join(f"{phase.name} {phase.num_steps:,}" for phase in phases)


def _of_schedules(schedules: Mapping[str, Schedule], most: int) -> list[str]:
    """What goes with the step, and what of it this run is too short for.

    Args:
        most: steps that the run may come to, in all phases.
    """
    lines = []
    for key, each in schedules.items():
        match each:
            case Steps():
                later = [f"{value} from step {step}" for step, value in zip(each.changes, each.values[1:], strict=True)]
                text, last = ", ".join([str(each.values[0]), *later]), max(each.changes, default=0)
                first = min(each.changes, default=0)
            case Linear():
                text = f"from {each.start} to {each.end} over {each.over} steps after step {each.after}"
                first, last = each.after + 1, each.after + each.over
            case Gated():
                sign = f"above {each.above}" if each.above is not None else f"below {each.below}"
                times = f", {each.patience} times in a row" if each.patience > 1 else ""
                text = f"{', then '.join(map(str, each.values))}, each next one after {each.metric} was {sign}{times}"
                first = last = 0
            case Constant():
                continue
        if first > most:
            text += f"; the run has {most} steps, so that it stays at its first value"
        elif last > most:
            text += f"; the run has {most} steps, and does not come to its end"
        lines.append(f"{key}: {text}")
    return lines


def _of_policy(policy: Policy, lengths: Lengths | None) -> str:
    count = sum(p.numel() for _, p in policy.trainable_parameters())
    kind = f"LoRA adapter on a shared base, {count:,} weights" if policy.adapter else f"{count:,} weights"
    text = f"{policy.title}: {kind}, on {policy.device}"
    if lengths is None:
        return text
    text += f"; prompts of at most {lengths.prompt} tokens"
    return text + (f", and {lengths.written} that models may write after them" if lengths.written else "")


def _of_updates(phase: Phase, name: str, rule: Update) -> str:
    learning = rule.learning
    passes = f", {learning.num_epochs} passes over a step's rows" if learning.num_epochs > 1 else ""
    return (
        f"{phase.name} trains {name}: {rule.num_updates:,} updates in {phase.num_steps:,} steps, each of at most "
        f"{learning.minibatch_rows} rows{passes}; {learning.rate_said}"
    )


def _of_rates(policies: Mapping[str, Policy], rules: Sequence[tuple[Phase, str, Update]]) -> list[str]:
    """Of learning rates that a policy of that size seldom survives."""
    rates: dict[str, float] = {}
    for _, name, rule in rules:
        rates[name] = max(rates.get(name, 0.0), rule.learning.learning_rate)
    return [
        f"{policies[name].title}: a learning rate of {rate:g} is high for all of {count:,} weights, and "
        "may break it (that of the tiny model is 3e-4; 1e-6 is usual for a model of a billion weights)"
        for name, rate in rates.items()
        if rate >= HIGH_RATE and name in policies and policies[name].adapter is None
        and (count := sum(p.numel() for _, p in policies[name].trainable_parameters())) >= MANY_WEIGHTS
    ]  # fmt: skip


# --- memory -----------------------------------------------------------------------------------------------------------


def _memory(session: Session, phases: Sequence[Sequence[tuple[str, Update]]]) -> list[str]:
    """An estimate by device, beside what is there; the program itself takes some 0.4 GiB more. Of phases, which come in
    turn, the largest counts, with passes as full as they may be: with replies that end early a run takes half of it.

    Args:
        phases: who learns in each, and how.
    """
    policies, config = session.loop.policies, session.algorithm.config
    lines = []
    for device in sorted({str(policy.device) for policy in policies.values()}):
        here = {name: policy for name, policy in policies.items() if str(policy.device) == device}
        weights = sum(_unique_bytes(p for policy in here.values() for p in policy.model.parameters()))
        learnt = [
            sum(_learning_bytes(here[n], session.lengths.get(n), each) for n, each in phase if n in here)
            for phase in phases
        ]
        learning = max(learnt, default=0)
        caches = [_cache_bytes(each, session.lengths.get(name), config.engine.max_rows) for name, each in here.items()]
        cache = max(caches)
        num_kept = sum(map(bool, caches)) if config.engine.rollout == "free" else 0
        kept = round(num_kept * config.engine.prefix_gib * GIB)
        playing = {"the engine's keys and values": cache, "what it keeps for turns that follow": kept}
        turns = [{"learning": learning}, playing]  # a step plays, then learns
        needed, there = weights + max(sum(parts.values()) for parts in turns), _available(device)
        said = [" and ".join(f"{_size(value)} {name}" for name, value in parts.items() if value) for parts in turns]
        shown = ", or in turn ".join(filter(None, said))
        text = f"memory on {device}, at most about {_size(needed)} ({_size(weights)} weights"
        text += f", then {shown}, whichever is more" if all(said) else f" and {shown}" if shown else ""
        text += f"; a frozen copy of a policy's weights adds {_size(max(map(_own_bytes, here.values())))})"
        text += f"; {_size(there)} are free"
        lines.append(text)
        if needed > there:
            lines.append(f"this may not fit on {device}: lower learning.token_budget, engine.max_rows or "
                         "max_new_tokens, or set gradient_checkpointing=true or lora={rank: 16}")  # fmt: skip
    return lines


def _unique_bytes(parameters: Iterable[Any]) -> list[int]:
    return list({id(p): p.numel() * p.element_size() for p in parameters}.values())


def _own_bytes(policy: Policy) -> int:
    return sum(_unique_bytes(p for _, p in policy.trainable_parameters()))


def _learning_bytes(policy: Policy, lengths: Lengths | None, rule: Update) -> int:
    """Gradients, the optimiser's moments and float32 copies, and what one full pass keeps for its gradient. A row that
    is longer than the budget, or a pair of them, is a pass of its own."""
    learning = rule.learning
    count, size = sum(p.numel() for _, p in policy.trainable_parameters()), policy.dtype.itemsize
    state = count * (size + ADAM + (0 if size == 4 else 4 + 4))  # smaller types: copies and their gradients
    shape = policy.causal_lm.config.get_text_config()
    wide = getattr(shape, "intermediate_size", None) or 4 * shape.hidden_size
    of_layer = 10 * shape.hidden_size + 4 * wide  # norms, queries, keys, values, attention, sums; the MLP's four
    kept = shape.hidden_size if policy.recomputes else of_layer
    longest = lengths.prompt + lengths.written if lengths else learning.token_budget
    together = 2 if any(term.of_bundles for term in rule.terms) else 1
    fullest = min(learning.token_budget, learning.minibatch_rows * longest)
    num_tokens = max(fullest, together * longest) if lengths else fullest
    activations = num_tokens * (kept * shape.num_hidden_layers + of_layer)
    return state + activations * size + 3 * LOGITS * 4


def _cache_bytes(policy: Policy, lengths: Lengths | None, max_rows: int) -> int:
    if lengths is None:
        return 0
    shape = policy.causal_lm.config.get_text_config()
    heads = getattr(shape, "num_key_value_heads", None) or shape.num_attention_heads
    head_size = getattr(shape, "head_dim", None) or shape.hidden_size // shape.num_attention_heads
    a_token = 2 * shape.num_hidden_layers * heads * head_size * policy.dtype.itemsize
    return max_rows * (lengths.prompt + lengths.written) * a_token


def _available(device: str) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else psutil.virtual_memory().available


def _size(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.1f} GiB" if num_bytes >= GIB / 10 else f"{num_bytes / 2**20:.0f} MiB"
