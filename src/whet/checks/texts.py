"""Checks of a model's tokenizer and chat template on the run's own rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from statistics import median

from whet.chat import chat_text, encode_texts, render, turns_of
from whet.checks.findings import Finding, by_share, listed
from whet.models.policy import Policy
from whet.models.prompts import measured
from whet.tasks.prompts import Message, Prompts
from whet.types import Task

MOST_TESTED = 200
"""Rows that are looked at: the longest half, and others."""
BAD_ANSWERS = 0.05
"""Share of answers that cannot be written, from which the run learns wrong things."""
LEAST_CHARACTERS = 0.8
"""Characters a token, below which a text is spelt in bytes."""
MANY_SPELT = 0.1
"""Share of such texts that is no accident."""
OUTLIER, LONG_PROMPT = 8, 200
"""A prompt of so many times the median's tokens, and of more than so many, sets the memory of a step alone."""


def text_findings(policy: Policy, tasks: Sequence[Task], prompts: Prompts) -> Iterator[Finding]:
    """Findings about how a policy reads questions and could write answers."""
    by_length = sorted(tasks, key=lambda task: len(task.prompt), reverse=True)
    tested = [*by_length[: MOST_TESTED // 2], *tasks[: MOST_TESTED // 2]]
    yield from _template_findings(policy, [prompts.solve_messages(task.prompt) for task in tested], tested)
    yield from _tokenizer_findings(policy, tested)
    yield from _outliers(policy, by_length, prompts)


def _template_findings(policy: Policy, chats: Sequence[list[Message]], tasks: Sequence[Task]) -> Iterator[Finding]:
    tokenizer, name = policy.tokenizer, policy.title
    texts = [chat_text(tokenizer, turns_of(messages)).text for messages in chats]
    cut = [
        task
        for task, messages, text in zip(tasks, chats, texts, strict=True)
        if messages[-1]["content"].strip() not in text
    ]
    if cut:
        yield Finding(
            "fail",
            "template",
            f"the chat template of {name} cuts or rewrites {len(cut)} of {len(tasks)} questions "
            f"({listed([task.prompt for task in cut], 1)}): mend chat_template in tokenizer_config.json",
        )
    if "strftime_now" in str(tokenizer.chat_template) or str(date.today().year) in texts[0].replace(
        tasks[0].prompt, ""
    ):
        yield Finding(
            "warning",
            "template",
            f"the chat template of {name} writes today's date, so a resumed run reads other prompts tomorrow: put a "
            "fixed date into chat_template",
        )
    ids = render(tokenizer, chats[0])
    if ids and ids[-1] in policy.stop_ids and tokenizer.eos_token_id == ids[-1]:
        yield Finding(
            "fail",
            "template",
            f"prompts of {name} end by {tokenizer.eos_token!r}, its end token, so that the model has nothing to go on "
            "with: let chat_template open the assistant's turn after it",
        )
    if tokenizer.bos_token_id is not None and list(ids[:2]) == [tokenizer.bos_token_id] * 2:
        yield Finding(
            "warning",
            "template",
            f"prompts of {name} begin by {tokenizer.bos_token!r} twice, as no training text did: take one out of "
            "chat_template",
        )


def _tokenizer_findings(policy: Policy, tasks: Sequence[Task]) -> Iterator[Finding]:
    tokenizer, name = policy.tokenizer, policy.title
    answers = list(dict.fromkeys(task.answer or "" for task in tasks))
    lost = [answer for answer, (_, missing) in zip(answers, measured(answers, tokenizer), strict=True) if missing]
    if lost:
        yield Finding(
            by_share(len(lost), len(answers), BAD_ANSWERS),
            "tokenizer",
            f"{name} has no tokens for {len(lost)} of {len(answers)} answers ({listed(lost)}), so it can never write "
            "them: write the answers in other characters, leave the rows out, or take another model",
        )
    questions = [task.prompt for task in tasks]
    encoded = [encoding.ids for encoding in encode_texts(tokenizer, questions)]
    changed = [
        question
        for question, ids in zip(questions, encoded, strict=True)
        if _letters(tokenizer.decode(ids)) != _letters(question)
        and _letters(tokenizer.decode(ids)).casefold() == _letters(question).casefold()
    ]
    if changed:
        yield Finding(
            "warning",
            "tokenizer",
            f"the tokenizer of {name} changes upper and lower case in {len(changed)} of {len(questions)} questions "
            f"({listed(changed, 1)}): names and variables become others, so take Lowercase out of tokenizer.json",
        )
    spelt = [
        question
        for question, ids in zip(questions, encoded, strict=True)
        if len(question) < LEAST_CHARACTERS * len(ids)
    ]
    if len(spelt) >= MANY_SPELT * len(questions):
        yield Finding(
            "warning",
            "tokenizer",
            f"{name} needs more tokens than there are characters in {len(spelt)} of {len(questions)} questions "
            f"({listed(spelt, 1)}): it does not know their script, so take a model that was trained on it",
        )


def _letters(text: str) -> str:
    return "".join(filter(str.isalpha, text))


def _outliers(policy: Policy, by_length: Sequence[Task], prompts: Prompts) -> Iterator[Finding]:
    if len(by_length) < 4:
        return
    picked = [by_length[0], *by_length[:: max(1, len(by_length) // 16)]]
    counts = [
        len(render(policy.tokenizer, prompts.solve_messages(task.prompt), prompts.solve_prefill)) for task in picked
    ]
    usual = median(counts[1:])
    if counts[0] > max(OUTLIER * usual, LONG_PROMPT):
        yield Finding(
            "warning",
            "data",
            f"the longest prompt has {counts[0]:,} tokens and the usual one {usual:,.0f} "
            f"({listed([by_length[0].prompt])}): it alone sets the memory of a step, so leave it out",
        )
