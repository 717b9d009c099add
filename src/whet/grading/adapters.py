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

    It is called with lists of one. Its columns are the task's `answer`, `task_id` and the other columns of its row, by
    name. A column without a default has to be in every row. Where the function gives None, the reply has no score.

    Args:
        messages: prompts and completions are lists of chat messages, as with TRL's conversational data sets.
    Raises: ValueError where it asks for values that only TRL's trainer has.
    """
    needed = _needed(function)
    for name in ("completion_ids", "prompt_ids", "trainer_state"):
        if name in needed:
            raise ValueError(f"{_name(function)} asks for {name}, which only TRL's trainer has: give it a default")

    async def score(completion: str, prompt: str, **columns: Any) -> Grade:
        texts = {"prompts": _said(prompt, "user", messages), "completions": _said(completion, "assistant", messages)}
        arguments = _asked(function, {**columns, **texts})
        try:
            rewards = await _result(function(**{name: [value] for name, value in arguments.items()}))
        except TypeError as error:
            if not messages and "string indices" in str(error):  # it looked for ["content"] in a text
                error.args = (f"{error}; a function of chat messages is adapted by from_trl(..., messages=True)",)
            raise
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
    if unknown := [name for name in _needed(function) if name not in names]:
        raise ValueError(
            f"{_name(function)} asks for {unknown[0]}, and verl's functions are given {', '.join(names)}: give it a "
            "default, or read it from extra_info"
        )

    async def score(completion: str, answer: str, info: Mapping[str, Any]) -> Grade:
        whole = {"data_source": info.get("kind", ""), "extra_info": info, **info}
        whole |= {"solution_str": completion, "ground_truth": answer}
        result = await _result(function(**_asked(function, {name: whole[name] for name in names})))
        if not isinstance(result, Mapping):
            return _graded(function, result, span)
        read = result.get("pred")
        return _graded(function, result.get("score"), span, extracted=read if isinstance(read, str) else None)

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


def _asked(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that the function takes."""
    parameters = inspect.signature(function).parameters
    takes_rest = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: value for name, value in arguments.items() if takes_rest or name in parameters}


def _needed(function: Callable[..., Any]) -> list[str]:
    """The parameters without a default."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [
        parameter.name for parameter in parameters if parameter.kind in named and parameter.default is parameter.empty
    ]


def _asking(score: Scorer, columns: Sequence[str]) -> Scorer:
    """Adds these columns to the signature, so that a missing one is reported as for any other grader."""
    signature = inspect.signature(score)
    others = [parameter for parameter in signature.parameters.values() if parameter.name not in columns]
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in columns]
    parameters = sorted([*others, *added], key=lambda parameter: parameter.kind)
    score.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return score


def _said(text: str, role: str, as_messages: bool) -> Any:
    return [{"role": role, "content": text}] if as_messages else text


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _like(function: Callable[..., Any], score: Scorer) -> Scorer:
    """Takes over the function's name. `functools.wraps` would take over its signature too."""
    score.__qualname__ = _name(function)
    score.__doc__ = function.__doc__
    return score
