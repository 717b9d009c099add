"""Reward functions that were written for other libraries, as functions that `grader` registers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from whet.types import Grade

Span = tuple[float, float]
"""The rewards that become a score of 0 and of 1; between them it is linear, beyond them no score."""
Scorer = Callable[..., Awaitable[Grade]]


def from_trl(function: Callable[..., Any], *, span: Span = (0.0, 1.0), messages: bool = False) -> Scorer:
    """A reward function of TRL's (`GRPOTrainer`), `f(prompts, completions, **columns) -> list[float | None]`:

        grader("mine")(from_trl(my_reward))

    It is called with lists of one. Its columns are the task's `answer`, `task_id` and whatever its row holds besides,
    each by its own name; one that it has no default for has to be in every row. Where it gives None, the reply has no
    score.

    Args:
        messages: prompts and completions are lists of chat messages, as with TRL's conversational data sets.
    Raises: ValueError where it asks for what only TRL's trainer has.
    """
    needed = _needed(function)
    for name in ("completion_ids", "prompt_ids", "trainer_state"):
        if name in needed:
            raise ValueError(f"{_name(function)} asks for {name}, which only TRL's trainer has: give it a default")

    async def score(completion: str, prompt: str, **columns: Any) -> Grade:
        told = {"prompts": _said(prompt, "user", messages), "completions": _said(completion, "assistant", messages)}
        given = _asked(function, {**columns, **told})
        rewards = await _result(function(**{name: [value] for name, value in given.items()}))
        if not isinstance(rewards, list | tuple) or len(rewards) != 1:
            raise ValueError(f"{_name(function)} gave {str(rewards)[:100]}, not a list with one reward a completion")
        return _graded(function, rewards[0], span)

    return _asking(_like(function, score), [name for name in needed if name not in ("prompts", "completions")])


def from_verl(function: Callable[..., Any], *, span: Span = (0.0, 1.0)) -> Scorer:
    """A reward function of verl's, `f(data_source, solution_str, ground_truth, extra_info) -> float | dict`.

    `data_source` and `extra_info` are the task's, where its row has them, else its kind and all that its row holds
    besides. Of a dict, `score` counts, and `pred`, where it is text, is the answer as it was read.

    Raises: ValueError where it asks for more than these four.
    """
    names = ("data_source", "solution_str", "ground_truth", "extra_info")
    if more := [name for name in _needed(function) if name not in names]:
        raise ValueError(
            f"{_name(function)} asks for {more[0]}, and verl's functions are given {', '.join(names)}: give it a "
            "default, or read it from extra_info"
        )

    async def score(completion: str, answer: str, info: Mapping[str, Any]) -> Grade:
        whole = {"data_source": info.get("kind", ""), "extra_info": info, **info}
        whole |= {"solution_str": completion, "ground_truth": answer}
        found = await _result(function(**_asked(function, {name: whole[name] for name in names})))
        if not isinstance(found, Mapping):
            return _graded(function, found, span)
        read = found.get("pred")
        return _graded(function, found.get("score"), span, extracted=read if isinstance(read, str) else None)

    return _like(function, score)


def _graded(function: Callable[..., Any], reward: Any, span: Span, *, extracted: str | None = None) -> Grade:
    low, high = span
    if reward is None:
        return Grade(score=None, reason=f"{_name(function)} gave no reward", extracted=extracted)
    score = (float(reward) - low) / (high - low)
    if not 0 <= score <= 1:  # NaN too
        raise ValueError(f"{_name(function)} gave {reward}, outside of its span {low:g} to {high:g}: give another span")
    return Grade(score=score, extracted=extracted)


async def _result(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _asked(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What the function takes of it."""
    parameters = inspect.signature(function).parameters
    takes_rest = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    return {name: value for name, value in given.items() if takes_rest or name in parameters}


def _needed(function: Callable[..., Any]) -> list[str]:
    """The parameters without a default."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind in named and each.default is each.empty]


def _asking(score: Scorer, columns: Sequence[str]) -> Scorer:
    """With a signature that asks for these columns too, so that a missing one is said as for any other grader."""
    signature = inspect.signature(score)
    own = [each for each in signature.parameters.values() if each.name not in columns]
    asked = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in columns]
    parameters = sorted([*own, *asked], key=lambda each: each.kind)
    score.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return score


def _said(text: str, role: str, as_messages: bool) -> Any:
    return [{"role": role, "content": text}] if as_messages else text


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _like(function: Callable[..., Any], score: Scorer) -> Scorer:
    """Named as the function is. Not by `functools.wraps`, with which it would seem to take what the function takes."""
    score.__qualname__ = _name(function)
    score.__doc__ = function.__doc__
    return score
