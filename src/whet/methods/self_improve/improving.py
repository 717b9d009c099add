"""Results of exploring with a critic, by question: the examples to learn from, counts, and the critiques that helped.

Critique-in-the-loop self-improvement (arXiv:2411.16579): after one critique of a wrong answer the first right
refinements are kept, unless one takes a shortcut (`kept_refinements`). An explicit budget allots refinements to the
questions with the most wrong answers (`allot_refinements`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from whet.evaluation.difficulty import HARD, level_shares, tail_narrowing
from whet.evaluation.protocol import is_right
from whet.grading.critique_filters import is_shortcut
from whet.methods.self_improve.exploration_metrics import (
    Explored,
    Metrics,
    answer_class,
    answer_entropy,
    coverage_by_level,
    dissimilarity,
    distinct_2,
    exploration,
    normalised,
    num_distinct,
)
from whet.methods.warm_start import example_row
from whet.rollout.roles import num_written
from whet.tasks.chains import answer_text, parse_chain
from whet.tasks.demonstrations import solution_steps
from whet.types import Episode, Row, Segment, Task

ANSWER, REFINED, CONDITIONAL = "answer", "refined", "conditional"
KINDS = (ANSWER, REFINED, CONDITIONAL)
"""Kinds of examples: a right answer, a kept refinement as an answer to the question, the same after question, answer
and critique."""
TOKENS = ("answers", "critiques", "refinements")
"""The texts whose tokens are counted."""


@dataclass
class Attempt:
    """One answer, and where it was critiqued, the critique and refinements."""

    answer: Segment
    """With a grade."""
    critique: Segment | None = None
    refinements: list[Segment] = field(default_factory=list)
    """With grades."""
    kept: list[Segment] = field(default_factory=list)

    @property
    def num_right(self) -> int:
        return sum(map(is_right, self.refinements))


@dataclass
class Question:
    """All that a round did at one question."""

    task: Task
    attempts: dict[int, Attempt] = field(default_factory=dict)
    """By sample."""
    num_failed: int = 0
    """Texts, or their gradings, that failed: no answers, no labels, and no part of any share."""
    num_shortcuts: int = 0
    """Right refinements that took one."""
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOKENS, 0))
    """Written."""

    def add(self, sample: int, episode: Episode) -> None:
        """Adds the episode of a sample. Its answer may be known from an earlier episode."""
        if not episode.segments:
            self.num_failed += 1
            return
        if sample not in self.attempts:
            answer = episode.segments[0]
            self.tokens["answers"] += num_written(answer)
            if _is_unknown(answer):
                self.num_failed += 1
                return
            self.attempts[sample] = Attempt(answer)
        self.num_failed += len(episode.segments) == 1 and episode.outcome != "ok"
        for index in episode.indices("critic"):
            self._add_critique(self.attempts[sample], episode, index)

    def _add_critique(self, attempt: Attempt, episode: Episode, index: int) -> None:
        critique = episode.segments[index]
        if attempt.critique is None:
            attempt.critique = critique
            self.tokens["critiques"] += num_written(critique)
        for child in episode.children(index, "actor"):
            refinement = episode.segments[child]
            self.tokens["refinements"] += num_written(refinement)
            self.num_failed += _is_unknown(refinement)
            attempt.refinements += [] if _is_unknown(refinement) else [refinement]

    @property
    def wrong(self) -> list[int]:
        """The samples whose answer is wrong."""
        return [sample for sample, attempt in self.attempts.items() if not is_right(attempt.answer)]

    def choose(self, keep: int, *, barrier: bool, in_all: int | None = None) -> None:
        """Chooses the refinements to learn from, for every critique by itself.

        Args:
            keep: the most after each critique.
            barrier: whether shortcuts are left out.
            in_all: the most of the question. None: no limit.
        """
        solution = reference_of(self.task)
        self.num_shortcuts = 0
        left = len(self.attempts) * keep if in_all is None else in_all
        for attempt in self.attempts.values():
            texts = [refinement.text for refinement in attempt.refinements]
            shortcuts = [barrier and is_shortcut(text, attempt.answer.text, solution) for text in texts]
            rights = list(map(is_right, attempt.refinements))
            self.num_shortcuts += sum(right and cut for right, cut in zip(rights, shortcuts, strict=True))
            chosen = kept_refinements(rights, shortcuts, min(keep, left))
            attempt.kept = [attempt.refinements[index] for index in chosen]
            left -= len(chosen)

    @property
    def num_kept(self) -> int:
        return sum(len(attempt.kept) for attempt in self.attempts.values())

    @property
    def solutions(self) -> list[tuple[Segment, Attempt]]:
        """Right answers, then kept refinements, each with its attempt."""
        attempts = self.attempts.values()
        right = [(attempt.answer, attempt) for attempt in attempts if is_right(attempt.answer)]
        return right + [(refinement, attempt) for attempt in attempts for refinement in attempt.kept]

    def examples(self, *, cap: int | None, distinct: bool, conditional: bool) -> list[Row]:
        """Rows to imitate: solutions as answers to the question. A refinement is the same tokens under the question's
        context.

        Args:
            cap: solutions, those that come first. None: all.
            distinct: only the first one of solutions with the same equations.
            conditional: refinements also after their answer and critique.
        """
        chosen, seen = [], set[tuple[str, ...]]()
        for segment, attempt in self.solutions:
            equations = normalised(segment.text)
            if not (distinct and equations in seen):
                chosen.append((segment, attempt))
            seen.add(equations)
        rows = []
        for segment, attempt in chosen[:cap]:
            if segment is attempt.answer:
                rows.append(example_row(segment, ANSWER))
                continue
            rows.append(example_row(segment, REFINED, context=attempt.answer.context))
            if conditional:
                rows.append(example_row(segment, CONDITIONAL))
        return rows

    def explored(self, level: int | None) -> Explored:
        """The question's counts, with its level."""
        attempts = self.attempts.values()
        return Explored(
            num_answers=len(attempts),
            num_right=sum(is_right(attempt.answer) for attempt in attempts),
            num_critiques=sum(attempt.critique is not None for attempt in attempts),
            num_refinements=sum(len(attempt.refinements) for attempt in attempts),
            num_kept=self.num_kept,
            level=level,
            num_tokens=sum(self.tokens.values()),
        )

    def diversity(self) -> Metrics:
        """How much its solutions differ, and the entropy of all samples' answers."""
        texts = [segment.text for segment, _ in self.solutions]
        grades = [attempt.answer.grade for attempt in self.attempts.values() if attempt.answer.grade is not None]
        classes = [answer_class(grade.extracted, is_right=grade.score == 1.0) for grade in grades]
        return {
            "distinct": float(num_distinct(texts)) if texts else None,
            "distinct_2": distinct_2(texts),
            "dissimilarity": dissimilarity(texts),
            "answer_entropy": answer_entropy(classes),
        }

    def record(self, level: int | None) -> dict[str, Any]:
        """What `round_metrics` reads, as plain JSON."""
        return {
            "explored": asdict(self.explored(level)),
            "diversity": self.diversity(),
            "tokens": self.tokens,
            "failed": self.num_failed,
            "shortcuts": self.num_shortcuts,
        }

    def helpful(self, number: int) -> list[dict[str, Any]]:
        """The critiques after which a refinement was right, as a critic's warm start reads them (`warm_start.file`).

        A right refinement that took a shortcut counts: it is no failure of the critique.
        """
        rows = []
        for sample, attempt in self.attempts.items():
            if attempt.critique is None or not attempt.num_right:
                continue
            right = [*attempt.kept, *filter(is_right, attempt.refinements)][0]
            rows.append(
                {
                    "id": f"{number}/{self.task.id}/{sample}",
                    "question": self.task.prompt,
                    "answer": attempt.answer.text,
                    "correct": False,
                    "critique": attempt.critique.text,
                    "refinement": right.text,
                }
            )
        return rows


def reference_of(task: Task) -> str:
    """The worked solution of a task. Empty: there is none."""
    if task.info.get("solution"):
        return "\n".join(solution_steps(task))
    try:
        chain = parse_chain(task.prompt)
    except ValueError:
        return ""
    return answer_text(chain, chain.values)


def round_metrics(records: Sequence[Mapping[str, Any]], rows: Sequence[Row], source: Sequence[int]) -> Metrics:
    """Metrics of a round.

    Args:
        records: of its questions (`Question.record`).
        rows: its examples. `extra` has the level of the question, 0 if that is unknown.
        source: levels of the questions.
    """
    explored = [Explored(**record["explored"]) for record in records]
    learnt = [int(row.extra["level"]) for row in rows if row.extra["level"]]
    kinds, shares, source_shares = Counter(row.kind for row in rows), level_shares(learnt), level_shares(source)
    tokens = {f"tokens_{part}": float(sum(record["tokens"][part] for record in records)) for part in TOKENS}
    counted = ("num_answers", "num_right", "num_critiques", "num_refinements", "num_kept")
    return {
        **exploration(explored),
        **coverage_by_level(explored),
        **mean_of([record["diversity"] for record in records]),
        **{f"share_level_{level}": share for level, share in shares.items()},
        "hard": sum(shares[level] for level in HARD) if shares else None,
        "hard_source": sum(source_shares[level] for level in HARD) if source_shares else None,
        "tail_narrowing": tail_narrowing(learnt, source),
        "tokens": float(sum(tokens.values())),
        **tokens,
        **{f"num_{kind}": float(kinds[kind]) for kind in KINDS},
        "num_questions": float(len(explored)),
        **{name: float(sum(getattr(question, name) for question in explored)) for name in counted},
        "num_failed": float(sum(record["failed"] for record in records)),
        "num_shortcuts": float(sum(record["shortcuts"] for record in records)),
    }


def mean_of(rows: Sequence[Mapping[str, float | None]]) -> Metrics:
    """The mean of each number over the rows that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    means: Metrics = {}
    for name in names:
        values = [value for row in rows if (value := row.get(name)) is not None]
        means[name] = sum(values) / len(values) if values else None
    return means


def _is_unknown(segment: Segment) -> bool:
    return segment.grade is None or segment.grade.score is None


# --- which refinements are kept, and how many are sampled -------------------------------------------------------------


def kept_refinements(rights: Sequence[bool | None], shortcuts: Sequence[bool], keep: int) -> list[int]:
    """Indices of the first `keep` refinements after one critique that are right and take no shortcut.

    Equal texts count as often as they come, as published. A critique's place among others does not matter.

    Args:
        rights: None: grading failed.
    """
    usable = [i for i, (right, cut) in enumerate(zip(rights, shortcuts, strict=True)) if right and not cut]
    return usable[: max(keep, 0)]


def allot_refinements(wrong: Mapping[str, int], budget: int, cap: int | None) -> dict[str, int]:
    """Refinements for each question: b(x) = budget w(x) / sum of w, at least one, at most the cap.

    The largest remainders get what rounding leaves over; of equal ones, the first. The floor may exceed the budget,
    and the cap may leave some of it unspent.

    Args:
        wrong: w(x), by question: its wrong answers. 0: it gets nothing.
        cap: None: none.
    """
    total = sum(wrong.values())
    shares = {name: divmod(budget * count, total) for name, count in wrong.items() if count > 0}
    left = budget - sum(whole for whole, _ in shares.values())
    first = sorted(shares, key=lambda name: -shares[name][1])[:left]
    counts = {name: max(1, whole + (name in first)) for name, (whole, _) in shares.items()}
    return {name: count if cap is None else min(count, cap) for name, count in counts.items()}
