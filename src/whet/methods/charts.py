"""Panels that methods share, to compose their sheets of: as they are, reworded (`dataclasses.replace`), or of one of
several policies (`trained`).

Colours, fonts and sizes are the page's business (`charts.js`); here a line only says which of the palette's it wants.
"""

from __future__ import annotations

from dataclasses import replace

from whet.report.spec import Chart, Line

REWARD = Chart("Reward", "mean of the replies", "number", False, (Line("reward/mean", "reward", "blue"),))
ENTROPY = Chart(
    "Entropy",
    "of the policy, per token, in nats",
    "number",
    True,
    (
        Line("entropy", "at the tokens trained on", "blue"),
        Line("entropy/sampled", "at the tokens just sampled", "orange"),
    ),
)
LENGTH = Chart(
    "Length",
    "of a reply, in tokens",
    "number",
    True,
    (
        Line("length/good", "better than its group", "blue"),
        Line("length/bad", "worse", "orange"),
        Line("length/mean", "all", "grey"),
    ),
)
LOST = Chart(
    "Replies and groups lost",
    "shares of replies and of groups",
    "percent",
    True,
    (
        Line("length/truncated", "truncated", "blue"),
        Line("group/no_signal", "groups with equal rewards", "grey"),
        Line("group/all_wrong", "groups all wrong", "orange"),
    ),
)
LOSS = Chart("Loss", "negative log-likelihood per token, in nats", "number", True, (Line("loss/nll", "loss", "blue"),))
KL = Chart("KL to the reference", "per token", "number", True, (Line("kl/ref", "KL", "blue"),))
CLIP = Chart(
    "Clipped tokens",
    "share past each bound",
    "percent",
    True,
    (Line("clip/low", "lower bound", "blue"), Line("clip/high", "upper bound", "orange")),
)
NORM = Chart(
    "Gradient norm",
    "before clipping",
    "number",
    True,
    (Line("optim/grad_norm", "norm", "blue", band=("optim/grad_norm_min", "optim/grad_norm_max")),),
)
TIME = Chart(
    "Seconds a step",
    "where the time goes",
    "number",
    True,
    (Line("time/rollout", "rollout", "blue"), Line("time/update", "update", "orange")),
)
DISCRIMINABILITY = Chart(
    "Discriminability",
    "verdicts that agree with the verifier",
    "percent",
    False,
    (
        Line("critique/acc_dis_correct", "on right answers", "blue"),
        Line("critique/acc_dis_incorrect", "on wrong answers", "orange"),
    ),
)
REFINED = Chart(
    "Accuracy of the actor",
    "of all questions",
    "percent",
    False,
    (Line("critique/acc", "before: Acc", "grey"), Line("critique/acc_refine", "after: Acc@Refine", "blue")),
)
CHANGED = Chart(
    "What critique changes",
    "of all questions",
    "percent",
    True,
    (Line("critique/i2c", "mended, i→c", "blue"), Line("critique/c2i", "spoiled, c→i", "orange")),
)
SOLVED = Chart(
    "Accuracy",
    "replies that are right",
    "percent",
    False,
    (
        Line("", "validation, greedy", "blue", checked="validation/acc"),
        Line("reward/correct", "training, sampled", "orange"),
    ),
)
VALUES = (
    Chart(
        "Error of the value model",
        "squared, per token",
        "number",
        True,
        (Line("value_model.value/error", "error", "blue"),),
    ),
    Chart(
        "Returns explained",
        "of their variance, by the values",
        "percent",
        False,
        (Line("value/explained", "explained", "blue"),),
    ),
    Chart(
        "Values and returns",
        "means per token",
        "number",
        False,
        (
            Line("value_model.value/returns", "what came", "grey"),
            Line("value_model.value/mean", "what was expected", "blue"),
        ),
    ),
)


def prefixed(chart: Chart, policy: str) -> Chart:
    """The panel of one policy of several, whose training metrics bear its name; a line's own validation stays."""

    def named(key: str) -> str:
        return f"{policy}.{key}" if key else ""

    lines = tuple(
        replace(
            line,
            key=named(line.key),
            band=(named(line.band[0]), named(line.band[1])) if line.band else None,
        )
        for line in chart.lines
    )
    return replace(chart, title=f"{chart.title}, {policy}", lines=lines)


def trained(
    policy: str, charts: tuple[Chart, ...] = (REWARD, ENTROPY, LENGTH, LOST, KL, CLIP, NORM)
) -> tuple[Chart, ...]:
    """What is shown of the training of one policy of several."""
    return tuple(prefixed(chart, policy) for chart in charts)
