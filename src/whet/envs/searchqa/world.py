"""An invented world from a seed: people, towns, firms, novels and schools, with their relations as documents.

Every name is made up, so no question can be answered from what a model knows. A document tells the relations of its own
subject alone: the one of a novel names its author, and only the author's own document tells where the author was born.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from whet.seeds import seed_of

COUNTS = {"region": 24, "river": 60, "town": 300, "school": 160, "person": 1400, "firm": 500, "novel": 900}
"""Documents by kind of subject."""

_ONSETS = (
    "b",
    "br",
    "c",
    "d",
    "dr",
    "f",
    "g",
    "gr",
    "h",
    "j",
    "k",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "st",
    "t",
    "v",
    "w",
    "z",
)
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ou")
_ENDS = ("", "l", "n", "r", "s", "th", "m", "nd", "sk", "rt")
_JOBS = (
    "a baker",
    "a botanist",
    "a carpenter",
    "a doctor",
    "an engineer",
    "a lawyer",
    "a painter",
    "a pilot",
    "a sailor",
)
_TRADES = ("bicycles", "clocks", "cloth", "glass", "lamps", "paper", "pianos", "seeds", "ships", "tea")
_TONES = (
    "a family over four generations",
    "a lost letter",
    "a winter at sea",
    "two rival clerks",
    "a trial",
    "a long walk",
)

SENTENCES: Mapping[str, tuple[str, ...]] = {
    "born in": ("{s} was born in {o}", "{s} comes from {o}, as the parish register shows"),
    "birth year": ("{s} was born in the year {o}", "the birth of {s} is dated {o}"),
    "studied at": ("{s} studied at {o}", "{o} is where {s} took a degree"),
    "job": ("{s} worked as {o}", "by trade {s} was {o}"),
    "author": ("{s} is a novel by {o}", "the novel {s} was written by {o}"),
    "appeared": ("{s} appeared in {o}", "{s} was first printed in {o}"),
    "theme": ("{s} tells of {o}", "the story of {s} is that of {o}"),
    "founder": ("{s} was founded by {o}", "the founder of {s} was {o}"),
    "seat": ("{s} has its seat in {o}", "the head office of {s} stands in {o}"),
    "opened": ("{s} opened in {o}", "{s} has been open since {o}"),
    "trade": ("{s} makes {o}", "the firm {s} is known for its {o}"),
    "region": ("{s} is a town in {o}", "{s} lies in the region {o}"),
    "river": ("{s} stands on the river {o}", "the river {o} runs through {s}"),
    "inhabitants": ("{s} has {o} inhabitants", "{o} people live in {s}"),
    "school town": ("{s} is a school in {o}", "the school {s} stands in {o}"),
    "capital": ("the capital of {s} is {o}", "{s} is governed from {o}"),
    "source": ("the river {s} rises in {o}", "{s} is a river that springs in {o}"),
}
"""By relation, two ways to tell it of a subject `s` with an object `o`."""
NOUNS = {
    "born in": "birthplace", "birth year": "year of birth", "studied at": "school", "author": "author",
    "founder": "founder", "seat": "seat", "opened": "year of opening", "region": "region", "river": "river",
    "inhabitants": "number of inhabitants", "school town": "town", "capital": "capital",
}  # fmt: skip
"""What a relation leads to, in words."""
YEARS = {"birth year": (1820, 1999), "appeared": (1850, 2020), "opened": (1700, 2015)}
"""The first and the last year, by relation."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text that can be found, and its title."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class World:
    """Names by kind, and what is true of each."""

    names: Mapping[str, Sequence[str]]
    facts: Mapping[str, Mapping[str, str]]
    """By name and relation, the object. Objects are names, numbers or words."""
    documents: Sequence[Document]


@cache
def the_world() -> World:
    """The world of the generated items. It is the same in every process."""
    random = Random(seed_of("searchqa world"))
    names = _names(random)
    facts: dict[str, dict[str, str]] = {}
    for kind in COUNTS:
        for name in names[kind]:
            facts[name] = _facts(kind, names, random)
    documents = [Document(name, _text(name, facts[name], random)) for name in facts]
    random.shuffle(documents)  # a number says nothing about a kind
    return World(names, facts, tuple(documents))


def _facts(kind: str, names: Mapping[str, Sequence[str]], random: Random) -> dict[str, str]:
    def one(of: str) -> str:
        return random.choice(names[of])

    def year(relation: str) -> str:
        return str(random.randint(*YEARS[relation]))

    match kind:
        case "region":
            return {"capital": one("town")}
        case "river":
            return {"source": one("region")}
        case "town":
            return {"region": one("region"), "river": one("river"), "inhabitants": str(random.randint(900, 400_000))}
        case "school":
            return {"school town": one("town"), "opened": year("opened")}
        case "person":
            return {
                "born in": one("town"),
                "birth year": year("birth year"),
                "studied at": one("school"),
                "job": random.choice(_JOBS),
            }
        case "firm":
            return {
                "founder": one("person"),
                "seat": one("town"),
                "opened": year("opened"),
                "trade": random.choice(_TRADES),
            }
        case _:
            return {"author": one("person"), "appeared": year("appeared"), "theme": random.choice(_TONES)}


def _text(name: str, facts: Mapping[str, str], random: Random) -> str:
    told = [random.choice(SENTENCES[relation]).format(s=name, o=thing) for relation, thing in facts.items()]
    random.shuffle(told)
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in told)


def told_object(document: Document, relation: str) -> str | None:
    """What a document says of its subject, in a relation. None: it says nothing."""
    for sentence in document.text.rstrip(".").split(". "):
        for form in SENTENCES[relation]:
            before, after = form.format(s=document.title, o="\0").split("\0")
            if _opens(sentence, before) and sentence.endswith(after) and len(sentence) > len(before) + len(after):
                thing = sentence[len(before) : len(sentence) - len(after)]
                # The year of "was born in the year 1900" is no town.
                if not (relation == "born in" and thing.startswith("the year ")):
                    return thing
    return None


def _opens(sentence: str, beginning: str) -> bool:
    """Whether a sentence begins so, with a capital letter or without."""
    return sentence[: len(beginning)].lower() == beginning.lower()


def _names(random: Random) -> Mapping[str, Sequence[str]]:
    words = _words(random)
    first, last = [next(words) for _ in range(90)], [next(words) for _ in range(160)]
    pairs = [f"{one} {other}" for one in first for other in last]
    return {
        "region": [f"{next(words)}ia" for _ in range(COUNTS["region"])],
        "river": [next(words) for _ in range(COUNTS["river"])],
        "town": [f"{next(words)}{random.choice(('', '', 'ford', 'ham', 'wick'))}" for _ in range(COUNTS["town"])],
        "school": [f"{next(words)} {random.choice(('Academy', 'College'))}" for _ in range(COUNTS["school"])],
        "person": random.sample(pairs, COUNTS["person"]),
        "firm": [f"{next(words)} {random.choice(('Brothers', 'Company', 'Works'))}" for _ in range(COUNTS["firm"])],
        "novel": [f"The {next(words)} of {next(words)}" for _ in range(COUNTS["novel"])],
    }


def _words(random: Random) -> Iterator[str]:
    """Invented words, none twice."""
    made: set[str] = set()
    while True:
        parts = [random.choice(_ONSETS) + random.choice(_VOWELS) for _ in range(2)]
        word = ("".join(parts) + random.choice(_ENDS)).capitalize()
        if word not in made:
            made.add(word)
            yield word
