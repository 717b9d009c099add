"""What a run will put to its models, looked at before it begins: no text loses a letter, and the longest fits."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from whet.chat import encode_texts, render
from whet.config import ConfigError
from whet.errors import is_out_of_memory
from whet.models.lean import steady_positions
from whet.models.policy import Policy
from whet.tasks.prompts import Message, Prompts

NUM_RENDERED = 8
"""Of the conversations whose texts have the most tokens, those that are rendered: what a text costs beside others may
differ from what it costs alone by a token or two."""
SHOWN = 60
"""Characters of a text that a sentence quotes."""


@dataclass(frozen=True)
class Conversation:
    """Conversations of one kind that a run may have with a policy."""

    policy: str
    texts: Sequence[tuple[str, ...]]
    """What differs from one to the next, such as the question."""
    messages: Callable[..., list[Message]]
    """From the texts of one."""
    prefill: str
    """Of the reply."""
    written: int
    """Tokens that models may still write into it."""
    grows_to: int = 0
    """Of one that goes on for turns: tokens that the last of them may begin with."""


@dataclass(frozen=True)
class Lengths:
    """In tokens, at most."""

    prompt: int
    """Of a conversation of many turns: what the last one may begin with."""
    written: int
    """By models, after it; 0 where a method does not say."""


def check_prompts(conversations: Sequence[Conversation], policies: Mapping[str, Policy]) -> dict[str, Lengths]:
    """How long what is put to each policy may be.

    Raises: ConfigError where a tokenizer drops part of a text, a chat template refuses a conversation, or the
    longest one has more tokens than the model has positions."""
    found: dict[str, Lengths] = {}
    known: dict[tuple[int, int], list[int]] = {}  # actor and critic may share tokenizer and texts
    for each in conversations:
        policy = policies[each.policy]
        which = (id(policy.tokenizer), id(each.texts))
        if which not in known:
            known[which] = _num_tokens(each, policy.tokenizer)
        order = sorted(range(len(each.texts)), key=known[which].__getitem__, reverse=True)
        longest = [each.texts[index] for index in order[:NUM_RENDERED]]
        length, texts = max((_rendered(each, texts, policy.tokenizer), texts) for texts in longest)
        positions = steady_positions(policy.causal_lm)
        if positions is not None and length + each.written > positions:
            raise ConfigError(
                f"the longest conversation may take {length + each.written} tokens ({length} of the prompt with the "
                f"question {shown(texts[0])}, and what max_new_tokens allows over all rounds), but {each.policy}.path "
                f"has {positions} positions: lower max_new_tokens, or the number of rounds, or leave such questions out"
            )
        before = found.get(each.policy, Lengths(0, 0))
        longest_prompt = max(length, each.grows_to, before.prompt)
        found[each.policy] = Lengths(longest_prompt, max(each.written, before.written))
    return found


def of_rounds(
    roles: tuple[str, str], prompts: Prompts, questions: Sequence[tuple[str]], written: int, num_rounds: int = 1
) -> list[Conversation]:
    """Those of critique rounds, with replies of one letter in place of those still to be written.

    Args:
        seats: who refines, and who critiques.
        written: what replies may take, all in all.
    """
    history = [("a", "c")] * (num_rounds - 1)
    return [
        Conversation(roles[0], questions, lambda q: prompts.refine_messages(q, "a", "c", history),
                     prompts.refine_prefill, written),
        Conversation(roles[1], questions, lambda q: prompts.critique_messages(q, "a", history), "", written),
    ]  # fmt: skip


def _num_tokens(each: Conversation, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Of the texts of each conversation."""
    flat = [text for texts in each.texts for text in texts]
    sizes = iter(measured(flat, tokenizer))
    found = [[next(sizes) for _ in texts] for texts in each.texts]
    for text, (_, lost) in zip(flat, (size for sizes in found for size in sizes), strict=True):
        if lost:
            raise ConfigError(
                f"the tokenizer of {each.policy}.path has no token for {lost} in {shown(text)}, and would leave it "
                "out without a word: leave such texts out, write them in other characters, or take another model"
            )
    return [sum(count for count, _ in sizes) for sizes in found]


def _rendered(each: Conversation, texts: tuple[str, ...], tokenizer: PreTrainedTokenizerBase) -> int:
    try:
        return len(render(tokenizer, each.messages(*texts), each.prefill))
    except Exception as error:  # the template is a program from elsewhere
        if is_out_of_memory(error):
            raise
        raise ConfigError(
            f"the chat template of {each.policy}.path refuses a conversation of user and assistant turns ({error}); "
            "set another chat_template on the tokenizer"
        ) from error


def measured(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[tuple[int, str]]:
    """For each text its tokens, and the characters that none of them stands for (white space and invisible ones
    aside). A tokenizer written in Python tells of unknown tokens only."""
    unknown = tokenizer.unk_token_id
    encoded = encode_texts(tokenizer, texts)
    if not tokenizer.is_fast:
        return [(len(found.ids), "some characters" if unknown in found.ids else "") for found in encoded]
    return [
        (len(found.ids), _lost(text, found.ids, found.offsets, unknown))
        for text, found in zip(texts, encoded, strict=True)
    ]


def _lost(text: str, ids: Sequence[int], offsets: Sequence[tuple[int, int]], unknown: int | None) -> str:
    """The characters between the tokens' places, and those of unknown tokens, each once and in quotes."""
    lost, end = "", 0
    for index, (start, stop) in zip(ids, offsets, strict=True):
        if start > end:
            lost += text[end:start]
        if index == unknown:
            lost += text[start:stop]
        end = max(end, stop)
    lost += text[end:]
    seen = dict.fromkeys(c for c in lost if not c.isspace() and not unicodedata.category(c).startswith("C"))
    return ", ".join(map(repr, list(seen)[:NUM_RENDERED]))


def shown(text: str) -> str:
    """Its beginning, quoted."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
