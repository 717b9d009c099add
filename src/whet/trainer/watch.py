"""Whether a run learns anything, asked while it runs: a few counts of each step's replies, and what they come to.

A run in which every reply is cut off, unreadable or wrong goes through all its steps and ends without an error. The
watch says so after the first batch, or after some steps in a row without credit, with the likely cause and what to try.
It is a pure state machine; its state is in every checkpoint, so that a resumed run says what an unbroken one would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from whet.types import FAULT_HINTS

Level = Literal["info", "warning", "error"]
MUCH_LEFT = 0.5
"""Nats a token. A warm start whose loss is below has little left to learn, and need not fall."""
NEARLY_ALL = 0.9
"""Of replies: where so many are right, a lack of credit is the end of learning and not its failure."""
NOTHING, SOON = 1e-4, 10
"""Nats a token below which given texts have nothing left to say, and how soon that is too soon: so many times the steps
that are watched. Texts that differ keep a loss above it: a scripted expert's, whose moves follow from what is seen,
came down to 0.002 in 25 steps, and critiques by rule in 57. Empty ones came to 0.00001 in five."""
FALLS, RISES = 0.99, 1.5
"""A loss has fallen where it is below the first share of what it was, and runs away past the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What the replies of one step say about learning."""

    what: str = "replies"
    holding: str = "answer"
    """What is read in them."""
    replies: int
    """Sampled, those whose grading failed among them."""
    right: int = 0
    """Reached what is paid for, whatever their length cost."""
    unread: int = 0
    """Nothing could be read in them."""
    cut: int = 0
    """Ran into the token limit."""
    ungraded: int = 0
    """Failed, with us and not with the policy: an environment, an endpoint, a grading."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Of these, how many by kind of `FAULTS`; empty where nobody has said."""
    taught: bool = True
    """Whether pay gave any of them credit."""
    compared: int = 0
    """Groups whose replies are held against each other. 0: none are, so that groups paid alike may teach."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to be told."""

    event: str
    level: Level
    """`info`: good to know. `warning`: the run is likely not what was meant. `error`: it ends after the step, saved."""
    text: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Where a phase stands."""

    begun: bool = False
    """Replies have come."""
    steps: int = 0
    """In a row without credit."""
    signs: Signs | None = None
    """Of these steps together."""
    losses: tuple[float, ...] = ()
    """Of a phase without replies, as long as they are looked at."""
    copied: int = 0
    """Steps that learnt from given texts."""
    empty: int = 0
    """Of them, those in a row up to now whose loss was next to nothing."""
    flat_steps: int = 0
    """In a row in which nearly all groups taught nothing; of these together the next two."""
    flat_right: int = 0
    flat_replies: int = 0
    """Graded."""
    said: tuple[str, ...] = ()
    """What is said once a phase and policy, as `event/policy`."""

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Watch:
        """From what `dataclasses.asdict` made of one, through JSON."""
        signs = state["signs"] and Signs(**state["signs"])
        return cls(**(state | {"signs": signs, "losses": tuple(state["losses"]), "said": tuple(state.get("said", ()))}))


def after_replies(watch: Watch, seen: Sequence[Signs], every: int) -> tuple[Watch, Finding | None]:
    """One step further.

    Args:
        seen: of the replies that are paid, and after them of others whose texts matter. Empty: none have ended yet.
        every: steps in a row without credit that are told; told again when they have doubled.
    """
    if not seen or not seen[0].replies:
        return watch, None
    first = not watch.begun
    scored = seen[0]
    if scored.taught:
        watch = replace(watch, begun=True, steps=0, signs=None)
    else:
        signs = scored if watch.signs is None else _added(watch.signs, scored)
        watch = replace(watch, begun=True, steps=watch.steps + 1, signs=signs)
    if first:
        for signs in seen:
            if cause := lost_cause(signs):
                return watch, Finding("dead_batch", "warning", f"in the first batch {cause}")
    times, left = divmod(watch.steps, every)
    if left or not times or times & (times - 1):  # once, twice, four times as many
        return watch, None
    assert watch.signs is not None
    steps = f"{watch.steps} steps in a row" if watch.steps > 1 else "a step"
    graded = watch.signs.replies - watch.signs.ungraded
    if graded and watch.signs.right >= NEARLY_ALL * graded:
        share = "all" if watch.signs.right == graded else f"{watch.signs.right:,} of"
        text = f"{steps} gave no credit, as {share} {_count(watch.signs)} are right: harder problems would teach more"
        return watch, Finding("all_right", "info", text)
    return watch, Finding("no_credit", "warning", f"{steps} gave no credit: {_cause(watch.signs)}")


def after_loss(watch: Watch, loss: float, every: int) -> tuple[Watch, Finding | None]:
    """One step of a phase that learns from given texts further: told once, after twice `every` steps.

    Args:
        loss: nats a token.
    """
    if len(watch.losses) == 2 * every:
        return watch, None
    watch = replace(watch, losses=(*watch.losses, loss))
    if len(watch.losses) < 2 * every:
        return watch, None
    was, now = fmean(watch.losses[:every]), fmean(watch.losses[every:])
    moved = f"the loss went from {was:.3g} to {now:.3g} nats a token in {2 * every} steps"
    if now > RISES * was and now > MUCH_LEFT:
        return watch, Finding("loss_rises", "warning", f"{moved}: try a lower learning rate, or a warm-up")
    if now > MUCH_LEFT and now > FALLS * was:
        text = f"{moved}, and does not fall: try a higher learning rate, and look whether the texts are what you meant"
        return watch, Finding("loss_stuck", "warning", text)
    return watch, None


def after_nll(watch: Watch, nll: float, every: int) -> tuple[Watch, Finding | None]:
    """One step that imitates given texts further: told once, where within `SOON * every` steps the likelihood loss of
    `every` steps in a row was next to nothing, though it began with much left to learn. A model that knows its texts by
    heart so soon was mostly given texts that say nothing, such as empty ones or one and the same.

    Args:
        nll: nats a token.
    """
    if watch.copied >= SOON * every or (not watch.copied and nll < MUCH_LEFT):
        return replace(watch, copied=SOON * every), None  # it was learnt before, or it took its time
    watch = replace(watch, copied=watch.copied + 1, empty=watch.empty + 1 if nll < NOTHING else 0)
    if watch.empty < every:
        return watch, None
    text = (
        f"the loss fell to {nll:.2g} nats a token in {watch.copied} steps, so the texts to imitate say next to "
        "nothing: look whether they are what you meant (empty, all alike, or not in the form that the prompt asks for)"
    )
    return replace(watch, copied=SOON * every), Finding("loss_gone", "warning", text)


def lost_cause(signs: Signs) -> str | None:
    """Why no reply at all can be learnt from, and what to try; None where some can."""
    if signs.right or not signs.replies:
        return None
    every, graded = f"all {_count(signs)}", signs.replies - signs.ungraded
    if not graded:
        kind = max(signs.failed, key=signs.failed.__getitem__, default="grader_error")
        failed = f"the grading of {every} failed" if kind == "grader_error" else f"{every} failed ({kind})"
        return f"{failed}; {FAULT_HINTS[kind]}"
    if signs.cut >= graded:
        return (
            f"{every} ran into the token limit; try a larger max_new_tokens, and look whether the model ever "
            "writes its end token"
        )
    if signs.unread >= graded:
        return (
            f"{every} are without a readable {signs.holding}; look at some in traces/: the model has to write the form "
            "that the prompt asks for (another prompts, a warm start, a larger max_new_tokens)"
        )
    return None


def _cause(signs: Signs) -> str:
    if lost := lost_cause(signs):
        return lost
    if not signs.right and 2 * signs.cut > signs.replies:
        return f"all {_count(signs)} are wrong, {signs.cut:,} of them cut off; try a larger max_new_tokens first"
    if not signs.right and 2 * signs.unread > signs.replies:
        return (
            f"all {_count(signs)} are wrong, {signs.unread:,} of them without a readable {signs.holding}; look at some "
            "in traces/: the model has to write the form that the prompt asks for"
        )
    if not signs.right:
        return f"all {_count(signs)} are wrong; try easier problems, a stronger model, or a warm start"
    return (
        f"the {signs.what} to each problem are paid alike ({signs.right} of {signs.replies} are right); try more of "
        "them a problem, a higher temperature, or problems nearer to an even chance"
    )


def _count(signs: Signs) -> str:
    return f"{signs.replies:,} {signs.what}"


def _added(one: Signs, other: Signs) -> Signs:
    counts = ("replies", "right", "unread", "cut", "ungraded")
    failed = {kind: one.failed.get(kind, 0) + other.failed.get(kind, 0) for kind in (*one.failed, *other.failed)}
    summed = {name: getattr(one, name) + getattr(other, name) for name in counts}
    return replace(one, **summed, failed=failed, taught=False)
