"""Files of trajectories and of items: AgentTraj, AgentEval, logs of evaluation, rollouts of the RL trainer.

Reading checks everything; what it cannot take it names by file and record. Writing gives a file that reads back equal.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
MAX_NUMBER = 2**53


def records(path: Path, setting: str = SETTING) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON list or of JSON lines, each with its place: `traj.json, record 7`.

    Args:
        setting: what names the file, for the error where there is none.
    """
    text = read_text(path, setting)
    if text.lstrip().startswith("["):
        rows = parse_json(text, str(path), "write one whole list of records")
        found = [(f"{path}, record {number}", row) for number, row in enumerate(rows, 1)]
    else:
        lines = enumerate(text.split("\n"), 1)
        found = [(f"{path}, line {n}", parse_json(line, f"{path}, line {n}")) for n, line in lines if line.strip()]
    for where, row in found:
        if not isinstance(row, dict):
            raise DataError(f"{where}: expected an object with item_id, and found {type(row).__name__}; write {{...}}")
        yield where, row


def read_trajectories(path: str | Path) -> tuple[Trajectory, ...]:
    """AgentTraj's list, or a log of evaluation or exploration (JSON lines, with reward and success), in file order.

    Raises: DataError.
    """
    return tuple(check(_trajectory(where, row), where) for where, row in records(Path(path)))


def write_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> None:
    """Raises: DataError for a trajectory that could not be read back, EnvError where the disk does not take it."""
    path = Path(path)
    rows = [_row(check(each, f"trajectory {number}")) for number, each in enumerate(trajectories, 1)]
    write_rows(path, rows)


def read_items(path: str | Path) -> tuple[str, ...]:
    """Published names of items: a list for RL, or AgentEval's, whose conversations are null or empty.

    Raises: DataError, also where an item has a conversation.
    """
    found = []
    for where, row in records(Path(path)):
        if row.get("conversations"):
            raise DataError(f"{where}: has a conversation, and items have none; read it as trajectories")
        found.append(item_id_of(where, row))
    return tuple(found)


def write_items(path: str | Path, items: Iterable[str]) -> None:
    write_rows(Path(path), [{"item_id": item} for item in items])


def read_rollouts(path: str | Path, prefix: str) -> tuple[Trajectory, ...]:
    """A log of the RL trainer, which keeps an item's number and not its environment's name.

    Args:
        prefix: what names of the items begin with: `textcraft`, `lmrlgym_maze`.
    """
    found = []
    for where, row in records(Path(path)):
        number = row.get("item_id")
        if type(number) is not int or not 0 <= number < MAX_NUMBER:
            raise DataError(f"{where}: item_id is {_short(number)}, and rollouts have a whole number from 0; write one")
        chat, system = _conversation(where, row), None
        if chat and isinstance(chat[0], dict) and chat[0].get("role") == "system":
            system, chat = chat[0].get("content"), chat[1:]
        said = [_rollout_message(where, number, message) for number, message in enumerate(chat)]
        info = {name: value for name, value in row.items() if name not in FIELDS}
        if system is not None:
            info["system"] = _text(where, system, "the system message")
        reward, success = _reward(where, row), _success(where, row)
        one = Trajectory(item_id=f"{prefix}_{number}", messages=tuple(said), reward=reward, success=success, info=info)
        found.append(check(one, where))
    return tuple(found)


def write_rollouts(path: str | Path, trajectories: Iterable[Trajectory]) -> None:
    """The `loss` of messages has no place in such a file."""
    names = {who: role for role, who in ROLES.items()}
    rows = []
    for number, each in enumerate(trajectories, 1):
        check(each, f"trajectory {number}")
        info = dict(each.info)
        chat = [{"role": "system", "content": info.pop("system")}] if "system" in info else []
        chat += [{"role": names[message.who], "content": message.text} for message in each.messages]
        row: dict[str, Any] = {"item_id": item_number(each.item_id), "conversations": chat, "reward": each.reward}
        rows.append(row | ({} if each.success is None else {"success": each.success}) | info)
    write_rows(Path(path), rows)


def read_trials(path: str | Path, *, first: int = 0) -> Mapping[str, int]:
    """Numbers of ALFWorld's training items by their names, from its file of mappings.

    Args:
        first: is added to each number.
    """
    found = {}
    for where, row in records(Path(path)):
        number, kind, trial = (row.get(name) for name in ("item_id", "task_type", "task_id"))
        if type(number) is not int or not isinstance(kind, str) or not isinstance(trial, str):
            raise DataError(f"{where}: expected item_id (a number), task_type and task_id; write all three")
        found[f"{kind}_{trial}"] = number + first
    return found


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


def message_of(where: str, number: int, found: Any) -> Message:
    """One message, as AgentTraj writes it."""
    if not isinstance(found, dict):
        raise DataError(f"{where}: message {number} is {_short(found)}; write an object with from, loss and value")
    who, loss = found.get("from"), found.get("loss")
    if who not in SPEAKERS:
        raise DataError(f"{where}: message {number} is from {_short(who)}; write 'human' or 'gpt'")
    if loss is not None and not isinstance(loss, bool):
        raise DataError(f"{where}: message {number} has the loss {_short(loss)}; write true, false or null")
    return Message(who, _text(where, found.get("value"), f"the value of message {number}"), loss)


def message_row(message: Message) -> dict[str, Any]:
    return {"from": message.who, "loss": message.loss, "value": message.text}


def _joined(lines: Sequence[str]) -> str:
    return "\n" + ",\n".join(lines) + "\n" if lines else ""


def _trajectory(where: str, row: Mapping[str, Any]) -> Trajectory:
    chat = _conversation(where, row)
    return Trajectory(
        item_id=item_id_of(where, row),
        messages=tuple(message_of(where, number, each) for number, each in enumerate(chat)),
        reward=_reward(where, row),
        success=_success(where, row),
        info={name: value for name, value in row.items() if name not in FIELDS},
    )


def _row(trajectory: Trajectory) -> dict[str, Any]:
    row: dict[str, Any] = {
        "conversations": [message_row(message) for message in trajectory.messages], "item_id": trajectory.item_id
    }  # fmt: skip
    known = {"reward": trajectory.reward, "success": trajectory.success}
    return row | {name: value for name, value in known.items() if value is not None} | dict(trajectory.info)


def _conversation(where: str, row: Mapping[str, Any]) -> list[Any]:
    """A list, or (in some published files) a text that holds one as Python writes it."""
    found = row.get("conversations")
    if isinstance(found, str):
        try:
            found = ast.literal_eval(found)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
            raise DataError(f"{where}: conversations is a text that is no Python list; write a JSON list") from error
    if found is None and "chosen" in row:
        raise DataError(f"{where}: this is a pair, and an episode is asked for; `agent_dpo pairs=[FILE]` takes pairs")
    if not isinstance(found, list):
        raise DataError(f"{where}: conversations is {_short(found)}; write a list of messages, or read it as items")
    return found


def _rollout_message(where: str, number: int, found: Any) -> Message:
    if not isinstance(found, dict) or found.get("role") not in ROLES:
        raise DataError(f"{where}: message {number} is {_short(found)}; write role (user or assistant) and content")
    who = SPEAKERS[0] if found["role"] == "user" else SPEAKERS[1]
    return Message(who, _text(where, found.get("content"), f"the content of message {number}"))


def item_id_of(where: str, row: Mapping[str, Any]) -> str:
    name = row.get("item_id")
    if not isinstance(name, str):
        raise DataError(f"{where}: item_id is {_short(name)}; write a name such as 'textcraft_12'")
    try:
        if TRIAL not in name:
            item_number(name)
    except EnvError as error:
        raise DataError(f"{where}: {error}") from error
    return _text(where, name, "item_id")


def _reward(where: str, row: Mapping[str, Any]) -> float | None:
    value = row.get("reward")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > MAX_NUMBER:
        raise DataError(f"{where}: the reward is {_short(value)}; write a number, or null where there is none")
    return float(value)


def _success(where: str, row: Mapping[str, Any]) -> bool | None:
    value = row.get("success")
    if value is None or isinstance(value, bool):
        return value
    if value in (0, 1):  # as some logs write it
        return bool(value)
    raise DataError(f"{where}: success is {_short(value)}; write true, false or null")


def _text(where: str, value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: {what} is {_short(value)}; write a text")
    return value


def _short(value: Any) -> str:
    """For a sentence."""
    if value is None:
        return "missing"
    said = repr(value) if isinstance(value, str | int | float | bool) else type(value).__name__
    return said if len(said) < 80 else f"{said[:80]}..."


def with_source(trajectories: Iterable[Trajectory], source: str) -> tuple[Trajectory, ...]:
    """The same trajectories, as episodes of `source`."""
    return tuple(replace(each, source=source) for each in trajectories)
