"""A scripted expert for SearchQA: it searches hop by hop, and answers with what the documents say."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from random import Random
from typing import TYPE_CHECKING

from whet.envs.searchqa.questions import Path, Question
from whet.envs.searchqa.world import NOUNS
from whet.seeds import seed_of

if TYPE_CHECKING:
    from whet.envs.searchqa.environment import SearchQA

Moves = Generator[tuple[str, str], None, str]
"""Thoughts and actions, and at the end what was found."""

_LOOKING = (
    "I need the {noun} of {subject}, so I search for that.",
    "Next I look up the {noun} of {subject}.",
    "What is the {noun} of {subject}? I do not know it yet.",
)
_ANSWERING = (
    "The documents say it: {answer}.",
    "Now I know all that the question needs. The answer is {answer}.",
    "That settles it: {answer}.",
)


def expert(env: SearchQA, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Follows the question's relations through the documents that it is shown.

    A user's question has no relations: the expert searches for its words, and then gives the right answer.
    """
    random = Random(seed_of("searchqa expert", seed, env.question.words))
    question = env.question
    if question.path:
        answer = yield from _found_out(env, question, random)
    else:
        yield "I search for what the question asks.", search(question.words)
        answer = question.answers[0]
    yield random.choice(_ANSWERING).format(answer=answer), f"<answer>{answer}</answer>"


def search(query: str) -> str:
    """The action that searches."""
    return f"<search>{query}</search>"


def _found_out(env: SearchQA, question: Question, random: Random) -> Moves:
    subject = question.subjects[0]
    if question.compared:
        numbers = []
        for each in question.subjects:
            numbers.append(int((yield from _follow(env, each, question.compared, random))))
        wanted = min(numbers) if question.is_least else max(numbers)
        subject = question.subjects[numbers.index(wanted)]
    return (yield from _follow(env, subject, question.path, random))


def _follow(env: SearchQA, subject: str, path: Path, random: Random) -> Moves:
    """What a chain of relations leads to. It searches only for what no document so far has told."""
    for relation in path:
        thing = env.told(subject, relation)
        if thing is None:
            noun = NOUNS[relation]
            yield random.choice(_LOOKING).format(noun=noun, subject=subject), search(f"{subject} {noun}")
            thing = env.told(subject, relation)
        if thing is None:  # other documents stood before its own
            yield f"I search for {subject} alone.", search(subject)
            thing = env.told(subject, relation)
        if thing is None:
            return "0"
        subject = thing
    return subject
