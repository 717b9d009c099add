"""Plays the tasks of a verifiers Env over turns, for `verifiers_worker`, in the Python that has verifiers.

verifiers runs an episode by itself and asks a model for each reply. Here the model is a server on loopback that hands
each request to whet, as an observation, and waits for whet's action. The name of the model says which episode asks.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any

HARNESS = "whet_turns"
"""The id of the harness, which is the name of its module."""


@dataclass
class Running:
    """An episode that is played."""

    said: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)
    """Observations, and at last the reward or an error."""
    actions: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)
    """None: nobody goes on with it."""
    task: Any = None
    """The coroutine that plays it."""


class Turns:
    """Episodes of one Env, each with one agent that whet plays.

    Args:
        settings: of the Env's config.
        agent: the agent that whet plays. Empty: the only one.
    Raises: ValueError where it cannot be played.
    """

    def __init__(self, taskset: dict[str, Any], settings: dict[str, Any], agent: str) -> None:
        from verifiers.v1.configs.agent import agent_config_fields
        from verifiers.v1.utils import loaders

        sys.modules[HARNESS] = _harness_module()
        kind = loaders.env_config_type(taskset["id"], settings.get("id", ""))
        names = list(agent_config_fields(kind.model_validate({"taskset": taskset})))
        if agent not in names and (agent or len(names) != 1):
            raise ValueError(f"its agents are {', '.join(names)}: say which one is played, agent={names[0]!r}")
        self.agent = agent or names[0]
        ours = {"harness": {"id": HARNESS}, "runtime": {"type": "subprocess"}}
        seats = {name: {**ours, **settings.get(name, {})} for name in names}
        for name, seat in seats.items():
            if name != self.agent and not (seat.get("model") and seat.get("client")):
                raise ValueError(
                    f"its agent {name} needs a model of its own: env={{{name!r}: {{'model': NAME, 'client': "
                    "{'type': 'eval', 'base_url': URL, 'api_key_var': VARIABLE}}}"
                )
        self._env = loaders.load_environment(loaders.resolve_env_config({**settings, "taskset": taskset, **seats}))
        self._tasks: list[Any] = []
        self._running: dict[str, Running] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._running))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._loop = asyncio.new_event_loop()
        is_ready: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        threading.Thread(target=self._loop.run_until_complete, args=(self._serve(is_ready),), daemon=True).start()
        if (error := is_ready.get()) is not None:
            raise error

    def take(self, tasks: list[Any]) -> None:
        """The tasks, in the order of whet's items."""
        self._tasks = tasks

    def begin(self, episode: str, index: int) -> dict[str, Any]:
        """The first observation of a new episode, or its reward where it ends without a reply."""
        running = self._running[episode] = Running()
        running.task = asyncio.run_coroutine_threadsafe(self._play(episode, running, self._tasks[index]), self._loop)
        return self._next(episode, running)

    def act(self, episode: str, action: str) -> dict[str, Any]:
        """What follows an action: an observation, or the reward.

        Raises: ValueError where there is no such episode.
        """
        if (running := self._running.get(episode)) is None:
            raise ValueError("there is no episode to go on with: begin one")
        running.actions.put(action)
        return self._next(episode, running)

    def leave(self, episode: str) -> None:
        """Ends an episode that nobody goes on with."""
        if (running := self._running.pop(episode, None)) is not None:
            running.actions.put(None)
            running.task.cancel()

    def _next(self, episode: str, running: Running) -> dict[str, Any]:
        said = running.said.get()
        if "observation" not in said:
            self.leave(episode)
        return said

    async def _serve(self, is_ready: queue.SimpleQueue[Exception | None]) -> None:
        try:
            async with self._env.serving():
                is_ready.put(None)
                await asyncio.Event().wait()
        except Exception as error:
            is_ready.put(error)

    async def _play(self, name: str, running: Running, task: Any) -> None:
        """Puts the reward, which is that of the agent's traces, or the first error of the episode."""
        import verifiers.v1 as vf
        from verifiers.v1.clients import EvalClientConfig, ModelContext

        url = f"http://127.0.0.1:{self._server.server_address[1]}"
        client = EvalClientConfig(base_url=url, api_key_var="WHET_NO_KEY")
        try:
            episode = await self._env.run_episode(task, ModelContext(name, client, vf.SamplingConfig()))
            running.said.put(_outcome(episode, self.agent))
        except Exception as error:  # of the Env's code: it is the answer
            running.said.put({"error": f"{type(error).__name__}: {error}"})


def _outcome(episode: Any, agent: str) -> dict[str, Any]:
    traces = [trace for trace in episode.traces if trace.agent.name == agent]
    errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
    if errors or not episode.ok:
        return {"error": f"{errors[0].type}: {errors[0].message}" if errors else "the episode failed"}
    rewards = [reward for trace in traces for reward in trace.rewards.values()]
    if not rewards or None in rewards:
        return {"error": f"no reward was given to its agent {agent}"}
    return {"reward": float(sum(trace.reward for trace in traces)), "truncated": any(t.is_truncated for t in traces)}


def _harness_module() -> ModuleType:
    """A module with a harness that makes one request a turn, in this process: those of verifiers start a program."""
    import httpx
    import verifiers.v1 as vf
    from verifiers.v1.dialects.chat import message_to_wire
    from verifiers.v1.runtimes import ProgramResult

    class TurnsConfig(vf.HarnessConfig):
        pass

    class TurnsHarness(vf.Harness[TurnsConfig]):
        APPENDS_SYSTEM_PROMPT = True
        SUPPORTS_RESUME = True
        EXECUTES_CODE = False
        NEEDS_CONTAINER = False

        async def launch(
            self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
        ) -> Any:
            system, prompt = self.resolve_prompt(data)
            messages = [] if system is None else [{"role": "system", "content": system}]
            if isinstance(prompt, str):
                messages.append({"role": "user", "content": prompt})
            else:
                messages += [message_to_wire(message) for message in prompt or ()]
            async with httpx.AsyncClient(timeout=None, trust_env=False) as client:
                answer = await client.post(
                    f"{endpoint.rstrip('/')}/chat/completions",
                    json={"model": ctx.model, "messages": messages},
                    headers={"Authorization": f"Bearer {secret}"},
                )
            return ProgramResult(0 if answer.is_success else 1, "", answer.text[:1000])

    module = ModuleType(HARNESS)
    vars(module).update(TurnsHarness=TurnsHarness, TurnsConfig=TurnsConfig, __all__=["TurnsHarness"])
    TurnsHarness.__module__ = TurnsConfig.__module__ = HARNESS
    return module


def _handler(running: dict[str, Running]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            episode = running.get(body["model"])
            if episode is None:
                self._send(503, {"error": {"message": "nobody plays this episode"}})
                return
            episode.said.put({"observation": _new_text(body["messages"])})
            if (action := episode.actions.get()) is None:
                self._send(503, {"error": {"message": "the episode was left"}})
                return
            message = {"role": "assistant", "content": action}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
            self._send(
                200,
                {
                    "id": "whet", "object": "chat.completion", "created": 0, "model": body["model"],
                    "choices": [choice], "usage": usage,
                },
            )  # fmt: skip

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None: ...

    return Handler


def _new_text(messages: list[dict[str, Any]]) -> str:
    """What was said since the agent's last reply."""
    replies = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    return "\n\n".join(_text(message.get("content")) for message in messages[replies[-1] + 1 if replies else 0 :])


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if part.get("type") == "text")
    return content or ""
