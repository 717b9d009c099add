"""The panels of the off-policy section: how balanced the updates were, what was clipped, how old the data were.

After the figures of BAPO (arXiv:2510.18927, figs. 2 to 9), with more of what a search over bounds can be asked.
"""

from __future__ import annotations

from whet.report.spec import Chart, Line

OFF_POLICY = (
    Chart(
        "Contribution of good tokens",
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
        against="target",
    ),
    Chart(
        "Reach of the search",
        "share of good tokens",
        "percent",
        False,
        (
            Line("bounds/reach_start", "at the bounds' starts", "grey"),
            Line("bounds/reach_end", "at their ends", "orange"),
            Line("bounds/reach_most", "the most on the way", "blue"),
        ),
        says="Between these the search can choose, whatever it chose. Healthy: the target is between grey and blue. "
        "All above it: the bounds stay at their starts; all below it: the search runs to its ends, and gains nothing.",
        against="target",
    ),
    Chart(
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
    Chart(
        "Moves of the search",
        "a search, mean of a step",
        "number",
        True,
        (Line("bounds/moves", "moves", "blue"),),
        says="How far the bounds had to go from their starts. Healthy: few moves; 0 where the starts met the target.",
    ),
    Chart(
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
    Chart(
        "Limit on ratios",
        "largest squared log ratio that stays",
        "number",
        True,
        (Line("bounds/limit", "limit", "blue"),),
        says="The tokens that have moved further are left out, until the rest meets the budget; the mean over the "
        "updates that left some out. Healthy: well above 0; near 0 the data are so old that hardly a moved token is "
        "trained on.",
    ),
    Chart(
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
    Chart(
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
    Chart(
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
    Chart(
        "Ratios",
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
        against="bounds",
    ),
    Chart(
        "Effective samples",
        "of all",
        "percent",
        False,
        (
            Line("ratio/effective_samples", "tokens, each by its ratio", "blue"),
            Line("ratio/effective_rows", "rows, each by the product of its ratios", "orange"),
        ),
        says="How many equally weighted tokens, or whole replies, would tell as much as these weighted ones. Healthy: "
        "tokens near 100 %; below one half a few tokens speak for all. Replies fall first, the longer the sooner: "
        "only losses that weigh whole replies feel that.",
    ),
    Chart(
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
    Chart(
        "Age of tokens",
        "in updates since they were sampled",
        "number",
        True,
        (Line("staleness/mean", "mean", "blue"), Line("staleness/max", "oldest", "grey")),
        says="How many updates the policy had made since each token was sampled. Healthy: what the settings ask for, "
        "and level.",
    ),
    Chart(
        "Tokens of older weights",
        "share of tokens",
        "percent",
        True,
        (Line("staleness/share", "older", "blue"),),
        says="Tokens that were not sampled by the very weights they train. Healthy: what the settings ask for; on "
        "fresh data half of them with two updates a batch, three quarters with four.",
    ),
    Chart(
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
    Chart(
        "Entropy-Clip Rule",
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
        against="rule",
    ),
)
