"""Self-correction in a run: which chains are learnt and in which form, and what replies correct in themselves."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

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
from whet.methods.self_correct.self_talk_config import Arm
from whet.methods.self_correct.step_comments import TinyWords, Words
from whet.methods.warm_start import demonstration_row
from whet.models.policy import Policy
from whet.rollout.services import BatchFunction
from whet.tasks.demonstrations import Demonstration
from whet.tasks.prompts import Prompts
from whet.types import Episode, Failure, Grade, Row, Task

FORMS: Mapping[str, Form] = {"response": "response", "self_talk": "step"}


def chain_of(episode: Episode, encode: Callable[[str], Sequence[int]], limit: int) -> Episode:
    """Reduces a rollout to its last segment, which has the chain's records if none is too long to be written.

    Args:
        limit: tokens of a reply, the end token included.
    """
    segment = replace(episode.segments[-1], parent=None)
    records = segment.parsed["talks"]
    if records and max(len(encode(record["text"])) for record in records) >= limit:
        segment = replace(segment, text="", parsed={"fate": "long", "talks": []})
    elif records:
        segment = replace(segment, grade=Grade(score=1.0, extracted=records[0]["final_answer"]))
    return Episode(task=episode.task, segments=(segment,))


def fate_of(chain: Episode) -> Fate:
    fate: Fate = chain.segments[0].parsed["fate"]
    return fate


def self_corrections_of(chain: Episode) -> list[SelfCorrection]:
    """The records of a chain; the one with comments after each step comes first."""
    return [of_record(record) for record in chain.segments[0].parsed["talks"]]


def choose_chains(chains: Iterable[Episode], clean_share: float, seed: int) -> list[Episode]:
    """The chains that are learnt: all with a repair, and some without one, drawn at random.

    Args:
        clean_share: the most that chains without a repair may be of all, below 1. Of a problem's chains with the same
            text, one counts.
    """
    usable = [chain for chain in chains if fate_of(chain) in KEPT]
    distinct = {(chain.task.id, chain.segments[0].text): chain for chain in usable}.values()
    repaired, clean = ([chain for chain in distinct if fate_of(chain) == fate] for fate in KEPT)
    count = min(len(clean), int(len(repaired) * clean_share / (1 - clean_share)))
    return [*repaired, *random.Random(seed).sample(clean, count)]


def row_of(
    arm: Arm, self_corrections: Sequence[SelfCorrection], prompts: Prompts, policy: Policy, *, with_mistakes: bool
) -> Row:
    """A chain as the row of an answer to its question.

    Args:
        with_mistakes: whether the steps found wrong are trained on too. False: they are in the row, without credit.
    """
    row = demonstration_row(demonstration_of(arm, self_corrections, prompts), policy.name, policy.tokenizer)
    if with_mistakes or arm == "plain":
        return row
    correction = _of_form(arm, self_corrections)
    offsets = encode_parts(policy.tokenizer, [(correction.text, "assistant")]).offsets
    wrong = mistakes(correction)
    trained = np.array([not any(start < b and a < end for a, b in wrong) for start, end in offsets] + [True])
    return replace(row, trains=row.trains[trained], credit=row.credit[trained])


def demonstration_of(arm: Arm, self_corrections: Sequence[SelfCorrection], prompts: Prompts) -> Demonstration:
    """A chain as a text to imitate, as an answer to its question."""
    first, prefill = self_corrections[0], prompts.solve_prefill
    text = plain_text(first) if arm == "plain" else _of_form(arm, self_corrections).text
    return Demonstration("solve", tuple(prompts.solve_messages(first.question)), prefill, prefill + text)


def _of_form(arm: Arm, self_corrections: Sequence[SelfCorrection]) -> SelfCorrection:
    return next(correction for correction in self_corrections if correction.form == FORMS[arm])


# --- metrics ----------------------------------------------------------------------------------------------------------


def measure_replies(
    form: Form,
    tasks: Sequence[Task],
    traces: Sequence[Mapping[str, Any]],
    words: Words,
    prompts: Prompts,
    grade: BatchFunction,
) -> dict[str, float | None]:
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
        answers = [(prefill + reply.first, by_id[trace["task"]]) for trace, reply in zip(graded, replies, strict=True)]
        scores = [None if isinstance(result, Failure) else result.score for result in grade(answers)]
        firsts = [None if score is None else score == 1.0 for score in scores]
    else:
        firsts = [holds(reply.first) if isinstance(words, TinyWords) else None for reply in replies]
    return self_talk_metrics(
        [
            CorrectedReply(reply.num_repairs, first, trace["answer_score"] == 1.0)
            for reply, first, trace in zip(replies, firsts, graded, strict=True)
        ]
    )


@dataclass(frozen=True, slots=True)
class CorrectedReply:
    """A reply with self-correction."""

    num_repairs: int
    first: bool | None
    """Whether its first attempt was right. None: unknown."""
    right: bool
    """Whether its end is."""


def self_talk_metrics(replies: Sequence[CorrectedReply]) -> dict[str, float | None]:
    """Metrics of replies. `first`, `helped` and `harmed` are of those whose first attempt is known, or None.

    Returns: shares of replies, and `repairs`, a mean. `first`: the first attempt is right. `repaired`: there is a
        repair. `helped`: the first attempt is wrong, and after a repair the end is right. `harmed`: the first attempt
        is right, and after a repair the end is wrong.
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
