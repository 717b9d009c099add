"""Basics: problems that a small pretrained model can learn, with answers of a few words and exact references.

    What is 7 + 12?                                      What number comes next: 3, 7, 11, 15?
    What is 6 * 13?                                      Put these words in alphabetical order: stone, apple, river
    Which is the smallest of these numbers: 52, 8, 31?   Ann has 9 shells and finds 4 more. How many ... now?

A problem's split is a function of the fact that it asks for, and not of its words: `7 + 12`, `12 + 7` and a story in
which 12 shells are added to 7 are of one split. So no training problem holds a fact that a test asks for.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from whet.config.parts import BasicsData
from whet.tasks.basics_steps import LESS, plan, work
from whet.tasks.chains import Split
from whet.tasks.row_formats import DataError
from whet.types import MUST_END, Task

NAMES = ("Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jon", "Kate", "Leo", "Mia", "Noah")
THINGS = ("apples", "books", "coins", "marbles", "pencils", "shells", "stamps", "stones", "cards", "cookies", "buttons")
MORE = ("finds {b} more", "gets {b} more", "buys {b} more", "picks up {b} more")
WORDS = (
    "apple", "arrow", "baker", "beach", "bird", "boat", "bread", "cake", "candle", "cat", "chair", "cloud", "dance",
    "desk", "dog", "dream", "eagle", "earth", "egg", "farm", "fire", "fish", "flower", "forest", "game", "garden",
    "glass", "gold", "grass", "hand", "heart", "hill", "horse", "house", "ice", "island", "jacket", "juice", "king",
    "kite", "lake", "lamp", "leaf", "lemon", "milk", "moon", "mouse", "music", "nest", "night", "nose", "ocean",
    "onion", "orange", "paper", "pencil", "piano", "queen", "rabbit", "rain", "ring", "river", "road", "rose", "salt",
    "school", "sheep", "ship", "snow", "spoon", "star", "stone", "sugar", "table", "tiger", "train", "tree", "uncle",
    "valley", "voice", "wall", "water", "wheel", "wind", "wolf", "yard", "zebra",
)  # fmt: skip
NUM_SHOWN = 4
"""Numbers of a sequence that a question shows."""
PATIENCE = 1000
"""Draws in a row without a new problem of a kind, after which there are no more of it."""


@dataclass(frozen=True, slots=True)
class Basic:
    """A problem."""

    kind: str
    fact: str
    """What one must know to answer it: the same for all problems that ask the same."""
    question: str
    answer: str

    @property
    def split(self) -> Split:
        bucket = int.from_bytes(sha256(f"basics/{self.fact}".encode()).digest()[:4], "big") % 10
        return "test" if bucket == 9 else "validation" if bucket == 8 else "train"


def make_basics(data: BasicsData, counts: Mapping[Split, int]) -> tuple[dict[str, tuple[Task, ...]], str]:
    """Different problems for each split, the same for the same settings, and one sentence that says what they are.

    Where a split has no more problems of a kind, its others are drawn in its place; the sentence has the numbers.
    Raises: DataError where all kinds together have fewer problems than asked for.
    """
    tasks: dict[str, tuple[Task, ...]] = {}
    numbers = []
    for split, count in counts.items():
        problems = _drawn(data, split, count)
        tasks[split] = tuple(basic_task(problem) for problem in problems)
        of_kinds = Counter(problem.kind for problem in problems)
        numbers.append(f"{split} " + ", ".join(f"{of_kinds[kind]} {kind}" for kind in MAKERS if of_kinds[kind]))
    return tasks, f"basics ({'; '.join(numbers)})"


def basic_task(problem: Basic) -> Task:
    solution = "\n".join(work(plan(problem.kind, problem.question)).lines)
    info = {"kind": "basics", "of": problem.kind, "solution": solution, MUST_END: True}
    return Task(id=problem.question, prompt=problem.question, answer=problem.answer, info=info)


def _drawn(data: BasicsData, split: Split, count: int) -> list[Basic]:
    rng = random.Random(f"basics/{split}/{data.seed}")
    left = {kind: weight for kind in MAKERS if (weight := getattr(data.mix, kind))}
    problems: dict[str, Basic] = {}
    while len(problems) < count:
        if not left:
            raise DataError(
                f"there are only {len(problems)} {split} problems with these settings, not {count}: lower "
                f"data.num_{split}, raise data.max_term, max_factor or max_number, or give another kind a weight"
            )
        (kind,) = rng.choices(list(left), list(left.values()))
        problem = _new(MAKERS[kind], data, split, problems, rng)
        if problem is None:
            del left[kind]
        else:
            problems[problem.question] = problem
    return list(problems.values())


def _new(
    make: Callable[[BasicsData, random.Random], Basic],
    data: BasicsData,
    split: Split,
    problems: Mapping[str, Basic],
    rng: random.Random,
) -> Basic | None:
    """A new problem of the split. None: patience has run out."""
    for _ in range(PATIENCE):
        problem = make(data, rng)
        if problem.split == split and problem.question not in problems:
            return problem
    return None


# --- the kinds --------------------------------------------------------------------------------------------------------


def _sum(data: BasicsData, rng: random.Random) -> Basic:
    a, b = rng.randint(1, data.max_term), rng.randint(1, data.max_term)
    return Basic("sum", _commuted(a, "+", b), f"What is {a} + {b}?", str(a + b))


def _product(data: BasicsData, rng: random.Random) -> Basic:
    a, b = rng.randint(2, data.max_factor), rng.randint(2, min(9, data.max_factor))
    a, b = (b, a) if rng.random() < 0.5 else (a, b)
    return Basic("product", _commuted(a, "*", b), f"What is {a} * {b}?", str(a * b))


def _extreme(data: BasicsData, rng: random.Random) -> Basic:
    numbers = rng.sample(range(1, data.max_number + 1), 3)
    which, answer = rng.choice([("largest", max(numbers)), ("smallest", min(numbers))])
    fact = f"{which} of {sorted(numbers)}"
    return Basic("extreme", fact, f"Which is the {which} of these numbers: {_listed(numbers)}?", str(answer))


def _next(data: BasicsData, rng: random.Random) -> Basic:
    start, step = rng.randint(1, data.max_number), rng.randint(1, data.max_step)
    numbers = [start + step * index for index in range(NUM_SHOWN)]
    fact = f"{start} and so on by {step}"
    return Basic("next", fact, f"What number comes next: {_listed(numbers)}?", str(numbers[-1] + step))


def _sort(data: BasicsData, rng: random.Random) -> Basic:
    words = rng.sample(WORDS, 3)
    fact = _listed(sorted(words))
    return Basic("sort", fact, f"Put these words in alphabetical order: {_listed(words)}", fact)


def _story(data: BasicsData, rng: random.Random) -> Basic:
    name, things = rng.choice(NAMES), rng.choice(THINGS)
    a, b = rng.randint(2, data.max_term), rng.randint(2, data.max_term)
    if rng.random() < 0.5:
        fact, event, answer = _commuted(a, "+", b), rng.choice(MORE), a + b
    else:
        a, b = max(a, b) + 1, min(a, b)  # something is left
        fact, event, answer = f"{a} - {b}", rng.choice(LESS), a - b
    event = event.format(b=b)
    question = f"{name} has {a} {things} and {event}. How many {things} does {name} have now?"
    return Basic("story", fact, question, str(answer))


MAKERS: dict[str, Callable[[BasicsData, random.Random], Basic]] = {
    "sum": _sum,
    "product": _product,
    "extreme": _extreme,
    "next": _next,
    "sort": _sort,
    "story": _story,
}


def _commuted(a: int, op: str, b: int) -> str:
    return f"{min(a, b)} {op} {max(a, b)}"


def _listed(things: list[int] | list[str]) -> str:
    return ", ".join(map(str, things))
