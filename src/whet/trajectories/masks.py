"""Which tokens of a trajectory train: one mask for imitation, preferences and RL, defined on target tokens.

A conversation is pieces: the prompt, then for each message its frame (what the chat template puts around it) and its
text. What the model wrote trains, and the end mark after it, which it has to learn to write; nothing else does. The
mask is of the tokens themselves: a loss that predicts token t + 1 from token t takes `mask[1:]`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Literal

from whet.chat import ChatTokenizer, Part, Voice, encode_parts, template_text, text_ids
from whet.tasks.files import DataError
from whet.trajectories.records import FIRST_OBSERVATION, Message, Trajectory

Kind = Literal["prompt", "frame", "observation", "answer", "end", "untrained"]
Piece = tuple[Kind, int]
"""What it is, and its number of tokens. `end` is the end mark of an answer that trains."""
TRAINED: frozenset[Kind] = frozenset({"answer", "end"})
MARKS = ("\ue0f0", "\ue0f1")
"""Around a number, in the place of a message's text: characters of private use, which no template writes."""
ROLES = {"human": "user", "gpt": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SftRow:
    """A trajectory as a row of token ids."""

    item_id: str
    ids: tuple[int, ...]
    mask: tuple[bool, ...]
    """True where the token is one to learn."""
    num_prompt: int
    """Of the ids: what comes before the first observation. The rest is the response."""
    pieces: tuple[Piece, ...]


def sft_messages(trajectory: Trajectory) -> tuple[tuple[dict[str, str], bool], ...]:
    """The messages as a chat has them, each with whether it trains: the model's own, unless its `loss` is False, which
    the promise to keep the rules has in published files.
    """
    return tuple(({"role": ROLES[each.who], "content": each.text}, each.trains) for each in trajectory.messages)


def piece_mask(pieces: Sequence[Piece]) -> tuple[bool, ...]:
    """True for the tokens of pieces that train. The prompt's are among them, all False."""
    return tuple(kind in TRAINED for kind, length in pieces for _ in range(length))


def response_mask(pieces: Sequence[Piece], max_response: int | None = None) -> tuple[bool, ...]:
    """The mask of what follows the prompt, cut to `max_response` tokens (None: whole)."""
    return piece_mask([piece for piece in pieces if piece[0] != "prompt"])[:max_response]


def reward_index(mask: Sequence[bool]) -> int | None:
    """Where an episode's reward goes: the last token that the model wrote. None: it wrote none. On the last token of
    all, which is the environment's, a loss that is masked would never see it.
    """
    return max((index for index, trains in enumerate(mask) if trains), default=None)


def sft_row(
    trajectory: Trajectory, tokenizer: ChatTokenizer, *, max_tokens: int | None = None,
    end_marks: Collection[str] | None = None,
) -> SftRow:  # fmt: skip
    """A trajectory's tokens by a chat template, and which of them train.

    The ids are those of a rollout: an answer is tokenized by itself, as a model writes it after its prompt, and all
    that stands between two answers as one text. What messages say never becomes a control token (see `whet.chat`).

    Args:
        max_tokens: the row is cut there. None: whole.
        end_marks: what a model may end an answer with. None: the tokenizer's end of sequence; some chat templates end
            a turn otherwise. Empty: answers have no end to learn.
    Raises: DataError where the template does not write messages one after another, or ends an answer in another way.
    """
    ids: list[int] = []
    pieces: list[Piece] = []
    num_prompt = 0
    marks = {tokenizer.eos_token} if end_marks is None else set(end_marks)
    spans = _spans(trajectory, tokenizer, sorted(mark for mark in marks if mark))
    for _, together in groupby(spans, key=lambda span: span.stretch):
        stretch = list(together)
        found, lengths = _encoded(tokenizer, [(span.text, span.voice) for span in stretch])
        ids += found
        pieces += [(span.kind, length) for span, length in zip(stretch, lengths, strict=True)]
        prompt = [span.number < FIRST_OBSERVATION for span in stretch]
        num_prompt += sum(length for length, is_prompt in zip(lengths, prompt, strict=True) if is_prompt)
    return SftRow(
        item_id=trajectory.item_id,
        ids=tuple(ids[:max_tokens]),
        mask=piece_mask(pieces)[:max_tokens],
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


def _spans(trajectory: Trajectory, tokenizer: ChatTokenizer, end_marks: Sequence[str]) -> Iterator[_Span]:
    """All of a conversation. An answer and the end mark that trains each stand in a stretch of their own."""
    frames, texts = _parted(trajectory, tokenizer)
    stretch = 0
    for number, (message, text) in enumerate(zip(trajectory.messages, texts, strict=True)):
        is_prompt = number < FIRST_OBSERVATION
        frame: Kind = "prompt" if is_prompt else "frame"
        # An acknowledgement of the rules is read with them; other answers were written, in their time.
        is_written = message.trains or (message.who == "gpt" and not is_prompt)
        yield _Span(number, frame, frames[number], "template", stretch)
        stretch += is_written
        voice: Voice = "assistant" if message.who == "gpt" else "outside"
        yield _Span(number, _kind(message, is_prompt), text, voice, stretch)
        stretch += is_written
        end, frames[number + 1] = _parted_end(frames[number + 1], end_marks)
        if message.trains and end_marks and not end:
            raise DataError(
                f"{trajectory.item_id}, message {number}: the chat template ends an answer by "
                f"{frames[number + 1][:40]!r}, not by {' or '.join(end_marks)}; name its own end mark in end_marks"
            )
        yield _Span(number, "end" if message.trains else frame, end, "template", stretch)
        stretch += is_written
    yield _Span(len(texts), "frame", frames[-1], "template", stretch)


def _encoded(tokenizer: ChatTokenizer, parts: Sequence[Part]) -> tuple[list[int], list[int]]:
    """Their ids, and how many each has; a token that spans two is the first one's."""
    if not tokenizer.is_fast:  # it does not say where its tokens stand
        found = [text_ids(tokenizer, *part) for part in parts]
        return [index for ids in found for index in ids], [len(ids) for ids in found]
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


def _parted_end(frame: str, end_marks: Sequence[str]) -> tuple[str, str]:
    """What follows a message, parted after the mark that ends it, if one does; white space may stand before it."""
    for mark in end_marks:
        before, found, after = frame.partition(mark)
        if found and not before.strip():
            return before + mark, after
    return "", frame


def _parted(trajectory: Trajectory, tokenizer: ChatTokenizer) -> tuple[list[str], list[str]]:
    """What the template puts before each message and after the last, and what it makes of the messages' texts."""
    stand_ins = [f"{MARKS[0]}{number}{MARKS[1]}" for number in range(len(trajectory.messages))]
    frames, rest = [], _rendered(trajectory, tokenizer, stand_ins)
    for stand_in in stand_ins:
        frame, found, rest = rest.partition(stand_in)
        if not found:
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
    roles = [ROLES[message.who] for message in trajectory.messages]
    return template_text(tokenizer, zip(roles, texts, strict=True))


def as_mapping(row: SftRow) -> Mapping[str, Any]:
    """As datasets have such rows."""
    return {"item_id": row.item_id, "input_ids": list(row.ids), "loss_mask": [int(trains) for trains in row.mask]}
