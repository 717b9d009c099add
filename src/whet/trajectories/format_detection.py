"""Detects the action format of stored replies, by their records or by the replies themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.envs.formats import PARSERS
from whet.envs.protocol import EnvironmentInfo
from whet.tasks.files import DataError
from whet.trajectories.function_calls import FUNCTIONS
from whet.trajectories.records import FIRST_REPLY, Trajectory

FORMAT = "format"
"""In the `info` of an episode: the format of its replies. It is a value of a run's `format` (react, plain,
function_calling, code_as_action, tools) or a name of `formats.PARSERS`. Published files have none."""
TOOLS = "tools"
"""The format whose calls the chat template describes."""
CALLS = (TOOLS, "function_calling", "code_as_action")
"""Formats that call functions."""
MAX_UNREAD = 0.5
"""Share of a file's replies. In a file of another format no reply can be read. Published files have one reply in two
thousand without an action. Files of a poor policy have many, which are reported."""
SHOWN = 80
"""Characters of a reply in a message."""


@dataclass(frozen=True, slots=True)
class Written:
    """The action format of some episodes' replies."""

    format: str
    """A name of `formats.PARSERS`."""
    num_replies: int
    """Those that train."""
    num_unread: int
    """Of them, those in which the format reads no action."""
    example: str = ""
    """The first of these, with its place, for a message."""

    @property
    def is_read(self) -> bool:
        return self.num_unread <= MAX_UNREAD * self.num_replies

    @property
    def counts(self) -> str:
        return f"{self.num_unread:,} of {self.num_replies:,} replies"


def format_named(environment: str, parser: str, format: str) -> str:
    """The parser of an action format in an environment: a name of `formats.PARSERS`.

    Args:
        parser: the environment's parser of ReAct (`EnvironmentInfo.parser`).
        format: react, plain, function_calling, code_as_action or tools.
    """
    if format == TOOLS and environment not in FUNCTIONS:
        return TOOLS
    return {"react": parser, "plain": "plain"}.get(format, f"{format}:{environment}")


def parser_name(trajectory: Trajectory, info: EnvironmentInfo, otherwise: str = "") -> str:
    """The parser of an episode's replies: by its record, or `otherwise`, or by the environment.

    Raises: DataError where the record names no format.
    """
    recorded = declared(trajectory, info.name, info.parser)
    return recorded or otherwise or info.parser


def declared(trajectory: Trajectory, environment: str, parser: str) -> str:
    """The format in a record, as a name of `formats.PARSERS`. Empty: the record has none.

    Raises: DataError where it names no format, or function calls of an environment that has none.
    """
    recorded = trajectory.info.get(FORMAT)
    if recorded is None:
        return ""
    names = [recorded, format_named(environment, parser, recorded)] if isinstance(recorded, str) else []
    for name in reversed(names):
        if name in PARSERS:
            return name
    raise DataError(
        f"{trajectory.item_id}: its record says format: {str(recorded)[:60]!r}, which {environment} does not read; "
        f"write react, plain, function_calling, code_as_action or tools, or one of {', '.join(PARSERS.names())}"
    )


def tried(trajectories: Sequence[Trajectory], format: str) -> Written:
    """Reads the training replies of episodes in a format."""
    parse, num_replies, num_unread, example = PARSERS.get(format), 0, 0, ""
    for trajectory in trajectories:
        for number, message in enumerate(trajectory.messages):
            if number < FIRST_REPLY or not message.trains:
                continue
            num_replies += 1
            parsed = parse(message.text)
            if parsed.problem or not parsed.action:
                num_unread += 1
                example = example or f"{trajectory.item_id}, message {number}: {message.text[:SHOWN]!r}"
    return Written(format, num_replies, num_unread, example)


def how_written(
    trajectories: Sequence[Trajectory], place: str, wanted: str, *, environment: str, parser: str
) -> Written:
    """Detects the format of replies of one environment.

    They are function calls or code if they call its functions in JSON or in Python, and ReAct if the environment's
    parser reads an action. They are plain only if `wanted` is plain and no reply has an action's mark, as a plain reply
    looks the same as a broken one.

    Args:
        place: their file, for messages.
        wanted: the run's format, as a name of `formats.PARSERS`.
        environment, parser: see `format_named`. All records have the same format, or none.
    Raises: DataError where more than MAX_UNREAD of the replies have no action in any of these, nor in the format of
        their records. It has counts, the first reply and what to do.
    """
    if trajectories and (recorded := declared(trajectories[0], environment, parser)):
        written = tried(trajectories, recorded)
        if written.is_read:
            return written
        raise DataError(
            f"{place}: its records say format: {trajectories[0].info[FORMAT]}, and in {written.counts} of "
            f"{environment} that format ({recorded}) reads no action, the first in {written.example}; write how they "
            "are written"
        )
    for format in CALLS:  # before the others, some of which read any text as an action
        if (calls := format_named(environment, parser, format)) in PARSERS:
            written = tried(trajectories, calls)
            if written.num_replies and written.is_read:
                return written
    written = tried(trajectories, parser)
    if written.is_read:
        return written
    if wanted == "plain":
        if written.num_unread == written.num_replies:
            return tried(trajectories, wanted)
        raise DataError(
            f"{place}: {written.counts} of {environment} have no action that {parser} reads, and the others have one, "
            f"so they are of several formats, the first in {written.example}; say in each record how it is written "
            '("format": "plain" or "react")'
        )
    raise DataError(
        f"{place}: in {written.counts} of {environment} the run's format reads no action ({wanted}), the first in "
        f"{written.example}; learn such replies as they are with format=plain, or say in each record how it is written "
        '("format": "plain"), and they are written anew in the format of the run'
    )
