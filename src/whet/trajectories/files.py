"""Files of trajectories and of items: AgentTraj, AgentEval, logs of evaluation, rollouts of the RL trainer.

Reading checks everything; its errors name file and record. Writing gives a file that reads back equal.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from whet.envs.protocol import EnvError, cannot_write
from whet.files import write_atomic
from whet.tasks.files import DataError, parse_json, read_text
from whet.trajectories.records import SPEAKERS, TRIAL, Message, Trajectory, check, item_number

SETTING = "the trajectories"
FIELDS = ("item_id", "conversations", "reward", "success")
ROLES = {"user": "human", "assistant": "gpt"}
"""Speakers in rollouts."""
SYSTEM = "system"
"""The speaker before a rollout's first message, and the field of `Trajectory.info` that keeps its text."""
MAX_NUMBER = 2**53


def records(path: Path, setting: str = SETTING) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON list or of JSON lines, each with its place: `traj.json, record 7`.

    Args:
        setting: the setting that names the file, for the error where there is none.
    """
    text = read_text(path, setting)
    if text.lstrip().startswith("["):
        rows = parse_json(text, str(path), "write one whole list of records")
        placed_rows = [(f"{path}, record {number}", row) for number, row in enumerate(rows, 1)]
    else:
        lines = enumerate(text.split("\n"), 1)
        placed_lines = [(f"{path}, line {number}", line) for number, line in lines if line.strip()]
        placed_rows = [(place, parse_json(line, place)) for place, line in placed_lines]
    for place, row in placed_rows:
        if not isinstance(row, dict):
            raise DataError(f"{place}: expected an object with item_id, and found {type(row).__name__}; write {{...}}")
        yield place, row


def read_trajectories(path: str | Path, environment: str = "") -> tuple[Trajectory, ...]:
    """AgentTraj's list, a log of evaluation or exploration (with reward and success), or rollouts of the RL trainer.

    Args:
        environment: of rollouts, whose records have an item's number alone. It is not read where records name theirs.
    Returns: the records of JSON or of JSON lines, in file order.
    Raises: DataError.
    """
    return tuple(check(_trajectory(place, row, environment), place) for place, row in records(Path(path)))


def write_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> None:
    """Raises: DataError for a trajectory that could not be read back, EnvError where the file cannot be written."""
    path = Path(path)
    rows = [_row(check(trajectory, f"trajectory {number}")) for number, trajectory in enumerate(trajectories, 1)]
    write_rows(path, rows)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """JSON lines where the name ends in `.jsonl`, else a JSON list."""
    try:
        lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
        text = "".join(f"{line}\n" for line in lines) if path.suffix == ".jsonl" else f"[{_joined(lines)}]\n"
        write_atomic(path, text.encode())
    except UnicodeEncodeError as error:
        raise DataError(f"{path}: a text to be written holds half a character (a lone surrogate); mend it") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"{path}: a record holds what JSON has no way to write ({error}); leave it out") from error
    except OSError as error:
        raise cannot_write(path, error) from error


def message_of(place: str, number: int, content: Any) -> Message:
    """One message, as AgentTraj writes it."""
    if not isinstance(content, dict):
        raise DataError(f"{place}: message {number} is {_short(content)}; write an object with from, loss and value")
    who, loss = content.get("from"), content.get("loss")
    if who not in SPEAKERS:
        raise DataError(f"{place}: message {number} is from {_short(who)}; write 'human' or 'gpt'")
    if loss is not None and not isinstance(loss, bool):
        raise DataError(f"{place}: message {number} has the loss {_short(loss)}; write true, false or null")
    return Message(who, _text(place, content.get("value"), f"the value of message {number}"), loss)


def message_row(message: Message) -> dict[str, Any]:
    return {"from": message.who, "loss": message.loss, "value": message.text}


def _joined(lines: Sequence[str]) -> str:
    return "\n" + ",\n".join(lines) + "\n" if lines else ""


def _trajectory(place: str, row: Mapping[str, Any], environment: str) -> Trajectory:
    chat, info = _conversation(place, row), {name: value for name, value in row.items() if name not in FIELDS}
    if type(row.get("item_id")) is int:
        item_id, read = _rollout_item(place, row["item_id"], environment), _rollout_message
        if chat and isinstance(chat[0], dict) and chat[0].get("role") == SYSTEM:
            info[SYSTEM] = _text(place, chat[0].get("content"), "the system message")
            chat = chat[1:]
    else:
        item_id, read = item_id_of(place, row), message_of
    return Trajectory(
        item_id=item_id,
        messages=tuple(read(place, number, message) for number, message in enumerate(chat)),
        reward=_reward(place, row),
        success=_success(place, row),
        info=info,
    )


def _row(trajectory: Trajectory) -> dict[str, Any]:
    row: dict[str, Any] = {
        "conversations": [message_row(message) for message in trajectory.messages],
        "item_id": trajectory.item_id,
    }
    results = {"reward": trajectory.reward, "success": trajectory.success}
    return row | {name: value for name, value in results.items() if value is not None} | dict(trajectory.info)


def _conversation(place: str, row: Mapping[str, Any]) -> list[Any]:
    """The list of messages. Some published files have a text with a Python list instead."""
    chat = row.get("conversations")
    if isinstance(chat, str):
        try:
            chat = ast.literal_eval(chat)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
            raise DataError(f"{place}: conversations is a text that is no Python list; write a JSON list") from error
    if chat is None and "chosen" in row:
        raise DataError(f"{place}: this is a pair, and an episode is asked for; `agent_dpo pairs=[FILE]` takes pairs")
    if not isinstance(chat, list):
        raise DataError(f"{place}: conversations is {_short(chat)}; write a list of messages")
    return chat


def _rollout_item(place: str, number: int, environment: str) -> str:
    if not environment:
        raise DataError(
            f"{place}: item_id is the number {_short(number)}, as in rollouts, and does not say its environment; name "
            "it (--env NAME of `whet env show` and `whet env replay`), or write an item such as 'textcraft_12'"
        )
    if not 0 <= number < MAX_NUMBER:
        raise DataError(f"{place}: item_id is {_short(number)}; write a whole number from 0")
    return f"{environment}_{number}"


def _rollout_message(place: str, number: int, content: Any) -> Message:
    role = content.get("role") if isinstance(content, dict) else None
    if not isinstance(role, str) or role not in ROLES:
        raise DataError(f"{place}: message {number} is {_short(content)}; write role (user or assistant) and content")
    who = SPEAKERS[0] if role == "user" else SPEAKERS[1]
    return Message(who, _text(place, content.get("content"), f"the content of message {number}"))


def item_id_of(place: str, row: Mapping[str, Any]) -> str:
    name = row.get("item_id")
    if not isinstance(name, str):
        raise DataError(f"{place}: item_id is {_short(name)}; write a name such as 'textcraft_12'")
    try:
        if TRIAL not in name:
            item_number(name)
    except EnvError as error:
        raise DataError(f"{place}: {error}") from error
    return _text(place, name, "item_id")


def _reward(place: str, row: Mapping[str, Any]) -> float | None:
    value = row.get("reward")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > MAX_NUMBER:
        raise DataError(f"{place}: the reward is {_short(value)}; write a number, or null where there is none")
    return float(value)


def _success(place: str, row: Mapping[str, Any]) -> bool | None:
    value = row.get("success")
    if value is None or isinstance(value, bool):
        return value
    if value in (0, 1):  # as some logs write it
        return bool(value)
    raise DataError(f"{place}: success is {_short(value)}; write true, false or null")


def _text(place: str, value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{place}: {field} is {_short(value)}; write a text")
    return value


def _short(value: Any) -> str:
    """A value for an error message."""
    if value is None:
        return "missing"
    text = repr(value) if isinstance(value, str | int | float | bool) else type(value).__name__
    return text if len(text) < 80 else f"{text[:80]}..."
