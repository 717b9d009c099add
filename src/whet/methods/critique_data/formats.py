"""Records of critiques and their formats: a response, its critique, the refinements, and the sources of all.

A record grows through AutoMathCritique's stages, and is kept whole, dropped or not, so that another threshold can be
applied afterwards. It is written as rows of ours, which a warm start imitates as they are, and as MathCritique's
records (arXiv:2411.16579, `selfimprove/*-sftdata_0_new.json`). Other formats are TRL's prompts and completions, and
ProcessBench's labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from whet.tasks.files import DataError, parse_json, read_text
from whet.tasks.prompts import ENGLISH, Prompts
from whet.types import Task

Source = str
"""`rg1`, `rg2`, `rg3`, `given` or `trajectory`."""
SOURCES: Mapping[Source, str] = {
    "rg1": "sampled from scratch",
    "rg2": "deviation from a step",
    "rg3": "a planted mistake",
    "given": "somebody's own answers",
    "trajectory": "episodes of an agent",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CritiqueRecord:
    """One response on its way through the stages. What a stage has not filled is None or empty."""

    id: str
    """Its own in a run."""
    qid: str
    """The task's."""
    dataset: str
    question: str
    gold: str | None
    """The reference answer. None: there is none, and only a label says whether the response is right."""
    response: str
    right: bool
    """By the grader, or by the label that was given."""
    source: Source
    error_step: int | None = None
    """Where a hint says that it goes wrong, from 0."""
    located: str = ""
    """The source of that: `deviation`, `planted`, `given`, `monte_carlo`."""
    mistake: str | None = None
    """Of the catalogue, or as it was given."""
    temperature: float | None = None
    """At which its last part was sampled. None: it was not sampled."""
    prefix_len: int = 0
    """Steps that were given before that."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """The model or rule in each role."""
    seeds: Mapping[str, int] = field(default_factory=dict)
    rates: tuple[float, ...] = ()
    """Share of right completions after each step, where the first mistake was looked for by Monte Carlo."""
    hints: tuple[str, ...] = ()
    """Names of the hints that the annotator had."""
    critique: str | None = None
    verdict: str | None = None
    first_wrong: int | None = None
    """The first step that the critique calls wrong; -1: none."""
    num_refinements: int = 0
    """Refinements that were graded (N). 0: the soft filter was not asked."""
    num_correct: int | None = None
    num_barred: int = 0
    """Of the right ones, those that the shortcut barrier refuses as a refinement to imitate."""
    refinement: str | None = None
    """The first right one that the barrier lets pass."""
    example: str | None = None
    """The first of all, right or not, for the page."""
    filters: Mapping[str, bool] = field(default_factory=dict)
    """By name, whether it passed."""
    flags: tuple[str, ...] = ()
    """`answer_leak`: the critique holds the reference answer; `late_location`: it finds the mistake later than the
    hint; `masked`: refiners read a placeholder."""
    dropped: str = ""
    """The filter that dropped it. Empty: it is kept so far."""

    def task(self) -> Task:
        """For a queue of the store."""
        return Task(id=self.id, prompt=self.question, answer=self.gold, info=asdict(self))

    @staticmethod
    def of(task: Task) -> CritiqueRecord:
        names = {entry.name: entry for entry in fields(CritiqueRecord)}
        tuples = ("rates", "hints", "flags")
        values = {name: value for name, value in task.info.items() if name in names}
        return CritiqueRecord(**values | {name: tuple(values[name]) for name in tuples if name in values})


# --- our rows ---------------------------------------------------------------------------------------------------------

_TEXTS = ("question", "response", "critique", "refinement", "right", "id")


def row_of(record: CritiqueRecord) -> dict[str, Any]:
    """As `warm_start.file` takes it; `info` says the rest."""
    info = {name: value for name, value in asdict(record).items() if name not in (*_TEXTS, "example")}
    return {
        "id": record.id,
        "question": record.question,
        "answer": record.response,
        "correct": record.right,
        "critique": record.critique,
        "refinement": record.refinement,
        "info": info,
    }


def as_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


# --- MathCritique's ---------------------------------------------------------------------------------------------------

_TURN, _END = "\n\nAssistant:", "\n<|end_of_text|>\nHuman: "
_ANNOUNCED = ENGLISH.refine.partition("{critique}")[0].strip()
BLOCKS_BEGIN = "Step sentence:"


@dataclass(frozen=True, slots=True)
class MathCritique:
    """A record of MathCritique's in its parts. `record()` of `of(record)` is the record, to the letter."""

    question: str
    response: str
    announced: str
    """The turn that announces the critique, with the white space behind it."""
    critique: str
    """Blocks, one a step, and the final verdict."""
    refinement: str

    @staticmethod
    def of(record: Mapping[str, Any], where: str = "the record") -> MathCritique:
        """Raises: DataError where it has not this form."""
        instruction, refinement = record.get("instruction"), record.get("output")
        if not isinstance(instruction, str) or not isinstance(refinement, str):
            raise DataError(f"{where}: expected instruction and output, both text, as MathCritique's records have them")
        question, turn, rest = instruction.partition(_TURN)
        response, end, human = rest.partition(_END)
        place = human.find(BLOCKS_BEGIN)
        if not turn or not end or place < 0:
            raise DataError(
                f"{where}: its instruction has to go on with {_TURN.strip()!r}, {_END.strip()!r} and "
                f"{BLOCKS_BEGIN!r} after the question"
            )
        return MathCritique(question, response, human[:place], human[place:], refinement)

    def record(self) -> dict[str, str]:
        instruction = f"{self.question}{_TURN}{self.response}{_END}{self.announced}{self.critique}"
        return {"instruction": instruction, "input": "", "output": self.refinement}


def mathcritique_of(record: CritiqueRecord, blocks: str) -> dict[str, str]:
    """Args: blocks: the critique in MathCritique's layout."""
    parts = MathCritique(record.question, record.response, f"{_ANNOUNCED}\n\n", blocks, record.refinement or "")
    return parts.record()


# --- TRL's and ProcessBench's -----------------------------------------------------------------------------------------


def trl_of(record: CritiqueRecord, prompts: Prompts) -> dict[str, Any]:
    """A critic's example, prompt and completion as messages."""
    return {
        "prompt": prompts.critique_messages(record.question, prompts.solve_prefill + record.response),
        "completion": [{"role": "assistant", "content": record.critique}],
    }


def processbench_of(record: CritiqueRecord, steps: Sequence[str]) -> dict[str, Any]:
    """A row whose label is the first wrong step, -1 for none."""
    return {
        "id": record.id,
        "generator": record.policies.get("actor", ""),
        "problem": record.question,
        "steps": [step.strip("\n") for step in steps],
        "final_answer_correct": record.right,
        "label": -1 if record.error_step is None else record.error_step,
    }


# --- a user's own -----------------------------------------------------------------------------------------------------

_GIVEN = ("id", "question", "answer", "correct", "reference", "error_step", "mistake")


def read_given(path: Path) -> list[dict[str, Any]]:
    """A user's answers: JSON lines with `question` and `answer`. Optional are `correct`, `reference` (the right
    answer), `error_step` (the first wrong step, from 0; -1: none) and `mistake`.

    Raises: DataError naming the line.
    """
    rows = []
    for number, line in enumerate(read_text(path, "given").split("\n"), 1):
        if line.strip():
            place = f"{path}, line {number}"
            rows.append(_given(parse_json(line, place), place, number))
    return rows


def _given(row: Any, place: str, number: int) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DataError(f"{place}: expected an object with question and answer, {{...}}")
    if unknown := sorted(row.keys() - set(_GIVEN)):
        raise DataError(f"{place}: unknown field {unknown[0]!r}; the fields are {', '.join(_GIVEN)}")
    for name in ("question", "answer"):
        if not isinstance(row.get(name), str) or not row[name].strip():
            raise DataError(
                f"{place}: no {name} among {', '.join(row)}; every row needs a question and an answer, both text"
            )
    if not isinstance(row.get("correct"), bool | None):
        raise DataError(f"{place}: correct must be true or false, not {str(row['correct'])[:60]!r}")
    step = row.get("error_step")
    if step is not None and (isinstance(step, bool) or not isinstance(step, int) or step < -1):
        raise DataError(f"{place}: error_step must be a step's number from 0, or -1 for none, not {str(step)[:60]!r}")
    if row.get("correct") and step not in (None, -1):
        raise DataError(
            f"{place}: correct is true, and error_step = {step} says that a step is wrong: mend one of them"
        )
    reference = row.get("reference")
    if not isinstance(reference, str | int | float | None) or isinstance(reference, bool):
        raise DataError(f"{place}: reference must be text or a number, not {str(reference)[:60]!r}")
    if not isinstance(row.get("mistake"), str | None):
        raise DataError(f"{place}: mistake must be text, not {str(row['mistake'])[:60]!r}")
    return {
        **row,
        "id": str(row.get("id", number)),
        "reference": None if reference is None else str(reference),
        "error_step": None if step == -1 else step,
    }
