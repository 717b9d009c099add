"""Adapters for `@env` of others' environments: gymnasium's with texts, and reasoning-gym's questions.

Nothing is registered by itself: `whet.env(name, splits=...)(from_gymnasium(...))` does that, in a plug-in.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal, Self

from whet.distribution import how_to_install
from whet.envs.protocol import ACTIONS, INVALID, EnvError, Info, Observed, Stepped
from whet.grading import GymGrader
from whet.sandbox.workers import WorkerError
from whet.seeds import seed_of
from whet.tasks.chains import ANSWER_LINE, Split
from whet.tasks.gym import make_tasks
from whet.tasks.row_formats import DataError
from whet.types import Task

ReadAction = Callable[[str], Any]
"""Reads an action's text. Raises: ValueError where it means nothing."""


def from_gymnasium(
    make: Callable[..., Any],
    *,
    items: Sequence[Mapping[str, Any]] | Callable[[int], Mapping[str, Any]] | None = None,
    actions: Mapping[str, Any] | ReadAction | None = None,
    text: Callable[[Any], str] | Literal["render"] = str,
    copies: bool = False,
) -> Callable[[], GymnasiumEnvironment]:
    """A gymnasium environment with texts, for `@env`:

        lake = from_gymnasium(
            lambda: gymnasium.make("FrozenLake-v1", render_mode="ansi"),
            actions={"left": 0, "down": 1, "right": 2, "up": 3},
            text="render",
        )
        whet.env("lake", splits={"train": range(80), "test": range(80, 100)}, rules="...")(lake)

    It is reset with `seed=`, one for each pair of item and seed, so that its own chance can be repeated. Its info is
    passed on, with the names of the actions.

    Args:
        make: makes the environment.
        items: keyword arguments of `make` for each item. None: no arguments, so items differ by their seeds alone.
        actions: maps an action's text to an action: a table of names, or a function that raises ValueError where it
            cannot read the text. None: the text itself. Any other text, and an action outside the action space, is
            answered with `invalid` and reward 0. It does not reach the environment.
        text: makes an observation a text. `render`: the environment's `render()` is shown instead.
        copies: a fork is a deep copy. False: the same actions are done again in a new one, which any can do.
    Returns: a maker of environments. It raises EnvError where gymnasium is missing, or the actions do not fit.
    """
    kind = CopiedEnvironment if copies else GymnasiumEnvironment

    def env() -> GymnasiumEnvironment:
        return kind(make, items, actions, text)

    return env


class GymnasiumEnvironment:
    """A gymnasium environment with texts as actions and observations. See `from_gymnasium`."""

    def __init__(
        self,
        make: Callable[..., Any],
        items: Sequence[Mapping[str, Any]] | Callable[[int], Mapping[str, Any]] | None,
        actions: Mapping[str, Any] | ReadAction | None,
        text: Callable[[Any], str] | Literal["render"],
    ) -> None:
        if find_spec("gymnasium") is None:
            raise EnvError(f"this environment needs a package that is not installed: {how_to_install('envs')}")
        self._make, self._items, self._actions, self._text = make, items, actions, text
        self._inner: Any = None if items is not None else self._made()

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        if self._items is not None:
            if not callable(self._items) and not 0 <= item < len(self._items):
                raise EnvError(f"there is no item {item}: `items` has {len(self._items)}, from 0 on")
            settings = self._items(item) if callable(self._items) else self._items[item]
            self.close()
            self._inner = self._made(**settings)
        observation, info = self._inner.reset(seed=seed_of("gymnasium", item, seed) % 2**31)
        return self._says(observation), self._with_names(info)

    def step(self, action: str) -> Stepped:
        meant = self._meant(action)
        if meant is None:
            names = f" Choose of: {', '.join(self._actions)}." if isinstance(self._actions, Mapping) else ""
            return f"There is no such action.{names}", 0.0, False, False, self._with_names({INVALID: True})
        observation, reward, terminated, truncated, info = self._inner.step(meant[0])
        return self._says(observation), float(reward), bool(terminated), bool(truncated), self._with_names(info)

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None if self._items is not None else self._inner

    def _made(self, **settings: Any) -> Any:
        inner = self._make(**settings)
        space = getattr(inner, "action_space", None)
        if self._actions is None and _holds_numbers(space):
            raise EnvError(f"its actions are {space}, no texts: name them, as in actions={{'left': 0, 'right': 1}}")
        if isinstance(self._actions, Mapping):
            for name, action in self._actions.items():
                if not _fits(space, action):
                    raise EnvError(f"the action {name!r} stands for {action!r}, which is not in {space}: mend actions=")
        return inner

    def _meant(self, action: str) -> tuple[Any] | None:
        """The action for the environment, in a tuple. None: the text means no action."""
        meant: Any = action
        if isinstance(self._actions, Mapping):
            if action.strip() not in self._actions:
                return None
            meant = self._actions[action.strip()]
        elif self._actions is not None:
            try:
                meant = self._actions(action)
            except ValueError:
                return None
        return (meant,) if _fits(getattr(self._inner, "action_space", None), meant) else None

    def _says(self, observation: Any) -> str:
        shown = self._inner.render() if self._text == "render" else self._text(observation)
        if isinstance(shown, str):
            return shown
        source = "render()" if self._text == "render" else "text="
        advice = "make it with render_mode='ansi'" if self._text == "render" else "let it return a str"
        raise EnvError(f"{source} gave {type(shown).__name__} where a text is needed: {advice}")

    def _with_names(self, info: Mapping[str, Any]) -> Info:
        names = {ACTIONS: tuple(self._actions)} if isinstance(self._actions, Mapping) else {}
        return {**info, **names}


class CopiedEnvironment(GymnasiumEnvironment):
    """A GymnasiumEnvironment that is forked by a deep copy."""

    def fork(self) -> Self:
        other = copy.copy(self)
        other._inner = copy.deepcopy(self._inner)
        return other


def _holds_numbers(space: Any) -> bool:
    """Whether a space holds no texts, as far as we know: gymnasium's own spaces of numbers."""
    from gymnasium import spaces

    return isinstance(space, spaces.Discrete | spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary)


def _fits(space: Any, action: Any) -> bool:
    return space is None or bool(space.contains(action))


def from_reasoning_gym(
    task_name: str,
    *,
    size: int,
    test_size: int | None = None,
    seed: int = 0,
    params: Mapping[str, Any] | None = None,
    timeout_s: float = 10.0,
) -> Questions:
    """A task of reasoning-gym as an environment of one step, for `@env`.

    The question is the first observation, the answer is the action, and the score is the reward:

        sums = from_reasoning_gym("chain_sum", size=1000)
        whet.env("sums", splits=sums.splits, expert=sums.expert, max_turns=1, rules="...")(sums)

    No question of the test split is one of the train split, under any seed or size; see `tasks.gym`. Answers are scored
    by the generator's scorer in processes of their own, and in the sandbox where it evaluates them; see `grading.gym`.

    Args:
        size: items of `train`; they come first.
        test_size: items of `test`. None: a fifth of `size`, at least one.
        seed: of the questions. Episodes have no chance, so their seeds change nothing.
        params: the generator's settings.
        timeout_s: wall-clock limit of one scoring.
    """
    num_test = max(1, size // 5) if test_size is None else test_size
    return Questions(task_name, params or {}, seed, size, num_test, timeout_s)


class Questions:
    """Questions of one generator. A call makes an environment that asks one at a time."""

    def __init__(
        self, task_name: str, params: Mapping[str, Any], seed: int, size: int, test_size: int, timeout_s: float
    ) -> None:
        if size < 1 or test_size < 1:
            raise ValueError(f"{task_name} has size={size} and test_size={test_size}: each split needs an item")
        self._name, self._params, self._seed = task_name, params, seed
        self._size, self._test_size = size, test_size
        self._timeout_s = timeout_s
        self._num_envs = 0
        self._lock = threading.RLock()  # environments run in threads

    def splits(self) -> Mapping[str, range]:
        return {"train": range(self._size), "test": range(self._size, self._size + self._test_size)}

    def __call__(self) -> Question:
        """An environment over these questions."""
        with self._lock:
            self._num_envs += 1
        return Question(self)

    @staticmethod
    def expert(env: Question, *, seed: int = 0) -> Iterator[tuple[str, str]]:
        """Gives the generator's own answer, where there is a single one."""
        while True:
            yield "", env.task.answer or ""

    @cached_property
    def _tasks(self) -> Sequence[Task]:
        """By item. The first use makes them, which takes seconds."""
        counts: dict[Split, int] = {"train": self._size, "validation": 0, "test": self._test_size}
        try:
            made, _ = make_tasks(self._name, self._params, seed=self._seed, counts=counts)
        except DataError as error:
            raise EnvError(f"from_reasoning_gym({self._name!r}): {error}") from error
        return (*made["train"], *made["test"])

    def task(self, item: int) -> Task:
        """Raises: EnvError where reasoning-gym is missing, or has no such questions."""
        with self._lock:
            return self._tasks[item]

    def score(self, answer: str, task: Task) -> float:
        """One grader scores for all environments; its processes start with the first answer.

        Raises: EnvError where the answer could not be scored.
        """
        with self._lock:
            grader = self._grader
        try:
            (grade,) = grader.grade([(f"{ANSWER_LINE}: {answer}", task)])
        except WorkerError as error:
            raise EnvError(f"answers to {self._name} cannot be scored: {error}") from error
        if grade.score is None:
            raise EnvError(f"an answer to {self._name} could not be scored: {grade.reason}")
        return grade.score

    @cached_property
    def _grader(self) -> GymGrader:
        return GymGrader(timeout_s=self._timeout_s)

    def close_one(self) -> None:
        """Ends the processes with the last environment."""
        with self._lock:
            self._num_envs -= 1
            if self._num_envs == 0 and "_grader" in vars(self):
                self._grader.close()


class Question:
    """An environment of one step."""

    task: Task
    """The question asked last."""

    def __init__(self, questions: Questions) -> None:
        self._questions: Questions | None = questions

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        assert self._questions is not None, "it was closed"
        self.task = self._questions.task(item)
        return self.task.prompt, {}

    def step(self, action: str) -> Stepped:
        assert self._questions is not None, "it was closed"
        score = self._questions.score(action, self.task)
        info: Info = {INVALID: True} if not action.strip() else {}
        return f"The answer scores {score:g}.", score, True, False, info

    def close(self) -> None:
        if self._questions is not None:
            self._questions.close_one()
            self._questions = None
