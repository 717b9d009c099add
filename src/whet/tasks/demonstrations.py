"""Warm-start data: how an answer, a critique and a refinement look, as (messages, text to write) pairs.

For the tiny world an author writes them (`chain_demonstration`). For a set with worked reference solutions, such as
GSM8K, they are made from those (`solution_demonstration`). They are a critique of the solution, or of a copy with one
planted error, and the refinement that follows. No teacher model is needed. A file of real critiques can take their
place (`read_demonstrations`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from whet.tasks.chains import (
    OPERATIONS,
    Carelessness,
    Chain,
    ChainCritique,
    Manner,
    answer_text,
    corrupt_chain,
    criticise,
    critique_text,
    refine,
    steps_text,
    work_out,
    write_up,
)
from whet.tasks.columns import column
from whet.tasks.csv_files import TRUTHS, is_csv
from whet.tasks.files import DataError, file_rows
from whet.tasks.planting import NUMBER, with_other_number
from whet.tasks.prompts import Message, Prompts
from whet.types import Task

Kind = Literal["solve", "critique", "refine", "drill"]
"""`drill` is of the tiny world's pretraining alone: unrelated steps to check."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One example to imitate: the loss is on `text` and the end token after it, not on the prefill."""

    kind: Kind
    messages: tuple[Message, ...]
    prefill: str
    text: str
    where: str = ""
    """In a user's file or set, for sentences about it."""
    question: str = ""
    """Of a user's row."""


# --- the tiny world -------------------------------------------------------------------------------------------------

TEXTBOOK = Carelessness(share=0.26, low=0.35, high=0.75, slip=0.01)
"""The author whom the shipped model was pretrained on."""
TEXTBOOK_MANNER = Manner(thorough=0.75, helpful=0.75, cautious=0.15)
GOLD_MANNER = replace(TEXTBOOK_MANNER, thorough=1.0, cautious=0.0)
"""For critiques without mistakes: they look at every step, as two wrong ones may cancel."""
COLLEAGUE = Carelessness(share=0.26, low=0.8, high=0.97, slip=0.01, adopted=0.5, own=0.06)
"""The author of the critiques that the critic's warm start imitates. They lack half the textbook's misconceptions and
have some that the actor does not share, so a critic pretrained on them errs on both classes of answers."""
COLLEAGUE_MANNER = Manner(thorough=0.15, helpful=0.15, cautious=0.15)
"""The colleague judges rather than helps: stops at the first wrong step, and seldom says what to write instead. That
is enough for the verdict and leaves the actor to itself, so there is something to learn that the verdict does not
reward. Now and then it calls an answer wrong without having found a wrong step."""
CARE = 0.3
"""Share of an author's second looks that make no mistakes."""
CORRUPTED_SHARE = 0.75
"""Share of the critiqued solutions that are corrupted; the author writes the rest."""
CORRUPTION_RATE = 0.35
"""Share of the steps in a corrupted solution that get a wrong value. With one wrong step in five or ten, a small model
learns to copy the claimed result and to say that all is right."""
EMPTY_SHARE = 0.1
"""Share of the refinements that follow an empty critique."""
ALARM_SHARE = 0.15
"""Share of the refinements after a critique that calls the answer wrong and names no step: else too rare to learn."""
RECALL_SHARE = 0.4
"""Share of the drills that ask for the critic's result again in place of the verdict."""
EARLIER_ROUNDS_SHARE = 0.1
"""Share of critiques and refinements that come after one to three earlier rounds of both."""


def textbook(misconceptions: tuple[float, float] | None = None) -> Carelessness:
    """The textbook's author, who writes misconceptions as often as asked for.

    Args:
        misconceptions: the lowest and highest share of the times that a misconceived fact is written wrong, in [0, 1].
            None: as in the textbook of the shipped model.
    """
    low, high = misconceptions or (TEXTBOOK.low, TEXTBOOK.high)
    return replace(TEXTBOOK, low=low, high=high)


def chain_demonstration(
    kind: Kind, chain: Chain, prompts: Prompts, rng: random.Random, *, author: Carelessness = TEXTBOOK,
    manner: Manner = TEXTBOOK_MANNER, ramble: int = 0,
) -> Demonstration:  # fmt: skip
    """One row about one problem, written by a careless author.

    Answer, critique and refinement err independently, so a critique may pass a wrong answer, or flag a right one.
    An actor that never saw that learns to ignore critiques and to recompute.

    Args:
        manner: how critiques are written up.
        ramble: how many times an answer repeats each of its wrong steps.
    """
    if kind == "solve":
        messages = prompts.solve_messages(chain.text)
        text = answer_text(chain, work_out(chain, author, rng), ramble=ramble)
        return Demonstration(kind, tuple(messages), "", text)
    if kind == "drill":
        return _drill(len(chain.operations), prompts, author, manner, rng)
    num_earlier = rng.randint(1, 3) if rng.random() < EARLIER_ROUNDS_SHARE else 0
    rounds = [_exchange(chain, author, manner, rng) for _ in range(num_earlier + 1)]
    if kind == "refine" and rng.random() < ALARM_SHARE:
        claimed = tuple(work_out(chain, author, rng))
        rounds[-1] = ChainCritique(claimed, claimed, frozenset(), verdict=False)
    history = [
        (answer_text(chain, one.claimed), critique_text(chain, one, prompts.closing(right=one.verdict)))
        for one in rounds
    ]
    answer, critique = history.pop()
    if kind == "critique":
        messages = prompts.critique_messages(chain.text, answer, history)
        return Demonstration(kind, tuple(messages), "", critique)
    values = refine(chain, rounds[-1], author, CARE, rng)
    if rng.random() < EMPTY_SHARE:
        critique, values = "", work_out(chain, author, rng)
    messages = prompts.refine_messages(chain.text, answer, critique, history)
    return Demonstration(kind, tuple(messages), "", answer_text(chain, values))


def gold_demonstration(
    kind: Kind, chain: Chain, prompts: Prompts, rng: random.Random, author: Carelessness
) -> Demonstration:
    """One row about one problem whose text is the right solution, as published base data have it.

    A refinement follows an answer with planted errors, or one of the careless author's, and a critique that makes no
    mistake.

    Args:
        kind: solve or refine.
    """
    right = answer_text(chain, chain.values)
    if kind == "solve":
        return Demonstration(kind, tuple(prompts.solve_messages(chain.text)), "", right)
    claimed = _claimed(chain, author, rng)
    critique = criticise(chain, claimed, None, GOLD_MANNER, rng)
    words = critique_text(chain, critique, prompts.closing(right=critique.verdict))
    return Demonstration(
        kind, tuple(prompts.refine_messages(chain.text, answer_text(chain, claimed), words)), "", right
    )


def _drill(count: int, prompts: Prompts, author: Carelessness, manner: Manner, rng: random.Random) -> Demonstration:
    """Unrelated steps, half of them wrong, checked one by one.

    In a critique the verdicts follow from one another: after a wrong step most are wrong. A small model that can guess
    a verdict from the last one does not learn to compare two results. Here nothing else helps. In a recall drill the
    critic's result stands where the verdict would. To compare, a model has to look back at that result from that
    place, and nothing rewards looking before it can compare, nor comparing before it looks.
    """
    recall = rng.random() < RECALL_SHARE
    shown, checked = [], []
    for number in range(1, count + 1):
        a, operation = rng.randrange(10), rng.choice(OPERATIONS)
        result = author.write(a, operation, rng)
        claim = result if rng.random() < 0.5 else (result + rng.randrange(1, 10)) % 10
        step = Chain(a, (operation,))
        line = critique_text(step, write_up([claim], [result], manner, rng)).split("\n")[0]
        if recall:
            line = f"{line.rpartition(': ')[0]}{result}"
        checked.append(line.replace("Step 1", f"Step {number}"))
        shown.append(steps_text(step, [claim])[0].replace("Step 1", f"Step {number}"))
    messages = prompts.critique_messages("", "\n".join(shown))
    return Demonstration("drill", tuple(messages), "", "\n".join(checked))


def _exchange(chain: Chain, author: Carelessness, manner: Manner, rng: random.Random) -> ChainCritique:
    """An answer and a critique of it."""
    return criticise(chain, _claimed(chain, author, rng), author, manner, rng)


def _claimed(chain: Chain, author: Carelessness, rng: random.Random) -> list[int]:
    """The results of an answer to critique, corrupted on purpose or as the author errs."""
    return (
        corrupt_chain(chain, rng, CORRUPTION_RATE) if rng.random() < CORRUPTED_SHARE else work_out(chain, author, rng)
    )


# --- sets with worked solutions -------------------------------------------------------------------------------------

_CALCULATOR_NOTE = re.compile(r"<<[^<>]*>>")


STEP = "Step sentence:"
"""Opens a critique's comment on a step, where it goes by steps."""


def solution_demonstration(kind: Kind, task: Task, prompts: Prompts, rng: random.Random) -> Demonstration:
    """One row about a task whose `info["solution"]` is a worked solution, one step a line.

    Raises: DataError where the task has no solution, or where one cannot be put into these prompts. They must ask for
        an answer that begins with its steps, or for a critique step by step.
    """
    begun = prompts.solve_prefill
    if (begun and not begun[-1].isspace()) if kind == "solve" else not goes_by_steps(prompts):
        wanted = f"answers that begin with {begun!r}" if kind == "solve" else f"critiques without {STEP!r}"
        raise DataError(
            f"worked solutions go step by step, and these prompts ask for {wanted}: give demonstrations in their words "
            "(a file), or ask for none (a warm start's steps of 0)"
        )
    steps, location = solution_steps(task), f"the worked solution of task {task.id}"
    right = _solution_text(steps, task.answer or "")
    if kind == "solve":
        return Demonstration(kind, tuple(prompts.solve_messages(task.prompt)), prompts.solve_prefill, right, location)
    corrupted_at, shown, final = _plant(steps, task.answer or "", rng)
    answer = prompts.solve_prefill + _solution_text(shown, final)
    critique = _critique_of(shown, steps, corrupted_at, prompts)
    if kind == "critique":
        messages = prompts.critique_messages(task.prompt, answer)
        return Demonstration(kind, tuple(messages), "", critique, location)
    messages = prompts.refine_messages(task.prompt, answer, critique)
    return Demonstration(kind, tuple(messages), prompts.refine_prefill, right, location)


def goes_by_steps(prompts: Prompts) -> bool:
    """Whether its critiques comment on each step."""
    return bool(prompts.step_comment) or STEP in prompts.critique


def solution_steps(task: Task) -> list[str]:
    solution = str(task.info.get("solution", ""))
    lines = [_CALCULATOR_NOTE.sub("", line).strip() for line in solution.split("\n")]
    steps = [line for line in lines if line and not line.startswith("####")]
    if not steps:
        raise DataError(
            f"task {task.id!r} has no worked solution to build warm-start data from: give warm_start.file, or set "
            "warm_start.actor_steps=0 and warm_start.critic_steps=0 (an instruct model needs no warm start)"
        )
    return steps


def _plant(steps: Sequence[str], answer: str, rng: random.Random) -> tuple[int | None, list[str], str]:
    """Half the time one step's last number is changed; where it was the final answer, that changes with it."""
    places = [i for i, step in enumerate(steps) if NUMBER.search(step)]
    if not places or rng.random() < 0.5:
        return None, list(steps), answer
    at = rng.choice(places)
    wrong = with_other_number(steps[at], rng) or ""
    # An error in the middle spoils what follows; the final answer is made to say so.
    spoiled = NUMBER.findall(wrong)[-1].rstrip(",") if at == len(steps) - 1 else with_other_number(answer, rng)
    return at, [*steps[:at], wrong, *steps[at + 1 :]], spoiled or f"not {answer}"


def _solution_text(steps: Sequence[str], answer: str) -> str:
    return "\n".join([*steps, f"The answer is {answer}."])


def _critique_of(shown: Sequence[str], right: Sequence[str], corrupted_at: int | None, prompts: Prompts) -> str:
    comments = [
        (step, "" if index != corrupted_at else f"It should be: {right[index]}") for index, step in enumerate(shown)
    ]
    return critique_by_steps(comments, prompts, right=corrupted_at is None)


def critique_by_steps(comments: Sequence[tuple[str, str]], prompts: Prompts, *, right: bool) -> str:
    """A critique as the prompts ask for it: a comment on each step, if they want any, and the verdict.

    Args:
        comments: each step, and what is wrong with it. Empty: nothing.
        right: the verdict on the final answer.
    """
    if prompts.step_comment:
        lines = [prompts.commented(step, not trouble, trouble) for step, trouble in comments]
        return "\n".join([*lines, prompts.closing(right=right)])
    if STEP not in prompts.critique:
        return prompts.closing(right=right)
    blocks = []
    for step, trouble in comments:
        verdict, reason = ("Wrong", trouble) if trouble else ("Correct", "This follows from what is given.")
        blocks.append(f"{STEP} {step}\nCorrectness of the step: {verdict}\nExplanation: {reason}\n")
    first = next((number for number, (_, trouble) in enumerate(comments, 1) if trouble), None)
    reason = "Every step holds." if first is None else f"Step {first} is mistaken."
    blocks.append(f"{prompts.closing(right=right)}\nExplanation: {reason}")
    return "\n".join(blocks)


# --- files ----------------------------------------------------------------------------------------------------------

_TEXTS = ("question", "answer", "critique", "refinement")
_FIELDS = (*_TEXTS, "correct", "id", "info")


def read_demonstrations(
    path: Path, prompts: Prompts, columns: Mapping[str, str] = MappingProxyType({}), at: str = "warm_start."
) -> list[Demonstration]:
    """Rows `{"question", "answer"}`, with `"critique"` (a critic's example) and with `"refinement"` (an actor's).

    A row makes one example of each kind that it has the texts for, with the words and the prefill of rollouts.
    `answer` is what the actor wrote, right or wrong, and trains the actor only where `"correct": true` says so.

    Args:
        columns: the user's names, by the field that they stand for; see `columns.column`. Other columns are then
            not looked at. Empty: the fields have their usual names, and an unknown one is an error.
        at: where the settings `file` and `columns` are, for sentences.
    Raises: DataError naming the line.
    """
    demonstrations: list[Demonstration] = []
    for place, row in file_rows(path, f"{at}file"):
        location = f"{path}, {place}"
        demonstrations += _of_row(_row(row, location, columns, at, is_from_csv=is_csv(path)), prompts, location)
    if not demonstrations:
        raise DataError(
            f"{path} holds nothing to imitate: give rows a critique, a refinement, or correct: true (whose answer is "
            "then trained on)"
        )
    return demonstrations


def _row(row: Any, location: str, columns: Mapping[str, str], at: str, *, is_from_csv: bool = False) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise DataError(f"{location}: expected an object with question and answer, {{...}}; write one an example")
    keys, there = {"question": f"{at}columns.prompt"}, ", ".join(sorted(map(str, row)))
    if columns:
        try:
            named = {name: column(row, path, keys.get(name, f"{at}columns.{name}")) for name, path in columns.items()}
        except DataError as error:
            raise DataError(f"{location}: {error}") from error
        row = {name: row[name] for name in _FIELDS if name in row} | named
    for name in ("question", "answer"):
        if not row.get(name):
            advice = f"say which column holds it, {keys.get(name, f'{at}columns.{name}')}=NAME, or leave the row out"
            raise DataError(f"{location}: no {name} among {there}; every row needs a question and an answer: {advice}")
    for name in row:
        if name not in _FIELDS:
            raise DataError(
                f"{location}: unknown field {name!r}; the fields are {', '.join(_FIELDS)}: take it out, or name the "
                f"columns that are to be read ({at}columns)"
            )
        if name in _TEXTS and not isinstance(row[name], str | None):
            raise DataError(f"{location}: {name} must be text, not {str(row[name])[:60]}; put it into quotes")
    correct = row.get("correct")
    if is_from_csv and isinstance(correct, str) and correct.strip().lower() in TRUTHS:
        row = row | {"correct": TRUTHS[correct.strip().lower()]}
    if not isinstance(row.get("correct"), bool | None):
        raise DataError(f"{location}: correct must be true or false, not {row['correct']!r}; write one of the two")
    return row


def _of_row(row: Mapping[str, Any], prompts: Prompts, location: str) -> Iterator[Demonstration]:
    question, critique, refinement = row["question"], row.get("critique") or "", row.get("refinement")
    # In a rollout an answer begins with the prefill that its prompt forced on it.
    answer = prompts.solve_prefill + row["answer"].removeprefix(prompts.solve_prefill)
    if row.get("correct"):
        messages = prompts.solve_messages(question)
        yield Demonstration("solve", tuple(messages), prompts.solve_prefill, answer, location, question)
    if critique:
        messages = prompts.critique_messages(question, answer)
        yield Demonstration("critique", tuple(messages), "", critique, location, question)
    if refinement:
        messages = prompts.refine_messages(question, answer, prompts.steps_onward(critique))
        yield Demonstration("refine", tuple(messages), prompts.refine_prefill, refinement, location, question)
