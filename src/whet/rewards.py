"""Users' reward terms, which settings add to a method's reward: `rewards: {brief: 0.1}`.

They run in the run's process, on whole episodes. One that breaks stops the run with its name: an error is never a
reward. Torch-free, so that a plug-in is loaded at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

from whet.errors import TooManyFailures
from whet.plugins import line_of, said
from whet.registry import Registry
from whet.types import MAX_REWARD, Episode, as_reward, in_brief

RewardTerm = Callable[[Episode, int], float | None]
"""From (episode, index of the segment) to its reward. None: grading failed, so it is unknown."""
F = TypeVar("F", bound=RewardTerm)

REWARDS: Registry[RewardTerm] = Registry("reward term")
"""Terms that settings can add to a method's reward (`rewards: {name: weight}`)."""


class RewardError(TooManyFailures, RuntimeError):
    """A user's reward term broke, or gave no number."""


def reward(name: str, *, says: str = "") -> Callable[[F], F]:
    """Registers a reward term, for `rewards: {NAME: WEIGHT}` in a config:

        @reward("brief")
        def brief(episode, index):
            return -len(episode.segments[index].tokens) / 100

    It is called for every segment that the method rewards: replies of a solver, critiques of a critic. It may look at
    the whole episode, such as the refinement that a critique led to (`episode.children(index)`). It has to be a
    function of the episode alone, as a resumed run calls it again. Where it gives None, the segment has no reward.

    To score replies by their text alone, see `whet.grader`, whose functions run in worker processes with a time limit.

    Args:
        says: a line about it. Empty: the docstring's first one.
    Raises: ValueError where it cannot be called like that.
    """

    if name == "total":
        raise ValueError("a reward term cannot be named total, which is the sum of all terms: choose another name")

    def register(term: F) -> F:
        try:
            inspect.signature(term).bind(None, 0)
        except TypeError as error:
            raise ValueError(f"the reward term {name!r} has to take (episode, index): {error}") from error
        REWARDS.add(name, term, says=says or (term.__doc__ or "").strip().partition("\n")[0])
        return term

    return register


def value_of(name: str, episode: Episode, index: int) -> float | None:
    """A registered term's number for a segment.

    Raises: RewardError where it breaks, or gives something else than a finite number of at most `MAX_REWARD` in size;
        UnknownName.
    """
    entry = REWARDS.entry(name)
    try:
        value = entry.make()(episode, index)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and CancelledError too
        line = line_of(error, entry.origin)
        raise RewardError(
            f"the reward term {name!r} of {entry.origin}{line} raised {said(error)}; mend it, then "
            "`whet resume RUN --accept-changes` continues"
        ) from error
    if value is None:
        return None
    number = as_reward(value)
    if number is None:
        raise RewardError(
            f"the reward term {name!r} of {entry.origin} gave {in_brief(value)} for task "
            f"{episode.task.id[:60]!r}: it must return a finite number of at most {MAX_REWARD:g} in "
            "size, or None"
        )
    return number
