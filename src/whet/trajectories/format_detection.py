"""In which action format the replies of stored episodes are written: as their records say, or as the replies show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from whet.envs.formats import PARSERS
from whet.envs.protocol import EnvironmentInfo
from whet.tasks.files import DataError
from whet.trajectories.records import FIRST_REPLY, Trajectory

FORMAT = "format"
"""In the `info` of an episode: how its replies are written, by a name that a run's `format` takes (react, plain,
function_calling), or one of `formats.PARSERS`. Published files have none."""
MAX_UNREAD = 0.5
"""Of a file's replies. A file of another format holds none that is read; published files have one in two thousand
without an action, and what a poor policy played has many, which are said."""
SHOWN = 80
"""Characters of a reply in a sentence."""


@dataclass(frozen=True, slots=True)
class Written:
    """How the replies of some episodes are written."""

    format: str
    """A name of `formats.PARSERS`."""
    num_replies: int
    """Those that train."""
    num_unread: int
    """Of them, those in which the format reads no action."""
    example: str = ""
    """The first of these, with its place, for a sentence."""

    @property
    def is_read(self) -> bool:
        return self.num_unread <= MAX_UNREAD * self.num_replies

    @property
    def counts(self) -> str:
        return f"{self.num_unread:,} of {self.num_replies:,} replies"


def format_named(environment: str, parser: str, format: str) -> str:
    """An environment's way to read an action format: a name of `formats.PARSERS`.

    Args:
        parser: how it reads ReAct (`EnvironmentInfo.parser`).
        format: react, plain or function_calling.
    """
    return {"react": parser, "plain": "plain"}.get(format, f"{format}:{environment}")


def parser_name(trajectory: Trajectory, info: EnvironmentInfo, otherwise: str = "") -> str:
    """How an episode's replies are to be read: as its record says, or `otherwise`, or as the environment reads them.

    Raises: DataError where the record names no format.
    """
    said = declared(trajectory, info.name, info.parser)
    return said or otherwise or info.parser


def declared(trajectory: Trajectory, environment: str, parser: str) -> str:
    """The format that a record says it is written in, as a name of `formats.PARSERS`. Empty: it says none.

    Raises: DataError where it names no format, or function calls of an environment that has none.
    """
    said = trajectory.info.get(FORMAT)
    if said is None:
        return ""
    names = [said, format_named(environment, parser, said)] if isinstance(said, str) else []
    for name in reversed(names):
        if name in PARSERS:
            return name
    raise DataError(
        f"{trajectory.item_id}: its record says format: {str(said)[:60]!r}, which {environment} does not read; write "
        f"react, plain or function_calling, or one of {', '.join(PARSERS.names())}"
    )


def tried(trajectories: Sequence[Trajectory], format: str) -> Written:
    """What a format reads in the replies of episodes that train."""
    parse, num_replies, num_unread, example = PARSERS.get(format), 0, 0, ""
    for each in trajectories:
        for number, message in enumerate(each.messages):
            if number < FIRST_REPLY or not message.trains:
                continue
            num_replies += 1
            parsed = parse(message.text)
            if parsed.problem or not parsed.action:
                num_unread += 1
                example = example or f"{each.item_id}, message {number}: {message.text[:SHOWN]!r}"
    return Written(format, num_replies, num_unread, example)


def how_written(
    trajectories: Sequence[Trajectory], place: str, wanted: str, *, environment: str, parser: str
) -> Written:  # fmt: skip
    """How the replies of episodes of one environment are written. They are function calls where they are JSON that
    calls its functions, ReAct where the environment reads an action in them, and plain where plain ones are asked for
    and no reply has an action's mark: what is plain cannot be told from what is broken.

    Args:
        place: their file, for sentences.
        wanted: the format that the run has, as a name of `formats.PARSERS`.
        environment, parser: see `format_named`. All records say one format, or none.
    Raises: DataError, with counts, the first reply and what to do, where more than MAX_UNREAD of the replies hold no
        action in any of these, nor in the format that their records say.
    """
    if trajectories and (said := declared(trajectories[0], environment, parser)):
        found = tried(trajectories, said)
        if found.is_read:
            return found
        raise DataError(
            f"{place}: its records say format: {trajectories[0].info[FORMAT]}, and in {found.counts} of {environment} "
            f"that format ({said}) reads no action, the first in {found.example}; write how they are written"
        )
    if (calls := format_named(environment, parser, "function_calling")) in PARSERS and (
        (found := tried(trajectories, calls)).num_replies and found.is_read
    ):  # before the others, some of which take any text for an action
        return found
    found = tried(trajectories, parser)
    if found.is_read:
        return found
    if wanted == "plain":
        if found.num_unread == found.num_replies:
            return tried(trajectories, wanted)
        raise DataError(
            f"{place}: {found.counts} of {environment} have no action that {parser} reads, and the others have one, so "
            f"they are of several formats, the first in {found.example}; say in each record how it is written "
            '("format": "plain" or "react")'
        )
    raise DataError(
        f"{place}: in {found.counts} of {environment} the run's format reads no action ({wanted}), the first in "
        f"{found.example}; learn such replies as they are with format=plain, or say in each record how it is written "
        '("format": "plain"), and they are written anew in the format of the run'
    )
