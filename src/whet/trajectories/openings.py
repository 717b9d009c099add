"""How the episodes of files open: the rules, the reply to them, and the form of the observations.

All texts are the files' own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from whet.envs.shown_form import ADDED, BEGINNINGS, ShownForm
from whet.trajectories.records import FIRST_OBSERVATION, PROMISE, Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The turns before the first observation, and the form of what follows."""

    rules: str
    """The user's turn. Empty: there is no opening."""
    reply: str = PROMISE
    """The agent's."""
    form: ShownForm | None = None
    """Of the observations. None: the source does not tell."""
    num_openings: int = 1
    """Different openings of the environment in the source. Of several this is the most frequent one."""

    @property
    def text(self) -> tuple[str, str]:
        return self.rules, self.reply


def opening_of(trajectories: Sequence[Trajectory], environment: str) -> Opening | None:
    """The opening of an environment's episodes. None: there is no episode of it."""
    episodes = [trajectory for trajectory in trajectories if trajectory.environment == environment]
    openings = Counter(tuple(message.text for message in episode.messages[:FIRST_OBSERVATION]) for episode in episodes)
    if not openings:
        return None
    [((rules, reply), _)] = openings.most_common(1)
    return Opening(rules=rules, reply=reply, form=form_of(episodes, environment), num_openings=len(openings))


def form_of(episodes: Sequence[Trajectory], environment: str) -> ShownForm | None:
    """The form of an environment's observations in records. None: it is not known how they begin.

    Records of one file may differ; the form is that of most.
    """
    begins = BEGINNINGS.get(environment)
    firsts = [episode.observations()[0] for episode in episodes]
    befores = Counter(first.rpartition(begins)[0] for first in firsts if begins and begins in first)
    if not befores:
        return None
    [(before, _)] = befores.most_common(1)
    later = [observation for episode in episodes for observation in episode.observations()[1:]]
    num_repeated = sum(observation.startswith(before) for observation in later)
    added = ADDED.get(environment, "")
    return ShownForm(
        before_first=before,
        before_later=before if 2 * num_repeated > len(later) else "",
        ends_before="" if any(added in first for first in firsts) else added,
    )
