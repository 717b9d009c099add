"""Which metrics share a panel, and what is said beside it: for each kind of run. `off_policy` has more.

Colours, fonts and sizes are the page's business (`charts.js`); here a line only says which of the palette's it wants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["percent", "number"]
Colour = Literal["blue", "orange", "violet", "grey"]


@dataclass(frozen=True, slots=True)
class Line:
    key: str
    """Of the training metric; empty: there is validation only."""
    name: str
    colour: Colour
    checked: str = ""
    """The validation metric. Empty: the training metric's name after `validation/`."""
    band: tuple[str, str] | None = None
    """Metrics that bound a band around the line, the lower one first."""
    points: bool = False
    """Draw points: the metric is missing in many steps, and a line would make values up."""
    scaled: bool = False
    """Divide by the largest absolute value, so that lines of different scales can be compared."""

    @property
    def validation_key(self) -> str:
        return self.checked or f"validation/{self.key.removeprefix('critique/')}"


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    note: str
    """What one sees in it, in a few words."""
    unit: Unit
    from_zero: bool
    lines: tuple[Line, ...]
    says: str = ""
    """A sentence under the title: what one sees, and what a healthy run shows."""
    log: bool = False
    """The y axis."""
    unless_zero: bool = False
    """Leave the panel out where nothing ever happened."""


_TIME = Panel(
    "Seconds a step",
    "where the time goes",
    "number",
    True,
    (Line("time/rollout", "rollout", "blue"), Line("time/update", "update", "orange")),
)

CRITIQUE_PANELS = (
    Panel(
        "Discriminability",
        "verdicts that agree with the verifier",
        "percent",
        False,
        (
            Line("critique/acc_dis_correct", "on right answers", "blue"),
            Line("critique/acc_dis_incorrect", "on wrong answers", "orange"),
        ),
    ),
    Panel(
        "Accuracy of the actor",
        "of all questions",
        "percent",
        False,
        (Line("critique/acc", "before: Acc", "grey"), Line("critique/acc_refine", "after: Acc@Refine", "blue")),
    ),
    Panel(
        "What critique changes",
        "of all questions",
        "percent",
        True,
        (Line("critique/i2c", "mended, i→c", "blue"), Line("critique/c2i", "spoiled, c→i", "orange")),
    ),
    Panel(
        "Reward",
        "mean of the critiques",
        "number",
        False,
        (
            Line("reward/mean", "total", "blue"),
            Line("reward/direct", "direct", "orange"),
            Line("reward/indirect", "indirect", "violet"),
        ),
    ),
    Panel(
        "KL divergence",
        "per token",
        "number",
        True,
        (Line("kl/ref", "to the reference", "blue"), Line("kl/sampler", "sampler to trainer", "orange")),
    ),
    Panel("Entropy", "of the critic, per token, in nats", "number", True, (Line("entropy", "entropy", "blue"),)),
    Panel("Length", "of a critique, in tokens", "number", True, (Line("length/mean", "mean length", "blue"),)),
    Panel(
        "Lost critiques",
        "shares of critiques and of groups",
        "percent",
        True,
        (
            Line("length/truncated", "truncated", "blue"),
            Line("critique/unparsed", "unparsed", "orange"),
            Line("group/no_signal", "groups without signal", "grey"),
            Line("group/all_wrong", "of which all wrong", "violet"),
        ),
    ),
    Panel(
        "Clipped tokens",
        "share past each bound",
        "percent",
        True,
        (Line("clip/low", "lower bound", "blue"), Line("clip/high", "upper bound", "orange")),
    ),
    Panel("Gradient norm", "before clipping", "number", True, (Line("optim/grad_norm", "norm", "blue"),)),
    _TIME,
)

SOLVE_PANELS = (
    Panel(
        "Accuracy",
        "replies that are right",
        "percent",
        False,
        (
            Line("", "validation, greedy", "blue", checked="validation/acc"),
            Line("reward/correct", "training, sampled", "orange"),
        ),
    ),
    Panel("Reward", "mean of the replies", "number", False, (Line("reward/mean", "reward", "blue"),)),
    Panel(
        "Entropy",
        "of the policy, per token, in nats",
        "number",
        True,
        (
            Line("entropy", "at the tokens trained on", "blue"),
            Line("entropy/sampled", "at the tokens just sampled", "orange"),
        ),
    ),
    Panel(
        "Length",
        "of a reply, in tokens",
        "number",
        True,
        (
            Line("length/good", "better than its group", "blue"),
            Line("length/bad", "worse", "orange"),
            Line("length/mean", "all", "grey"),
        ),
    ),
    Panel(
        "Replies and groups lost",
        "shares of replies and of groups",
        "percent",
        True,
        (
            Line("length/truncated", "truncated", "blue"),
            Line("group/no_signal", "groups with equal rewards", "grey"),
            Line("group/all_wrong", "groups all wrong", "orange"),
        ),
    ),
    Panel("KL to the reference", "per token", "number", True, (Line("kl/ref", "KL", "blue"),)),
    Panel(
        "Gradient norm",
        "before clipping",
        "number",
        True,
        (
            Line("optim/grad_norm", "policy", "blue", band=("optim/grad_norm_min", "optim/grad_norm_max")),
            Line("value_model.optim/grad_norm", "value model", "orange"),
        ),
    ),
    Panel(
        "Error of the value model",
        "squared, per token",
        "number",
        True,
        (Line("value_model.value/error", "error", "blue"),),
    ),
    Panel(
        "Returns explained",
        "of their variance, by the values",
        "percent",
        False,
        (Line("value/explained", "explained", "blue"),),
    ),
    Panel(
        "Values and returns",
        "means per token",
        "number",
        False,
        (
            Line("value_model.value/returns", "what came", "grey"),
            Line("value_model.value/mean", "what was expected", "blue"),
        ),
    ),
    _TIME,
)
