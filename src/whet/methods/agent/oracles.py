"""Critics of attempts by rule: what a perfect, a silent and a misleading critique do to an agent. They know how the
attempt came out, and what the environment's scripted expert would have done with the same seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import fsum
from random import Random
from typing import Any, Literal, TypeVar

from whet.envs.protocol import EnvError, Environment, EnvironmentInfo
from whet.envs.retries import Attempts, Call, Late
from whet.errors import text_of
from whet.methods.agent.critique_rollout import AttemptCritic
from whet.methods.agent.review import ActionCritic
from whet.methods.agent.scripted import scripted_episode
from whet.rollout.agent import ITEM
from whet.rollout.services import Fault
from whet.seeds import seed_of
from whet.tasks.prompts import Prompts
from whet.types import Failure, FaultKind, Segment, Task

T = TypeVar("T")
MOST = 64
"""Actions that an expert is followed for."""
RuleCritic = Literal["oracle", "judge", "empty", "false"]
RULE_CRITICS: dict[RuleCritic, str] = {
    "oracle": "judges without mistakes; where the attempt failed it says what the expert would do",
    "judge": "judges without mistakes and says no more",
    "empty": "says nothing, so the agent just tries again",
    "false": "turns the verdict over, and says what the expert would do for another item",
}


class Experts:
    """What the scripted experts do from the beginning of an item.

    Args:
        infos: the environments, by name; each has an expert.
        settings: of the environments.
        limit: actions that a plan lists at most, where the expert has no words for it.
        retries: how often a failed question is asked again, in a fresh environment.
        timeout_s: of one call of an environment. None: no limit.
    Raises: EnvError where one has no expert.
    """

    def __init__(
        self,
        infos: Mapping[str, EnvironmentInfo],
        settings: Mapping[str, Mapping[str, Any]],
        limit: int,
        *,
        retries: int = 0,
        timeout_s: float | None = None,
    ) -> None:
        for info in infos.values():
            if info.expert is None:
                raise EnvError(
                    f"{info.name} has no scripted expert, so nobody can write critiques of its attempts by "
                    "rule: take another environment, or a critic that is a model"
                )
        self.infos, self.limit = infos, limit
        self._envs = {
            name: Attempts(partial(info.make, **settings.get(name, {})), retries=retries, timeout_s=timeout_s)
            for name, info in infos.items()
        }
        self._plans: dict[tuple[str, int], tuple[str, ...]] = {}

    def plan(self, task: Task, seed: int) -> tuple[str, ...]:
        """Lines: the expert's plan in its own words, or where it has none, its first actions.

        Args:
            seed: of the environment.
        Raises: Fault where the environment breaks.
        """
        if (task.id, seed) not in self._plans:
            self._plans[task.id, seed] = self._ask(task, partial(self._make_plan, self._info(task), task, seed))
        return self._plans[task.id, seed]

    def _ask(self, task: Task, question: Callable[[Environment, Call], T]) -> T:
        """Asks the question in an environment kept for that.

        Raises: Fault where the environment breaks, or does not answer in time.
        """
        info = self._info(task)
        try:
            return self._envs[info.name].run(question)
        except Exception as error:  # an environment's, in the place of its service
            said = text_of(error) or type(error).__name__
            reason = f"the expert of {info.name} failed at item {task.info[ITEM]}: {said}"
            kind: FaultKind = "timeout" if isinstance(error, Late) else "env_error"
            raise Fault(Failure(kind=kind, reason=reason)) from error

    def judged(self, task: Task, seed: int, done: Sequence[str], action: str) -> tuple[bool, str]:
        """Whether an action brings the goal nearer, by the number of actions that the expert would still take; and
        what the expert would do instead.

        Args:
            done: the actions before it.
        Raises: Fault where the environment breaks.
        """
        info = self._info(task)

        def question(env: Environment, call: Call) -> tuple[bool, str]:
            call(env.reset, task.info[ITEM], seed=seed)
            rewards = [call(env.step, taken)[1] for taken in done]
            now, after = call(env.fork), call(env.fork)
            expected = _rest(info, now, seed, call)
            stepped = call(after.step, action)
            better = next(iter(expected), "")
            if stepped[2] or stepped[3]:
                return info.is_success(fsum([*rewards, stepped[1]])), better
            return len(_rest(info, after, seed, call)) < len(expected), better

        return self._ask(task, question)

    def _make_plan(self, info: EnvironmentInfo, task: Task, seed: int, env: Environment, call: Call) -> tuple[str, ...]:
        if info.plan is not None:
            call(env.reset, task.info[ITEM], seed=seed)
            return (call(info.plan, env),)
        episode = scripted_episode("expert", info, env, task, seed=seed, max_turns=self.limit, call=call)
        actions = [segment.parsed["action"] for segment in episode.segments if "action" in segment.parsed]
        return tuple(actions[: self.limit])

    def other_plan(self, task: Task, seed: int) -> tuple[str, ...]:
        """The plan of another training item of the environment."""
        info = self._info(task)
        items = [item for item in info.splits()["train"] if item != task.info[ITEM]]
        item = Random(seed_of("false critique", task.id)).choice(items)
        other = Task(id=f"{info.name}_{item}", prompt="", info={**task.info, ITEM: item})
        return self.plan(other, seed)

    def close(self) -> None:
        for env in self._envs.values():
            env.close()

    def _info(self, task: Task) -> EnvironmentInfo:
        return self.infos[str(task.info["environment"])]


def _rest(info: EnvironmentInfo, env: Environment, seed: int, call: Call) -> list[str]:
    """The expert's actions from here on, `MOST` of them at most."""
    assert info.expert is not None
    actions: list[str] = []
    moves = iter(info.expert(env, seed=seed))
    while len(actions) < MOST and (move := call(next, moves, None)) is not None:
        stepped = call(env.step, move[1])
        actions.append(move[1])
        if stepped[2] or stepped[3]:
            break
    return actions


def critique_text(prompts: Prompts, *, right: bool, plan: Sequence[str] = ()) -> str:
    """What to do, and then the verdict on what was done."""
    return "\n".join([*plan, prompts.closing(right=right)])


def rule_critic(name: RuleCritic, experts: Experts, prompts: Prompts) -> AttemptCritic:
    """The critic of that name."""
    critics: dict[RuleCritic, Callable[..., str]] = {"oracle": _oracle, "judge": _judge, "false": _false}
    return partial(critics[name], experts, prompts) if name in critics else lambda task, attempt, seed: ""


def _oracle(experts: Experts, prompts: Prompts, task: Task, attempt: Sequence[Segment], seed: int) -> str:
    right = succeeded(attempt)
    return critique_text(prompts, right=right, plan=() if right else experts.plan(task, seed))


def _judge(experts: Experts, prompts: Prompts, task: Task, attempt: Sequence[Segment], seed: int) -> str:
    return critique_text(prompts, right=succeeded(attempt))


def _false(experts: Experts, prompts: Prompts, task: Task, attempt: Sequence[Segment], seed: int) -> str:
    return critique_text(prompts, right=not succeeded(attempt), plan=experts.other_plan(task, seed))


def action_critic(name: RuleCritic, experts: Experts, prompts: Prompts) -> ActionCritic:
    """The critic of single actions of that name; `false` turns the verdict over, and proposes the action again."""

    def review(task: Task, segments: Sequence[Segment], action: str, seed: int) -> str:
        if name == "empty":
            return ""
        done = [segment.parsed["action"] for segment in segments if segment.parsed.get("action")]
        right, better = experts.judged(task, seed, done, action)
        if name == "false":
            return critique_text(prompts, right=not right, plan=[action] if right else ())
        return critique_text(prompts, right=right, plan=[better] if name == "oracle" and not right else ())

    return review


def succeeded(attempt: Sequence[Segment]) -> bool:
    """Whether a graded attempt was a success."""
    grade = attempt[-1].grade
    return grade is not None and grade.score == 1.0
