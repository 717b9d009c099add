"""Which tokens of a trajectory train: one mask for imitation, preferences and RL, defined on target tokens.

A conversation is pieces: the prompt, then for each message its frame (what the chat template puts around it) and its
text. The model's text trains, with the end mark after it; nothing else does. The mask is of the tokens themselves: a
loss that predicts token t + 1 from token t takes `mask[1:]`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Literal

from whet.chat import ChatTokenizer, Part, Voice, encode_parts, end_marks, template_text, text_ids
from whet.tasks.files import DataError
from whet.tool_calls import TOOL, has_call
from whet.trajectories.records import FIRST_OBSERVATION, Message, Trajectory

Kind = Literal["prompt", "frame", "observation", "answer", "end", "untrained"]
Piece = tuple[Kind, int]
"""Kind and number of tokens. `end` is the end mark of an answer that trains."""
TRAINED: frozenset[Kind] = frozenset({"answer", "end"})
MARKS = ("\ue0f0", "\ue0f1")
"""They enclose a number in place of a message's text: private-use characters, which no template writes."""
ROLES = {"human": "user", "gpt": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SftRow:
    """A trajectory as a row of token ids."""

    item_id: str
    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    """True where the token is one to learn."""
    num_prompt: int
    """Ids before the first observation. The rest is the response."""
    pieces: tuple[Piece, ...]


def piece_mask(pieces: Sequence[Piece]) -> tuple[bool, ...]:
    """True for the tokens of pieces that train. The prompt's are among them, all False."""
    return tuple(kind in TRAINED for kind, length in pieces for _ in range(length))


def sft_row(trajectory: Trajectory, tokenizer: ChatTokenizer) -> SftRow:
    """A trajectory's tokens by a chat template, and which of them train.

    The ids are those of a rollout. An answer is tokenized by itself, as a model writes it after its prompt. Everything
    between two answers is tokenized as one text. Messages never become control tokens (see `whet.chat`).

    Raises: DataError where the template does not write messages one after another, or ends an answer in another way.
    """
    ids: list[int] = []
    pieces: list[Piece] = []
    num_prompt = 0
    spans = _spans(trajectory, tokenizer, end_marks(tokenizer))
    for _, together in groupby(spans, key=lambda span: span.stretch):
        stretch = list(together)
        stretch_ids, lengths = _encoded(tokenizer, [(span.text, span.voice) for span in stretch])
        ids += stretch_ids
        pieces += [(span.kind, length) for span, length in zip(stretch, lengths, strict=True)]
        prompt = [span.number < FIRST_OBSERVATION for span in stretch]
        num_prompt += sum(length for length, is_prompt in zip(lengths, prompt, strict=True) if is_prompt)
    return SftRow(
        item_id=trajectory.item_id,
        ids=tuple(ids),
        mask=piece_mask(pieces),
        num_prompt=num_prompt,
        pieces=tuple(pieces),
    )


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of a conversation's text."""

    number: int
    """Of its message."""
    kind: Kind
    text: str
    voice: Voice
    stretch: int
    """Neighbours of one stretch are encoded as one text."""


def _spans(trajectory: Trajectory, tokenizer: ChatTokenizer, marks: Sequence[str]) -> Iterator[_Span]:
    """The spans of a conversation. An answer and the end mark that trains each have a separate stretch."""
    frames, texts = _parted(trajectory, tokenizer)
    stretch = 0
    for number, (message, text) in enumerate(zip(trajectory.messages, texts, strict=True)):
        is_prompt = number < FIRST_OBSERVATION
        frame: Kind = "prompt" if is_prompt else "frame"
        # The promise is read with the rules; other answers were written by the model.
        is_written = message.trains or (message.who == "gpt" and not is_prompt)
        yield _Span(number, frame, frames[number], "template", stretch)
        stretch += is_written
        voice: Voice = "assistant" if message.who == "gpt" else "outside"
        yield _Span(number, _kind(message, is_prompt), text, voice, stretch)
        stretch += is_written
        end, frames[number + 1] = _parted_end(frames[number + 1], marks)
        if message.trains and marks and not end:
            raise DataError(
                f"{trajectory.item_id}, message {number}: the chat template ends an answer by "
                f"{frames[number + 1][:40]!r}, not by {' or '.join(marks)}; add its own end mark to eos_token_id "
                "in generation_config.json"
            )
        yield _Span(number, "end" if message.trains else frame, end, "template", stretch)
        stretch += is_written
    yield _Span(len(texts), "frame", frames[-1], "template", stretch)


def _encoded(tokenizer: ChatTokenizer, parts: Sequence[Part]) -> tuple[list[int], list[int]]:
    """All ids, and the number of each part. A token that spans two parts belongs to the first."""
    if not tokenizer.is_fast:  # it gives no offsets
        part_ids = [text_ids(tokenizer, *part) for part in parts]
        return [token for ids in part_ids for token in ids], [len(ids) for ids in part_ids]
    encoded = encode_parts(tokenizer, parts)
    ends = list(accumulate(len(text) for text, _ in parts))
    lengths = [0] * len(parts)
    for start, _ in encoded.offsets:
        lengths[min(bisect_right(ends, start), len(parts) - 1)] += 1
    return encoded.ids, lengths


def _kind(message: Message, is_prompt: bool) -> Kind:
    if message.trains:
        return "answer"
    if is_prompt:
        return "prompt"
    return "observation" if message.who == "human" else "untrained"


def _parted_end(frame: str, marks: Sequence[str]) -> tuple[str, str]:
    """Splits the text after a message behind its end mark, if there is one. White space may stand before the mark."""
    for mark in marks:
        before, end_mark, after = frame.partition(mark)
        if end_mark and not before.strip():
            return before + mark, after
    return "", frame


def _parted(trajectory: Trajectory, tokenizer: ChatTokenizer) -> tuple[list[str], list[str]]:
    """The template's text before each message and after the last, and the messages' texts as it renders them."""
    stand_ins = [f"{MARKS[0]}{number}{MARKS[1]}" for number in range(len(trajectory.messages))]
    frames, rest = [], _rendered(trajectory, tokenizer, stand_ins)
    for stand_in in stand_ins:
        frame, separator, rest = rest.partition(stand_in)
        if not separator:
            raise DataError(
                f"{trajectory.item_id}: the chat template does not write every message once and in order; use another"
            )
        frames.append(frame)
    frames.append(rest)
    texts, at = [], 0
    whole = _rendered(trajectory, tokenizer, [message.text for message in trajectory.messages])
    for number, message in enumerate(trajectory.messages):
        at += len(frames[number])
        texts.append(message.text if whole.startswith(message.text, at) else message.text.strip())
        at += len(texts[-1])
    if whole != "".join(frame + text for frame, text in zip(frames, (*texts, ""), strict=True)):
        raise DataError(
            f"{trajectory.item_id}: the chat template writes some message in other words than its own; use another"
        )
    return frames, texts


def _rendered(trajectory: Trajectory, tokenizer: ChatTokenizer, texts: Sequence[str]) -> str:
    return template_text(tokenizer, zip(_roles(trajectory), texts, strict=True), trajectory.tools)


def _roles(trajectory: Trajectory) -> list[str]:
    """Of each message. With tools, what follows a call of one is of role `tool`, as in a rollout."""
    messages = trajectory.messages
    roles = [ROLES[message.who] for message in messages]
    if trajectory.tools:
        for number, (before, _) in enumerate(pairwise(messages), 1):
            if before.who == "gpt" and has_call(before.text):
                roles[number] = TOOL
    return roles
