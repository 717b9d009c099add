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
from whet.types import Row, Segment, as_row, tail_row


def demonstration_row(
    demonstration: Demonstration, policy: str, tokenizer: PreTrainedTokenizerBase, **fields: Any
) -> Row:
    """A demonstration as a row. The loss is on the text and the end token, each with credit 1.

    Args:
        fields: other fields of the row.
    """
    context = render(tokenizer, demonstration.messages, demonstration.prefill)
    text = demonstration.text.removeprefix(demonstration.prefill)
    target = (*text_ids(tokenizer, text), tokenizer.eos_token_id)
    return tail_row(policy, context, target, 1.0, **fields)


def demonstration_rows(demonstrations: Iterable[Demonstration], policy: Policy, **fields: Any) -> list[Row]:
    """The row of each demonstration, for the policy."""
    return [
        demonstration_row(demonstration, policy.name, policy.tokenizer, **fields) for demonstration in demonstrations
    ]


def example_row(segment: Segment, kind: str, *, context: Sequence[int] | None = None) -> Row:
    """A sampled segment as a row to imitate: without logprobs, at temperature 1.

    Args:
        context: None: the context in which it was sampled.
    """
    return as_row(segment, 1.0, context=context, kind=kind, logprobs=None, temperature=1.0, versions=())


def imitation_phase(
    name: str,
    policy: str,
    num_steps: int,
    draw: Callable[[int], list[Row]],
    learning: LearningConfig,
    rows_per_step: int,
    **fields: Any,
) -> Phase:
    """SFT of one policy.

    Args:
        draw: the rows of a step, `rows_per_step` of them.
        fields: other fields of the phase.
    """
    update = imitation(learning, num_steps * learning.updates_a_step(rows_per_step))
    defaults = {"headline": ("loss/nll", "entropy", "optim/grad_norm")}
    return Phase(
        name=name,
        num_steps=num_steps,
        collect=lambda step: Batch(draw(step)),
        updates=lambda step: {policy: update},
        **(defaults | fields),
    )


def warm_start(
    settings: WarmStartConfig,
    num_steps: int,
    loop: Loop,
    shown: Demonstrator,
    role: Literal["actor", "critic"],
    *,
    policy: str = "",
) -> Phase:
    """SFT of one policy: the actor on answers and refinements, the critic on critiques.

    Args:
        policy: in the role. Empty: it has the role's name.
    Raises: DataError if there is nothing to imitate, or the policy could not learn it whole.
    """
    learner = policy or role
    if num_steps:
        check_texts(shown, _kinds_of(settings, role), loop.policies[learner])
    name = f"sft_{role}"

    def draw(step: int) -> list[Row]:
        rng = random.Random(seed_of(loop.seed, name, step))
        wanted: list[Kind] = ["critique"] * settings.rows_per_step
        if role == "actor":
            wanted = ["refine" if rng.random() < settings.refine_share else "solve" for _ in wanted]
        return demonstration_rows((shown.show(kind, rng) for kind in wanted), loop.policies[learner])

    return imitation_phase(name, learner, num_steps, draw, settings.learning, settings.rows_per_step)


def _kinds_of(settings: WarmStartConfig, role: Literal["actor", "critic"]) -> Sequence[Kind]:
    """What a row of the phase may be."""
    if role == "critic":
        return ("critique",)
    shares: dict[Kind, float] = {"solve": 1 - settings.refine_share, "refine": settings.refine_share}
    return [kind for kind, share in shares.items() if share]


def check_texts(shown: Demonstrator, kinds: Sequence[Kind], policy: Policy) -> None:
    """Checks the texts that may be drawn.

    Raises: DataError if there is nothing to imitate, the tokenizer drops part of a text, or a row does not fit the
        model's positions.
    """
    sources = shown.sources(kinds)
    sizes = measured([source.imitated for source in sources], policy.tokenizer)
    for source, (_, lost) in zip(sources, sizes, strict=True):
        if lost:
            raise DataError(
                f"{source.where}: the tokenizer of {policy.name}.path has no token for {lost} in "
                f"{quoted(source.imitated)}; write it in other characters, or take another model"
            )
    if any(source.length_of != source.imitated for source in sources):
        sizes = measured([source.length_of for source in sources], policy.tokenizer)
    longest = sorted(range(len(sources)), key=lambda index: sizes[index][0], reverse=True)[:NUM_RENDERED]
    positions = steady_positions(policy.causal_lm)
    for demonstration in (made for index in longest for made in sources[index].make()):
        length = len(demonstration_row(demonstration, policy.name, policy.tokenizer).tokens)
        if positions is not None and length > positions:
            raise DataError(
                f"{demonstration.where}: the row to imitate ({demonstration.kind}) has {length} tokens, but "
                f"{policy.name}.path has {positions} positions: shorten it, or leave it out"
            )
