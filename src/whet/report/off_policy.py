"""The off-policy section: how balanced the updates were, what was clipped, how old the data were, what it did.

After the figures of BAPO (arXiv:2510.18927, figs. 2 to 9), with more of what a search over bounds can be asked.
"""

from __future__ import annotations

from whet.report.panels import Line, Panel
from whet.report.read import Phase, Run, number

CONTRIBUTION, RATIOS, RULE = "Contribution of good tokens", "Ratios", "Entropy-Clip Rule"
OFF_POLICY_PANELS = (
    Panel(
        CONTRIBUTION,
        "share of all contributions",
        "percent",
        False,
        (
            Line("balance/share_raw", "before clipping", "grey"),
            Line("balance/share", "after clipping", "blue"),
            Line("balance/share_gradient", "of tokens with a gradient", "violet"),
            Line("balance/tokens_positive", "share of tokens", "orange"),
        ),
        says="How much of the push on the policy, ratio times credit, comes from tokens whose credit is above 0. "
        "Healthy: steady, near one half or at the target; far below it the policy is mostly told what not to do.",
    ),
    Panel(
        "Bounds",
        "on the ratio, new to old weights",
        "number",
        False,
        (
            Line("bounds/high", "upper bound, on good tokens", "blue", band=("bounds/high_min", "bounds/high_max")),
            Line("bounds/low", "lower bound, on bad tokens", "orange", band=("bounds/low_min", "bounds/low_max")),
        ),
        says="What the search chose: the mean of a step's updates, in a band from the least to the greatest. Healthy: "
        "they leave their starts now and then and come back; stuck at their ends, they no longer balance anything.",
    ),
    Panel(
        "Moves of the search",
        "a search, mean of a step",
        "number",
        True,
        (Line("bounds/moves", "moves", "blue"),),
        says="How far the bounds had to go from their starts. Healthy: few moves; 0 where the starts met the target.",
    ),
    Panel(
        "How searches end",
        "share of searches",
        "percent",
        True,
        (
            Line("bounds/settled", "moved, and met the target", "blue"),
            Line("bounds/exhausted", "ran out short of it", "orange"),
            Line("bounds/in_reach", "searches that could reach a token", "grey"),
        ),
        says="The other searches met the target at the start. Healthy: mostly blue or none; where searches either stay "
        "or run out, the rule only switches between two pairs of bounds. The grey line is a share of the updates: in "
        "the others no token was far enough for any bound, and their searches are not counted.",
    ),
    Panel(
        "Limit on ratios",
        "largest squared log ratio that stays",
        "number",
        True,
        (Line("bounds/limit", "limit", "blue"),),
        says="The tokens that have moved further are left out, until the rest meets the budget; the mean over the "
        "updates that left some out. Healthy: well above 0; near 0 the data are so old that hardly a moved token is "
        "trained on.",
    ),
    Panel(
        "Let in and shut out",
        "tokens, against 0.8 to 1.2",
        "percent",
        True,
        (
            Line("clip/let_in_positive", "let in, good", "blue"),
            Line("clip/let_in_negative", "let in, bad", "orange"),
            Line("clip/shut_out", "shut out", "grey"),
        ),
        says="Tokens that keep their gradient here and would lose it under PPO's bounds, and the other way round. "
        "Healthy for the entropy: the good ones that are let in are not outnumbered by the bad ones.",
        unless_zero=True,
    ),
    Panel(
        "How likely those let in were",
        "mean probability",
        "percent",
        True,
        (
            Line("clip/let_in_positive_probability", "good", "blue", points=True),
            Line("clip/let_in_negative_probability", "bad", "orange", points=True),
        ),
        says="Under the old weights. Good tokens that were unlikely raise the entropy when learnt, unlikely bad ones "
        "lower it. Healthy: the good ones are unlikely. No point: none was let in.",
    ),
    Panel(
        "Clipped tokens",
        "share past each bound",
        "percent",
        True,
        (
            Line("clip/high", "ratio above 1", "blue"),
            Line("clip/low", "ratio below 1", "orange"),
            Line("clip/dual", "dual clip, bad tokens", "violet"),
        ),
        says="Tokens whose ratio the loss stops or replaces. Under PPO's clip they teach nothing more; CISPO and TOPR "
        "only bound their weight. Healthy: a few in a hundred at most; a rise says that the data are too old or the "
        "steps too large.",
    ),
    Panel(
        RATIOS,
        "new to old weights, quantiles over tokens",
        "number",
        False,
        (
            Line("", "1 % to 99 %", "grey", band=("ratio/q01", "ratio/q99")),
            Line("", "10 % to 90 %", "blue", band=("ratio/q10", "ratio/q90")),
            Line("ratio/q50", "median", "blue"),
        ),
        says="How much likelier the policy makes each token than the old weights did (log axis). Healthy: a thin band "
        "round 1; a tail that grows downwards means tokens that the policy has all but given up.",
        log=True,
    ),
    Panel(
        "Effective samples",
        "of all tokens",
        "percent",
        False,
        (Line("ratio/effective_samples", "effective", "blue"),),
        says="How many equally weighted tokens would tell as much as these weighted ones. Healthy: near 100 %; below "
        "one half a few tokens speak for all.",
    ),
    Panel(
        "KL from older weights",
        "per token, in nats",
        "number",
        False,
        (
            Line("kl/sampler", "from the sampler, at a step's start", "blue"),
            Line("kl/old", "from the old weights, over its updates", "orange"),
        ),
        says="How far the policy has gone from those weights. Healthy: on fresh data, rounding (below 0.001) at the "
        "start of a step; with replay or partial replies above that, but level.",
    ),
    Panel(
        "Age of tokens",
        "in updates since they were sampled",
        "number",
        True,
        (Line("staleness/mean", "mean", "blue"), Line("staleness/max", "oldest", "grey")),
        says="How many updates the policy had made since each token was sampled. Healthy: what the settings ask for, "
        "and level.",
    ),
    Panel(
        "Tokens of older weights",
        "share of tokens",
        "percent",
        True,
        (Line("staleness/share", "older", "blue"),),
        says="Tokens that were not sampled by the very weights they train. Healthy: what the settings ask for; on "
        "fresh data half of them with two updates a batch, three quarters with four.",
    ),
    Panel(
        "Waiting",
        "in the buffers",
        "number",
        True,
        (
            Line("buffer/batches", "batches", "blue"),
            Line("buffer/unfinished", "unfinished replies", "blue"),
            Line("buffer/groups", "unfinished groups", "orange"),
            Line("buffer/finished_groups", "groups finished in the step", "grey"),
        ),
        says="What has been sampled and not trained on yet. Healthy: level after the first steps; replies that pile up "
        "are begun faster than they end.",
    ),
    Panel(
        RULE,
        "change of entropy, scaled to 1",
        "number",
        False,
        (
            Line("entropy/predicted", "predicted", "blue", points=True, scaled=True),
            Line("entropy/measured", "measured", "orange", points=True, scaled=True),
        ),
        says="What the rule predicts an update does to the entropy, for a step of size 1, beside what it did. Each "
        "line is divided by its largest value, so compare signs, not heights. The rule tells something where its "
        "sign is right more often than the guess that the entropy always falls.",
    ),
)


def has_off_policy(run: Run) -> bool:
    """Whether the contributions of good and bad tokens were measured."""
    return any(key.startswith("balance/") for phase in run.phases for row in phase.steps.values() for key in row)


def setting_in_words(run: Run) -> str:
    """What the run's settings ask for: where old data come from, and what clips them."""
    parts = []
    kind = run.setting("off_policy.kind")
    if kind == "replay":
        parts.append(f"Every batch waits {run.setting('off_policy.staleness')} steps before it is trained on.")
    elif kind == "partial":
        budget = run.setting("off_policy.budget")
        parts.append(f"A reply grows by at most {budget} tokens a step, and goes on under newer weights.")
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
    elif run.setting("proximal") is False:
        parts.append("The old weights are those that sampled the token.")
    return " ".join(parts)


def reference_lines(run: Run, panel: Panel) -> list[tuple[str, float]]:
    """What the settings say a panel's lines are to be held against, by name."""
    if panel.title == CONTRIBUTION and (target := number(run.setting("loss.bounds.target"))) is not None:
        name = "target, by gradient" if run.setting("loss.bounds.contribution") == "gradient" else "target"
        return [(name, target if run.setting("loss.bounds.target_as") != "odds" else target / (1 + target))]
    if panel.title == RULE:
        return [("no change", 0.0)]
    if panel.title == RATIOS and run.setting("loss.kind") == "clip" and run.setting("loss.bounds.kind") == "fixed":
        bounds = [number(run.setting(f"loss.bounds.{name}")) for name in ("low", "high")]
        return [("bounds", value) for value in bounds if value is not None]
    return []


def agreement(run: Run) -> str:
    """In how many of the probed updates the rule's sign was the measured one.

    A step logs the mean over its probed updates; how many those were follows from the updates made so far.
    """
    agreed = fell = probed = 0
    is_base_known = False  # runs made before it was logged have no base rate
    every = int(number(run.setting("probe_every")) or 0)
    for phase in run.phases:
        done = 0
        for row in phase.steps.values():
            before, done = done, done + int(row.get("optim/updates", 0))
            if (share := row.get("entropy/rule_agrees")) is not None:
                count = max(1, done // every - before // every) if every else 1
                probed += count
                agreed += round(share * count)
                fell += round(row.get("entropy/falls", 0.0) * count)
                is_base_known |= "entropy/falls" in row
    if not probed:
        return ""
    base = f", and the entropy fell in {fell:,}" if is_base_known else ""
    return f"The sign agreed in {agreed:,} of {probed:,} probed updates{base}."


def mean_over_updates(phase: Phase, key: str, *, share: str = "") -> float | None:
    """A metric that a step logs as the mean over its updates, over all updates of the phase.

    Args:
        share: the metric that says in what share of a step's updates it was logged. Empty: in all.
    """
    rows = [
        (row[key], row.get("optim/updates", 1.0) * row.get(share, 1.0)) for row in phase.steps.values() if key in row
    ]
    total = sum(count for _, count in rows)
    return sum(value * count for value, count in rows) / total if total else None
