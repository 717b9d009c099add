"""What is shown of runs with a critic in the loop of an agent: of attempts, and of actions."""

from __future__ import annotations

from dataclasses import replace

from whet.methods.critics import NO_CRITIC
from whet.methods.report_specs import CRITIQUE, CUT, TURNS, critique_columns
from whet.report.spec import Column, Stat

SEEN = "what the critic says"


def _taken(turns: str, tokens: str) -> tuple[Column, Column]:
    return (
        Column("turns", "turns", "what it takes", turns, "a mean over items", unit="points"),
        Column("tokens", "tokens", "what it takes", f"What agent and critic wrote, {tokens}.", "a mean over items",
               unit="tokens"),
    )  # fmt: skip


OF_ATTEMPTS = replace(
    CRITIQUE,
    columns=(
        *critique_columns(made="what the agent makes of it", answer="attempt", problem="item"),
        *_taken("What the agent said, in both attempts.", "in both attempts"),
    ),
    several="Here an item counts once for each of its samples, and what is said of verdicts counts every critique, "
    "each on the attempt that it judged.",
    problem="item",
    charts=(*CRITIQUE.charts[:3], TURNS, CUT, *CRITIQUE.charts[3:]),
    phases={**CRITIQUE.phases, "sft_policy": "warm start, agent", "attempts": "attempts to critique"},
)  # fmt: skip
"""An attempt, its critique, another attempt."""
OF_ACTIONS = replace(
    OF_ATTEMPTS,
    columns=(
        Column("acc", "success", "what the agent makes of it", "Episodes that are a success.", "all items"),
        Column("sent_back", "sent back", SEEN, "Actions that the critic calls wrong, so that another is proposed.",
               "all reviews"),
        Column("unread", "unread", SEEN, "Reviews without a readable verdict, after which the action is taken.",
               "all reviews"),
        *_taken("Turns of the agent: actions that were taken.", "what was sent back included"),
    ),
    best="acc",
    several="Here an item counts once for each of its samples.",
    stats=(
        Stat("Success with {rows[-1]}'s reviews", "{rows[-1].acc} %", (f"{{{NO_CRITIC}.acc}} % without",)),
        Stat("Actions sent back by {rows[-1]}", "{rows[-1].sent_back} %", ("unread reviews: {rows[-1].unread} %",)),
        Stat("Tokens an item", "{rows[-1].tokens:.0f}", (f"{{{NO_CRITIC}.tokens:.0f}} without",)),
    ),
    shares=(),
    view="dialogue",
    trace="episode",
    traces="episodes",
    behind={"acc": {"outcome": "right"}},
)  # fmt: skip
"""An action is proposed, reviewed, and taken or sent back: one attempt, so nothing is refined. Reviews are counted, and
not held against anything: which action is right is known in the worlds' scripted experts alone."""
