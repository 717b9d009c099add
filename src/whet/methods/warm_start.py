"""The warm start: supervised fine-tuning of actor and critic on demonstrations (spec section 3.3)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from transformers import PreTrainedTokenizerBase

from whet.chat import render, text_ids
from whet.config.critics import WarmStartConfig
from whet.config.parts import LearningConfig
from whet.models.lean import steady_positions
from whet.models.policy import Policy
from whet.models.prompts import NUM_RENDERED, measured
from whet.models.prompts import shown as quoted
from whet.seeds import seed_of
from whet.tasks.demonstrations import Demonstration, Kind
from whet.tasks.demonstrators import Demonstrator
from whet.tasks.files import DataError
from whet.trainer.loop import Batch, Loop, Phase
from whet.trainer.losses import imitation
from whet.types import Row, tail_row


def demonstration_row(
    demonstration: Demonstration, policy: str, tokenizer: PreTrainedTokenizerBase, **more: Any
) -> Row:
    """The loss is on the text and the end token, each with credit 1.

    Args:
        more: other fields of the row.
    """
    context = render(tokenizer, demonstration.messages, demonstration.prefill)
    text = demonstration.text.removeprefix(demonstration.prefill)
    target = (*text_ids(tokenizer, text), tokenizer.eos_token_id)
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
    settings: WarmStartConfig, num_steps: int, loop: Loop, shown: Demonstrator, role: Literal["actor", "critic"],
    *, policy: str = "",
) -> Phase:  # fmt: skip
    """SFT of one policy: the actor on answers and refinements, the critic on critiques.

    Args:
        policy: in the seat. Empty: it has the seat's name.
    Raises: DataError where there is nothing to imitate, or the policy could not learn it whole.
    """
    shares: dict[Kind, float] = {"solve": 1 - settings.refine_share, "refine": settings.refine_share}
    kinds: Sequence[Kind] = ("critique",) if role == "critic" else [kind for kind, share in shares.items() if share]
    learner = policy or role
    if num_steps:
        check_texts(shown, kinds, loop.policies[learner])
    name = f"sft_{role}"

    def draw(step: int) -> list[Row]:
        rng = random.Random(seed_of(loop.seed, name, step))
        wanted: list[Kind] = ["critique"] * settings.rows_per_step
        if role == "actor":
            wanted = ["refine" if rng.random() < settings.refine_share else "solve" for _ in wanted]
        return demonstration_rows((shown.show(kind, rng) for kind in wanted), loop.policies[learner])

    return imitation_phase(name, learner, num_steps, draw, settings.learning, settings.rows_per_step)


def check_texts(shown: Demonstrator, kinds: Sequence[Kind], policy: Policy) -> None:
    """Looks at what may be drawn.

    Raises: DataError where there is nothing to imitate, the tokenizer drops part of a text, or a row does not fit the
        model's positions.
    """
    sources = shown.sources(kinds)
    sizes = measured([each.imitated for each in sources], policy.tokenizer)
    for source, (_, lost) in zip(sources, sizes, strict=True):
        if lost:
            raise DataError(
                f"{source.where}: the tokenizer of {policy.name}.path has no token for {lost} in "
                f"{quoted(source.imitated)}; write it in other characters, or take another model"
            )
    if any(each.length_of != each.imitated for each in sources):
        sizes = measured([each.length_of for each in sources], policy.tokenizer)
    longest = sorted(range(len(sources)), key=lambda index: sizes[index][0], reverse=True)[:NUM_RENDERED]
    positions = steady_positions(policy.causal_lm)
    for each in (made for index in longest for made in sources[index].make()):
        length = len(demonstration_row(each, policy.name, policy.tokenizer).tokens)
        if positions is not None and length > positions:
            raise DataError(
                f"{each.where}: the row to imitate ({each.kind}) has {length} tokens, but {policy.name}.path has "
                f"{positions} positions: shorten it, or leave it out"
            )
