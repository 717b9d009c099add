"""The flow of an agent: it acts in an environment, turn by turn, until the world or the limit ends the episode."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from whet.envs.formats import Parsed
from whet.envs.protocol import INVALID, EnvironmentInfo
from whet.play.driver import Ask
from whet.play.roles import Role, Seat, observed
from whet.play.worlds import WORLDS, Act, Begin, Seen
from whet.seeds import seed_of
from whet.tasks.dialects import Message
from whet.types import STATE, Episode, Outcome, Segment, Task

ITEM = "item"
"""In a task's `info`: its number in the environment."""
INVALID_ACTION = "invalid action"
"""The note of a turn that the world did not understand, or that could not be read."""
CUT = "\n[...]\n"
"""Stands where a long observation was cut in its middle."""


@dataclass(frozen=True)
class Agent:
    """A setting of the flow; call it with a task to get the flow. All seeds derive from `key`.

    Args:
        opening: what stands before the first observation: the rules, and what the agent said to them.
        parse: reads a reply; see `envs.formats.PARSERS`.
        max_turns: an episode that has not ended by then is truncated.
        max_context: tokens that a turn may begin with, where a policy plays: past it the episode is truncated.
        max_observation: characters that are shown of an observation; the middle of longer ones is left out.
        settings: of the environment.
        keeps_states: each turn's `parsed` has the `state` in which it was written, as the world's `state_key` has it.
        same_world: every sample of a task plays the same world; else each has a seed of its own.
    """

    agent: Seat
    environment: EnvironmentInfo
    opening: tuple[Message, ...]
    parse: Callable[[str], Parsed]
    key: tuple[object, ...]
    """Run seed, phase, step: the seeds' first part."""
    max_turns: int
    max_context: int = 1 << 20
    max_observation: int = 20_000
    settings: Mapping[str, Any] = field(default_factory=dict)
    keeps_states: bool = False
    same_world: bool = True

    async def __call__(self, task: Task, *, sample: int = 0) -> Episode:
        """The episode: an observation, and then turns and what the world answered, one after another.

        Each turn's `parsed` has what was read of it (`thought`, `action`), the step's `reward`, and a `note` where the
        action was invalid.

        Args:
            sample: which of several plays of the task this is (for the seeds).
        """
        begin = Begin(
            self.environment, task.info[ITEM], self._world_seed(task, sample), self.settings, self.keeps_states
        )
        seen: Seen = await Ask(WORLDS, begin)
        shown = seen.observation  # the world's own words, whatever a reply that cannot be read was answered
        segments = [observed(shown, parent=None)]
        messages: list[Message] = [*self.opening, _user(self._shown(seen.observation))]
        last: Segment | None = None
        outcome: Outcome = "truncated"
        for turn in range(self.max_turns):
            if self._is_full(messages, last):
                break
            seed = seed_of(*self.key, "turn", task.id, sample, turn)
            reply = await self.agent.reply(
                messages, seed=seed, parent=len(segments) - 1, group={"task": task.id}, follows=last
            )
            parsed, before = self.parse(reply.text), seen.state
            if parsed.problem:
                seen = Seen(parsed.answer(shown), info={INVALID: True}, state=before)
            else:
                seen = await Ask(WORLDS, Act(begin.lease, parsed.action))
                shown = seen.observation
            segments.append(_turn(reply, parsed, seen, before))
            segments.append(observed(seen.observation, parent=len(segments) - 1))
            last = reply
            messages += [{"role": "assistant", "content": reply.text}, _user(self._shown(seen.observation))]
            if seen.is_over:
                outcome = "ok" if seen.terminated else "truncated"
                break
        return Episode(task=task, segments=tuple(segments), outcome=outcome)

    def _world_seed(self, task: Task, sample: int) -> int:
        """31 bits: worlds made by others take no more."""
        return seed_of(*self.key, "world", task.id, 0 if self.same_world else sample) % 2**31

    def _is_full(self, messages: list[Message], last: Segment | None) -> bool:
        if not isinstance(self.agent, Role):
            return False
        return len(self.agent.begin(messages, seed=0, follows=last).context) > self.max_context

    def _shown(self, observation: str) -> str:
        if len(observation) <= self.max_observation:
            return observation
        half = max(1, (self.max_observation - len(CUT)) // 2)
        return f"{observation[:half]}{CUT}{observation[-half:]}"


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _turn(reply: Segment, parsed: Parsed, seen: Seen, before: Hashable) -> Segment:
    """A reply with what was read of it and what came of it.

    Args:
        before: the state in which it was written. None: nobody has asked.
    """
    read: dict[str, Any] = {"thought": parsed.thought, "action": parsed.action, "reward": seen.reward}
    if before is not None:
        read[STATE] = before
    if seen.info.get(INVALID):
        read["note"] = INVALID_ACTION
    return replace(reply, parsed={**reply.parsed, **read})
