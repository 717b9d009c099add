"""Loads a verifiers taskset, and scores replies to its tasks or plays them over turns. `verifiers_tasks` runs this file
as a program.

It runs in the Python that has verifiers, where whet is not: it imports nothing of whet. Requests and answers are lines
of JSON. What a taskset prints goes to standard error.
"""

import asyncio
import inspect
import json
import os
import sys
from typing import Any


def main() -> None:
    wire = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tasks: list[Any] = []
    turns: Any = None
    answer: dict[str, Any]
    for line in sys.stdin:
        request = json.loads(line)
        try:
            match request:
                case {"reply": reply, "index": index}:
                    answer = {"reward": asyncio.run(_score(tasks[index], reply))}
                case {"begin": episode, "index": index}:
                    answer = turns.begin(episode, index)
                case {"episode": episode, "action": action}:
                    answer = turns.act(episode, action)
                case {"leave": episode}:
                    turns.leave(episode)
                    answer = {}
                case _:
                    turns = _turns(request)
                    tasks = _loaded(request["taskset"], request["settings"], request["most"])
                    if turns is not None:
                        turns.take(tasks)
                        answer = {"number": len(tasks)}
                    else:
                        answer = {"prompts": [_prompt(task) for task in tasks]}
        except Exception as error:  # of the taskset's code: it is the answer, and the program goes on
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=wire, flush=True)


def _turns(request: dict[str, Any]) -> Any:
    """The Env that plays the taskset over turns. None: one reply is an episode.

    Raises: ValueError where it cannot be played.
    """
    from verifiers.v1.utils import loaders

    name, settings = request["taskset"], request["env"]
    if not settings and not request["agent"] and loaders.environment_class(name) is loaders.SingleAgentEnv:
        return None
    from verifiers_turns import Turns  # type: ignore[import-not-found]  # beside this file

    return Turns({**request["settings"], "id": name}, settings, request["agent"])


def _loaded(name: str, settings: dict[str, Any], most: int | None) -> list[Any]:
    """The tasks of a taskset in its order.

    Raises: ValueError where they need what whet has not.
    """
    import verifiers.v1 as vf
    from verifiers.v1.utils import generic, loaders

    kind = loaders.taskset_class(name)
    config_kind = generic.concrete_type(kind, vf.TasksetConfig) or vf.TasksetConfig
    taskset = kind(config_kind.model_validate({**settings, "id": name}))
    if most is None and not taskset.bounded:
        raise ValueError("it has no end: give size and test_size")
    tasks = list(taskset if most is None else taskset.take(most))
    for task in tasks:
        _check(task, taskset)
    return tasks


def _check(task: Any, taskset: Any) -> None:
    rewards = task.hooks("reward")
    if not rewards and not task.config.judges:
        raise ValueError("a task has no reward function")
    if task.NEEDS_CONTAINER or type(task).toolsets(task.config) or type(taskset).toolsets(taskset.config):
        raise ValueError("its tasks need a container or tool servers, which an environment of whet has not")
    for reward in rewards:
        runtime = inspect.signature(reward).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            raise ValueError(f"its reward {reward.__name__} reads the runtime, which an environment of whet has not")


def _prompt(task: Any) -> str:
    if not task.data.prompt_text:
        raise ValueError("a task has no prompt")
    return "\n\n".join(filter(None, (task.data.system_prompt, task.data.prompt_text)))


async def _score(task: Any, reply: str) -> float:
    """The weighted sum of the task's rewards for a reply."""
    import verifiers.v1 as vf
    from verifiers.v1.graph import MessageNode
    from verifiers.v1.trace import AgentInfo, TraceTask

    told = [vf.UserMessage(content=task.data.prompt)] if isinstance(task.data.prompt, str) else [*task.data.prompt]
    nodes = [MessageNode(message=message, parent=n - 1 if n else None) for n, message in enumerate(told)]
    said = vf.AssistantMessage(content=reply)
    nodes.append(MessageNode(message=said, parent=len(nodes) - 1, sampled=True))
    trace = vf.Trace(
        task=TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=AgentInfo(config=vf.AgentConfig()),
        nodes=nodes,
    )
    await task.score(trace)
    missing = [name for name, reward in trace.rewards.items() if reward is None]
    if missing or not trace.rewards:
        raise ValueError(f"the reward {', '.join(missing) or 'function'} gave nothing")
    return float(trace.reward)


if __name__ == "__main__":
    main()
