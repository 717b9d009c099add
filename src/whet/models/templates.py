"""Tries a chat template before use, in a process that can be stopped: it is a program from elsewhere."""

from __future__ import annotations

import multiprocessing
import resource
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from whet.chat import text_ids
from whet.config.base import ConfigError
from whet.tasks.prompts import Message
from whet.tool_calls import CLOSE, OPEN, Call, function, read_calls, written_call

LIMIT_S = 5.0
"""Seconds for a few short conversations; a real template takes milliseconds."""
ROOM = 1 << 30
"""Bytes that it may take for them."""
WORDS = ("apple", "river", "stone", "cloud", "violin")
NUMBERED = ("3 and 47?", "1,024.5 Or -6", "x = 2**8", "70% of 9", "(0, 1)")
"""Contents that a template has to reproduce exactly: a changed digit makes another problem."""
TOOL, ANSWER = "probe_of_tools", "probe-of-answers"
"""A tool's name and its answer, for a template to show."""


def check_template(tokenizer: PreTrainedTokenizerBase, path: str, *, limit_s: float = LIMIT_S) -> None:
    """Put conversations of one, three and five turns to the chat template, in a separate process.

    A template that refuses several turns passes: not every method needs them.
    Raises: ConfigError where it cannot be read, fails, does not end, or leaves out or rewrites text. Also where it
        ignores add_generation_prompt.
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
    # The child ends even where its parent is killed first.
    resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s) + 1,) * 2)
    if (taken := Path("/proc/self/statm")).exists():
        in_use = int(taken.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (in_use + ROOM,) * 2)
    contents = [words[:count] for words in (WORDS, NUMBERED) for count in (1, 3, 5)]
    problems = (*(_problem(tokenizer, words) for words in contents), _unopened(tokenizer))
    sender.send(next(filter(None, problems), None))


def _problem(tokenizer: PreTrainedTokenizerBase, words: tuple[str, ...]) -> str | None:
    """What the template does wrong with alternating turns of user and assistant, a few words each."""
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
    if not left_out:
        return None
    whose = "what the user says" if words[-1] in left_out else "what earlier turns say"
    if words[0] == WORDS[0]:
        return f"leaves out {whose}"
    return f"rewrites {whose}: {left_out[-1]!r} is not in it to the letter"


def _unopened(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Whether a reply would begin inside the user's turn, as the template writes no generation prompt.

    A template that opens the assistant's turn right behind the user's text (`[/INST]`) writes none, and needs none.
    """
    question, reply = ({"role": "user", "content": WORDS[0]}, {"role": "assistant", "content": WORDS[1]})
    try:
        prompts = [
            tokenizer.apply_chat_template([question], add_generation_prompt=opened, tokenize=False)
            for opened in (False, True)
        ]
        whole = tokenizer.apply_chat_template([question, reply], add_generation_prompt=False, tokenize=False)
    except Exception:  # a conversation of two turns, which a template may refuse
        return None
    if prompts[0] != prompts[1] or not whole.startswith(prompts[1]):
        return None
    header = whole[len(prompts[1]) :].partition(WORDS[1])[0].strip()
    if not header:
        return None
    return (
        f"ignores add_generation_prompt: a reply begins with {header!r} there, which the prompt does not end in, so "
        "that the model would write on in the user's turn"
    )


def tools_problem(tokenizer: PreTrainedTokenizerBase) -> str:
    """Why a tokenizer's chat template cannot be used with tools. Empty: it can."""
    return _tools_problem(tokenizer, str(tokenizer.chat_template))


@lru_cache(maxsize=32)
def _tools_problem(tokenizer: PreTrainedTokenizerBase, template: str) -> str:
    """
    Args:
        template: the tokenizer's; a part of the cache's key.
    """
    call = {"id": "call00000", "type": "function", "function": {"name": TOOL, "arguments": {"text": "apple"}}}
    answer = {"role": "tool", "name": TOOL, "tool_call_id": "call00000", "content": ANSWER}
    asked = [{"role": "user", "content": "apple"}]
    tools = [function(TOOL, "apple", {"text": {"type": "string", "description": "apple"}}, ["text"])]
    for chat, shown, what in (
        (asked, TOOL, "tools"),
        ([*asked, {"role": "assistant", "content": "", "tool_calls": [call]}, answer], ANSWER, "the answers of tools"),
    ):
        try:
            text = tokenizer.apply_chat_template(chat, tools=tools, add_generation_prompt=True, tokenize=False)
        except Exception as error:  # the template is a program from elsewhere
            return f"its chat template refuses {what} ({str(error)[:200]})"
        if shown not in text:
            return f"its chat template does not show {what}"
    return ""


def calls_problem(tokenizer: PreTrainedTokenizerBase) -> str:
    """Why the calls of a model with this tokenizer cannot be read. Empty: they can."""
    return _calls_problem(tokenizer, str(tokenizer.chat_template))


@lru_cache(maxsize=32)
def _calls_problem(tokenizer: PreTrainedTokenizerBase, template: str) -> str:
    """
    Args:
        template: the tokenizer's; a part of the cache's key.
    """
    call = Call(TOOL, {"text": "apple"})
    made = {"id": "call00000", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    chat = [{"role": "user", "content": "apple"}, {"role": "assistant", "content": "", "tool_calls": [made]}]
    try:
        text = tokenizer.apply_chat_template(chat, tokenize=False)
    except Exception as error:  # the template is a program from elsewhere
        return f"its chat template refuses a call ({str(error)[:200]})"
    if read_calls(text)[1] != [call]:
        return f"its chat template writes calls otherwise than {OPEN}, a JSON object and {CLOSE}"
    written = tokenizer.decode(text_ids(tokenizer, written_call(call)), skip_special_tokens=True)
    if read_calls(written)[1] != [call]:
        return f"its tokenizer drops {OPEN} from what is written"
    return ""
