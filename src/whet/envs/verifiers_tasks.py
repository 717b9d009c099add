"""An adapter for `@env` of verifiers' tasksets: each task is an item, a reply an action, its rewards the reward.

verifiers pins other versions of packages that whet needs, so it stays in a Python of its own. A program there
(`verifiers_worker`) loads the taskset and scores replies, for all environments of a process.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

from whet.envs.protocol import INVALID, EnvError, Info, Observed, Stepped
from whet.types import as_reward, in_brief, is_whole

WORKER = Path(__file__).with_name("verifiers_worker.py")


def from_verifiers(
    taskset: str,
    *,
    python: str | Path,
    size: int | None = None,
    test_size: int | None = None,
    settings: Mapping[str, Any] | None = None,
    env: Mapping[str, Any] | None = None,
    agent: str = "",
    timeout_s: float = 120.0,
) -> VerifiersTasks:
    """A taskset of verifiers 0.4 as an environment, for `@env`:

        theirs = from_verifiers("my-env", python="/envs/verifiers/bin/python", test_size=50)
        whet.env("theirs", splits=theirs.splits, max_turns=1, parser="plain")(theirs)

    The task's prompt is the first observation and the reply is the action. The reward is the weighted sum of the task's
    rewards; give `rewards=` of `whet.env` where it leaves [0, 1]. Where the taskset's package has an Env of its own, or
    `env` names one, it plays: what it says to the agent are the observations, and the reward comes at the end. Tasks
    that need tools, a container or the runtime are refused.

    Args:
        taskset: its id, a package that is installed there.
        python: of an environment with verifiers and the taskset's package.
        size: items of `train`; they come first. None: all that `test` leaves.
        test_size: items of `test`. None: a fifth of all, at least one.
        settings: of the taskset's config.
        env: settings of the Env's config, such as {"id": "user-sim", "user": {"model": ..., "client": ...}}.
        agent: the Env's agent that is played. Empty: the only one. The others need models of their own.
        timeout_s: seconds until tasks are loaded, or a reply is answered.
    """
    loading = {"taskset": taskset, "settings": dict(settings or {}), "env": dict(env or {}), "agent": agent}
    return VerifiersTasks(loading, str(python), size, test_size, timeout_s)


class VerifiersTasks:
    """The tasks of one taskset. A call makes an environment that gives one at a time."""

    def __init__(
        self, loading: Mapping[str, Any], python: str, size: int | None, test_size: int | None, timeout_s: float
    ) -> None:
        taskset = str(loading["taskset"])
        for name, number in (("size", size), ("test_size", test_size)):
            if number is not None and number < 1:
                raise ValueError(f"{taskset} has {name}={number}: each split needs an item")
        self._taskset, self._python, self._loading, self._timeout_s = taskset, python, dict(loading), timeout_s
        self._size, self._test_size = size, test_size
        self._lock = threading.RLock()  # environments run in threads
        self._num_envs = 0
        self._worker: _Worker | None = None

    def splits(self) -> Mapping[str, range]:
        """The first use starts the program, which takes seconds.

        Raises: EnvError.
        """
        number = self._loaded.number
        num_test = self._test_size if self._test_size is not None else max(1, number // 5)
        num_train = self._size if self._size is not None else number - num_test
        if num_train < 1 or num_train + num_test > number:
            raise EnvError(
                f"{self._taskset} has {number} tasks, too few for size={num_train} and test_size={num_test}: lower them"
            )
        return {"train": range(num_train), "test": range(num_train, num_train + num_test)}

    def __call__(self) -> VerifiersTask:
        """An environment over these tasks."""
        with self._lock:
            self._num_envs += 1
        return VerifiersTask(self)

    def begin(self, episode: str, item: int) -> str:
        """The first observation. `episode` names the episode from here on.

        Raises: EnvError.
        """
        if (prompts := self._loaded.prompts) is not None:
            return prompts[item]
        with self._lock:
            answer = self._ask({"begin": episode, "index": item})
        return self._observation(answer)

    def act(self, episode: str, item: int, action: str) -> tuple[str, float, bool, bool]:
        """What follows an action: text, reward, terminated, truncated.

        Raises: EnvError where it could not be answered or scored: a failure is no reward.
        """
        over_turns = self._loaded.prompts is None
        with self._lock:
            answer = self._ask(
                {"episode": episode, "action": action} if over_turns else {"index": item, "reply": action}
            )
        if over_turns and "observation" in answer:
            return self._observation(answer), 0.0, False, False
        given = answer.get("reward")
        reward = as_reward(given)
        if reward is None or isinstance(given, bool):
            raise EnvError(f"a reply to {self._taskset} got {in_brief(answer)} for a reward")
        is_cut = answer.get("truncated") is True
        return f"The {'episode' if over_turns else 'reply'} scores {reward:g}.", reward, not is_cut, is_cut

    def leave(self, episode: str) -> None:
        """Ends an episode of several turns that nobody goes on with."""
        with self._lock:
            if self._worker is not None and self._worker.prompts is None and self._worker.is_alive:
                self._ask({"leave": episode})

    def _observation(self, answer: Mapping[str, Any]) -> str:
        text = answer.get("observation")
        if not isinstance(text, str) or not is_whole(text):
            raise EnvError(f"an episode of {self._taskset} answers {in_brief(answer)}, and no whole text")
        return text

    def close_one(self) -> None:
        """The program ends with the last environment."""
        with self._lock:
            self._num_envs -= 1
            if self._num_envs == 0 and self._worker is not None:
                self._worker.close()
                self._worker = None

    @cached_property
    def _loaded(self) -> _Loaded:
        with self._lock:
            worker = self._started()
            return _Loaded(worker.number, worker.prompts)

    def _started(self) -> _Worker:
        if self._worker is None:
            most = None if self._size is None or self._test_size is None else self._size + self._test_size
            self._worker = _Worker(self._python, {**self._loading, "most": most}, self._timeout_s)
        return self._worker

    def _ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        worker = self._started()
        try:
            return worker.ask(request)
        except EnvError:
            if not worker.is_alive:  # the next one begins anew
                self._worker = None
            raise


class VerifiersTask:
    """An environment: a task of a taskset at a time."""

    def __init__(self, tasks: VerifiersTasks) -> None:
        self._tasks: VerifiersTasks | None = tasks
        self._item, self._episode = 0, ""
        """The episode's name. Empty: none is under way."""

    def reset(self, item: int, *, seed: int = 0) -> Observed:
        assert self._tasks is not None, "it was closed"
        self._leave()
        self._item, self._episode = item, token_hex(8)
        return self._tasks.begin(self._episode, item), {}

    def step(self, action: str) -> Stepped:
        assert self._tasks is not None, "it was closed"
        text, reward, terminated, truncated = self._tasks.act(self._episode, self._item, action)
        info: Info = {INVALID: True} if not action.strip() else {}
        return text, reward, terminated, truncated, info

    def close(self) -> None:
        if self._tasks is not None:
            self._leave()
            self._tasks.close_one()
            self._tasks = None

    def _leave(self) -> None:
        if self._episode and self._tasks is not None:
            self._tasks.leave(self._episode)
            self._episode = ""


@dataclass(frozen=True, slots=True)
class _Loaded:
    number: int
    """Of tasks."""
    prompts: list[str] | None
    """None: an episode has several turns, and its first one says the prompt."""


class _Worker:
    """The running program."""

    def __init__(self, python: str, loading: Mapping[str, Any], timeout_s: float) -> None:
        taskset = str(loading["taskset"])
        self._taskset, self._timeout_s = taskset, timeout_s
        try:
            self._process = subprocess.Popen(
                [python, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                text=True, encoding="utf-8",
            )  # fmt: skip
        except OSError as error:
            raise EnvError(
                f"from_verifiers({taskset!r}): {python} does not start ({error.strerror}): name the Python of an "
                "environment with verifiers"
            ) from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        try:
            answer = self.ask(loading)
            prompts, number = answer.get("prompts"), answer.get("number")
            self.prompts: list[str] | None = None
            if isinstance(prompts, list) and all(isinstance(each, str) and is_whole(each) for each in prompts):
                self.prompts, number = [str(each) for each in prompts], len(prompts)
            elif prompts is not None or not isinstance(number, int):
                raise EnvError(f"from_verifiers({taskset!r}): its prompts are no whole texts")
            self.number: int = number
        except EnvError:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raises: EnvError where there is no answer in time, or it is an error."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=self._timeout_s)
            answer = json.loads(line) if line else None
        except queue.Empty:
            self.close()
            raise EnvError(f"{self._taskset} has not answered within {self._timeout_s:g} s: raise timeout_s") from None
        except (OSError, ValueError):
            answer = None
        if not isinstance(answer, dict):
            self.close()
            raise EnvError(
                f"the program that scores {self._taskset} has ended: see whether its Python has verifiers 0.4 and the "
                "taskset's package"
            )
        if "error" in answer:
            raise EnvError(f"from_verifiers({self._taskset!r}): {str(answer['error'])[:1000]}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self._lines.put(line)
        self._lines.put("")  # it has ended
