"""Checks a run's prompts before it begins: the tokenizer keeps every character, and the longest conversation fits."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from whet.chat import Encoded, encode_texts, render
from whet.config import ConfigError
from whet.errors import is_out_of_memory
from whet.models.lean import steady_positions
from whet.models.policy import Policy
from whet.models.tiny import is_tiny
from whet.tasks.prompts import Message, Prompts

NUM_RENDERED = 8
"""Conversations that are rendered, of those whose texts have the most tokens. A text may take a token or two more or
less beside others than alone."""
SHOWN = 60
"""Characters of a text that an error message quotes."""
REPLY = "a"
"""Stands for each reply in a conversation that is measured before any reply is there."""


@dataclass(frozen=True)
class Conversation:
    """Conversations of one kind that a run may have with a policy."""

    policy: str
    texts: Sequence[tuple[str, ...]]
    """The texts that differ from one to the next, such as the question."""
    messages: Callable[..., list[Message]]
    """From the texts of one conversation."""
    prefill: str
    """Of the reply."""
    written: int
    """Tokens that models may still write into it."""
    grows_to: int = 0
    """In conversations of many turns: tokens of the longest prompt of the last turn."""
    tools: str = ""
    """The JSON list of tools that the prompt shows."""


@dataclass(frozen=True)
class Lengths:
    """In tokens, at most."""

    prompt: int
    """In conversations of many turns: that of the last turn."""
    written: int
    """By models, after the prompt; 0 where a method does not say."""


def check_prompts(conversations: Sequence[Conversation], policies: Mapping[str, Policy]) -> dict[str, Lengths]:
    """The longest conversation of each policy.

    Raises: ConfigError where a tokenizer drops part of a text or of the prompts' own words, or a chat template refuses
        a conversation. Also where the longest one has more tokens than the model has positions.
    """
    lengths: dict[str, Lengths] = {}
    num_tokens: dict[tuple[int, int], list[int]] = {}  # actor and critic may share tokenizer and texts
    for conversation in conversations:
        policy = policies[conversation.policy]
        key = (id(policy.tokenizer), id(conversation.texts))
        if key not in num_tokens:
            num_tokens[key] = _num_tokens(conversation, policy.tokenizer)
        if conversation.texts:
            _check_words(conversation, policy.tokenizer)
        order = sorted(range(len(conversation.texts)), key=num_tokens[key].__getitem__, reverse=True)
        longest = [conversation.texts[index] for index in order[:NUM_RENDERED]]
        length, texts = max((_rendered(conversation, texts, policy.tokenizer), texts) for texts in longest)
        positions = steady_positions(policy.causal_lm)
        if positions is not None and length + conversation.written > positions:
            raise ConfigError(
                f"the longest conversation may take {length + conversation.written} tokens ({length} of the prompt "
                f"with the question {shown(texts[0])}, and what max_new_tokens allows over all rounds), but "
                f"{conversation.policy}.path has {positions} positions: lower max_new_tokens, or the number of rounds, "
                "or leave such questions out"
            )
        before = lengths.get(conversation.policy, Lengths(0, 0))
        longest_prompt = max(length, conversation.grows_to, before.prompt)
        lengths[conversation.policy] = Lengths(longest_prompt, max(conversation.written, before.written))
    return lengths


def of_rounds(
    roles: tuple[str, str], prompts: Prompts, questions: Sequence[tuple[str]], written: int, num_rounds: int = 1
) -> list[Conversation]:
    """The conversations of critique rounds, with `REPLY` in place of each reply.

    Args:
        roles: the policies that refine and critique.
        written: tokens that all replies may take together.
    """
    history = [(REPLY, REPLY)] * (num_rounds - 1)
    return [
        Conversation(
            roles[0],
            questions,
            lambda q: prompts.refine_messages(q, REPLY, REPLY, history),
            prompts.refine_prefill,
            written,
        ),
        Conversation(roles[1], questions, lambda q: prompts.critique_messages(q, REPLY, history), "", written),
    ]


def _num_tokens(conversation: Conversation, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Tokens of each conversation's texts."""
    flat = [text for texts in conversation.texts for text in texts]
    sizes = iter(measured(flat, tokenizer))
    counts = [[next(sizes) for _ in texts] for texts in conversation.texts]
    for text, (_, lost) in zip(flat, (size for sizes in counts for size in sizes), strict=True):
        if lost:
            raise ConfigError(
                f"the tokenizer of {conversation.policy}.path has no token for {lost} in {shown(text)}, and would "
                "leave it out without a word: leave such texts out, write them in other characters, or take another "
                "model"
            )
    return [sum(count for count, _ in sizes) for sizes in counts]


def _check_words(conversation: Conversation, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raises: ConfigError where the tokenizer drops part of the words around the texts, or of the prefill."""
    messages = conversation.messages(*conversation.texts[0])  # in all conversations of a kind, the words are the same
    words = [*(message["content"] for message in messages), conversation.prefill]
    for text, encoding in zip(words, encode_texts(tokenizer, words), strict=True):
        if not (lost := [character for character in _lost(text, encoding, tokenizer) if character != REPLY]):
            continue
        if is_tiny(tokenizer):
            raise ConfigError(
                f"the packaged tiny model, {conversation.policy}.path, does not know the words of these prompts: its "
                f"tokenizer would leave {_quoted(lost)} out of {shown(text)}. Leave prompts at chains, or give "
                f"{conversation.policy}.path a model that reads English (whet get smollm2, or whet tiny random)"
            )
        raise ConfigError(
            f"the tokenizer of {conversation.policy}.path has no token for {_quoted(lost)} in the words of the prompts "
            f"({shown(text)}), and would leave it out without a word: write the prompts in other characters, or take "
            "another model"
        )


def _rendered(conversation: Conversation, texts: tuple[str, ...], tokenizer: PreTrainedTokenizerBase) -> int:
    try:
        return len(render(tokenizer, conversation.messages(*texts), conversation.prefill, conversation.tools))
    except Exception as error:  # the template is a program from elsewhere
        if is_out_of_memory(error):
            raise
        raise ConfigError(
            f"the chat template of {conversation.policy}.path refuses a conversation of user and assistant turns "
            f"({error}); set another chat_template on the tokenizer"
        ) from error


def measured(texts: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> list[tuple[int, str]]:
    """The number of tokens of each text, and the characters that no token stands for (white space and invisible ones
    aside). A tokenizer written in Python reports unknown tokens only."""
    return [
        (len(encoding.ids), _quoted(_lost(text, encoding, tokenizer)))
        for text, encoding in zip(texts, encode_texts(tokenizer, texts), strict=True)
    ]


def _lost(text: str, encoding: Encoded, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The characters between tokens and those of unknown tokens, each once."""
    unknown = tokenizer.unk_token_id
    if not tokenizer.is_fast:
        return ["some characters"] if unknown in encoding.ids else []
    lost, end = "", 0
    for index, (start, stop) in zip(encoding.ids, encoding.offsets, strict=True):
        if start > end:
            lost += text[end:start]
        if index == unknown:
            lost += text[start:stop]
        end = max(end, stop)
    lost += text[end:]
    return list(dict.fromkeys(c for c in lost if not c.isspace() and not unicodedata.category(c).startswith("C")))


def _quoted(lost: Sequence[str]) -> str:
    """The first of them, for a message."""
    return ", ".join(text if len(text) > 1 else repr(text) for text in lost[:NUM_RENDERED])


def shown(text: str) -> str:
    """Its beginning, quoted."""
    return repr(text if len(text) <= SHOWN else text[:SHOWN] + "...")
