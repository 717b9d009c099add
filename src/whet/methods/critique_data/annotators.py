"""Annotators by rule: they critique a response from what is known of it, without any language model.

In the tiny world they are the critics of `oracles`, who can work every problem out. Elsewhere `oracle` goes by the
hints and the reference solution, and is as good as those are: the filters decide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from whet.config.base import ConfigError
from whet.methods.critique_data.formats import CritiqueRecord
from whet.methods.critique_data.mistakes import comes_out
from whet.tasks.demonstrations import STEP, solution_steps
from whet.tasks.prompts import Prompts
from whet.tasks.steps import StepsBy, judged_steps, sentence
from whet.types import Grade, Segment, Task

Annotator = Callable[[Task, CritiqueRecord], str]


def annotators(
    critics: Mapping[str, Callable[[Task, Segment], str]], data: str, prompts: Prompts, by: StepsBy
) -> Mapping[str, Annotator]:
    """Those that know problems of a kind of data, by name.

    Args:
        critics: by rule, of these data.
    """
    if data == "chains":
        return {name: _of_critic(critic) for name, critic in critics.items()}
    return {"oracle": by_hints(prompts, by)}


def find_annotator(name: str, known: Mapping[str, Annotator]) -> Annotator:
    if name not in known:
        raise ConfigError(f"annotator.name: there is no rule {name!r} for these data; choose of: {', '.join(known)}")
    return known[name]


def _of_critic(critic: Callable[[Task, Segment], str]) -> Annotator:
    def annotate(task: Task, record: CritiqueRecord) -> str:
        answer = Segment(
            role="actor", policy="rule", added=(), tokens=(), logprobs=(), versions=(), text=record.response,
            stop_reason="eos", temperature=0.0, seed=0, parent=None, grade=Grade(score=float(record.right)),
        )  # fmt: skip
        return critic(task, answer)

    return annotate


def by_hints(prompts: Prompts, by: StepsBy) -> Annotator:
    """Steps before the hinted one are right, that one is wrong, and so is what builds on it. Without a hint it is the
    first step whose calculation does not come out, else the last one. Where the task has a worked solution, its step of
    the same number is what it should be."""

    def annotate(task: Task, record: CritiqueRecord) -> str:
        steps = judged_steps(record.response, by)
        wrong = None if record.right else record.error_step
        if wrong is None and not record.right:
            wrong = next((i for i, step in enumerate(steps) if not comes_out(step)), len(steps) - 1)
        blocks = []
        for place, step in enumerate(steps):
            is_right = wrong is None or place < wrong
            label = prompts.right if is_right else prompts.wrong
            reason = _reason(task, step, place, wrong)
            blocks.append(f"{STEP} {sentence(step)}\nCorrectness of the step: {label}\nExplanation: {reason}\n")
        closing = "Every step holds." if wrong is None else f"Step {wrong + 1} is mistaken."
        return "\n".join([*blocks, f"{prompts.closing(right=wrong is None)}\nExplanation: {closing}"])

    return annotate


def _reason(task: Task, step: str, place: int, wrong: int | None) -> str:
    if wrong is None or place < wrong:
        return "This follows from what is given."
    if place > wrong:
        return f"This builds on step {wrong + 1}."
    right = solution_steps(task) if task.info.get("solution") else []
    if place < len(right):
        return f"It should be: {right[place]}"
    return "The calculation does not come out." if not comes_out(step) else "This does not lead to what is asked for."
