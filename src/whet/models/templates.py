"""A chat template is a program from elsewhere: it is tried before it is used, where it can be stopped."""

from __future__ import annotations

import multiprocessing
import resource
from multiprocessing.connection import Connection
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from whet.config.base import ConfigError
from whet.tasks.dialects import Message

LIMIT_S = 5.0
"""Seconds for a few short conversations, of which a real template takes milliseconds."""
ROOM = 1 << 30
"""Bytes that it may take for them."""
WORDS = ("apple", "river", "stone", "cloud", "violin")


def check_template(tokenizer: PreTrainedTokenizerBase, path: str, *, limit_s: float = LIMIT_S) -> None:
    """Put conversations of one, three and five turns to the chat template, in a process of its own.

    A template that refuses several turns is not refused here: not every method plays them.
    Raises: ConfigError where it cannot be read, fails, does not end, or leaves out what it was given.
    """
    context = multiprocessing.get_context("fork")  # nothing to load again; the child renders text and does no more
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_try, args=(tokenizer, sender, limit_s), daemon=True)
    child.start()
    sender.close()
    try:
        problem = receiver.recv() if receiver.poll(limit_s) else f"has not ended after {limit_s:g} s"
    except EOFError:
        problem = "ran out of time or memory"
    finally:
        child.kill()
        child.join()
        receiver.close()
    if problem:
        raise ConfigError(
            f"the chat template of {path!r} {problem}, on a conversation of a few words: set another chat_template on "
            "the tokenizer"
        )


def _try(tokenizer: PreTrainedTokenizerBase, sender: Connection, limit_s: float) -> None:
    # The child ends even where its parent is killed before it can end it.
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1,) * 2)
    if (taken := Path("/proc/self/statm")).exists():
        in_use = int(taken.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + ROOM,) * 2)
    sender.send(next(filter(None, (_problem(tokenizer, WORDS[:count]) for count in (1, 3, 5))), None))


def _problem(tokenizer: PreTrainedTokenizerBase, words: tuple[str, ...]) -> str | None:
    """What the template does wrong with turns of one word each, user and assistant by turns."""
    turns: list[Message] = [
        {"role": "assistant" if index % 2 else "user", "content": word} for index, word in enumerate(words)
    ]
    try:
        text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    except Exception as error:
        if len(words) > 1:
            return None
        return f"fails ({type(error).__name__}{': ' if str(error) else ''}{' '.join(str(error).split())[:200]})"
    left_out = [word for word in words if word not in text]
    return f"leaves out what {'the user says' if words[-1] in left_out else 'earlier turns say'}" if left_out else None
