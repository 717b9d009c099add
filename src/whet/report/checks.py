"""Checks of how a policy learns: accuracy, entropy, balance, searches, the age of the data, values, drift.

Each is a function of the run and its stages that gives notes where its metrics were measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from whet.report.notes import Level, Note, last_quarter
from whet.report.off_policy import mean_over_updates, target_share_of
from whet.report.records import PhaseRecord, RunRecord
from whet.report.table import percent

COLLAPSED, BLOWN_UP = 0.2, 3.0
"""Multiples of its first value at which the final entropy is worth a warning."""
UNBALANCED = 0.15
"""How far off one half the share of good tokens may be. The paper's runs without balance are at 0.37 to 0.44
(arXiv:2510.18927, fig. 4)."""
MASTERED = 0.95
"""Share of right replies in the last quarter from which little is left to explore or to predict, and that is fine."""
FELL, FELL_FAR = 0.05, 0.2
"""How far the last validation may lie below the best: to watch, and bad."""
FRESH_KL, STALE_KL = (0.01, 0.1), (0.1, 0.5)
"""Nats a token from sampler to trainer at the start of a step, to watch and bad. The first pair is for rounding alone,
the second for older sampling weights by design."""
FEW_EFFECTIVE = 0.5


def learning(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """Notes on the effects of a policy's updates. With several stages, each note names its stage."""
    notes = []
    for stage in stages:
        stage_notes = [
            *_accuracy(stage, run.report_spec.accuracy, run.report_spec.lowered.get(stage.name, "")),
            *_entropy(stage),
            *_balance(stage),
            *_searches(stage),
        ]
        stage_notes += [*_reach(run, stage), *_age(stage), *_values(stage)]
        if len(stages) > 1:
            name = run.report_spec.title(stage.name)
            stage_notes = [replace(note, text=f"{name}: {note.text[0].lower()}{note.text[1:]}") for note in stage_notes]
        notes += stage_notes
    return notes


def grader(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """Gradings that failed, and replies that exhausted the grader's limits, also those without a trace."""
    notes = []
    errors = _counted(run, "grader/errors", "grader_errors")
    if errors:
        many = "1 grading" if errors == 1 else f"{errors:,} gradings"
        text = f"{many} failed, in training or in measuring. Those replies are left out, and never rewarded."
        notes.append(Note("watch", "Grader errors", text))
    elif errors is not None:
        notes.append(Note("good", "Grader errors", "No grading failed, in training or in measuring."))
    exhausted = _counted(run, "grader/reply_exhausted", "reply_exhausted")
    if exhausted:
        many = "1 reply" if exhausted == 1 else f"{exhausted:,} replies"
        text = f"{many} ran the grader out of time or memory and count as wrong; look at them for a trick or a loop."
        notes.append(Note("watch", "Replies that exhaust the grader", text))
    return notes


def _counted(run: RunRecord, training: str, measured: str) -> int | None:
    """The sum over training and measuring. None: not counted."""
    keys = (training, f"validation/{measured}", f"test/{measured}")
    counts = [values[key] for phase in run.phases for values in phase.steps.values() for key in keys if key in values]
    return int(sum(counts)) if counts else None


def _accuracy(stage: PhaseRecord, key: str, why_lowered: str) -> list[Note]:
    """
    Args:
        key: of the accuracy.
        why_lowered: why the stage lowers it on purpose. Empty: it should not.
    """
    steps, values = stage.series(key)
    if len(values) < 2:
        return []
    best = max(values)
    at = steps[values.index(best)]
    fell = best - values[-1]
    num = max(stage.series("validation/n")[1], default=0.0)
    mean = (best + values[-1]) / 2
    variance = max(0.0, 2 * mean * (1 - mean))  # a damaged log may make it negative
    chance = 1.96 * math.sqrt(variance / num) if num > 0 else 0.0  # of a difference of two shares
    text = f"Validation accuracy went from {percent(values[0])} % to {percent(values[-1])} %"
    if why_lowered and values[-1] < values[0]:
        return [Note("good", "Accuracy", f"{text}, on purpose: {why_lowered}.")]
    if fell < FELL and best <= values[0] < MASTERED:
        reason = (
            f"{num:.0f} problems tell differences from {percent(chance)} points on" if chance else "nothing was learnt"
        )
        return [Note("watch", "Accuracy", f"{text}, and was never above its first value: {reason}.")]
    if fell < FELL:
        return [Note("good", "Accuracy", f"{text}; its best is {percent(best)} %, at step {at}.")]
    if fell <= chance:
        text += f", after {percent(best)} % at step {at}: of {num:.0f} problems, a difference that chance makes"
        return [Note("good", "Accuracy", f"{text}. The best weights are kept.")]
    text += f", after {percent(best)} % at step {at}: what was learnt is being lost. The best weights are kept."
    return [Note("bad" if fell >= FELL_FAR else "watch", "Falling accuracy", text)]


def _is_mastered(stage: PhaseRecord) -> bool:
    values = stage.series("reward/correct")[1]
    return bool(values) and fmean(last_quarter(values)) >= MASTERED


def _entropy(stage: PhaseRecord) -> list[Note]:
    """A note on the entropy, from the first value to the mean of the last tenth."""
    values = stage.series("entropy")[1]
    if len(values) < 2 or values[0] <= 0:
        return []
    first, last = values[0], fmean(values[-max(1, len(values) // 10) :])
    text = f"The entropy went from {first:.3g} to {last:.3g} nats a token, {percent(last / first)} % of its first value"
    if stage.has("loss/nll") and not stage.has("reward/mean", "reward/success"):
        return [Note("good", "Entropy", f"{text}. Imitation lowers it: the policy learns to write what it is shown.")]
    if last < COLLAPSED * first and _is_mastered(stage):
        return [Note("good", "Entropy", f"{text}, as nearly all replies have become right.")]
    if last < COLLAPSED * first:
        return [Note("watch", "Entropy collapse", f"{text}: there is little left to explore with.")]
    if last > BLOWN_UP * first:
        return [Note("watch", "Entropy blow-up", f"{text}: see whether the accuracy fell as it rose.")]
    return [Note("good", "Entropy", f"{text}.")]


def _balance(stage: PhaseRecord) -> list[Note]:
    values = stage.series("balance/share")[1]
    if not values:
        return []
    late = fmean(last_quarter(values))
    text = (
        f"After clipping, good tokens contribute {percent(fmean(values))} % of all that pushes the policy; "
        f"{percent(late)} % in the last quarter"
    )
    if late < 0.5 - UNBALANCED:
        return [Note("watch", "Good tokens outweighed", f"{text}. The policy is mostly told what not to do.")]
    if late > 0.5 + UNBALANCED:
        return [Note("watch", "Bad tokens outweighed", f"{text}. What is wrong is hardly pushed down.")]
    return [Note("good", "Balance of the contributions", f"{text}.")]


def _searches(stage: PhaseRecord) -> list[Note]:
    share = mean_over_updates(stage, "bounds/exhausted", share="bounds/in_reach")
    settled = mean_over_updates(stage, "bounds/settled", share="bounds/in_reach")
    if share is None or settled is None:
        return []
    moves = stage.series("bounds/moves")[1]
    if moves and max(moves) == 0:
        text = "No search moved a bound: good tokens always had their part, so this was a fixed clip at the starts."
        return [Note("watch", "Searches for bounds", text)]
    text = f"In {percent(share)} % of the searches the bounds reached their ends before good tokens had their part"
    if share > 0.5:
        advice = "the target is out of reach; widen the upper bound's range, or lower the target."
        return [Note("watch", "Exhausted searches", f"{text}: {advice}")]
    text += f"; in {percent(settled)} % they moved and met the target, in the others the starts met it"
    if share > settled:
        why = "too few tokens have moved past a bound for the bounds to make up what is missing"
        return [Note("watch", "Searches for bounds", f"{text}. So it switched between two fixed pairs: {why}.")]
    return [Note("good", "Searches for bounds", f"{text}.")]


def _reach(run: RunRecord, stage: PhaseRecord) -> list[Note]:
    """Whether the search can reach its target, by the means over a stage's updates."""
    names = ("bounds/reach_start", "bounds/reach_end", "bounds/reach_most")
    shares = [value for name in names if (value := mean_over_updates(stage, name)) is not None]
    target = target_share_of(run)
    if len(shares) < len(names) or target is None:
        return []
    start, end, most = shares
    text = (
        f"Good tokens have {percent(start)} % of the weight at the bounds' starts, {percent(end)} % at their ends, and "
        f"at most {percent(most)} % between; the target is {percent(target)} %"
    )
    if start >= target:
        return [Note("good", "Reach of the search", f"{text}. The starts meet it in the mean.")]
    if most >= target:
        return [Note("good", "Reach of the search", f"{text}, which is within reach in the mean.")]
    text += ": in the mean the search cannot reach it"
    share = mean_over_updates(stage, "balance/tokens_positive")
    below, above = (mean_over_updates(stage, f"ratio/{name}") for name in ("q01", "q99"))
    if share is not None and below is not None and above is not None:
        text += (
            f". Numbers and lengths of replies fix the share ({percent(share)} % of the tokens with credit are good), "
            f"and few ratios lie past a bound (98 % of them from {below:.2f} to {above:.2f})"
        )
    return [Note("watch", "Reach of the search", f"{text}.")]


def _age(stage: PhaseRecord) -> list[Note]:
    age, effective = mean_over_updates(stage, "staleness/mean"), stage.series("ratio/effective_samples")[1]
    if age is None:
        return []
    oldest = max(stage.series("staleness/max")[1], default=0.0)
    text = f"Tokens were {age:.1f} updates old on average when they were trained on, the oldest {oldest:g}"
    if effective and (late := fmean(last_quarter(effective))) < FEW_EFFECTIVE:
        return [Note("watch", "Age of the data", f"{text}, and only {percent(late)} % of them count effectively.")]
    return [Note("good", "Age of the data", f"{text}.")]


def _values(stage: PhaseRecord) -> list[Note]:
    """Whether the value model beats a constant."""
    values = stage.series("value/explained")[1]
    if not values:
        return []
    late = fmean(last_quarter(values))
    text = f"In the last quarter the value model explains {percent(late)} % of the variance of the returns"
    if late < 0 and not _is_mastered(stage):  # equal returns have next to no variance to explain
        return [Note("watch", "Value model", f"{text}: it is worse than a constant.")]
    return [Note("good", "Value model", f"{text}.")]


def drift(run: RunRecord, stages: Sequence[PhaseRecord]) -> list[Note]:
    """Whether the tokens were sampled from the weights that the trainer assumes.

    On fresh data the drift at the start of a step is an error. With replay or partial replies it follows from the
    settings, and with data that a method trains on again, from the method.
    """
    values = [(value, stage) for stage in stages for value in stage.series("kl/sampler")[1]]
    if not values:
        return []
    peak, stage = max(values, key=lambda pair: abs(pair[0]))
    kind = run.setting("off_policy.kind")
    reasons = {
        "replay": "older weights sampled every batch",
        "partial": "replies go on under newer weights",
        "async": "rollouts go on while the policy trains",
    }
    meant = reasons.get(str(kind)) or (run.report_spec.reused and f"it trains on {run.report_spec.reused}")
    watch, bad = STALE_KL if meant else FRESH_KL
    bad = math.inf if run.report_spec.reused else bad  # by design the distance grows with learning
    level: Level = "bad" if abs(peak) >= bad else "watch" if abs(peak) >= watch else "good"
    if meant:
        text = (
            f"The KL divergence from sampler to trainer is {fmean(value for value, _ in values):.2g} nats a token on "
            f"average and at most {peak:.2g}, at the start of a step. Above zero is meant here: {meant}"
        )
        advice = "; so far apart, look whether accuracy and entropy hold."
    else:
        text = f"The KL divergence from sampler to trainer is at most {abs(peak):.2g} nats a token, as a step's mean"
        advice = f" ({run.report_spec.title(stage.name)}): look for stale weights or differing kernels."
    return [Note(level, "Off-policy drift", text + ("." if level == "good" else advice))]
