"""Trajectories: an agent's episode as a conversation, in the form that AgentGym's files have.

Message 0 holds the rules, 1 the model's promise to keep them, 2 the first observation, 3 the first reply, and so on by
turns. The formats of files are in `files.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from whet.envs.protocol import EnvError
from whet.tasks.files import DataError
from whet.types import is_whole

Who = Literal["human", "gpt"]
SPEAKERS: tuple[Who, Who] = ("human", "gpt")
FIRST_OBSERVATION, FIRST_REPLY = 2, 3
"""Positions among the messages."""
SEARCHQA_SOURCES = ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle")
PROMISE = "OK. I'll follow your instructions and try my best to solve the task."
"""The model's answer to the rules in the published files of most environments."""
ENV_SEED = "world_seed"
"""In the `info` of episodes that were recorded here. Published ones have none."""
TRIAL = "_trial_T"
"""Stands in the names of ALFWorld's training items, whose last digits are a time of day."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    who: Who
    """`human`: the rules and the environment. `gpt`: the model."""
    text: str
    loss: bool | None = None
    """Whether it trains. None: a `gpt` message trains, and a `human` one does not."""

    @property
    def trains(self) -> bool:
        return self.who == "gpt" and self.loss is not False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """One episode of one item."""

    item_id: str
    """As published: `textcraft_12`."""
    messages: tuple[Message, ...]
    reward: float | None = None
    """Of the episode. None: not recorded."""
    success: bool | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the record, as JSON has them."""
    tools: str = ""
    """The JSON list of the tools that its chat shows; files do not hold it. Empty: none."""

    def env_seed(self, otherwise: int) -> int:
        """The seed of its environment, where the record has it (`ENV_SEED`)."""
        recorded = self.info.get(ENV_SEED)
        return recorded if type(recorded) is int and recorded >= 0 else otherwise

    @property
    def environment(self) -> str:
        return environment_of(self.item_id)

    @property
    def num_turns(self) -> int:
        """Replies of the model, without the promise to keep the rules."""
        return sum(message.who == "gpt" for message in self.messages[FIRST_OBSERVATION:])

    def replies(self) -> tuple[str, ...]:
        return tuple(message.text for message in self.messages[FIRST_REPLY:] if message.who == "gpt")

    def observations(self) -> tuple[str, ...]:
        """The first one, and the answer to each reply."""
        return tuple(message.text for message in self.messages[FIRST_OBSERVATION:] if message.who == "human")


def conversation(rules: str, observations: Sequence[str], replies: Sequence[str]) -> tuple[Message, ...]:
    """The messages of an episode, with `loss` as published files have it.

    Args:
        observations: the first one, and one after each reply; after the last reply there may be none.
        replies: as the model wrote them.
    """
    assert 0 <= len(observations) - len(replies) <= 1, "an observation before every reply"
    messages = [Message("human", rules), Message("gpt", PROMISE, False)]
    for number, observation in enumerate(observations):
        messages.append(Message("human", observation))
        messages += [Message("gpt", reply, True) for reply in replies[number : number + 1]]
    return tuple(messages)


def check(trajectory: Trajectory, place: str) -> Trajectory:
    """The same trajectory, if its messages are the turns of an episode.

    Args:
        place: file and record, for the message.
    Raises: DataError.
    """
    check_messages(trajectory.messages, place, num_least=FIRST_OBSERVATION + 1)
    if trajectory.reward is not None and not isfinite(trajectory.reward):
        raise DataError(f"{place}: the reward is {trajectory.reward}; write a number, or null where there is none")
    return trajectory


def check_messages(messages: Sequence[Message], place: str, *, num_least: int = 0, begins_at: int = 0) -> None:
    """Raises: DataError where speakers do not alternate, a `human` message trains, or half a character stands."""
    if len(messages) < num_least:
        raise DataError(
            f"{place}: {len(messages)} messages, and an episode has {num_least} at least (rules, acknowledgement, "
            "first observation); leave the record out"
        )
    for number, message in enumerate(messages, begins_at):
        expected = SPEAKERS[number % 2]
        if message.who != expected:
            raise DataError(
                f"{place}: message {number} is of {message.who!r}, and human and gpt take turns from message 0, so it "
                f"should be of {expected!r}; put the messages in order"
            )
        if message.who == "human" and message.loss:
            raise DataError(f"{place}: message {number} of 'human' has loss true; only 'gpt' trains, so write null")
        if not is_whole(message.text):
            raise DataError(f"{place}: message {number} holds half a character (a lone surrogate); mend it")


def environment_of(item_id: str) -> str:
    """The environment that a published item belongs to: `maze` for `lmrlgym_maze_12`."""
    if TRIAL in item_id:
        return "alfworld"
    name = item_id.rpartition("_")[0] or item_id
    if name in SEARCHQA_SOURCES:
        return "searchqa"
    return name.removeprefix("lmrlgym_").removeprefix("tool_")


def item_number(item_id: str, named_items: Mapping[str, int] | None = None) -> int:
    """An item's number: what follows the last underscore.

    Args:
        named_items: as `EnvironmentInfo.named_items`.
    Raises: EnvError where there is no number.
    """
    if named_items and item_id in named_items:
        return named_items[item_id]
    tail = item_id.rpartition("_")[2]
    if TRIAL in item_id:
        raise EnvError(
            f"{item_id[:200]!r} is named after a trial of ALFWorld, not a number: give its settings "
            "data=FOLDER and mappings=FOLDER (of a run: data.settings.alfworld), which number the trials"
        )
    if not (tail.isascii() and tail.isdigit() and len(tail) < 19):
        raise EnvError(f"{item_id[:200]!r} does not end in an item's number; write names such as 'textcraft_12'")
    return int(tail)


def score_of(reward: float | None, success: float | None) -> float | None:
    """An episode's score for pages: its recorded success, else whether it has a reward above 0. None: neither is known.

    A failure may have a reward for a part of the goal.
    """
    if success is not None:
        return float(success)
    return None if reward is None else float(reward > 0)
