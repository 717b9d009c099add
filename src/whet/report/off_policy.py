"""The off-policy section: its settings in words, and reference lines for its charts."""

from __future__ import annotations

from whet.report.records import PhaseRecord, RunRecord, number
from whet.report.spec import Chart


def has_off_policy(run: RunRecord) -> bool:
    """Whether the contributions of good and bad tokens were measured for any policy."""
    return any(key.rpartition(".")[2].startswith("balance/") for phase in run.phases for key in phase.metrics)


def setting_in_words(run: RunRecord) -> str:
    """The run's settings in words: where old data come from, and what clips them."""
    parts = []
    kind = run.setting("off_policy.kind")
    if kind == "replay":
        parts.append(f"Every batch waits {run.setting('off_policy.staleness')} steps before it is trained on.")
    elif kind == "partial":
        budget = run.setting("off_policy.budget")
        parts.append(f"A reply grows by at most {budget} tokens a step, and goes on under newer weights.")
    elif kind == "async":
        age = run.setting("off_policy.max_age")
        parts.append(f"Rollouts go on while the policy trains, which trains on those of the last {age} steps.")
    elif kind == "none":
        parts.append("Every batch is trained on in the step that sampled it.")
    loss, bounds = run.setting("loss.kind"), run.setting("loss.bounds.kind")
    if bounds == "bapo":
        parts.append(
            f"Before every update both bounds are searched until good tokens contribute their part "
            f"(target {run.setting('loss.bounds.target')} as {run.setting('loss.bounds.target_as')})."
        )
    elif bounds == "fixed":
        parts.append(f"The bounds stay at {run.setting('loss.bounds.low')} and {run.setting('loss.bounds.high')}.")
    elif loss:
        parts.append(f"The loss is {loss}.")
    if run.setting("proximal") is True:
        parts.append("The old weights are those that a step starts from.")
    elif run.setting("proximal") is False and (narrow := _narrow_in_words(run)):
        parts.append(
            "The old weights are those that a step starts from, and each token is weighed by how these and the sampler "
            f"differ (engine.correct, as {narrow})."
        )
    elif run.setting("proximal") is False:
        parts.append("The old weights are those that sampled the token.")
    return " ".join(parts)


def _narrow_in_words(run: RunRecord) -> str:
    """What multiplies in another type than float32, for which updates were corrected. Empty: they were not."""
    if run.setting("engine.correct") is False:
        return ""
    for key, part in (("engine.products", "the engine"), ("learning.products", "the update")):
        if (products := run.setting(key)) in ("bfloat16", "int8"):
            return f"{part} multiplies in {products}"
    return ""


def target_share_of(run: RunRecord) -> float | None:
    """The search's target as a share; None where the settings have no search."""
    target = number(run.setting("loss.bounds.target"))
    if target is None:
        return None
    return target / (1 + target) if run.setting("loss.bounds.target_as") == "odds" else target


def reference_lines(run: RunRecord, chart: Chart) -> list[tuple[str, float]]:
    """Named values from the settings to compare a chart's lines with."""
    if chart.against == "target" and (target := target_share_of(run)) is not None:
        name = "target, by gradient" if run.setting("loss.bounds.contribution") == "gradient" else "target"
        return [(name, target)]
    if chart.against == "rule":
        return [("no change", 0.0)]
    if chart.against == "bounds" and run.setting("loss.kind") == "clip" and run.setting("loss.bounds.kind") == "fixed":
        bounds = [number(run.setting(f"loss.bounds.{name}")) for name in ("low", "high")]
        return [("bounds", value) for value in bounds if value is not None]
    return []


def agreement(run: RunRecord, chart: Chart) -> str:
    """A sentence: in how many probed updates the rule's sign was the measured one.

    A step logs the mean over its probed updates. Their number follows from the updates made so far.

    Args:
        chart: the rule's, of the policy whose lines it has.
    """
    policy = chart.lines[0].key.rpartition(".")[0]
    agreed = fell = probed = 0
    every = int(number(run.setting("probe_every")) or 0)
    for phase in [phase.of(policy) for phase in run.phases] if policy else run.phases:
        done = 0
        for row in phase.steps.values():
            before, done = done, done + int(row.get("optim/updates", 0))
            if (share := row.get("entropy/rule_agrees")) is not None:
                count = max(1, done // every - before // every) if every else 1
                probed += count
                agreed += round(share * count)
                fell += round(row.get("entropy/falls", 0.0) * count)
    if not probed:
        return ""
    return f"The sign agreed in {agreed:,} of {probed:,} probed updates, and the entropy fell in {fell:,}."


def mean_over_updates(phase: PhaseRecord, key: str, *, share: str = "") -> float | None:
    """The mean over all updates of a phase of a metric that a step logs as the mean over its updates.

    Args:
        share: the metric with the share of a step's updates in which it was logged. Empty: in all.
    """
    rows = [
        (row[key], row.get("optim/updates", 1.0) * row.get(share, 1.0)) for row in phase.steps.values() if key in row
    ]
    total = sum(count for _, count in rows)
    return sum(value * count for value, count in rows) / total if total else None
