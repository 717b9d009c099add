"""Scripted agents, as baselines of a trained one: an expert, random listed actions, and one repeated action."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Iterator, Mapping
from random import Random
from typing import Any

from whet.config.environments import MAX_OBSERVATION_CHARS, ScriptedAgent
from whet.envs.formats import WRITERS, write
from whet.envs.protocol import ACTIONS, INVALID, EnvError, Environment, EnvironmentInfo, begun, stepped
from whet.envs.retries import Attempts, Call, Late, direct
from whet.errors import text_of
from whet.rollout.agent import ENDED, HORIZON, INVALID_ACTION, ITEM, cut_mark
from whet.rollout.environments import Seen
from whet.rollout.roles import observed, written
from whet.seeds import seed_of
from whet.types import MAX_REASON, Episode, Outcome, Segment, Task, shortened

NOTHING = "look"
"""The action in an environment that lists none."""


def scripted_episode(
    agent: ScriptedAgent, info: EnvironmentInfo, env: Environment, task: Task, *, seed: int, max_turns: int,
    env_seed: int | None = None, call: Call = direct, max_observation_chars: int = MAX_OBSERVATION_CHARS,
) -> Episode:  # fmt: skip
    """A scripted agent's episode, with segments as an agent's.

    Args:
        env: is reset first.
        seed: of the drawn actions.
        env_seed: of the environment. None: `seed`.
        call: makes each call of the environment.
        max_observation_chars: the middle of a longer observation is left out, and marked as for an agent.
    Raises: EnvError where the environment has no expert, or `call` returns a coroutine. ValueError where it breaks the
        protocol.
    """
    reset_seed = (seed if env_seed is None else env_seed) % 2**31
    observation, about = begun(_answered(call(env.reset, task.info[ITEM], seed=reset_seed)))
    seen = Seen(observation, info=about).within(max_observation_chars)
    segments: list[Segment] = [observed(seen.observation, parent=None, parsed=cut_mark(seen))]
    outcome: Outcome = "truncated"
    reason = ""
    latest = [seen]
    moves = _moves(agent, info, env, lambda: latest[-1], Random(seed_of("scripted", agent, seed)))
    while (move := call(next, moves, None)) is not None:
        thought, action = move
        seen = Seen(*stepped(_answered(call(env.step, action)))).within(max_observation_chars)
        latest.append(seen)
        info.check_total(math.fsum(earlier.reward for earlier in latest))
        read: dict[str, Any] = {"thought": thought, "action": action, "reward": seen.reward}
        if seen.info.get(INVALID):
            read["note"] = INVALID_ACTION
        text = write(thought, action, info.parser if info.parser in WRITERS else "react")
        segments.append(written("agent", text, policy=agent, parent=len(segments) - 1, parsed=read))
        segments.append(observed(seen.observation, parent=len(segments) - 1, parsed=cut_mark(seen)))
        if seen.is_over:
            outcome, reason = ("ok", "") if seen.terminated else ("truncated", ENDED)
            break
        if len(latest) > max_turns:
            reason = HORIZON
            break
    return Episode(task=task, segments=tuple(segments), outcome=outcome, reason=reason)


def tried_episode(
    agent: ScriptedAgent, info: EnvironmentInfo, env: Attempts, task: Task, *, seed: int, max_turns: int,
    env_seed: int | None = None, max_observation_chars: int = MAX_OBSERVATION_CHARS,
) -> Episode:  # fmt: skip
    """`scripted_episode` with retries. After the last failure: an episode with that outcome."""

    def episode_of(env: Environment, call: Call) -> Episode:
        return scripted_episode(
            agent, info, env, task, seed=seed, max_turns=max_turns, env_seed=env_seed, call=call,
            max_observation_chars=max_observation_chars,
        )  # fmt: skip

    try:
        return env.run(episode_of)
    except Late as error:
        return Episode(task=task, segments=(), outcome="timeout", reason=shortened(str(error), MAX_REASON))
    except Exception as error:  # users' environments raise anything
        reason = shortened(f"{type(error).__name__}: {text_of(error)}", MAX_REASON)
        return Episode(task=task, segments=(), outcome="env_error", reason=reason)


def _moves(
    agent: ScriptedAgent, info: EnvironmentInfo, env: Environment, latest: Callable[[], Seen], rng: Random
) -> Iterator[tuple[str, str]]:
    if agent == "expert":
        if info.expert is None:
            raise EnvError(f"{info.name} has no scripted expert")
        return iter(info.expert(env, seed=rng.getrandbits(31)))
    first = _listed(latest().info)[0]

    def drawn() -> Iterator[tuple[str, str]]:
        while True:
            yield "", rng.choice(_listed(latest().info)) if agent == "random" else first

    return drawn()


def _listed(about: Mapping[str, Any]) -> list[str]:
    return list(about.get(ACTIONS) or (NOTHING,))


def _answered(answer: Any) -> Any:
    """Raises: EnvError for a coroutine."""
    if isinstance(answer, Coroutine):
        answer.close()
        raise EnvError("scripted agents cannot call an environment whose functions are coroutines")
    return answer
