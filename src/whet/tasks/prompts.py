"""Prompts: how a question, an answer and a critique are put to a model. Data only; torch and tokenizers stay out.

`Prompts` turn the pieces of a critique round into chat messages. They hold the prefill that an assistant turn starts
with, and the labels of a verdict. `chains` are terse, for the tiny world: every piece is a token of its tokenizer.
`english` words the same three tasks, with the same final labels, for real models. Its layout is that of Critique-RL
(arXiv:2510.24320, appendix); the wording is ours. `short` asks a small model for little, and begins its answer for it.
`steps` asks it for short steps; docs/real-models.md says what they are worth. A user's prompts are a YAML file
(`read_prompts`), or are registered by a plug-in (`prompts`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypedDict

from whet.config.base import ConfigError
from whet.config.environment_data import EnvironmentData
from whet.config.parts import BasicsData, ChainData, FileData, GymData
from whet.config.yaml_text import read_file
from whet.near import near_names
from whet.registry import Registry, UnknownName
from whet.tasks.chains import VERDICT_LINE
from whet.tasks.placeholders import filled, problem_of

Message = dict[str, str]
"""`{"role": "user" | "assistant", "content": ...}`, as chat templates take it."""

Round = tuple[str, str]
"""An answer and the critique it got."""


class Labels(TypedDict):
    """How a verdict is worded, as `grading.verdicts.parse_verdict` takes it."""

    line: str
    right: str
    wrong: str


@dataclass(frozen=True, slots=True)
class Prompts:
    r"""Templates with the placeholders `{question}`, `{answer}`, `{critique}`. All other braces are text (`\boxed{}`).

    Raises: ConfigError where a template lacks a placeholder that it needs or has one that nothing fills, or where
    the two verdicts would look alike.
    """

    solve: str
    critique: str
    """Opens a critique: shows question and answer."""
    critique_again: str
    """A later round for a critic that remembers: shows the new answer only."""
    refine: str
    """Shows the critique to the actor that wrote the answer."""
    solve_prefill: str = ""
    """The assistant turn starts with this; it belongs to the answer's text."""
    refine_prefill: str = ""
    critique_marker: str = ""
    """What comes before its first occurrence in a critique is not shown to the actor. Empty: show all."""
    verdict_line: str = VERDICT_LINE
    """The label that the verdict on the final answer follows, without its colon."""
    right: str = "Correct"
    """The verdict on a right answer; case does not matter."""
    wrong: str = "Wrong"
    """The verdict on a wrong one."""
    step_comment: str = ""
    """How a critique comments on one step, on a line. Placeholders: `{step}`, `{label}` (`right` or `wrong`) and
    `{reason}`. Generated demonstrations follow it. Empty: as `critique` asks for it."""

    def __post_init__(self) -> None:
        for name in _names():
            if trouble := problem_of(name, getattr(self, name)):
                raise ConfigError(trouble)
        if self.right.casefold() == self.wrong.casefold():
            raise ConfigError(f"right and wrong are both {self.right!r}: a verdict needs two labels that differ")
        if self.step_comment and not ("{step}" in self.step_comment and "{label}" in self.step_comment):
            raise ConfigError(f"step_comment is {self.step_comment[:60]!r}: put {{step}} and {{label}} into it")

    @property
    def labels(self) -> Labels:
        return {"line": self.verdict_line, "right": self.right, "wrong": self.wrong}

    def closing(self, *, right: bool) -> str:
        """The line with the verdict on the final answer."""
        return f"{self.verdict_line}: {self.right if right else self.wrong}"

    def commented(self, step: str, right: bool, reason: str = "") -> str:
        """A step, its label, and what is wrong with it."""
        texts = {"step": step, "label": self.right if right else self.wrong, "reason": reason}
        return _COMMENT_PLACEHOLDER.sub(lambda placeholder: texts[placeholder[1]], self.step_comment).strip()

    def solve_messages(self, question: str) -> list[Message]:
        return [_user(filled(self.solve, question=question))]

    def critique_messages(self, question: str, answer: str, history: Sequence[Round] = ()) -> list[Message]:
        """The critic's messages. With a history (oldest first) it sees its earlier critiques as its turns."""
        rounds = [*history, (answer, "")]
        messages = []
        for index, (text, critique) in enumerate(rounds):
            template = self.critique_again if index else self.critique
            # The prefill is the prompt's, not the solver's: a critic need not judge it. Only at the very start.
            shown = text.removeprefix(self.refine_prefill if index else self.solve_prefill).strip("\n")
            messages += [_user(filled(template, question=question, answer=shown)), _assistant(critique)]
        return messages[:-1]

    def steps_onward(self, critique: str) -> str:
        """The critique from its first marker on, without any preamble; all of it where there is no marker."""
        start = critique.find(self.critique_marker)
        return critique[start:] if start >= 0 else critique

    def refine_text(self, critique: str) -> str:
        """The template `refine` with the critique in it."""
        return filled(self.refine, critique=critique)

    def refine_messages(
        self, question: str, answer: str, critique: str, history: Sequence[Round] = ()
    ) -> list[Message]:
        """The actor's messages: its first turn, then critique and answer in turn, as far back as the history goes."""
        messages = self.solve_messages(question)
        for text, comment in [*history, (answer, critique)]:
            messages += [_assistant(text), _user(self.refine_text(comment))]
        return messages


_COMMENT_PLACEHOLDER = re.compile(r"\{(step|label|reason)\}")


def _names() -> list[str]:
    return [field.name for field in fields(Prompts)]


def _user(content: str) -> Message:
    return {"role": "user", "content": content}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content}


CHAINS = Prompts(
    solve="Solve: {question}",
    critique="Critique: {question}\n{answer}",
    critique_again="Critique: {answer}",
    refine="Refine: {critique}",
)

ENGLISH = Prompts(
    solve="{question}\n\nWork it out step by step. Close with one line of the form: The answer is [your answer].",
    critique=(
        "You will read a question and a worked solution. Every sentence of the solution is one step, and any step "
        "may be mistaken. Go through the steps in order; repeat each one, say whether it is right, and why. Then "
        "judge the final answer. Keep exactly to this layout:\n\n"
        "Step sentence: <the step, on one line>\n"
        "Correctness of the step: [Correct/Wrong]\n"
        "Explanation: <your reason; for a wrong step, the corrected step>\n"
        "(an empty line, then the next step in the same way)\n\n"
        "Correctness of the final answer: [Correct/Wrong]\n"
        "Explanation: <your reason>\n\n"
        "Question: {question}\n\nSolution:\n{answer}"
    ),
    critique_again="The solution was rewritten after your critique. Judge the new one in the same layout.\n\n"
    "Solution:\n{answer}",
    refine=(
        "Here is a critique of your solution, step by step. Read it with care for the verdict on each step, do what "
        "it asks, and write the whole solution anew. Close with one line of the form: "
        "The answer is [your answer].\n\n{critique}"
    ),
    solve_prefill="Let me work through this one step at a time.\n\n",
    refine_prefill="Let me work through this again, following the critique at every step.\n\n",
    critique_marker="Step sentence:",
)

SHORT = Prompts(
    solve="{question}\n\nReply with the answer only.",
    critique=(
        "Question: {question}\nAnswer: {answer}\n\n"
        "Reply with one line only, which is either\nVerdict: Right\nor\nVerdict: Wrong"
    ),
    critique_again="Another answer: {answer}\n\nJudge it in the same way.",
    refine="{critique}\n\nAnswer the question again. Reply with the answer only.",
    solve_prefill="The answer is",
    refine_prefill="The answer is",
    verdict_line="Verdict",
    right="Right",
)

STEPS = Prompts(
    solve="{question}\n\nWork it out in short lines, one step a line. Then write: The answer is",
    critique=(
        "Question: {question}\nSolution:\n{answer}\n\n"
        "Copy each line of the solution and write behind it whether it is Right or Wrong. The last line is either\n"
        "Verdict: Right\nor\nVerdict: Wrong"
    ),
    critique_again="Another solution:\n{answer}\n\nJudge it in the same way.",
    refine="{critique}\n\nWork the question out again, in short lines. Then write: The answer is",
    verdict_line="Verdict",
    right="Right",
    step_comment="{step}: {label}. {reason}",
)

ACTING = Prompts(
    solve="{question}",
    critique="{question}\n\n{answer}",
    critique_again="{answer}",
    refine="{critique}",
    verdict_line="Success",
    right="right",
    wrong="missing",
)

ACTING_ENGLISH = Prompts(
    solve="{question}",
    critique=(
        "An agent acts in a world of text. You read what it was told at first, and then its actions, one by one, each "
        "with what the world answered; the last one may still wait for its answer. Say which action was the first "
        "mistake, if there is one, and write in a few lines what to do, from the beginning, in the words that the "
        "world understands. Close with one line, which is either\nSuccess: Yes\nor\nSuccess: No\nand says whether "
        "the goal was reached, or where the last action has no answer yet, whether it is the right one.\n\n"
        "What it was told:\n{question}\n\nWhat it did:\n{answer}"
    ),
    critique_again="What it did then:\n{answer}",
    refine="This was tried before. A critique of that attempt:\n{critique}",
    verdict_line="Success",
    right="Yes",
    wrong="No",
)

PROMPTS: Registry[Prompts] = Registry("prompts")
"""The prompts that the setting `prompts` takes by name."""
PROMPTS.add("chains", CHAINS, says="Terse: every piece is a token of the tiny world's tokenizer.")
PROMPTS.add("english", ENGLISH, says="For models that read English: step by step, with a verdict on each step.")
PROMPTS.add("short", SHORT, says="For models of less than a billion weights: few words, no steps.")
PROMPTS.add("steps", STEPS, says="For models of less than a billion weights: short steps, each with a word on it.")
PROMPTS.add("acting", ACTING, says="Of agents, terse: every word is a token of the tiny agents' tokenizer.")
PROMPTS.add("acting_english", ACTING_ENGLISH, says="Of agents, for critics that read English.")


def prompts(name: str, *, says: str = "") -> Callable[[Callable[[], Prompts]], Callable[[], Prompts]]:
    """Registers a user's prompts, for `prompts: NAME` in a config:

        @prompts("terse")
        def terse() -> Prompts:
            return replace(ENGLISH, solve="{question}")

    Args:
        says: a line about them. Empty: the docstring's first one.
    Raises: ConfigError where the function gives none.
    """

    def register(make: Callable[[], Prompts]) -> Callable[[], Prompts]:
        made = make()
        if not isinstance(made, Prompts):
            raise ConfigError(f"the prompts {name!r} are {str(made)[:60]!r}: return a whet.tasks.prompts.Prompts")
        PROMPTS.add(name, made, says=says or (make.__doc__ or "").strip().partition("\n")[0])
        return make

    return register


def find_prompts(name: str) -> Prompts:
    """Registered prompts by name, or those of a YAML file by its path (which ends in .yaml or .yml, or has a slash).

    Raises: UnknownName, ConfigError.
    """
    return read_prompts(name) if is_path(name) else PROMPTS.get(name)


def is_path(name: str) -> bool:
    return name.endswith((".yaml", ".yml")) or "/" in name or "\\" in name


def read_prompts(path: str | Path) -> Prompts:
    """A YAML file whose keys are the fields of `Prompts`. With `extends: NAME` the rest is that of registered ones.

    Raises: ConfigError with the file's name: it cannot be read, is no mapping, has an unknown key or lacks one, or
        a value does not fit.
    """
    mapping = read_file(Path(path), "prompts file")
    try:
        return _of_mapping(mapping)
    except (ConfigError, UnknownName) as error:
        raise ConfigError(f"the prompts file {path}: {error}") from error


def _of_mapping(mapping: Mapping[str, Any]) -> Prompts:
    names = _names()
    texts = {name: value for name, value in mapping.items() if name != "extends"}
    for name in texts:
        if name not in names:
            near = near_names(str(name), [*names, "extends"])
            advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)} and extends"
            raise ConfigError(f"unknown key {name}: {advice}")
    if "extends" in mapping:
        if not isinstance(mapping["extends"], str):
            raise ConfigError("extends must be the name of registered prompts, such as english")
        return replace(PROMPTS.get(mapping["extends"]), **texts)
    missing = [field.name for field in fields(Prompts) if field.default is MISSING and field.name not in texts]
    if missing:
        raise ConfigError(f"it lacks {', '.join(missing)}: add them, or take them over with `extends: english`")
    return Prompts(**texts)


def prompts_problem(name: str, data: ChainData | FileData | GymData | BasicsData | EnvironmentData) -> str | None:
    """Why these prompts do not fit the data, in a sentence. None: they fit.

    Only `chains` has a limit: its words stand for chains of operations, generated or from a file.
    """
    if isinstance(data, EnvironmentData):  # environments have words of their own
        return None
    is_tiny = data.kind == "chains" or (isinstance(data, FileData) and data.grader == "chains")
    if name != "chains" or is_tiny:
        return None
    return (
        f"prompts = 'chains' does not fit data.kind = {data.kind!r}: they are the tiny world's, whose problems have "
        "data.kind = chains or, in a file of your own, data.grader = chains; other data are put to the model in "
        "'english' (prompts=english), or in prompts of yours; to use the words of 'chains' all the same, give "
        "prompts=FILE.yaml, a file that holds the line `extends: chains`"
    )
