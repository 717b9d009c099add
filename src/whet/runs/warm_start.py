"""The warm start: supervised fine-tuning of actor and critic on demonstrations (spec section 3.3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from whet.config.critics import WarmStartConfig
from whet.config.parts import LearningConfig
from whet.models.lean import steady_positions
from whet.models.policy import Policy
from whet.play.roles import render
from whet.runs.loop import Batch, Loop, Phase
from whet.runs.prompts import NUM_RENDERED, measured, shown
from whet.seeds import seed_of
from whet.tasks.chains import parse_chain
from whet.tasks.demonstrations import (
    COLLEAGUE,
    COLLEAGUE_MANNER,
    TEXTBOOK,
    Demonstration,
    Kind,
    chain_demonstration,
    read_demonstrations,
    solution_demonstration,
    solution_steps,
)
from whet.tasks.dialects import Dialect
from whet.tasks.files import DataError
from whet.training.losses import imitation
from whet.types import Row, Task, tail_row

Draw = Callable[[Kind, random.Random], Demonstration]


def demonstration_row(
    demonstration: Demonstration, policy: str, tokenizer: PreTrainedTokenizerBase, **more: Any
) -> Row:
    """The loss is on the text and the end token, each with credit 1.

    Args:
        more: other fields of the row.
    """
    context = render(tokenizer, demonstration.messages, demonstration.prefill)
    text = demonstration.text.removeprefix(demonstration.prefill)
    target = (*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id)
    return tail_row(policy, context, target, 1.0, **more)


def demonstration_rows(demonstrations: Iterable[Demonstration], policy: Policy, **more: Any) -> list[Row]:
    """`demonstration_row` of each, for the policy."""
    return [demonstration_row(each, policy.name, policy.tokenizer, **more) for each in demonstrations]


def imitation_phase(
    name: str, policy: str, num_steps: int, draw: Callable[[int], list[Row]], learning: LearningConfig,
    rows_per_step: int, **more: Any,
) -> Phase:  # fmt: skip
    """SFT of one policy.

    Args:
        draw: the rows of a step, `rows_per_step` of them.
        more: other fields of the phase.
    """
    update = imitation(learning, num_steps * learning.updates_a_step(rows_per_step))
    own = {"headline": ("loss/nll", "entropy", "optim/grad_norm")}
    return Phase(
        name=name,
        num_steps=num_steps,
        collect=lambda step: Batch(draw(step)),
        updates=lambda step: {policy: update},
        **(own | more),
    )


def warm_start(
    settings: WarmStartConfig, num_steps: int, loop: Loop, tasks: Sequence[Task], seat: str, data: str, dialect: Dialect
) -> Phase:
    """SFT of one policy: the actor on answers and refinements, the critic on critiques.

    Args:
        seat: `actor` or `critic`, the policy's name too.
        data: the kind of the run's data.
    """
    demonstrate = drawer(settings.file, tasks, data, dialect)
    shares: dict[Kind, float] = {"solve": 1 - settings.refine_share, "refine": settings.refine_share}
    kinds: Sequence[Kind] = ("critique",) if seat == "critic" else [kind for kind, share in shares.items() if share]
    if num_steps:
        check_texts(settings.file, kinds, tasks, loop.policies[seat], data, dialect)
    name = f"sft_{seat}"

    def draw(step: int) -> list[Row]:
        rng = random.Random(seed_of(loop.seed, name, step))
        wanted: list[Kind] = ["critique"] * settings.rows_per_step
        if seat == "actor":
            wanted = ["refine" if rng.random() < settings.refine_share else "solve" for _ in wanted]
        return demonstration_rows((demonstrate(kind, rng) for kind in wanted), loop.policies[seat])

    return imitation_phase(name, seat, num_steps, draw, settings.learning, settings.rows_per_step)


def drawer(file: str | None, tasks: Sequence[Task], data: str, dialect: Dialect) -> Draw:
    """Where demonstrations come from: a file, the tiny world's author, or the set's worked solutions."""
    if file is not None:
        return partial(_from_file, read_demonstrations(Path(file), dialect), file)
    if data == "chains":
        return partial(_from_chains, tasks, dialect)
    return lambda kind, rng: solution_demonstration(kind, rng.choice(tasks), dialect, rng)


def check_texts(
    file: str | None, kinds: Sequence[Kind], tasks: Sequence[Task], policy: Policy, data: str, dialect: Dialect
) -> None:
    """Looks at what may be drawn. Texts of the tiny world are short, and whole by construction.

    Raises: DataError where there is nothing to imitate, the tokenizer drops part of a text, or a row does not fit the
        model's positions.
    """
    if file is not None:
        pool = read_demonstrations(Path(file), dialect)
        found = [each for kind in kinds for each in _fitting(pool, file, kind)]
        _check_whole([d.text for d in found], [d.where for d in found], policy)
        texts = ["".join([*(message["content"] for message in d.messages), d.text]) for d in found]
        longest = [found[index] for index in _longest(texts, policy)]
    elif data == "chains":
        return
    else:
        texts = ["\n".join([task.prompt, *solution_steps(task)]) for task in tasks]
        _check_whole(texts, [f"task {task.id}" for task in tasks], policy)
        of_tasks = [tasks[index] for index in _longest(texts, policy)]
        # Those that are drawn differ from these by a planted number.
        longest = [solution_demonstration(k, task, dialect, random.Random(0)) for task in of_tasks for k in kinds]
    positions = steady_positions(policy.causal_lm)
    for each in longest:
        length = len(demonstration_row(each, policy.name, policy.tokenizer).tokens)
        if positions is not None and length > positions:
            raise DataError(
                f"{each.where}: the row to imitate ({each.kind}) has {length} tokens, but {policy.name}.path has "
                f"{positions} positions: shorten it, or leave it out"
            )


def _check_whole(texts: Sequence[str], where: Sequence[str], policy: Policy) -> None:
    for text, place, (_, lost) in zip(texts, where, measured(texts, policy.tokenizer), strict=True):
        if lost:
            raise DataError(
                f"{place}: the tokenizer of {policy.name}.path has no token for {lost} in {shown(text)}; write it in "
                "other characters, or take another model"
            )


def _longest(texts: Sequence[str], policy: Policy) -> list[int]:
    """Indices of those with the most tokens."""
    sizes = measured(texts, policy.tokenizer)
    return sorted(range(len(texts)), key=lambda index: sizes[index][0], reverse=True)[:NUM_RENDERED]


def _from_chains(tasks: Sequence[Task], dialect: Dialect, kind: Kind, rng: random.Random) -> Demonstration:
    """Critiques by the colleague, who has misconceptions of another kind; answers and refinements by the textbook."""
    chain = parse_chain(rng.choice(tasks).prompt)
    if kind == "critique":
        return chain_demonstration(kind, chain, dialect, rng, author=COLLEAGUE, manner=COLLEAGUE_MANNER)
    return chain_demonstration(kind, chain, dialect, rng, author=TEXTBOOK)


def _from_file(pool: Sequence[Demonstration], path: str, kind: Kind, rng: random.Random) -> Demonstration:
    return rng.choice(_fitting(pool, path, kind))


def _fitting(pool: Sequence[Demonstration], path: str, kind: Kind) -> list[Demonstration]:
    """Raises: DataError where there is none."""
    fitting = [demonstration for demonstration in pool if demonstration.kind == kind]
    if not fitting:
        raise DataError(
            f"{path} has no rows for the warm start of kind {kind!r}: add rows with "
            f"{'critique' if kind == 'critique' else 'refinement' if kind == 'refine' else 'correct: true'}, or set "
            "that warm start's steps to 0"
        )
    return fitting
