"""Recorded conversations of other libraries as traces for a page: verifiers' traces, AgentGym's files, plain chats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from whet.tasks.files import DataError
from whet.trajectories.files import ROLES, records
from whet.trajectories.records import FIRST_OBSERVATION, environment_of, score_of

Kind = Literal["verifiers", "agentgym", "chat"]
KINDS: Mapping[Kind, str] = {
    "verifiers": "episodes of verifiers (`traces`)",
    "agentgym": "trajectories or logs of AgentGym (`conversations`)",
    "chat": "chats (`messages`, or `prompt` and `completion`)",
}
SPEAKERS = {"gpt": "assistant", "human": "user"}
"""AgentGym's names of a chat's roles."""


def recorded_rows(path: Path, *, limit: int | None = None) -> Iterator[dict[str, Any]]:
    """The conversations of a file of JSON or JSON lines as traces, as `whet.report.page.write_episodes` takes them.

    What a record lacks is left out, and nothing is guessed: a conversation without a reward has none.

    Args:
        limit: the first so many records. None: all.
    Raises: DataError where a record is none of `KINDS`, or its messages cannot be read.
    """
    for place, record in islice(records(path, "FILE"), limit):
        kind = kind_of(record, place)
        if kind == "verifiers":
            yield from _of_verifiers(record, place, path.stem)
        else:
            yield _of_chat(record, place, path.stem)


def kind_of(record: Mapping[str, Any], place: str) -> Kind:
    """Raises: DataError."""
    if isinstance(record.get("traces"), list):
        return "verifiers"
    if "conversations" in record:
        return "agentgym"
    if "messages" in record or ("prompt" in record and "completion" in record):
        return "chat"
    raise DataError(
        f"{place}: this is no conversation that whet knows ({', '.join(KINDS.values())}); a run's own episodes are on "
        "the page of `whet report RUN`"
    )


# --- verifiers --------------------------------------------------------------------------------------------------------


def _of_verifiers(record: Mapping[str, Any], place: str, split: str) -> Iterator[dict[str, Any]]:
    """A trace for each conversation of an episode: agents have their own, and a rewritten history begins another."""
    task = _data(record)
    for number, trace in enumerate(record["traces"]):
        if not isinstance(trace, dict) or not isinstance(trace.get("nodes"), list):
            raise DataError(f"{place}: trace {number} has no list of nodes; write the whole trace")
        data = _data(trace) or task
        rewards = _rewards(trace.get("rewards"))
        metrics = trace.get("metrics")
        success = _success(metrics.get("success")) if isinstance(metrics, dict) else None
        errors = [str(error) for error in _list(trace.get("errors") or [], place, "errors")]
        for leaf in _leaves(trace["nodes"], place):
            messages = [node["message"] for node in leaf]
            yield _row(
                messages,
                place,
                split=split,
                task=str(data.get("name") or data.get("idx") or record.get("id") or place),
                reference=str(data.get("answer") or ""),
                environment=str(env.get("id") or "") if isinstance(env := record.get("env"), dict) else "",
                reward=sum(score * weight for score, weight in rewards.values()) if rewards else None,
                success=success,
                rewards={name: score for name, (score, _) in rewards.items()},
                outcome="failed" if errors else "ok",
                reason="; ".join(errors)[:2000],
            )


def _data(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    task = holder.get("task")
    data = task.get("data") if isinstance(task, dict) else None
    return data if isinstance(data, dict) else {}


def _rewards(value: Any) -> dict[str, tuple[float, float]]:
    """Score and weight by name."""
    rewards = {}
    for name, reward in value.items() if isinstance(value, dict) else ():
        given = reward if isinstance(reward, dict) else {"score": reward}
        score, weight = _number(given.get("score")), _number(given.get("weight", 1.0))
        if score is not None and weight is not None:
            rewards[str(name)] = (score, weight)
    return rewards


def _leaves(nodes: Sequence[Any], place: str) -> Iterator[list[Mapping[str, Any]]]:
    """The nodes from the root to each last one.

    Raises: DataError where a node has no message, or its parent does not stand before it.
    """
    parents: list[int | None] = []
    for number, node in enumerate(nodes):
        parent = node.get("parent") if isinstance(node, dict) else None
        is_node = isinstance(node, dict) and isinstance(node.get("message"), dict)
        if not is_node or not (parent is None or (type(parent) is int and 0 <= parent < number)):
            raise DataError(f"{place}: node {number} has no message, or no earlier node as its parent; leave it out")
        parents.append(parent)
    for number in sorted(set(range(len(nodes))) - {parent for parent in parents if parent is not None}):
        path, at = list[Mapping[str, Any]](), number
        while True:
            path.append(nodes[at])
            if (parent := parents[at]) is None:
                break
            at = parent
        yield path[::-1]


# --- chats ------------------------------------------------------------------------------------------------------------


def _of_chat(record: Mapping[str, Any], place: str, split: str) -> dict[str, Any]:
    if "conversations" in record:
        name = str(record.get("item_id", place))
        messages = [_of_agentgym(message) for message in _list(record["conversations"], place)]
        # Rules and promise. A chat of ShareGPT has no item, and begins with a question and its answer.
        second = messages[1] if "item_id" in record and len(messages) > 1 else None
        is_promise = isinstance(second, dict) and second.get("role") == "assistant"
        skipped = FIRST_OBSERVATION if is_promise else 0
        messages, environment = messages[skipped:], environment_of(name)
    else:
        messages = [
            *_messages(record.get("prompt"), "user", place),
            *_messages(record.get("completion"), "assistant", place),
        ]
        messages, environment = messages or _list(record.get("messages"), place), str(record.get("task") or "")
        name = str(record.get("example_id", record.get("id", place)))
    return _row(
        messages,
        place,
        split=split,
        task=name,
        reference=str(record.get("answer") or ""),
        environment=environment,
        reward=_number(record.get("reward")),
        success=_success(record.get("success")),
    )


def _of_agentgym(message: Any) -> Any:
    """A message as chats have it. Logs of the RL trainer have it so."""
    speaker = message.get("from") if isinstance(message, dict) else None
    if isinstance(speaker, str) and speaker in SPEAKERS:
        return {"role": SPEAKERS[speaker], "content": message.get("value")}
    return message


def _messages(value: Any, role: str, place: str) -> list[Any]:
    """A chat, or a text of this role."""
    if value is None:
        return []
    return [{"role": role, "content": value}] if isinstance(value, str) else _list(value, place)


def _list(value: Any, place: str, what: str = "messages") -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"{place}: its {what} are no list; write a JSON list")
    return value


# --- both -------------------------------------------------------------------------------------------------------------


def _row(
    messages: Sequence[Any], place: str, *, reward: float | None, success: float | None, **fields: Any
) -> dict[str, Any]:
    """A trace. What stands before the first reply is its question."""
    texts = [(_role(message, number, place), _text(message, place)) for number, message in enumerate(messages)]
    first = next((number for number, (role, _) in enumerate(texts) if role == "assistant"), len(texts))
    turns = [{"role": "agent" if role == "assistant" else "observation", "text": text} for role, text in texts[first:]]
    return {
        "phase": "recorded", "step": 0, "answer": "", "outcome": "ok", "turns": turns, "reward": reward,
        "question": "\n\n".join(text for _, text in texts[:first]), "answer_score": score_of(reward, success), **fields,
    }  # fmt: skip


def _role(message: Any, number: int, place: str) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str):
        raise DataError(f"{place}: message {number} has no role; write role ({', '.join(ROLES)}, ...) and content")
    return role


def _text(message: Mapping[str, Any], place: str) -> str:
    """What a message says: its reasoning, content and calls of tools."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    said = [part if isinstance(part, str) else str(part.get("text", f"[{part.get('type')}]"))
            for part in parts if isinstance(part, str | dict)]  # fmt: skip
    reasoning = message.get("reasoning_content")
    calls = []
    for call in _list(message.get("tool_calls") or [], place, "calls of tools"):
        made = call.get("function", call) if isinstance(call, dict) else call
        calls.append(f"{made.get('name')}({made.get('arguments')})" if isinstance(made, dict) else str(made))
    return "\n".join([*([str(reasoning)] if reasoning else []), *said, *calls])


def _success(value: Any) -> float | None:
    """A switch or a number. None for anything else: a text such as "false" is no success."""
    return float(value) if isinstance(value, bool) else _number(value)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 2**53 and isfinite(value) else None
