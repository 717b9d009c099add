"""The agent's rollout function: it acts in an environment, turn by turn, until that or a limit ends the episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from whet.envs.formats import Parsed
from whet.envs.protocol import INVALID, EnvironmentInfo
from whet.envs.shown_form import OWN_FORM, ShownForm
from whet.rollout.driver import Ask
from whet.rollout.environments import ENVIRONMENT_SERVICE, Act, Begin, Leave, Seen
from whet.rollout.roles import PolicyRole, Role, observed
from whet.seeds import seed_of
from whet.tasks.prompts import Message
from whet.tool_calls import TOOL, has_call
from whet.types import STATE, Episode, Outcome, Segment, Task

ITEM = "item"
"""In a task's `info`: its number in the environment."""
INVALID_ACTION = "invalid action"
"""The note of a turn that the environment did not understand, or that could not be read."""
HORIZON, FULL, ENDED = "the limit of turns", "the limit of tokens", "the environment's own limit"
"""Reasons of truncated episodes."""

NUM_CUT = "num_cut"
"""In the `parsed` of an observation: characters that were left out, if it was longer than the limit."""
PROPOSED = "proposed"
"""In the `parsed` of a turn that was sent back: its proposed action, which was not taken."""


class Review(Protocol):
    """Reads an action before it is taken."""

    @property
    def most(self) -> int:
        """How often in one turn an action may be sent back."""
        ...

    async def __call__(
        self, task: Task, segments: Sequence[Segment], action: str, *, env_seed: int, seed: int
    ) -> Segment:
        """The review, a segment whose `parsed` has the `verdict`: `wrong` sends the action back.

        Args:
            segments: of the episode so far.
            seed: of what is sampled.
        Raises: Fault.
        """
        ...

    def told(self, review: Segment) -> str:
        """The message to the agent whose action is sent back."""
        ...


@dataclass(frozen=True)
class Agent:
    """A rollout function: a call with a task returns a rollout. All seeds derive from `key`.

    Args:
        opening: messages before the first observation: the rules, and the agent's reply to them.
        parse: reads a reply. See `envs.formats.PARSERS`.
        max_turns: a longer episode is truncated.
        max_context: of a policy. No reply begins with more tokens: the episode is truncated before it.
        max_observation: characters. The middle of a longer observation is left out.
        form: in which observations are shown. Episodes hold them as the environment gives them.
        settings: of the environment.
        keeps_states: each turn's `parsed` has the `state` before it, the digest of a `state_key`.
        same_env: samples of a task share the environment seed. False: each has another.
        leaves: gives the environment back when the episode ends. False: when the rollout ends.
        review: reads each action before it is taken. None: no review.
    """

    agent: Role
    environment: EnvironmentInfo
    opening: tuple[Message, ...]
    parse: Callable[[str], Parsed]
    key: tuple[object, ...]
    """Run seed, phase, step: the seeds' first part."""
    max_turns: int
    max_context: int = 1 << 20
    max_observation: int = 20_000
    form: ShownForm = OWN_FORM
    settings: Mapping[str, Any] = field(default_factory=dict)
    keeps_states: bool = False
    same_env: bool = True
    leaves: bool = False
    review: Review | None = None

    async def __call__(self, task: Task, *, sample: int = 0, told: str = "", again: str = "") -> Episode:
        """The episode: an observation, then turns and observations by turns.

        Each turn's `parsed` has its `thought` and `action`, the step's `reward`, and a `note` if the action was
        invalid. The review of its action follows it.

        Args:
            sample: its number, for the seeds.
            told: text below the first observation.
            again: the attempt at the sample. Empty: the first one. All have the same environment seed.
        """
        begin = Begin(self.environment, task.info[ITEM], self.env_seed(task, sample), self.settings, self.keeps_states)
        seen: Seen = await Ask(ENVIRONMENT_SERVICE, begin)
        shown = seen.observation  # by the environment; replies that cannot be read get another answer
        segments = [observed(shown, parent=None, parsed=cut_mark(seen))]
        first = self._shown(seen.observation, is_first=True)
        messages: list[Message] = [*self.opening, _user(opened(first, told))]
        last: Segment | None = None
        outcome: Outcome = "truncated"
        reason = HORIZON
        for turn in range(self.max_turns):
            which = (task.id, sample, *filter(None, [again]), turn)
            taken = await self._proposed(task, sample, which, messages, segments, last)
            if taken is None:
                reason = FULL
                break
            reply, parsed, review = taken
            before = seen.state
            if parsed.problem:
                seen = Seen(parsed.answer(shown), info={INVALID: True}, state=before)
            else:
                seen = await Ask(ENVIRONMENT_SERVICE, Act(begin.lease, parsed.action))
                shown = seen.observation
            at = len(segments)
            segments += [_turn(reply, parsed, seen, before), *([replace(review, parent=at)] if review else [])]
            segments.append(observed(seen.observation, parent=at, parsed=cut_mark(seen)))
            last = reply
            messages += self._turn_and_answer(reply.text, self._shown(seen.observation))
            if seen.is_over:
                outcome, reason = ("ok", "") if seen.terminated else ("truncated", ENDED)
                break
        if self.leaves:
            await Ask(ENVIRONMENT_SERVICE, Leave(begin.lease))
        return Episode(task=task, segments=tuple(segments), outcome=outcome, reason=reason)

    async def _proposed(
        self,
        task: Task,
        sample: int,
        which: tuple[object, ...],
        messages: list[Message],
        segments: list[Segment],
        last: Segment | None,
    ) -> tuple[Segment, Parsed, Segment | None] | None:
        """The reply whose action is taken, its parsed form and its review. None: no tokens are left for another reply.

        Replies that are sent back and their reviews are added to messages and segments. They do not count as turns.

        Args:
            which: the turn, for the seeds.
        """
        most = self.review.most if self.review is not None else 0
        for attempt in range(most + 1):
            if self._is_full(messages, last):
                return None
            seed_key = (*which, *([attempt] if attempt else []))
            reply = await self.agent.reply(
                messages,
                seed=seed_of(*self.key, "turn", *seed_key),
                parent=len(segments) - 1,
                group={"task": task.id},
                follows=last,
            )
            parsed = self.parse(reply.text)
            if self.review is None or parsed.problem or attempt == most:
                return reply, parsed, None
            env_seed, seed = self.env_seed(task, sample), seed_of(*self.key, "review", *seed_key)
            review = await self.review(task, segments, parsed.action, env_seed=env_seed, seed=seed)
            if review.parsed["verdict"] != "wrong":
                return reply, parsed, review
            read = {"thought": parsed.thought, PROPOSED: parsed.action}
            segments.append(replace(reply, parsed={**reply.parsed, **read}))
            segments.append(replace(review, parent=len(segments) - 1))
            messages += self._turn_and_answer(reply.text, self.review.told(review))
            last = reply
        raise AssertionError

    def env_seed(self, task: Task, sample: int) -> int:
        """31 bits: others' environments take no more."""
        return seed_of(*self.key, "world", task.id, 0 if self.same_env else sample) % 2**31

    def _is_full(self, messages: list[Message], last: Segment | None) -> bool:
        if not isinstance(self.agent, PolicyRole):
            return False
        return len(self.agent.begin(messages, seed=0, follows=last).context) > self.max_context

    def _turn_and_answer(self, reply: str, answer: str) -> tuple[Message, Message]:
        """A reply and what follows it: a tool's answer, where the agent has tools and the reply calls one."""
        has_tools = isinstance(self.agent, PolicyRole) and bool(self.agent.tools)
        role = TOOL if has_tools and has_call(reply) else "user"
        return {"role": "assistant", "content": reply}, {"role": role, "content": answer}

    def _shown(self, observation: str, *, is_first: bool = False) -> str:
        return self.form.shown(observation, self.max_observation, is_first=is_first)


def opened(observation: str, note: str) -> str:
    """The first observation with a note below, such as a critique."""
    return f"{observation}\n\n{note}" if note else observation


def cut_mark(seen: Seen) -> dict[str, Any]:
    """The mark of a shortened observation."""
    return {NUM_CUT: seen.num_cut} if seen.num_cut else {}


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _turn(reply: Segment, parsed: Parsed, seen: Seen, before: str | None) -> Segment:
    """A reply with its thought and action, and the reward of its step.

    Args:
        before: the digest of the state in which it was written. None: states are not recorded.
    """
    read: dict[str, Any] = {"thought": parsed.thought, "action": parsed.action, "reward": seen.reward}
    if before is not None:
        read[STATE] = before
    if seen.info.get(INVALID):
        read["note"] = INVALID_ACTION
    return replace(reply, parsed={**reply.parsed, **read})
