"""Questions about the invented world: of one, two and three hops, and comparisons of two subjects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from whet.envs.searchqa.world import World, the_world
from whet.seeds import seed_of

Path = tuple[str, ...]
"""Relations to follow, one document each."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with all its right answers."""

    words: str
    answers: tuple[str, ...]
    kind: str
    """Its subgroup."""
    subjects: tuple[str, ...] = ()
    """What it names: one subject, or the two that it compares. Empty for a user's question."""
    path: Path = ()
    """From a subject to the answer."""
    compared: Path = ()
    """From a subject to the number that is compared. Empty: nothing is."""
    is_least: bool = True
    """Whether the subject with the least number is asked about, or that with the greatest."""


@dataclass(frozen=True, slots=True)
class _Form:
    """A way to ask. `{x}` and `{y}` stand for subjects."""

    of: str
    """The kind of its subjects."""
    words: str
    path: Path
    compared: Path = ()
    is_least: bool = True


FORMS: Mapping[str, Sequence[_Form]] = {
    "1 hop": (
        _Form("person", "In which town was {x} born?", ("born in",)),
        _Form("person", "At which school did {x} study?", ("studied at",)),
        _Form("person", "In which year was {x} born?", ("birth year",)),
        _Form("novel", "Who wrote the novel {x}?", ("author",)),
        _Form("firm", "Who founded the firm {x}?", ("founder",)),
        _Form("firm", "In which town does the firm {x} have its seat?", ("seat",)),
        _Form("town", "On which river does the town {x} stand?", ("river",)),
    ),
    "2 hops": (
        _Form("novel", "In which town was the author of {x} born?", ("author", "born in")),
        _Form("novel", "In which year was the author of {x} born?", ("author", "birth year")),
        _Form("novel", "At which school did the author of {x} study?", ("author", "studied at")),
        _Form("firm", "In which town was the founder of {x} born?", ("founder", "born in")),
        _Form("firm", "At which school did the founder of {x} study?", ("founder", "studied at")),
        _Form("firm", "On which river stands the town where {x} has its seat?", ("seat", "river")),
        _Form("person", "In which town is the school where {x} studied?", ("studied at", "school town")),
    ),
    "3 hops": (
        _Form("novel", "On which river stands the birthplace of the author of {x}?", ("author", "born in", "river")),
        _Form("novel", "In which town is the school where the author of {x} studied?",
              ("author", "studied at", "school town")),
        _Form("novel", "In which year was the school opened where the author of {x} studied?",
              ("author", "studied at", "opened")),
        _Form("firm", "On which river stands the birthplace of the founder of {x}?", ("founder", "born in", "river")),
        _Form("firm", "In which town is the school where the founder of {x} studied?",
              ("founder", "studied at", "school town")),
        _Form("firm", "What is the capital of the region in which {x} has its seat?", ("seat", "region", "capital")),
        _Form("person", "What is the capital of the region in which {x} was born?", ("born in", "region", "capital")),
    ),
    "comparison": (
        _Form("novel", "Of the authors of {x} and {y}, who was born first?", ("author",), ("author", "birth year")),
        _Form("firm", "In which town does the older one of the firms {x} and {y} have its seat?",
              ("seat",), ("opened",)),
        _Form("town", "Which river runs through the larger one of the towns {x} and {y}?",
              ("river",), ("inhabitants",), is_least=False),
        _Form("person", "At which school did the older one of {x} and {y} study?", ("studied at",), ("birth year",)),
    ),
}  # fmt: skip
"""Ways to ask, by subgroup."""
KINDS = tuple(FORMS)
NUM_TRAIN, NUM_TEST = 500, 100
"""Questions of each kind."""


@cache
def generated(split: str) -> tuple[Question, ...]:
    """The questions of `train` or `test`, kind by kind. The two have no subject in common."""
    world, made = the_world(), dict[str, Question]()
    for kind, forms in FORMS.items():
        for number in range(NUM_TRAIN if split == "train" else NUM_TEST):
            random = Random(seed_of("searchqa question", split, kind, number))
            question = _drawn(world, kind, forms[number % len(forms)], split, random)
            while question is None or question.words in made:
                question = _drawn(world, kind, forms[number % len(forms)], split, random)
            made[question.words] = question
    return tuple(made.values())


def _drawn(world: World, kind: str, form: _Form, split: str, random: Random) -> Question | None:
    """A question of that form. None: its two subjects are equally old, or the like."""
    # Every fifth name is one of test questions. Names are in the order in which they were drawn.
    names = [name for place, name in enumerate(world.names[form.of]) if (place % 5 == 0) == (split == "test")]
    subjects = tuple(random.sample(names, 2 if form.compared else 1))
    chosen = subjects[0]
    if form.compared:
        first, second = (int(follow(world, subject, form.compared)) for subject in subjects)
        if first == second:
            return None
        chosen = subjects[0] if (first < second) == form.is_least else subjects[1]
        if follow(world, subjects[0], form.path) == follow(world, subjects[1], form.path):
            return None
    words = form.words.format(x=subjects[0], y=subjects[-1])
    answer = follow(world, chosen, form.path)
    return Question(words, (answer,), kind, subjects, form.path, form.compared, form.is_least)


def follow(world: World, subject: str, path: Path) -> str:
    """What a chain of relations leads to."""
    for relation in path:
        subject = world.facts[subject][relation]
    return subject
