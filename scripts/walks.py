"""Follows one value through whet: which functions it enters, in order, file by file.

    python scripts/walks.py                 # the four values of docs/design.md
    python scripts/walks.py logprob reward  # those with these names

A walk marks one value that nothing else equals: the log-probability of a sampled token, an environment's reward, a
setting. It runs a short training and looks at what goes into and comes out of every
function of whet. A file is listed where
the value first enters it, with the function. The fourth walk is the stack below a user's loss.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "whet"
DEPTH, MOST_PARTS, NEAR = 4, 256, 1e-7
"""Containers in containers that are searched, parts of each that are, and how near to the mark a number has to be."""
REWARD, LOW = 0.4142136, 0.7812345
"""A reward and a bound that nothing else equals."""
SHORT = {
    "num_threads": 1,
    "checkpoint_every": 0,
    "validate_every": 100,
    "num_steps": 2,
    "prompts_per_step": 4,
    "group_size": 4,
}
SHORT_DATA = {"data": {"num_train": 16, "num_validation": 1, "num_test": 1}, "evaluation": {"num_samples": 0}}
LOSS = '''
import whet
from whet.objectives import clipped_policy_loss


@whet.loss("walked")
def walked(policy_logprobs, old_logprobs, advantages, loss_mask, token_weight):
    """The clipped surrogate, under a name of one's own."""
    from walks import Stack
    Stack.seen()
    return clipped_policy_loss(policy_logprobs, old_logprobs, advantages, loss_mask, token_weight, low=0.8, high=1.2)
'''


def holds(thing: Any, mark: float, depth: int = DEPTH) -> bool:
    """Whether a value, or what it consists of, is the marked number, to the precision of float32."""
    if isinstance(thing, float):
        return abs(thing - mark) < NEAR
    if depth == 0 or thing is None or isinstance(thing, str | bytes | int | type):
        return False
    if "float" in str(getattr(thing, "dtype", "")) and hasattr(thing, "shape"):  # a tensor or an array
        return bool((abs(thing - mark) < NEAR).any())
    if isinstance(thing, dict):
        parts: Sequence[Any] = list(thing.values())
    elif isinstance(thing, list | tuple):
        parts = thing
    elif is_dataclass(thing):
        parts = [getattr(thing, field.name, None) for field in fields(thing)]
    elif hasattr(thing, "model_fields_set"):  # settings
        parts = list(vars(thing).values())
    else:
        return False
    return any(holds(part, mark, depth - 1) for part in parts[:MOST_PARTS])


class Walk:
    """Listens to every call, and notes the files that the marked value enters. Use as a profiler of each thread."""

    def __init__(self, step: int) -> None:
        self.step = step
        """The training step that it listens to; to all before the first step, too, if it is the first."""
        self.is_on = step == 1
        self.marks: list[float] = []
        """The value, and what it becomes: a reward is an advantage later."""
        self.visits: dict[Path, str] = {}
        """By file, the function by which the value came in."""
        self._is_ours: dict[str, bool] = {}

    def __call__(self, frame: FrameType, event: str, result: object) -> None:
        if not self.is_on or not self.marks or event not in ("call", "return"):
            return
        name = frame.f_code.co_filename
        if name not in self._is_ours:
            self._is_ours[name] = name.startswith(str(SOURCE))
        if not self._is_ours[name] or (file := Path(name)) in self.visits:
            return
        names = frame.f_code.co_varnames[: frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount]
        arguments = [value for argument, value in frame.f_locals.items() if argument in names]
        seen = [result] if event == "return" else arguments
        if any(holds(value, mark) for value in seen for mark in self.marks):
            self.visits[file] = frame.f_code.co_qualname

    @contextmanager
    def listening(self) -> Iterator[None]:
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def lines(self) -> list[str]:
        return [f"{file.relative_to(SOURCE)}  {function}" for file, function in self.visits.items()]


def trained(name: str, walk: Walk | None = None, **settings: Any) -> None:
    """A short run of two steps.

    Args:
        walk: listens to one step. None: nobody does.
    """
    import whet

    def progress(phase: str, step: int, num_steps: int, metrics: Mapping[str, float | None]) -> None:
        if walk is not None and num_steps == SHORT["num_steps"]:  # not the tests before and after
            walk.is_on = step + 1 == walk.step

    with tempfile.TemporaryDirectory() as folder:
        whet.train(name, out=Path(folder) / "run", progress=progress, **{**SHORT, **settings})


@contextmanager
def wrapped(owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Another function in place of one, made of it."""
    function = getattr(owner, name)
    setattr(owner, name, wrap(function))
    try:
        yield
    finally:
        setattr(owner, name, function)


def logprob() -> list[str]:
    """A token's log-probability, from the sampler to the loss (`grpo`)."""
    from whet.engines import running

    walk = Walk(step=2)

    def watched(sample: Callable[..., Any]) -> Callable[..., Any]:
        def sampled(*arguments: Any) -> Any:
            tokens, logprobs = sample(*arguments)
            if walk.is_on and not walk.marks:
                walk.marks = [float(value) for value in logprobs if -3 < float(value) < -0.01]
            return tokens, logprobs

        return sampled

    with walk.listening(), wrapped(running, "sample", watched):
        trained("grpo", walk, **SHORT_DATA)
    return walk.lines()


def reward() -> list[str]:
    """An agent's reward, from its environment to the loss (`agent_grpo`): from an advantage on, that is the value."""
    from whet.credit import advantages
    from whet.envs.textcraft.environment import TextCraft

    walk = Walk(step=2)
    walk.marks, rewarded = [REWARD], list[bool]()

    def rewarding_once(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(self: Any, action: str) -> Any:
            observation, _, *rest = step(self, action)
            is_first, rewarded[:] = walk.is_on and not rewarded, [True] if walk.is_on else []
            return observation, REWARD if is_first else 0.0, *rest

        return stepped

    def marking(group_advantages: Callable[..., Any]) -> Callable[..., Any]:
        def marked(rewards: Any, **settings: Any) -> Any:
            result = group_advantages(rewards, **settings)
            walk.marks += [float(value) for value in result[abs(rewards - REWARD) < NEAR]]
            return result

        return marked

    settings = {
        "policy": {"path": "tiny_agent"},
        "data": {"env": "textcraft", "num_train": 8, "num_validation": 1, "num_test": 1},
        "evaluation": {"max_turns": 2},
        "max_turns": 2,
        "schedule": {},
    }
    with walk.listening(), wrapped(TextCraft, "step", rewarding_once), wrapped(advantages, "group_advantages", marking):
        trained("agent_grpo", walk, **settings)
    return walk.lines()


def setting() -> list[str]:
    """A setting, from Python or the command line to the loss (`grpo loss.bounds.low=...`)."""
    walk = Walk(step=1)
    walk.marks = [LOW]
    with walk.listening():
        trained("grpo", walk, loss={"bounds": {"low": LOW}}, learning={"num_epochs": 2}, **SHORT_DATA)
    return walk.lines()


class Stack:
    """Where a user's loss is called from."""

    files: ClassVar[dict[Path, str]] = {}

    @classmethod
    def seen(cls) -> None:
        frame: FrameType | None = sys._getframe(2)
        stack: list[tuple[Path, str]] = []
        while frame is not None:
            if frame.f_code.co_filename.startswith(str(SOURCE)):
                stack.append((Path(frame.f_code.co_filename), frame.f_code.co_qualname))
            frame = frame.f_back
        if any(function.startswith("Learner.") for _, function in stack):  # not where it is tried, when it is loaded
            cls.files = cls.files or dict(reversed(stack))


def loss() -> list[str]:
    """A user's loss: the files on the stack where it is called (grpo with `@whet.loss`)."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "mine.py"
        place.write_text(LOSS)
        trained("grpo", plugins=[str(place)], loss={"kind": "walked"}, **SHORT_DATA)
    return [f"{file.relative_to(SOURCE)}  {function}" for file, function in Stack.files.items()]


WALKS: Mapping[str, Callable[[], Sequence[str]]] = {
    "logprob": logprob, "reward": reward, "setting": setting, "loss": loss,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walks", nargs="*", metavar="WALK", help=", ".join(WALKS))
    chosen = parser.parse_args().walks or list(WALKS)
    if unknown := [name for name in chosen if name not in WALKS]:
        sys.exit(f"there is no walk {unknown[0]}: there are {', '.join(WALKS)}")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for name in chosen:
        lines = WALKS[name]()
        print(
            f"{name}: {WALKS[name].__doc__}", *(f"  {number}. {line}" for number, line in enumerate(lines, 1)), sep="\n"
        )


if __name__ == "__main__":
    sys.modules["walks"] = sys.modules["__main__"]
    main()
