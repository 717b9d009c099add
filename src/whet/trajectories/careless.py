"""Careless and wasteful experts: a scripted expert that errs with set probabilities, in any environment.

An agent cloned from such episodes knows the words and the game, and is often but not always wrong, as a pretrained
model is. Reinforcement learning can still improve it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from whet.envs.protocol import ACTIONS, INVALID, Info

Move = tuple[str, str]
"""A thought and an action."""

_NUMBER = re.compile(r"\b[0-9]{1,6}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """Probabilities of mistakes in a turn, each in [0, 1]. All 0: no mistakes, and nothing is drawn."""

    wrong_count: float = 0.0
    """The action has a number that is one too many or one too few."""
    wrong_action: float = 0.0
    """The action is another one of those that the environment lists, if it lists any."""
    stuck: float = 0.0
    """After an action that the environment refused: the same action again."""
    wasteful: float = 0.0
    """The turn repeats the turn before, if that was not refused; the expert's action comes later."""


WITHOUT_MISTAKES = Care()


def slipped(care: Care, random: Random, ask: Callable[[], Move | None], about: Info, last: Move | None) -> Move | None:
    """The next move of an expert that errs as often as `care` says.

    Args:
        random: of the episode.
        ask: gives the expert's next move. It is not called in a turn that repeats another move.
        about: the info of the last step or reset.
        last: the previous move. None: it is the first turn.
    Returns: None where the expert has ended.
    """
    if care == WITHOUT_MISTAKES:
        return ask()
    refused = bool(about.get(INVALID))
    if last is not None and random.random() < (care.stuck if refused else care.wasteful):
        return last
    move = ask()
    if move is None:
        return None
    thought, action = move
    if random.random() < care.wrong_action:
        action = _another(action, about.get(ACTIONS, ()), random)
    if random.random() < care.wrong_count:
        action = _miscounted(action, random)
    return thought, action


def _another(action: str, listed: Sequence[str], random: Random) -> str:
    others = [other for other in listed if other != action]
    return random.choice(others) if others else action


def _miscounted(action: str, random: Random) -> str:
    """One number of the action is one off, and never 0. An action without numbers stays as it is."""
    numbers = list(_NUMBER.finditer(action))
    if not numbers:
        return action
    chosen = random.choice(numbers)
    count = int(chosen[0])
    wrong = count + 1 if count < 2 or random.random() < 0.5 else count - 1
    return f"{action[: chosen.start()]}{wrong}{action[chosen.end() :]}"
