"""Stored episodes as traces for the report's page: turn by turn, with pictures where the environment has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from whet.envs.formats import PARSERS
from whet.envs.protocol import INVALID, PICTURE, Environment, EnvironmentInfo
from whet.trajectories.format_detection import parser_name
from whet.trajectories.records import FIRST_OBSERVATION, FIRST_REPLY, Trajectory, item_number, score_of


def trace_row(
    trajectory: Trajectory,
    *,
    split: str = "",
    env: Environment | None = None,
    info: EnvironmentInfo | None = None,
) -> dict[str, Any]:
    """A stored episode as a trace.

    Args:
        env: replays the episode (synchronously), so that each turn has its picture and reward; needs `info`. None: only
            stored data is shown.
    """
    messages = trajectory.messages
    seen = _replayed(trajectory, env, info) if env is not None and info is not None else []
    turns: list[dict[str, Any]] = []
    for message in messages[FIRST_REPLY:]:
        is_agent = message.who == "gpt"
        turn: dict[str, Any] = {"role": "agent" if is_agent else "observation", "text": message.text}
        if is_agent and message.loss is False:
            turn["note"] = "not trained"
        number = sum(earlier["role"] == "agent" for earlier in turns)
        if is_agent and number < len(seen):
            turn |= seen[number]
        turns.append(turn)
    score = score_of(trajectory.reward, trajectory.success)
    return {
        "phase": "stored", "step": 0, "split": split or "stored", "environment": trajectory.environment,
        "task": trajectory.item_id, "reference": "", "answer": "", "turns": turns, "answer_score": score,
        "question": messages[FIRST_OBSERVATION].text if len(messages) > FIRST_OBSERVATION else "",
        "reward": trajectory.reward, "outcome": "ok",
    }  # fmt: skip


def _replayed(trajectory: Trajectory, env: Environment, info: EnvironmentInfo) -> Sequence[dict[str, Any]]:
    """Picture, reward and note of each turn, up to the environment's end."""
    parse, turns = PARSERS.get(parser_name(trajectory, info)), list[dict[str, Any]]()
    begun: Any = env.reset(item_number(trajectory.item_id, info.named_items), seed=trajectory.env_seed(0))
    picture = begun[1].get(PICTURE)
    for reply in trajectory.replies():
        parsed, turn = parse(reply), dict[str, Any]()
        if picture is not None:
            turn["picture"] = [list(row) for row in picture]
        turns.append(turn)
        if parsed.problem:
            turn["note"] = "invalid action"
            continue
        stepped: Any = env.step(parsed.action)
        _, reward, terminated, truncated, about = stepped
        turn["reward"] = reward or None
        if about.get(INVALID):
            turn["note"] = "invalid action"
        picture = about.get(PICTURE)
        if terminated or truncated:
            break
    return turns
