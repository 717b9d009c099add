"""The watch: warns during a run if nothing is learnt, by a few counts of each step's replies.

A run in which every reply is cut off, unreadable or wrong makes all its steps and ends without an error. So the watch
warns after the first batch, or after some steps in a row without credit, with the likely cause and what to try. It is a
pure state machine. Every checkpoint holds its state, so that a resumed run warns as an unbroken one would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal

from whet.types import FAULT_HINTS

Level = Literal["info", "warning", "error"]
MUCH_LEFT = 0.5
"""Nats a token. A warm start with a loss below it has little left to learn, so its loss need not fall."""
NEARLY_ALL = 0.9
"""Share of replies. Where so many are right, a lack of credit is the end of learning and not its failure."""
NOTHING = 1e-4
"""Nats a token. Below it, texts to imitate have nothing left to teach. Texts that differ stay above it. A scripted
expert's moves follow from the observations: they fell to 0.002 in 25 steps, and critiques by rule in 57. Empty texts
fell to 0.00001 in five."""
SOON = 10
"""Times the watched steps. A loss that reaches `NOTHING` sooner is suspect."""
FALLS, RISES = 0.99, 1.5
"""Shares of a former loss. A loss has fallen below the first, and runs away above the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """Counts of one step's replies that bear on learning."""

    what: str = "replies"
    """The replies' name in messages."""
    holding: str = "answer"
    """What the parser reads in a reply."""
    replies: int
    """Sampled replies, among them those whose grading failed."""
    right: int = 0
    """Replies that reach the goal, whatever reward their length costs them."""
    partial: int = 0
    """Replies that a grader scores above 0 and below 1."""
    unread: int = 0
    """Replies in which the parser found nothing."""
    cut: int = 0
    """Replies that ran into the token limit."""
    ungraded: int = 0
    """Replies without a grade by a failure of ours and not of the policy: an environment, an endpoint, a grading."""
    failed: Mapping[str, int] = field(default_factory=dict)
    """Of the ungraded ones, the number by kind of `FAULTS`. Empty: not known."""
    taught: bool = True
    """Whether any reply has credit by its reward."""
    compared: int = 0
    """Groups whose replies are compared with each other. 0: none, so replies with equal rewards may teach."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An event to log, with its text."""

    event: str
    level: Level
    """`warning`: the run is likely not what was meant. `error`: it is saved and ends after the step."""
    text: str


@dataclass(frozen=True, slots=True)
class Watch:
    """The state of a phase's watch."""

    begun: bool = False
    """Whether replies have come."""
    steps: int = 0
    """Steps in a row without credit, up to now."""
    signs: Signs | None = None
    """The sum over these steps."""
    losses: tuple[float, ...] = ()
    """The first losses of a phase without replies, nats a token."""
    copied: int = 0
    """Steps that imitated texts."""
    empty: int = 0
    """Of them, those in a row up to now with a loss below `NOTHING`."""
    flat_steps: int = 0
    """Steps in a row, up to now, in which nearly all groups taught nothing."""
    flat_right: int = 0
    """Right replies of these steps."""
    flat_replies: int = 0
    """Graded replies of these steps."""
    said: tuple[str, ...] = ()
    """Findings that come once a phase and policy, as `event/policy`."""

    @classmethod
    def restored(cls, state: dict[str, Any]) -> Watch:
        """The watch from `dataclasses.asdict` of one, after JSON."""
        signs = state["signs"] and Signs(**state["signs"])
        return cls(**(state | {"signs": signs, "losses": tuple(state["losses"]), "said": tuple(state.get("said", ()))}))


def after_replies(watch: Watch, step_signs: Sequence[Signs], every: int) -> tuple[Watch, Finding | None]:
    """One step further: a finding where no reply of the first batch can teach, or steps in a row gave no credit.

    Args:
        step_signs: those of scored replies first, then those of others whose texts matter. Empty: no reply has ended.
        every: steps in a row without credit that give a finding. It comes again each time they have doubled.
    """
    if not step_signs or not step_signs[0].replies:
        return watch, None
    is_first = not watch.begun
    scored = step_signs[0]
    if scored.taught:
        watch = replace(watch, begun=True, steps=0, signs=None)
    else:
        signs = scored if watch.signs is None else _added(watch.signs, scored)
        watch = replace(watch, begun=True, steps=watch.steps + 1, signs=signs)
    if is_first:
        for signs in step_signs:
            if cause := lost_cause(signs):
                return watch, Finding("dead_batch", "warning", f"in the first batch {cause}")
    times, rest = divmod(watch.steps, every)
    if rest or not times or times & (times - 1):  # once, twice, four times as many
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
    """One step further in a phase that imitates texts: a finding after twice `every` steps if the loss does not fall.

    Args:
        loss: of the step, nats a token.
        every: steps whose mean loss is compared with that of the next as many.
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
    """One step further in a phase that imitates texts: a finding where the loss falls to next to nothing too soon.

    That is where it stays below `NOTHING` for `every` steps in a row, within the first `SOON * every` steps. A phase
    that starts with little left to learn gives no finding. Texts that a model knows by heart so soon mostly say
    nothing: they are empty, or all the same.

    Args:
        nll: of the step, nats a token.
    """
    if watch.copied >= SOON * every or (not watch.copied and nll < MUCH_LEFT):
        return replace(watch, copied=SOON * every), None  # the texts were known at the start, or took long enough
    watch = replace(watch, copied=watch.copied + 1, empty=watch.empty + 1 if nll < NOTHING else 0)
    if watch.empty < every:
        return watch, None
    text = (
        f"the loss fell to {nll:.2g} nats a token in {watch.copied} steps, so the texts to imitate say next to "
        "nothing: look whether they are what you meant (empty, all alike, or not in the form that the prompt asks for)"
    )
    return replace(watch, copied=SOON * every), Finding("loss_gone", "warning", text)


def lost_cause(signs: Signs) -> str | None:
    """Why no reply at all can teach, and what to try, as a clause. None: some can."""
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
    """The likely cause of steps without credit, and what to try."""
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
        return (
            f"all {_count(signs)} are wrong; try easier problems, a stronger model, or a warm start, where some in "
            "traces/ show that grader and answers are right"
        )
    return (
        f"the {signs.what} to each problem have equal rewards ({signs.right} of {signs.replies} are right); try more "
        "of them a problem, a higher temperature, or problems nearer to an even chance"
    )


def _count(signs: Signs) -> str:
    return f"{signs.replies:,} {signs.what}"


def _added(total: Signs, step: Signs) -> Signs:
    """The sum of the signs of steps without credit."""
    counts = ("replies", "right", "partial", "unread", "cut", "ungraded")
    failed = {kind: total.failed.get(kind, 0) + step.failed.get(kind, 0) for kind in (*total.failed, *step.failed)}
    sums = {name: getattr(total, name) + getattr(step, name) for name in counts}
    return replace(total, **sums, failed=failed, taught=False)
