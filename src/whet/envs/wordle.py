"""Wordle: guess a word of five letters in six tries; each guess is answered letter by letter.

The answer to a guess is five marks: `g`, the letter stands there; `y`, the word has it elsewhere; `b`, it does not.
A letter is marked as often as the word has it: first where it stands, then from the left. A guess outside the list of
words is answered by "invalid word" and costs a try. Sentences, rewards (1 for the word, 0 for anything else) and
numbering are those of LMRL-Gym (arXiv:2311.18232), which AgentGym uses. An item is the seed that draws the word.

Two things differ from the published environment. Its marks of a letter that a guess holds twice contradict one another.
And it draws its word anew at each guess from those still possible; the odds are those of one word drawn at the start.
"""

from __future__ import annotations

import random
import string
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Self

from whet.envs.protocol import ACTIONS, INVALID, EnvError, EnvironmentInfo, Observed, PublishedItems, Stepped
from whet.seeds import seed_of

NUM_LETTERS = 5
NUM_TRIES = 6
WORDS = Path(__file__).with_name("wordle.txt")
"""Our own list of common words."""
FIRST = "Let's start Wordle!"
NO_WORD = "invalid word"
NUM_DRAWN = 8192
"""Items that the splits are taken from: enough for each word of our list to be drawn, and some of a longer one."""
FEW = 40
"""Possible words up to which the expert weighs every word of the list, and not only those that are possible."""


@cache
def load_words(path: Path) -> tuple[str, ...]:
    """The words of five lower-case letters of a file with one word a line, in its order, without repetitions.

    Raises: EnvError where the file cannot be read, or has none.
    """
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvError(f"cannot read the words of {path}: name a text file with one word a line") from error
    words = tuple(dict.fromkeys(word for word in lines if _is_formed(word)))
    if not words:
        raise EnvError(f"{path} has no word of {NUM_LETTERS} lower-case letters: name a file with one word a line")
    return words


def marks(guess: str, word: str) -> str:
    """The answer to a guess, a mark a letter: `marks("array", "maria") == "ybgyb"`."""
    left = Counter(at for at, letter in zip(word, guess, strict=True) if at != letter)
    row = []
    for letter, at in zip(guess, word, strict=True):
        if letter == at:
            row.append("g")
        elif left[letter]:
            left[letter] -= 1
            row.append("y")
        else:
            row.append("b")
    return "".join(row)


def spaced(word: str) -> str:
    """A word as a guess is written: `p a n i c`."""
    return " ".join(word)


class Wordle:
    """One game.

    Args:
        words: a file with one word a line, for the word that is drawn and for guesses. None: our own list.
    """

    def __init__(self, words: str | Path | None = None) -> None:
        self._words = load_words(Path(words) if words is not None else WORDS)
        self._allowed = frozenset(self._words)
        self._word = ""
        self._guesses: tuple[str, ...] = ()
        self._is_over = True

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        """The item draws the word; `seed` changes nothing. The info lists all words that may be guessed."""
        if item < 0:
            raise EnvError(f"wordle has no item {item}: an item is a seed, 0 or above")
        self._word = random.Random(item).choice(self._words)
        self._guesses = ()
        self._is_over = False
        return FIRST, {ACTIONS: _as_guesses(self._words)}

    def step(self, action: str) -> Stepped:
        if self._is_over:
            raise EnvError("this game has not begun or has ended: call reset(item) before the next step")
        guess = action.strip().replace(" ", "")
        is_word = guess in self._allowed
        self._guesses += (guess if is_word else "",)
        is_right = guess == self._word
        self._is_over = is_right or len(self._guesses) == NUM_TRIES
        says = f"{spaced(marks(guess, self._word))}\n" if is_word else NO_WORD
        return says, float(is_right), self._is_over, False, {} if is_word else {INVALID: True}

    def state_key(self) -> Hashable:
        """The word and what was guessed, in any order: what the agent has seen is part of the game's state."""
        return self._words, self._word, tuple(sorted(self._guesses)), self._is_over

    def fork(self) -> Self:
        other = object.__new__(type(self))
        other._words, other._allowed, other._word = self._words, self._allowed, self._word
        other._guesses, other._is_over = self._guesses, self._is_over
        return other

    def close(self) -> None:
        self._is_over = True

    @property
    def words(self) -> tuple[str, ...]:
        """All words of the game's list."""
        return self._words

    @property
    def answers(self) -> tuple[tuple[str, str], ...]:
        """The guesses so far that are words, each with its marks."""
        return tuple((guess, marks(guess, self._word)) for guess in self._guesses if guess)

    def candidates(self) -> tuple[str, ...]:
        """The words that fit all answers so far, in the list's order."""
        return fitting(self._words, self.answers)


def fitting(words: Sequence[str], answers: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The words that would have been answered so."""
    return tuple(word for word in words if all(marks(guess, word) == answer for guess, answer in answers))


def expert(env: Wordle, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Keeps the words that fit, and asks for the one whose answer tells most of them apart."""
    while True:
        possible = env.candidates()
        guess = _best_guess(env.words, possible)
        yield _thought(env.answers, possible, guess), spaced(guess)


def _best_guess(words: tuple[str, ...], possible: tuple[str, ...]) -> str:
    if len(possible) <= 2:
        return possible[0]
    if len(possible) > FEW:
        return _commonest(possible)
    fits = frozenset(possible)
    return max(words, key=lambda guess: (len({marks(guess, word) for word in possible}), guess in fits))


@lru_cache(maxsize=16)
def _commonest(possible: tuple[str, ...]) -> str:
    """Of many words, the one whose different letters most of the others have."""
    having = Counter(letter for word in possible for letter in sorted(set(word)))
    return max(possible, key=lambda word: sum(having[letter] for letter in sorted(set(word))))


def _thought(answers: Sequence[tuple[str, str]], possible: Sequence[str], guess: str) -> str:
    if not answers:
        return f"I know nothing yet. {guess!r} has letters that many words have, so I begin with it."
    knowledge = _summary(answers)
    if len(possible) == 1:
        return f"{knowledge} Only {guess!r} fits all of it."
    some = ", ".join(possible[:3]) + (", ..." if len(possible) > 3 else "")
    how = "is one of them" if guess in possible else "is not one of them"
    return f"{knowledge} {len(possible)} words fit ({some}). {guess!r} {how} and tells most of them apart."


def _summary(answers: Sequence[tuple[str, str]]) -> str:
    places: dict[int, str] = {}
    elsewhere: dict[str, set[int]] = defaultdict(set)
    absent: dict[str, None] = {}
    for guess, answer in answers:
        for place, (letter, mark) in enumerate(zip(guess, answer, strict=True), start=1):
            if mark == "g":
                places[place] = letter
            elif mark == "y":
                elsewhere[letter].add(place)
            elif not any(other == letter and at != "b" for other, at in zip(guess, answer, strict=True)):
                absent[letter] = None
    parts = [f"letter {place} is {letter!r}" for place, letter in sorted(places.items())]
    parts += [f"{letter!r} is in the word but not at {_listed(sorted(at))}" for letter, at in elsewhere.items()]
    parts += [f"it has no {_listed(sorted(absent), 'or')}"] if absent else []
    return f"I know: {'; '.join(parts)}."


def _listed(things: Sequence[object], joined_by: str = "and") -> str:
    *most, last = map(str, things)
    return f"{', '.join(most)} {joined_by} {last}" if most else last


def splits() -> Mapping[str, Sequence[int]]:
    """Of our own list."""
    return _splits(load_words(WORDS))


@cache
def _splits(words: tuple[str, ...]) -> Mapping[str, Sequence[int]]:
    """`train` and `test` (a fifth) have no word in common, and draw each of theirs once.

    `published_test` is AgentEval's list, of which 21 of 25 are training items in the published lists.
    """
    first: dict[str, int] = {}
    for item in range(NUM_DRAWN):
        first.setdefault(random.Random(item).choice(words), item)
    of_test = {word for word in words if seed_of("wordle", word) % 5 == 0}
    return {
        "train": tuple(item for word, item in first.items() if word not in of_test),
        "test": tuple(item for word, item in first.items() if word in of_test),
        "published_test": range(25),
    }


def of_settings(settings: Mapping[str, Any]) -> EnvironmentInfo:
    """With another list: its words, split by the same rule."""
    words = Wordle(**settings).words
    parts = _splits(words)
    if not parts["train"] or not parts["test"]:
        raise EnvError(f"{len(words)} words are too few for train and test: give wordle a longer list of words")
    return replace(WORDLE, splits=lambda: parts)


@cache
def _as_guesses(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(spaced, words))


def _is_formed(word: str) -> bool:
    return len(word) == NUM_LETTERS and set(word) <= set(string.ascii_lowercase)


WORDLE = EnvironmentInfo(
    name="wordle",
    make=Wordle,
    splits=splits,
    rules="wordle",
    max_turns=8,
    item_ids={"lmrlgym_wordle": ""},
    published=PublishedItems(split="published_test", is_list=True, settings=("words",)),
    parser="after_action",
    expert=expert,
    of_settings=of_settings,
)
