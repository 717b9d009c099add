"""Stored trajectories in another action format."""

from __future__ import annotations

from dataclasses import replace

from whet.envs.formats import PARSERS, write
from whet.envs.protocol import EnvError
from whet.tasks.files import DataError
from whet.trajectories.format_detection import FORMAT
from whet.trajectories.records import FIRST_REPLY, Message, Trajectory


def convert(trajectory: Trajectory, target: str, *, source: str = "react", rules: str | None = None) -> Trajectory:
    """The same episode with every reply written in another format. One without an action does not train any more.

    Args:
        target, source: names of `formats.PARSERS`.
        rules: the new first message, which describes the format. None: as it was.
    Raises: DataError where a reply has a problem in its own format, cannot be written, or would not read back with the
        same action.
    """
    parse, parse_again = PARSERS.get(source), PARSERS.get(target)
    messages = list(trajectory.messages)
    if rules is not None and messages:
        messages[0] = replace(messages[0], text=rules)
    for number, message in enumerate(messages):
        if message.who != "gpt" or number < FIRST_REPLY:
            continue
        place = f"{trajectory.item_id}, message {number}"
        parsed = parse(message.text)
        if parsed.problem:
            raise DataError(f"{place}: no {source} reply ({parsed.problem}); leave the trajectory out")
        text = _written(parsed.thought.strip(), parsed.action, target, place)
        again = parse_again(text)
        if again.problem or again.action != parsed.action:
            raise DataError(f"{place}: {target} cannot say {parsed.action[:100]!r}; choose another format")
        # Without an action there is nothing to learn.
        messages[number] = Message("gpt", text, message.loss if parsed.action else False)
    info = {name: value for name, value in trajectory.info.items() if name != FORMAT}  # its value is outdated
    return replace(trajectory, messages=tuple(messages), info=info)


def _written(thought: str, action: str, target: str, place: str) -> str:
    try:
        return write(thought, action, target)
    except EnvError as error:
        raise DataError(f"{place}: {error}") from error
