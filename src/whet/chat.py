"""Chats as token ids: text from outside never becomes a control token.

A control token ends a text, or the chat template writes it around a turn. Text of data, environments, endpoints,
clients and other roles may spell one; it then becomes the ordinary tokens of its characters. Every model input is
encoded here. Text that spells no control token gets the ids that the tokenizer gives it.

How: characters that begin or end a control token's spelling are hidden in the messages before the template writes
them. So the spellings left in its output are the template's. A twin of the tokenizer encodes the whole. There control
tokens have secret names, which replace the template's spellings alone.
"""

from __future__ import annotations

import json
import re
import secrets
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any, Literal, Protocol

from tokenizers import Tokenizer

from whet.errors import WhetError

Voice = Literal["template", "outside", "assistant"]
"""Whose text it is. An assistant's text keeps tags of thoughts and tools as tokens, and no other control tokens."""
Part = tuple[str, Voice]
Turns = tuple[tuple[str, ...], ...]
"""Role and content of each message. A third text is the JSON of its further fields, such as its calls of tools."""
MORE = "more"
"""The key of a message's further fields, as JSON: `{"tool_calls": [...]}`."""
TAG = re.compile(r"[<\[]/?(think|thinking|thought|reasoning|tools?|tool_calls?|tool_responses?|tool_results?)[>\]]")
"""Tokens that stand in an assistant's turn, and never around one."""
STOP_IDS = "_whet_stop_ids"
HIDDEN = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE), range(0x40000, 0xDFFFE))
"""Characters of private use, and then of unused planes, that stand in for others. Each text gets ones that it lacks."""
SCHEMA_WORDS = frozenset((
    *("function", "name", "description", "parameters", "strict", "arguments", "id", "tool_call_id", "tool_calls"),
    *("type", "properties", "required", "items", "enum", "anyOf", "additionalProperties"),
    *("object", "string", "integer", "number", "boolean", "array", "null"),
))  # fmt: skip
"""Names and values of tools and calls that chat templates read."""
PROBES = (("system", "user", "assistant", "user"), ("user", "assistant", "user"), ("user",))
"""Roles of conversations that show what the template writes around turns. It may refuse some."""


class ChatTokenizer(Protocol):
    """The members of a transformers tokenizer that this module uses: modules without transformers encode chats too."""

    chat_template: Any
    bos_token: Any
    eos_token: Any
    pad_token: Any
    unk_token: Any
    unk_token_id: Any
    all_special_tokens: Any
    added_tokens_decoder: Any
    name_or_path: Any
    is_fast: Any
    backend_tokenizer: Any
    """Of a fast one."""

    def __hash__(self) -> int: ...

    def apply_chat_template(self, conversation: Any, /, **options: Any) -> Any: ...

    def encode(self, text: Any, /, **options: Any) -> Any: ...

    def decode(self, ids: Any, /) -> Any: ...

    def __call__(self, text: Any, /, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text's token ids."""

    ids: list[int]
    offsets: list[tuple[int, int]]
    """Of each token its first character and the one after its last. Empty where the tokenizer tells none."""


@dataclass(frozen=True, slots=True)
class ChatText:
    """A chat as its template writes it."""

    text: str
    hidden: str | None
    """`text` with the characters of messages hidden that may spell a control token, at the same places. None: no
    message spells one."""


def keep_stop_ids(tokenizer: ChatTokenizer, ids: Collection[int]) -> None:
    """Records which tokens end a text beside the tokenizer's, by the model's generation config."""
    vars(tokenizer)[STOP_IDS] = frozenset(ids)


def end_marks(tokenizer: ChatTokenizer) -> list[str]:
    """The tokens that end a reply: the tokenizer's own, and those of `keep_stop_ids`."""
    added, stop_ids = tokenizer.added_tokens_decoder, vars(tokenizer).get(STOP_IDS, frozenset())
    marks = {tokenizer.eos_token, *(added[index].content for index in stop_ids if index in added)}
    return sorted(mark for mark in marks if mark)


def render(
    tokenizer: ChatTokenizer, messages: Sequence[Mapping[str, str]], prefill: str = "", tools: str = ""
) -> tuple[int, ...]:
    """Token ids of a chat up to where the assistant writes next. Replies to one conversation, such as the critiques of
    a group, share one tuple.

    Args:
        prefill: the beginning of the assistant's turn.
        tools: the JSON list of the tools that the assistant may call, in OpenAI's form. Empty: none.
    """
    return _render(tokenizer, str(tokenizer.chat_template), turns_of(messages), prefill, tools)


def turns_of(messages: Sequence[Mapping[str, str]]) -> Turns:
    return tuple(
        (message["role"], message["content"], *([message[MORE]] if MORE in message else [])) for message in messages
    )


@lru_cache(maxsize=256)
def _render(tokenizer: ChatTokenizer, template: str, turns: Turns, prefill: str, tools: str) -> tuple[int, ...]:
    ids = encode_from(tokenizer, chat_text(tokenizer, turns, tools))
    return (*ids, *(text_ids(tokenizer, prefill) if prefill else ()))


def continued(
    tokenizer: ChatTokenizer,
    messages: Sequence[Mapping[str, str]],
    context: tuple[int, ...],
    written: tuple[int, ...],
    reply: str,
    *,
    has_end: bool,
    prefill: str = "",
    tools: str = "",
) -> tuple[int, ...] | None:
    """The chat's ids after a reply in it. What was read and written is not tokenized again: a model may spell a word in
    other tokens than the tokenizer does, or be cut before its end mark.

    Args:
        messages: as in `render`; the reply is one of them.
        context: the ids that were read before it.
        written: its own ids.
        reply: its text.
        has_end: whether the last of its ids is its end mark.
    Returns: None where the template rewrites the history, the reply has control tokens, or decoding does not reproduce
        the text exactly.
    """
    template = str(tokenizer.chat_template)
    return _continued(tokenizer, template, turns_of(messages), context, written, reply, has_end, prefill, tools)


@lru_cache(maxsize=512)
def _continued(
    tokenizer: ChatTokenizer,
    template: str,
    turns: Turns,
    context: tuple[int, ...],
    written: tuple[int, ...],
    reply: str,
    has_end: bool,
    prefill: str,
    tools: str,
) -> tuple[int, ...] | None:
    places = [i for i, turn in enumerate(turns) if turn == ("assistant", reply)]
    if not places:
        return None
    before = tokenizer.decode((*context, *(written[:-1] if has_end else written)))
    whole, begun = chat_text(tokenizer, turns, tools), text_ids(tokenizer, prefill) if prefill else []
    # As text, this chat has to begin with the model's prompt and its whole reply.
    is_same = before == chat_text(tokenizer, turns[: places[-1]], tools).text + reply
    if not (is_same and whole.text.startswith(before)):
        return None
    if not has_end:
        return (*encode_from(tokenizer, whole, len(before)), *begun)
    if not whole.text.startswith(tokenizer.decode(written[-1:]), len(before)):
        return None
    # From the end mark on: some tokenizers treat the beginning of a text, or the space after a mark, in another way.
    end, *after = encode_from(tokenizer, whole, len(before))
    return (*after, *begun) if end == written[-1] else None


def is_control(tokenizer: ChatTokenizer, index: int) -> bool:
    """Whether a token is a control token: no other token has a part of its spelling."""
    return _controls_of(tokenizer).has(index)


def chat_text(tokenizer: ChatTokenizer, turns: Turns, tools: str = "") -> ChatText:
    """The text of a chat up to where the assistant writes next.

    Args:
        tools: as in `render`.
    """
    controls, template = _controls_of(tokenizer), str(tokenizer.chat_template)
    plain = _rendered(tokenizer, template, turns, tools)
    texts = [*chain.from_iterable(texts for _, *texts in turns), tools]
    if not any(map(controls.may_spell, texts)):
        return ChatText(plain, None)
    shield = Shield(controls, texts)
    masked = tuple(
        (role, shield.hide(content, role == "assistant"), *map(shield.hide_json, more))
        for role, content, *more in turns
    )
    hidden = _rendered(tokenizer, template, masked, shield.hide_json(tools))
    if controls.spelt(plain) == controls.spelt(hidden):
        return ChatText(plain, None)
    return ChatText(shield.shown(hidden), hidden)


def encode_from(tokenizer: ChatTokenizer, chat: ChatText, start: int = 0) -> list[int]:
    """Token ids of a chat's text from a character on."""
    if chat.hidden is None:
        return list(tokenizer.encode(chat.text[start:], add_special_tokens=False))
    return _controls_of(tokenizer).encode(chat.text[start:], chat.hidden[start:]).ids


def encode_parts(tokenizer: ChatTokenizer, parts: Sequence[Part]) -> Encoded:
    """A text of several voices, encoded as one: tokens may span two parts."""
    controls, text = _controls_of(tokenizer), "".join(part for part, _ in parts)
    others = [part for part, voice in parts if voice != "template"]
    if any(map(controls.may_spell, others)):
        shield = Shield(controls, others)
        hidden = "".join(
            part if voice == "template" else shield.hide(part, voice == "assistant") for part, voice in parts
        )
        if controls.spelt(text) != controls.spelt(hidden):
            return controls.encode(text, hidden)
    return controls.plainly(text)


def tokens_around(tokenizer: ChatTokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens that a tokenizer by itself puts before and after a text, such as one that begins it."""
    plain, whole = (list(tokenizer.encode("a", add_special_tokens=special)) for special in (False, True))
    place = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), 0)
    return tuple(whole[:place]), tuple(whole[place + len(plain) :])


def text_ids(tokenizer: ChatTokenizer, text: str, voice: Voice = "assistant") -> list[int]:
    """Token ids of a text by itself, such as an answer to learn."""
    return encode_parts(tokenizer, [(text, voice)]).ids


def encode_texts(tokenizer: ChatTokenizer, texts: Sequence[str]) -> list[Encoded]:
    """Each text by itself, those that spell no control token in one batch. A rough measure of an assistant's texts and
    of others: tags are tokens in both."""
    controls = _controls_of(tokenizer)
    alone = {index for index, text in enumerate(texts) if not tokenizer.is_fast or controls.may_spell(text)}
    encoded = {index: encode_parts(tokenizer, [(texts[index], "assistant")]) for index in alone}
    if tokenizer.is_fast and len(alone) < len(texts):
        backend = tokenizer.backend_tokenizer
        backend.no_truncation()
        backend.no_padding()
        rest = [index for index in range(len(texts)) if index not in alone]
        batch = backend.encode_batch([texts[index] for index in rest], add_special_tokens=False)
        encoded |= {index: Encoded(encoding.ids, encoding.offsets) for index, encoding in zip(rest, batch, strict=True)}
    return [encoded[index] for index in range(len(texts))]


@lru_cache(maxsize=1024)
def _rendered(tokenizer: ChatTokenizer, template: str, turns: Turns, tools: str = "") -> str:
    """
    Args:
        template: the tokenizer's; a part of the cache's key.
    """
    chat = [
        {"role": role, "content": content} | (json.loads(more[0]) if more else {}) for role, content, *more in turns
    ]
    options = {"tools": json.loads(tools)} if tools else {}
    return str(tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False, **options))


def template_text(tokenizer: ChatTokenizer, turns: Iterable[tuple[str, str]], tools: str = "") -> str:
    """The text of a whole conversation, after which nobody writes.

    Args:
        tools: as in `render`.
    """
    chat = [{"role": role, "content": content} for role, content in turns]
    options = {"tools": json.loads(tools)} if tools else {}
    return str(tokenizer.apply_chat_template(chat, add_generation_prompt=False, tokenize=False, **options))


# --- which tokens are control tokens ----------------------------------------------------------------------------------


def _controls_of(tokenizer: ChatTokenizer) -> Controls:
    return _controls(tokenizer, str(tokenizer.chat_template), vars(tokenizer).get(STOP_IDS, frozenset()))


@lru_cache(maxsize=32)
def _controls(tokenizer: ChatTokenizer, template: str, stop_ids: frozenset[int]) -> Controls:
    """Special tokens, end tokens, and added tokens that the template writes or names, whatever their flag says.

    Args:
        template, stop_ids: the tokenizer's, by which the cache tells when they have changed.
    """
    added = {index: token for index, token in tokenizer.added_tokens_decoder.items() if token.content.strip()}
    ends = {*filter(None, (tokenizer.bos_token, tokenizer.pad_token)), *end_marks(tokenizer)}
    unknown = _unknown_token(tokenizer)
    around = {added[index].content for index in _written_around(tokenizer, unknown) if index in added}
    around = {content for content in around if _looks_like_a_mark(content)}
    named = {token.content for token in added.values() if token.content in template or TAG.fullmatch(token.content)}
    special = {token.content for token in added.values() if token.special} | {*tokenizer.all_special_tokens}
    special -= {unknown} - ends - around  # any text may become it, and it says nothing
    marks = special | ends | around
    tags = {content for content in marks | named if TAG.fullmatch(content)} - ends
    tags |= {content for content in named - marks if _looks_like_a_mark(content)}
    chosen = {index: token for index, token in added.items() if token.content in marks | tags}
    return Controls(
        tokenizer,
        {token.content: index for index, token in chosen.items()},
        frozenset(tags),
        any(token.normalized for token in chosen.values()),
    )


def _written_around(tokenizer: ChatTokenizer, unknown: str | None) -> set[int]:
    """Tokens of a few conversations; the unknown one only where the template spells it."""
    written = set[int]()
    for roles in PROBES:
        chat = [{"role": role, "content": "apple"} for role in roles]
        try:
            text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        except Exception:
            continue
        ids = tokenizer.encode(text, add_special_tokens=False)
        written.update(index for index in ids if index != tokenizer.unk_token_id or unknown is None or unknown in text)
    return written


def _looks_like_a_mark(content: str) -> bool:
    """Added tokens may also be words, digits or white space, which templates write as any text does."""
    is_word = any(character.isalpha() for character in content)
    return is_word and any(not character.isalnum() and not character.isspace() for character in content)


def _unknown_token(tokenizer: ChatTokenizer) -> str | None:
    """The token of text that the tokenizer has no token for. None: it has a token for every text."""
    if not tokenizer.is_fast:
        return str(tokenizer.unk_token)
    unknown: str | None = getattr(tokenizer.backend_tokenizer.model, "unk_token", tokenizer.unk_token)
    return unknown


class Controls:
    """A tokenizer's control tokens, and how text is encoded beside them.

    Args:
        ids: of each spelling.
        tags: those that an assistant's text may have.
        is_normalized: whether the tokenizer looks for some of them in the normalized text.
    """

    def __init__(
        self, tokenizer: ChatTokenizer, ids: Mapping[str, int], tags: frozenset[str], is_normalized: bool
    ) -> None:
        self.tokenizer, self.ids, self.tags = tokenizer, ids, tags
        self.edges = sorted({edge for spelling in ids for edge in (spelling.strip()[0], spelling.strip()[-1])})
        self.pattern = _pattern(ids)
        self._numbers = frozenset(ids.values())
        normalizer = tokenizer.backend_tokenizer.normalizer if tokenizer.is_fast and is_normalized else None
        self._normalized: Callable[[str], str] | None = None if normalizer is None else normalizer.normalize_str
        if self._normalized is not None:
            self._normal_pattern = _pattern([*map(self._normalized, ids), *ids])

    def has(self, index: int) -> bool:
        return index in self._numbers

    def may_spell(self, text: str) -> bool:
        """False where no control token's spelling begins or ends in a text. Quick, and true of few texts."""
        if any(edge in text for edge in self.edges):
            return True
        return self._normalized is not None and not text.isascii()

    def edges_of(self, characters: Iterable[str]) -> list[str]:
        """Those that become an edge when the text is normalized, such as wide ones."""
        if self._normalized is None:
            return []
        others = sorted(character for character in characters if not character.isascii())
        return [other for other in others if any(edge in self._normalized(other) for edge in self.edges)]

    def spelt(self, text: str) -> list[str]:
        """The spellings in a text, in order."""
        spellings = self.pattern.findall(text)
        return (
            spellings if self._normalized is None else spellings + self._normal_pattern.findall(self._normalized(text))
        )

    def plainly(self, text: str) -> Encoded:
        """A text as the tokenizer encodes it."""
        options: dict[str, Any] = {"return_offsets_mapping": True} if self.tokenizer.is_fast else {}
        encoding = self.tokenizer(text, add_special_tokens=False, **options)
        return Encoded(list(encoding["input_ids"]), list(encoding["offset_mapping"]) if options else [])

    def encode(self, text: str, hidden: str) -> Encoded:
        """A text in which only those spellings are tokens that stand in `hidden` too.

        Raises: WhetError where the tokenizer cannot keep them apart.
        """
        places = list(self.pattern.finditer(hidden))
        expected = [self.ids[place[0]] for place in places]
        for way in (self._by_twin, self._in_pieces):
            encoded = way(text, hidden, places)
            if encoded is not None and [index for index in encoded.ids if index in self._numbers] == expected:
                return encoded
        raise WhetError(
            f"the tokenizer of {self.tokenizer.name_or_path!r} makes a control token of a text from outside, and "
            "nothing keeps them apart: leave the text out, or take another model"
        )

    @cached_property
    def _twin(self) -> tuple[Tokenizer, dict[str, str]] | None:
        """The tokenizer with secret names of control tokens, and the names. None: it cannot be made."""
        if not self.tokenizer.is_fast:
            return None
        secret = secrets.token_hex(8)  # no text can spell what nobody knows
        names = {spelling: f"\ue0f4{secret}{index}\ue0f5" for spelling, index in self.ids.items()}
        described = json.loads(self.tokenizer.backend_tokenizer.to_str())
        model = described["model"]
        for token in described["added_tokens"]:
            token["content"] = names.get(token["content"], token["content"])
        if isinstance(model["vocab"], dict):
            model["vocab"] = {names.get(piece, piece): index for piece, index in model["vocab"].items()}
        else:
            model["vocab"] = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
        if model.get("unk_token") in names:
            model["unk_token"] = names[model["unk_token"]]
        described["truncation"] = described["padding"] = None
        try:
            return Tokenizer.from_str(json.dumps(described)), names
        except Exception:  # the library raises no other class; merges may lead to a control token
            return None

    def _by_twin(self, text: str, hidden: str, places: Sequence[re.Match[str]]) -> Encoded | None:
        if self._twin is None:
            return None
        twin, names = self._twin
        pieces, ours, theirs, at = list[str](), [0], [0], 0
        for place in places:
            name = names[place[0]]
            pieces += [text[at : place.start()], name]
            before = theirs[-1] + place.start() - at
            ours += [place.start(), place.end()]
            theirs += [before, before + len(name)]
            at = place.end()
        encoding = twin.encode("".join([*pieces, text[at:]]), add_special_tokens=False)

        def position(character: int) -> int:
            point = bisect_right(theirs, character) - 1
            return ours[point] + character - theirs[point]

        return Encoded(encoding.ids, [(position(start), position(end)) for start, end in encoding.offsets])

    def _in_pieces(self, text: str, hidden: str, places: Sequence[re.Match[str]]) -> Encoded | None:
        """Each character of a spelling that is not the template's is encoded by itself."""
        cuts = {0, len(text)}
        for place in re.finditer(f"(?=({self.pattern.pattern}))", text):
            start, end = place.span(1)
            if text[start:end] != hidden[start:end]:
                cuts.update(range(start, end + 1))
        pieces = [(start, self.plainly(text[start:end])) for start, end in pairwise(sorted(cuts))]
        offsets = [(start + first, start + last) for start, piece in pieces for first, last in piece.offsets]
        return Encoded([index for _, piece in pieces for index in piece.ids], offsets)


class Shield:
    """Hides the characters of texts at which a control token's spelling may begin or end.

    Args:
        texts: all texts to hide. Characters that none of them has stand in.
    Raises: WhetError where the texts have nearly all characters that may stand in.
    """

    def __init__(self, controls: Controls, texts: Iterable[str]) -> None:
        self._controls = controls
        characters = set[str]().union(*texts)
        free = (number for number in chain(*HIDDEN) if chr(number) not in characters)
        edges = [*controls.edges, *controls.edges_of(characters)]
        self._hide = {ord(edge): number for edge, number in zip(edges, free, strict=False)}
        if len(self._hide) < len({*edges}):
            raise WhetError(
                "a text has so many different characters without a meaning that its spellings of control tokens cannot "
                "be hidden: leave the text out"
            )
        self._show = {number: edge for edge, number in self._hide.items()}

    def hide(self, text: str, is_own: bool) -> str:
        """The text with characters hidden, as long as before.

        Args:
            is_own: the assistant's, in which tags stay.
        """
        if not is_own:
            return text.translate(self._hide)
        pieces, at = list[str](), 0
        for place in self._controls.pattern.finditer(text):
            if place[0] in self._controls.tags:
                pieces += [text[at : place.start()].translate(self._hide), place[0]]
                at = place.end()
        return "".join([*pieces, text[at:].translate(self._hide)])

    def hide_json(self, text: str) -> str:
        """JSON with characters of its texts and names hidden, but for the words that templates look for."""
        return json.dumps(self._hide_values(json.loads(text)), ensure_ascii=False) if text else ""

    def _hide_values(self, value: Any) -> Any:
        if isinstance(value, str):
            return value if value in SCHEMA_WORDS else self.hide(value, False)
        if isinstance(value, list):
            return [self._hide_values(entry) for entry in value]
        if isinstance(value, dict):
            return {self._hide_values(name): self._hide_values(entry) for name, entry in value.items()}
        return value

    def shown(self, text: str) -> str:
        return text.translate(self._show)


def _pattern(spellings: Iterable[str]) -> re.Pattern[str]:
    """Matches any of them, the longest first, in the tokenizer's order."""
    longest_first = sorted({*spellings}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
