"""AutoMathCritique's work on records between rollouts: choose solutions, filter critiques, count, show and write.

Pure functions of records. The method (`auto_critique.py`) runs the rollouts and keeps the records in the store.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from whet.grading.critique_filters import (
    RULES,
    Location,
    agrees_with_grader,
    agrees_with_location,
    duplicate_key,
    holds_answer,
    is_shortcut,
    mentions_hint,
    num_needed,
    passes_soft,
    well_formed,
)
from whet.grading.step_critiques import as_blocks, is_stepwise, read_critique
from whet.methods.critique_data.config import FiltersConfig
from whet.methods.critique_data.formats import (
    SOURCES,
    CritiqueRecord,
    as_lines,
    mathcritique_of,
    processbench_of,
    row_of,
    trl_of,
)
from whet.methods.critique_data.rollouts import NO_SOURCE
from whet.seeds import seed_of
from whet.tasks.prompts import CHAINS, ENGLISH, Prompts
from whet.tasks.steps import StepsBy, judged_steps, split_steps
from whet.types import FAULTS, Episode

KEPT, DROPPED, MANIFEST = "critiques.jsonl", "dropped.jsonl", "manifest.json"
MATHCRITIQUE, TRL, LABELS = "mathcritique.json", "trl.jsonl", "first_errors.json"
FILES = (KEPT, DROPPED, MATHCRITIQUE, TRL, LABELS, MANIFEST)
MADE = ("made", "wrong", "right", "no_source", "lost", "duplicate")
"""What becomes of solutions: `made` is the sum of the others, but that a duplicate was right or wrong too."""
STAGES = (*RULES, "soft")
"""Filters, in the order in which they apply."""
LOST = "lost"
"""In `CritiqueRecord.dropped`: what failed through no fault of the text, and does not count."""


_PARTS = {"actor": "prefix", "corrupter": "mistake"}

# --- solutions --------------------------------------------------------------------------------------------------------


def of_episode(
    episode: Episode, source: str, sample: int, dataset: str, policies: Mapping[str, str]
) -> CritiqueRecord | str:
    """A solution as a record; else what became of it: `lost`, or `no_source`."""
    if episode.outcome in FAULTS:
        return LOST
    task, last = episode.task, episode.segments[-1]
    if NO_SOURCE in last.parsed:
        return "no_source"
    parsed = last.parsed
    return CritiqueRecord(
        id=f"{task.id}/{source}/{sample}",
        qid=task.id,
        dataset=dataset,
        question=task.prompt,
        gold=task.answer,
        response=last.text,
        right=last.grade is not None and last.grade.score == 1.0,
        source=source,
        error_step=parsed.get("error_step"),
        located={"rg2": "deviation", "rg3": "planted"}.get(source, ""),
        mistake=parsed.get("mistake"),
        temperature=last.temperature if last.policy not in ("rule", "reference") else None,
        prefix_len=parsed.get("prefix_len", 0),
        policies=policies,
        seeds={
            _PARTS.get(segment.role, segment.role) if i < len(episode.segments) - 1 else "answer": segment.seed
            for i, segment in enumerate(episode.segments)
            if segment.policy not in ("rule", "reference")
        },
    )


def without_hint(record: CritiqueRecord) -> CritiqueRecord:
    """Removes the hint of a right solution: where it was diverted it did not go wrong."""
    return replace(record, error_step=None, located="", mistake=None) if record.right else record


def first_of_each(records: Iterable[CritiqueRecord]) -> tuple[list[CritiqueRecord], int]:
    """Without those whose question and response came before, and how many these are."""
    first: dict[tuple[str, str], CritiqueRecord] = {}
    count = 0
    for count, record in enumerate(records, 1):  # noqa: B007
        first.setdefault(duplicate_key(record.question, record.response), record)
    return list(first.values()), count - len(first)


def balanced(
    records: Sequence[CritiqueRecord], ratio: Mapping[str, float], right_share: float, seed: int
) -> list[CritiqueRecord]:
    """Chooses records to critique: wrong ones of RG1 to RG3, as many as the ratio allows, and right ones.

    Args:
        records: in an order of their own, which those chosen keep.
        ratio: by source; of one that is not named, none. {}: all wrong ones. Imported records are all taken.
        right_share: right ones for each wrong one that was sampled, at most.
    """
    sampled = [record for record in records if record.source in ("rg1", "rg2", "rg3")]
    wrong = {name: [r for r in sampled if r.source == name and not r.right] for name in ("rg1", "rg2", "rg3")}
    if ratio:
        available = {name: len(wrong[name]) / part for name, part in ratio.items() if part and wrong.get(name)}
        scale = min(available.values(), default=0.0)
        wrong = {
            name: _some(wrong_records, int(scale * ratio.get(name, 0) + 1e-9), seed, name)
            for name, wrong_records in wrong.items()
        }
    right = [record for record in sampled if record.right]
    count = sum(map(len, wrong.values()))
    chosen = {id(record) for wrong_records in wrong.values() for record in wrong_records}
    chosen |= {id(record) for record in _some(right, round(right_share * count), seed, "right")}
    return [record for record in records if id(record) in chosen or record.source not in wrong]


def _some(records: Sequence[CritiqueRecord], count: int, seed: int, name: str) -> list[CritiqueRecord]:
    if count >= len(records):
        return list(records)
    return random.Random(seed_of(seed, "chosen", name)).sample(list(records), count)


# --- critiques --------------------------------------------------------------------------------------------------------


def criticised(
    record: CritiqueRecord, critique: str, prompts: Prompts, by: StepsBy, filters: FiltersConfig
) -> CritiqueRecord:
    """The record with a critique, what it says, and what the rule filters find."""
    parsed = read_critique(critique, prompts)
    steps = split_steps(record.response, by)
    kind: Location = "exact" if record.located in ("planted", "given") else "after"
    leaks = holds_answer(critique, record.gold)
    passed = {
        "format": well_formed(parsed, steps, stepwise=is_stepwise(prompts)),
        "verdict": agrees_with_grader(parsed, right=record.right),
        "location": agrees_with_location(parsed, record.error_step, kind=kind),
        "hint_leak": not mentions_hint(critique, f"{record.question}\n{record.response}"),
        "answer_leak": not leaks or filters.answer_leak != "drop",
    }
    enabled = {
        "format": filters.format,
        "verdict": filters.verdict,
        "location": filters.location,
        "hint_leak": filters.hint_leak,
        "answer_leak": True,
    }
    is_late = record.error_step is not None and parsed.first_wrong > record.error_step
    flags = [("answer_leak", leaks), ("late_location", is_late)]
    return replace(
        record,
        critique=critique,
        verdict=parsed.verdict,
        first_wrong=parsed.first_wrong,
        filters=passed,
        flags=tuple(name for name, is_set in flags if is_set),
        dropped=next((name for name in RULES if enabled[name] and not passed[name]), ""),
    )


def refined(
    record: CritiqueRecord, refinements: Sequence[tuple[str, bool]], solution: str, filters: FiltersConfig
) -> CritiqueRecord:
    """The record with the results of its refinements, and of the soft filter.

    Args:
        refinements: texts, and whether each is right.
        solution: the worked one, for the barrier. Empty: there is none.
    """
    right = [text for text, is_right in refinements if is_right]
    passing = [text for text in right if not (filters.barrier and is_shortcut(text, record.response, solution))]
    passed = passes_soft(len(right), filters.threshold, len(refinements))
    return replace(
        record,
        num_refinements=len(refinements),
        num_correct=len(right),
        num_barred=len(right) - len(passing),
        refinement=next(iter(passing), None),
        example=refinements[0][0] if refinements else None,
        filters={**record.filters, "soft": passed},
        dropped="" if passed else "soft",
    )


# --- counting ---------------------------------------------------------------------------------------------------------


def funnel(records: Sequence[CritiqueRecord]) -> dict[str, int]:
    """Counts of records that were critiqued, passed each filter after those before it, and are kept."""
    gone = Counter(record.dropped for record in records)
    left = len(records) - gone[LOST]
    counts = {"chosen": len(records), "criticised": left}
    for name in STAGES:
        left -= gone[name]
        counts[name] = left
    return counts | {"kept": left}


def row(records: Sequence[CritiqueRecord], made: Mapping[str, int]) -> dict[str, Any]:
    """A row of the table. Args: made: of its source, by `MADE`."""
    counts, passed = funnel(records), [record for record in records if not record.dropped]
    rates = [r.num_correct / r.num_refinements for r in records if r.num_correct is not None and r.num_refinements]
    return {
        "n": len({record.qid for record in records}),
        "k": None,
        "made": made.get("made", 0),
        "wrong": made.get("wrong", 0),
        **counts,
        "kept_right": sum(r.right for r in passed),
        "kept_wrong": sum(not r.right for r in passed),
        "share": counts["kept"] / counts["criticised"] if counts["criticised"] else None,
        "leak": fmean("answer_leak" in r.flags for r in passed) if passed else None,
        "helped": fmean(rates) if rates else None,
    }


def rows(records: Sequence[CritiqueRecord], made: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, Any]]:
    """Table rows by source, and of all; sources of which nothing was chosen are left out."""
    table = {}
    for name in SOURCES:
        of_source = [record for record in records if record.source == name]
        if of_source:
            table[name] = row(of_source, made.get(name, {}))
    total = Counter[str]()
    for counts in made.values():
        total.update(counts)
    return {**table, "all": row(records, total)}


def manifest(
    records: Sequence[CritiqueRecord], made: Mapping[str, Mapping[str, int]], filters: FiltersConfig, about: Any
) -> dict[str, Any]:
    """The description of a data set, without a time or a place: a run that is repeated writes the same."""
    table = rows(records, made)
    passed = [record for record in records if not record.dropped]
    count = filters.num_refinements
    return {
        **about,
        "filters": {
            **{name: getattr(filters, name) for name in ("format", "verdict", "location", "hint_leak", "answer_leak")},
            "num_refinements": count,
            "threshold": filters.threshold,
            "num_needed": num_needed(filters.threshold, count) if count else None,
            "barrier": filters.barrier,
        },
        "solutions": {name: dict(counts) for name, counts in made.items()},
        "critiques": {
            name: {key: counts[key] for key in ("chosen", "criticised", *STAGES, "kept")}
            for name, counts in table.items()
        },
        "dropped": dict(sorted(Counter(r.dropped for r in records if r.dropped).items())),
        "kept": {
            "all": len(passed),
            "right": sum(r.right for r in passed),
            "wrong": sum(not r.right for r in passed),
            "with_refinement": sum(r.refinement is not None for r in passed),
            "without_soft_filter": sum(r.num_correct is None for r in passed),
            **{flag: sum(flag in r.flags for r in passed) for flag in ("answer_leak", "late_location", "masked")},
        },
        "answer_leak_share": table["all"]["leak"],
    }


# --- files ------------------------------------------------------------------------------------------------------------


def files(records: Sequence[CritiqueRecord], prompts: Prompts, by: StepsBy) -> Iterator[tuple[str, str]]:
    """The data set, by name of the file: rows of ours, kept and dropped, and other projects' formats of those kept."""
    passed = [record for record in records if not record.dropped]
    yield KEPT, as_lines(map(row_of, passed))
    yield DROPPED, as_lines(row_of(record) for record in records if record.dropped)
    mathcritique = [
        mathcritique_of(record, blocks_of(record, prompts, by)) for record in passed if is_stepwise(prompts)
    ]
    yield MATHCRITIQUE, json.dumps(mathcritique, ensure_ascii=False, indent=1) + "\n"
    yield TRL, as_lines(trl_of(record, prompts) for record in passed)
    labelled = [r for r in records if r.located in ("monte_carlo", "planted", "given") or r.right]
    yield (
        LABELS,
        json.dumps([processbench_of(r, split_steps(r.response, by)) for r in labelled], ensure_ascii=False, indent=1)
        + "\n",
    )


def blocks_of(record: CritiqueRecord, prompts: Prompts, by: StepsBy) -> str:
    """Its critique in MathCritique's layout; as it was written, where that is its layout already."""
    critique = record.critique or ""
    is_same = prompts != CHAINS and prompts.labels == ENGLISH.labels
    if is_same:
        return prompts.steps_onward(critique).rstrip("\n") + "\n"
    return as_blocks(read_critique(critique, prompts), judged_steps(record.response, by))


def trace(record: CritiqueRecord, **labels: Any) -> dict[str, Any]:
    """What the report shows of a record, side by side."""
    shown = record.refinement or record.example
    # Where the barrier refused all right ones, the score of the shown one is unknown.
    graded = 1.0 if record.refinement else 0.0 if record.num_correct == 0 else None
    return {
        **labels, "source": record.source, "split": "train", "task": record.id, "question": record.question,
        "reference": record.gold, "answer": record.response, "critique": record.critique, "refinement": shown,
        "answer_score": float(record.right), "refinement_score": graded, "verdict": record.verdict,
        "reward": None if not record.num_refinements else (record.num_correct or 0) / record.num_refinements,
        "rewards": {}, "credit": None, "stop": {}, "outcome": "ok",
        "reason": _fate(record), "fate": record.dropped or "kept",
    }  # fmt: skip


def _fate(record: CritiqueRecord) -> str:
    """Why it is kept or not, in words."""
    if record.num_correct is not None:
        came = f"{record.num_correct} of {record.num_refinements} refinements are right"
        return f"{came}: {'too few' if record.dropped else 'kept'}"
    hint = "" if record.error_step is None else f"; the hint says step {record.error_step + 1}"
    reasons = {
        "": "kept",
        LOST: "an endpoint or a grader failed",
        "format": "it does not repeat the steps with a label each, or has no single verdict",
        "verdict": "its verdict is not the grader's"
        if (record.verdict == "correct") != record.right
        else "it calls a step of a right response wrong",
        "location": f"it finds the first mistake in step {(record.first_wrong or 0) + 1}{hint}",
        "hint_leak": "it speaks of a reference",
        "answer_leak": "it holds the reference answer",
    }
    return reasons.get(record.dropped, record.dropped)


def examples(records: Sequence[CritiqueRecord], count: int, **labels: Any) -> list[dict[str, Any]]:
    """The first few of each source and fate."""
    seen = Counter[tuple[str, str]]()
    traces = []
    for record in records:
        seen[record.source, record.dropped] += 1
        if seen[record.source, record.dropped] <= count:
            traces.append(trace(record, **labels))
    return traces
