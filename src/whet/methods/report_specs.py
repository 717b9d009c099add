"""The sheets that there are, and the pieces they are composed of.

`CRITIQUE` is of critics: their traces are exchanges of four texts. `SOLVE` is of a policy that answers alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from whet.evaluation.denominators import DENOMINATORS, SOLVE_DENOMINATORS
from whet.methods.charts import (
    CHANGED,
    CLIP,
    DISCRIMINABILITY,
    ENTROPY,
    KL,
    LENGTH,
    LOST,
    NORM,
    REFINED,
    REWARD,
    SOLVED,
    TIME,
    VALUES,
)
from whet.methods.off_policy_charts import OFF_POLICY
from whet.report.spec import Chart, Column, Line, ReportSpec, Share, Stat

_SCORES = {"score": "score", "score_refine": "after", "score_gain": "gain", "mse_dis": "MSE@Dis", "mae_dis": "MAE@Dis"}
SCORE_COLUMNS = tuple(
    Column(key, title, "by the reward model", "What the reward model gives, and how far off it critiques are.",
           "a mean over questions, in points", unit="points") for key, title in _SCORES.items()
)  # fmt: skip
"""Those of `evals.scores.score_metrics`."""
GREEDY, SAMPLED, EVERY = "greedy, one a problem", "sampled, {k} a problem", "all of these replies"


def critique_columns(
    *, seen: str = "what the critic sees", made: str = "what the actor makes of it", of: str = "",
    answer: str = "answer", problem: str = "question",
) -> tuple[Column, ...]:  # fmt: skip
    """Those of `critique_metrics`.

    Args:
        seen: what stands above the columns about verdicts.
        made: what stands above those about refinements.
        of: what is judged, in the plural. Empty: what is written.
        answer: what is written, in the singular.
        problem: what is counted, in the singular.
    """

    def column(key: str, title: str, what: str, group: str, *, signed: bool = False) -> Column:
        divided = DENOMINATORS[key].replace("question", problem).replace("answer", answer)
        return Column(key, title, group, what, divided, signed)

    of = of or f"{answer}s"
    after = "Refinements, written" if answer == "answer" else f"{answer.capitalize()}s made"
    dis = "Discriminability: verdicts of the critic that agree with the verifier."
    return (
        column("acc", "Acc", f"First {answer}s that are right.", made),
        column("acc_refine", "Acc@Refine", f"{after} after the critique, that are right.", made),
        column("delta", "Delta", "Acc@Refine minus Acc, which is i→c minus c→i, in points.", made, signed=True),
        column("c2i", "c→i", f"Right {answer}s whose refinement is wrong.", made),
        column("i2c", "i→c", f"Wrong {answer}s whose refinement is right.", made),
        column("acc_dis", "Acc@Dis", dis, seen),
        column("acc_dis_correct", f"on right {of}", f"Right {of} that the critic calls right.", seen),
        column("acc_dis_incorrect", f"on wrong {of}", f"Wrong {of} that the critic calls wrong.", seen),
        column("unparsed", "unparsed", "Critiques without a readable verdict.", seen),
    )


BEHIND_CRITIQUES = {
    "acc": {},
    "acc_refine": {"change": "c2c,i2c"},
    "delta": {"change": "c2i,i2c"},
    "c2i": {"change": "c2i"},
    "i2c": {"change": "i2c"},
    "acc_dis": {"verdict": "wrong,unparsed"},
    "acc_dis_correct": {"verdict": "wrong,unparsed", "change": "c2c,c2i"},
    "acc_dis_incorrect": {"verdict": "wrong,unparsed", "change": "i2c,i2i"},
    "unparsed": {"verdict": "unparsed"},
}


def _solve(key: str, title: str, group: str, what: str, unit: Literal["percent", "tokens"] = "percent") -> Column:
    return Column(key, title, group, what, SOLVE_DENOMINATORS[key], unit=unit)


SOLVE_COLUMNS = (
    _solve("acc", "Acc", GREEDY, "Greedy replies that are right."),
    _solve("average", "mean of {k}", SAMPLED, "Sampled replies that are right."),
    _solve("pass", "pass@{k}", SAMPLED, "Problems that at least one of {k} sampled replies gets right."),
    _solve("majority", "majority of {k}", SAMPLED, "Problems whose most frequent answer in {k} samples is right."),
    _solve("truncated", "truncated", EVERY, "Replies that ran into the token limit."),
    _solve("length", "mean length", EVERY, "How long the replies are.", "tokens"),
)


def truncated(one: str, many: str, end: str, policy: str = "") -> Share:
    """The share of texts that were cut at their token limit.

    Args:
        one, many: what is written, in the singular and in the plural.
        end: what a cut one seldom reaches.
        policy: of several, the one whose metric it is.
    """
    return Share(
        f"{policy}.length/truncated" if policy else "length/truncated",
        f"Truncated {many}",
        f"of the {many} ran into the token limit",
        0.02,
        0.1,
        f"A cut {one} seldom reaches its {end}; look whether max_new_tokens is too low.",
    )


UNPARSED = Share(
    "critique/unparsed",
    "Unparsed critiques",
    "of the critiques had no readable verdict",
    0.02,
    0.1,
    "Read a few of them below before trusting the reward.",
)
CRITIC_STATS = (
    Stat(
        "Right after {rows[-1]}'s critique",
        "{rows[-1].acc_refine} %",
        ("{rows[-1].acc} % before: {rows[-1].delta:+} points",),
    ),
    Stat("{rows[-1]}'s verdicts that are right", "{rows[-1].acc_dis} %", ("{rows[0]}: {rows[0].acc_dis} %",)),
    Stat("Wrong answers made right, i→c", "{rows[-1].i2c} %", ("right made wrong, c→i: {rows[-1].c2i} %",)),
)
"""Of the last critic."""
SOLVER_STATS = (
    Stat(
        "Right after training, best weights, greedy",
        "{best.acc} %",
        ("{before.acc} % before: {best.acc - before.acc:+} points", "last weights: {last.acc} %"),
    ),
    Stat(
        "Right on average of {best.k:.0f} samples",
        "{best.average} %",
        ("pass@{best.k:.0f}: {before.pass} % before, {best.pass} % after",),
    ),
    Stat(
        "Right in validation, greedy, so far",
        "{steps[-1].validation/acc} %",
        ("{steps[0].validation/acc} % at first",),
        so_far=True,
    ),
    Stat(
        "Right in training, sampled, so far",
        "{steps[-1].reward/correct} %",
        ("{steps[0].reward/correct} % at first",),
        so_far=True,
    ),
    Stat(
        "Entropy, first → last step",
        "{steps[0].entropy:.3f} → {steps[-1].entropy:.3f}",
        ("{steps[-1].entropy / steps[0].entropy} % of the first step's",),
    ),
)
"""The best weights after training, or the validation so far; then the entropy from start to end."""

CRITIQUE = ReportSpec(
    who="critic",
    order=("no_critic", "sft_critic", "stage1", "stage2"),
    untrained=("no_critic",),
    columns=critique_columns(),
    best="acc_refine",
    several="Here a question counts once for each of its samples, and what is said of verdicts counts the critiques of "
    "all rounds, each on the answer that it judged.",
    problem="question",
    tested="critics",
    stats=CRITIC_STATS,
    charts=(
        DISCRIMINABILITY,
        REFINED,
        CHANGED,
        replace(
            REWARD,
            note="mean of the critiques",
            lines=(
                Line("reward/mean", "total", "blue"),
                Line("reward/direct", "direct", "orange"),
                Line("reward/indirect", "indirect", "violet"),
            ),
        ),
        replace(
            KL,
            title="KL divergence",
            lines=(Line("kl/ref", "to the reference", "blue"), Line("kl/sampler", "sampler to trainer", "orange")),
        ),
        replace(ENTROPY, note="of the critic, per token, in nats", lines=(Line("entropy", "entropy", "blue"),)),
        replace(LENGTH, note="of a critique, in tokens", lines=(Line("length/mean", "mean length", "blue"),)),
        replace(
            LOST,
            title="Lost critiques",
            note="shares of critiques and of groups",
            lines=(
                Line("length/truncated", "truncated", "blue"),
                Line("critique/unparsed", "unparsed", "orange"),
                Line("group/no_signal", "groups without signal", "grey"),
                Line("group/all_wrong", "of which all wrong", "violet"),
            ),
        ),
        CLIP,
        replace(NORM, lines=(Line("optim/grad_norm", "norm", "blue"),)),
        TIME,
    ),
    off_policy=OFF_POLICY,
    training=("reward/mean", "validation/acc_dis", "critique/acc_dis"),
    is_staged=True,
    shares=(truncated("critique", "critiques", "verdict"), UNPARSED),
    phases={
        "sft_actor": "warm start, actor",
        "sft_critic": "warm start, critic",
        "stage1": "stage I",
        "stage2": "stage II",
        "test": "test",
    },
    view="exchange",
    trace="exchange",
    traces="exchanges",
    behind=BEHIND_CRITIQUES,
)
SOLVE = ReportSpec(
    who="policy",
    order=("training", "before", "best", "last"),
    columns=SOLVE_COLUMNS,
    best="acc",
    stats=SOLVER_STATS,
    charts=(
        SOLVED,
        REWARD,
        ENTROPY,
        LENGTH,
        LOST,
        KL,
        replace(
            NORM,
            lines=(replace(NORM.lines[0], name="policy"), Line("value_model.optim/grad_norm", "value model", "orange")),
        ),
        *VALUES,
        TIME,
    ),
    off_policy=OFF_POLICY,
    shares=(truncated("reply", "replies", "answer"),),
    accuracy="validation/acc",
    titles={"before": "Before training"},
    phases={"before": "test, before", "train": "training", "after": "test, after"},
    kept="of the greedy ones, which alone are kept",
    behind={"acc": {"outcome": "right"}, "truncated": {"trouble": "truncated"}},
)

PLAYED = "all items"


def _episodes(key: str, title: str, what: str, of: str = PLAYED, **more: Any) -> Column:
    return Column(key, title, "in its environments", what, of, **more)


AGENT_COLUMNS = (
    _episodes("success", "success", "Episodes whose reward is a success, by the environment's own rule."),
    _episodes("success_low", "from", "The lower end of its 95 % interval, over items.", "a bound"),
    _episodes("success_high", "to", "The upper end of its 95 % interval, over items.", "a bound"),
    _episodes("pass", "pass@{k}", "Items with at least one success among {k} episodes."),
    _episodes("reward", "reward", "What an episode comes to, as its environment pays.", "a mean over episodes",
            unit="points"),
    _episodes("turns", "turns", "What the agent said, a turn each.", "a mean over episodes", unit="points"),
    _episodes("invalid", "invalid", "Turns that could not be read, or that the world did not understand.", "all turns"),
    _episodes("truncated", "cut", "Episodes that came to a limit of turns or tokens.", "all episodes"),
)  # fmt: skip
LEADS = (
    _episodes("lead", "lead", "Success of `after`, the best validated weights, minus this row's, on the same items.",
            "a mean over items", signed=True),
    _episodes("lead_low", "from", "The lower end of its 95 % interval, paired over items.", "a bound", signed=True),
    _episodes("lead_high", "to", "The upper end of its 95 % interval, paired over items.", "a bound", signed=True),
)  # fmt: skip
"""Of a run that measures other models beside what it trains."""
SUCCEEDED = Chart(
    "Success", "episodes that succeed", "percent", False,
    (
        Line("reward/success", "training, sampled", "orange"),
        Line("", "validation", "blue", checked="validation/success"),
    ),
)  # fmt: skip
AGENT = ReportSpec(
    who="policy",
    order=("before", "after", "last"),
    columns=AGENT_COLUMNS,
    best="success",
    problem="item",
    tested="policy",
    stats=(
        Stat(
            "Success after training, best weights",
            "{after.success} %",
            ("{before.success} % before: {after.success - before.success:+} points", "last weights: {last.success} %"),
        ),
        Stat("Turns an episode", "{after.turns:.1f}", ("{before.turns:.1f} before",)),
        Stat("Invalid turns", "{after.invalid} %", ("{before.invalid} % before",)),
        Stat("Success in validation, so far", "{steps[-1].validation/success} %",
             ("{steps[0].validation/success} % at first",), so_far=True),
    ),
    charts=(SUCCEEDED, LENGTH, ENTROPY, NORM, TIME),
    accuracy="validation/success",
    view="dialogue",
    trace="episode",
    traces="episodes",
    behind={"success": {"outcome": "right"}, "truncated": {"trouble": "truncated"}},
)  # fmt: skip
"""Of a policy that acts in environments."""
TURNS = Chart(
    "Turns", "of an episode", "number", True,
    (
        Line("turns/mean", "taken", "blue"),
        Line("turns/horizon", "the most that may be", "grey"),
    ),
)  # fmt: skip
CUT = Chart(
    "Turns and episodes lost", "shares of episodes and of turns", "percent", True,
    (
        Line("episodes/cut", "episodes that came to a limit", "orange"),
        Line("episodes/cut_by_horizon", "of which that of turns", "blue"),
        Line("turns/invalid", "turns that nobody understood", "violet"),
        Line("group/no_signal", "groups without signal", "grey"),
    ),
)  # fmt: skip
ACTING = replace(
    AGENT, training=("reward/success", "reward/mean"),
    order=(*AGENT.order, "cloned"), titles={"cloned": "Fully cloned"},
    charts=(SUCCEEDED, TURNS, CUT, LENGTH, ENTROPY, KL, *SOLVE.charts[6:]), off_policy=OFF_POLICY,
)  # fmt: skip
"""Of a policy that learns from what its episodes are paid."""
STORED = replace(
    SOLVE, who="environment", order=(), titles={}, stats=(), charts=(), off_policy=(), behind={}, view="dialogue",
    trace="episode", traces="episodes",
)  # fmt: skip
"""Episodes of a file, of whatever world."""
