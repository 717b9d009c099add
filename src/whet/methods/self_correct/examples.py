"""Self-correction in a run: the records to learn, their forms, and what replies mend.

What self-correction does inside a reply: how often it mends, and whether the reply gets better.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Literal

import numpy as np

from whet.chat import encode_parts
from whet.methods.self_correct.records import (
    Form,
    SelfCorrection,
    holds,
    mistakes,
    of_record,
    plain_text,
    read_self_correction,
)
from whet.methods.self_correct.rollout import KEPT, Fate
from whet.methods.self_correct.step_comments import TinyWords, Words
from whet.methods.warm_start import demonstration_row
from whet.models.policy import Policy
from whet.rollout.services import BatchFunction
from whet.tasks.demonstrations import Demonstration
from whet.tasks.prompts import Prompts
from whet.types import Episode, Failure, Grade, Row, Task

Arm = Literal["plain", "response", "self_talk"]
ARMS: tuple[Arm, ...] = ("plain", "response", "self_talk")
"""The forms in which an actor can learn the same chains."""
FORMS: Mapping[str, Form] = {"response": "response", "self_talk": "step"}


def told_of(episode: Episode, encode: Callable[[str], Sequence[int]], limit: int) -> Episode:
    """Reduces a chain to its last segment, with its records where none is too long to be written.

    Args:
        limit: tokens of a reply, the end token included.
    """
    segment = replace(episode.segments[-1], parent=None)
    self_corrections = segment.parsed["talks"]
    if self_corrections and max(len(encode(talk["text"])) for talk in self_corrections) >= limit:
        segment = replace(segment, text="", parsed={"fate": "long", "talks": []})
    elif self_corrections:
        segment = replace(segment, grade=Grade(score=1.0, extracted=self_corrections[0]["final_answer"]))
    return Episode(task=episode.task, segments=(segment,))


def fate_of(told: Episode) -> Fate:
    fate: Fate = told.segments[0].parsed["fate"]
    return fate


def self_corrections_of(told: Episode) -> list[SelfCorrection]:
    """The records of a chain; the one with comments after each step comes first."""
    return [of_record(record) for record in told.segments[0].parsed["talks"]]


def chosen(told: Iterable[Episode], clean_share: float, seed: int) -> list[Episode]:
    """The chains that are learnt: those with a repair, and of the others at most `clean_share` (below 1) of all, drawn
    at random. One of a problem's chains stands for all of the same text."""
    of: dict[str, list[Episode]] = {fate: [] for fate in KEPT}
    for episode in {
        (episode.task.id, episode.segments[0].text): episode for episode in told if fate_of(episode) in KEPT
    }.values():
        of[fate_of(episode)].append(episode)
    count = min(len(of["clean"]), int(len(of["repaired"]) * clean_share / (1 - clean_share)))
    return [*of["repaired"], *random.Random(seed).sample(of["clean"], count)]


def row_of(
    arm: Arm, self_corrections: Sequence[SelfCorrection], prompts: Prompts, policy: Policy, *, with_mistakes: bool
) -> Row:
    """A chain as a text to learn, as an answer to its question.

    Args:
        with_mistakes: whether the steps found wrong are learnt too. False: they are read and not learnt.
    """
    row = demonstration_row(demonstration_of(arm, self_corrections, prompts), policy.name, policy.tokenizer)
    if with_mistakes or arm == "plain":
        return row
    talk = next(talk for talk in self_corrections if talk.form == FORMS[arm])
    offsets = encode_parts(policy.tokenizer, [(talk.text, "assistant")]).offsets
    wrong = mistakes(talk)
    trained = np.array([not any(start < b and a < end for a, b in wrong) for start, end in offsets] + [True])
    return replace(row, trains=row.trains[trained], credit=row.credit[trained])


def demonstration_of(arm: Arm, self_corrections: Sequence[SelfCorrection], prompts: Prompts) -> Demonstration:
    """A chain as a text to imitate, as an answer to its question."""
    [chain, *_] = self_corrections
    text = (
        plain_text(chain) if arm == "plain" else next(talk.text for talk in self_corrections if talk.form == FORMS[arm])
    )
    prefill = prompts.solve_prefill
    return Demonstration("solve", tuple(prompts.solve_messages(chain.question)), prefill, prefill + text)


def mended(
    form: Form, tasks: Sequence[Task], traces: Sequence[Mapping[str, Any]], words: Words, prompts: Prompts,
    grade: BatchFunction,
) -> dict[str, float | None]:  # fmt: skip
    """`self_talk_metrics` of replies.

    Args:
        traces: of the replies, as `methods.solvers.trace` makes them.
        grade: grades the first answers of whole responses. The result of a chain without its repairs is known only in
            the tiny world, whose steps can be checked.
    """
    prefill, by_id = prompts.solve_prefill, {task.id: task for task in tasks}
    graded = [trace for trace in traces if trace["answer_score"] is not None]
    replies = [read_self_correction(trace["answer"].removeprefix(prefill), form, words) for trace in graded]
    firsts: list[bool | None]
    if form == "response":
        items = [(prefill + one.first, by_id[trace["task"]]) for trace, one in zip(graded, replies, strict=True)]
        scores = [None if isinstance(result, Failure) else result.score for result in grade(items)]
        firsts = [None if score is None else score == 1.0 for score in scores]
    else:
        firsts = [holds(one.first) if isinstance(words, TinyWords) else None for one in replies]
    rights = [trace["answer_score"] == 1.0 for trace in graded]
    return self_talk_metrics([
        Mended(one.num_repairs, first, right) for one, first, right in zip(replies, firsts, rights, strict=True)
    ])  # fmt: skip


# --- metrics ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mended:
    """A reply with self-correction."""

    num_repairs: int
    first: bool | None
    """Whether its first attempt was right. None: unknown."""
    right: bool
    """Whether its end is."""


def self_talk_metrics(replies: Sequence[Mended]) -> dict[str, float | None]:
    """Metrics of all replies; `first`, `helped` and `harmed` are of those whose first attempt is known, and None where
    there is none.

    Returns: `first` (attempts that are right), `repaired` (replies that mend something), `repairs` (a reply).
        `helped` (the first attempt wrong, a repair, the end right), `harmed` (the first attempt right, a repair, the
        end wrong).
    """
    measured = [reply for reply in replies if reply.first is not None]
    helped = [bool(reply.num_repairs) and not reply.first and reply.right for reply in measured]
    harmed = [bool(reply.num_repairs) and bool(reply.first) and not reply.right for reply in measured]
    return {
        "first": fmean(bool(reply.first) for reply in measured) if measured else None,
        "repaired": fmean(reply.num_repairs > 0 for reply in replies) if replies else None,
        "repairs": fmean(reply.num_repairs for reply in replies) if replies else None,
        "helped": fmean(helped) if measured else None,
        "harmed": fmean(harmed) if measured else None,
    }


NO_TALK: dict[str, float | None] = dict.fromkeys(self_talk_metrics(()))
"""Metrics of replies without self-correction."""
