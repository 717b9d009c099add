"""The warm start: supervised fine-tuning of actor and critic on demonstrations (spec section 3.3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from whet.models.lean import steady_positions
from whet.models.policy import Policy
from whet.objectives import weighted_nll
from whet.play.roles import render, seed_of
from whet.recipes.critique_rl_config import CritiqueRLConfig
from whet.recipes.prompts import NUM_RENDERED, measured, shown
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
from whet.tasks.dialects import DIALECTS, Dialect
from whet.tasks.files import DataError
from whet.training.loop import Batch, Phase, Run
from whet.training.rule import UpdateRule
from whet.types import Row, Task

Seat = Literal["actor", "critic"]
Draw = Callable[[Kind, random.Random], Demonstration]


def likelihood(
    policy_logprobs: Tensor, old_logprobs: Tensor, credit: Tensor, loss_mask: Tensor, token_weight: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """`weighted_nll` as the learner calls its losses; the old logprobs are not looked at."""
    return weighted_nll(policy_logprobs, credit, loss_mask, token_weight)


def demonstration_row(demonstration: Demonstration, policy: str, tokenizer: PreTrainedTokenizerBase) -> Row:
    """The loss is on the text and the end token, each with credit 1."""
    context = render(tokenizer, demonstration.messages, demonstration.prefill)
    text = demonstration.text.removeprefix(demonstration.prefill)
    target = (*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id)
    tokens = (*context, *target)
    mask = (False,) * len(context) + (True,) * len(target)
    return Row(policy=policy, tokens=tokens, loss_mask=mask, credit=(1.0,) * len(tokens), logprobs=None)


def warm_start_phase(config: CritiqueRLConfig, run: Run, tasks: Sequence[Task], seat: Seat) -> Phase:
    """SFT of one policy: the actor on answers and refinements, the critic on critiques."""
    settings = config.warm_start
    num_steps = settings.actor_steps if seat == "actor" else settings.critic_steps
    draw = drawer(config, tasks)
    if num_steps:
        check_warm_start(config, tasks, run.policies[seat], seat)
    name = f"sft_{seat}"

    def collect(step: int) -> Batch:
        rng = random.Random(seed_of(config.seed, name, step))
        kinds: list[Kind] = ["critique"] * settings.rows_per_step
        if seat == "actor":
            kinds = ["refine" if rng.random() < settings.refine_share else "solve" for _ in kinds]
        tokenizer = run.policies[seat].tokenizer
        return Batch([demonstration_row(draw(kind, rng), seat, tokenizer) for kind in kinds])

    return Phase(
        name=name,
        num_steps=num_steps,
        collect=collect,
        updates={
            seat: UpdateRule(
                loss=likelihood,
                aggregation="token_mean",
                learning=settings.learning,
                num_updates=num_steps * settings.learning.updates_a_step(settings.rows_per_step),
                needs_old=False,
            )
        },
        headline=("loss/nll", "entropy", "optim/grad_norm"),
    )


def drawer(config: CritiqueRLConfig, tasks: Sequence[Task]) -> Draw:
    """Where demonstrations come from: a file, the tiny world's author, or the set's worked solutions."""
    dialect = DIALECTS[config.dialect]
    if config.warm_start.file is not None:
        return partial(_from_file, read_demonstrations(Path(config.warm_start.file), dialect), config.warm_start.file)
    if config.data.kind == "chains":
        return partial(_from_chains, tasks, dialect)
    return lambda kind, rng: solution_demonstration(kind, rng.choice(tasks), dialect, rng)


def check_warm_start(config: CritiqueRLConfig, tasks: Sequence[Task], policy: Policy, seat: Seat) -> None:
    """Looks at what the warm start of a seat may draw. Texts of the tiny world are short, and whole by construction.

    Raises: DataError where the tokenizer drops part of a text to imitate, or a row does not fit the model's positions.
    """
    kinds: tuple[Kind, ...] = ("critique",) if seat == "critic" else ("solve", "refine")
    dialect = DIALECTS[config.dialect]
    if config.warm_start.file is not None:
        found = [d for d in read_demonstrations(Path(config.warm_start.file), dialect) if d.kind in kinds]
        _check_whole([d.text for d in found], [d.where for d in found], policy)
        texts = ["".join([*(message["content"] for message in d.messages), d.text]) for d in found]
        longest = [found[index] for index in _longest(texts, policy)]
    elif config.data.kind == "chains":
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
    fitting = [demonstration for demonstration in pool if demonstration.kind == kind]
    if not fitting:
        raise DataError(
            f"{path} has no rows for the warm start of kind {kind!r}: add rows with "
            f"{'critique' if kind == 'critique' else 'refinement' if kind == 'refine' else 'correct: true'}, or set "
            "that warm start's steps to 0"
        )
    return rng.choice(fitting)
