"""vLLM servers that Ray places, one a GPU: started with the policy's weights, and started again where one dies.

Each keeps its address. So the engine finds a server that is back, gives it the newest weights and probes it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

from whet.cluster.ray_start import (
    SLOW_S,
    cause_of,
    check_ray,
    checked_facts,
    connect,
    has_failed,
    resources,
    unstarted,
)
from whet.cluster.server_process import Launch, ServerProcess, State, check_command, command_of
from whet.config.base import ConfigError
from whet.config.parts import ClusterConfig, EngineConfig
from whet.distribution import how_to_install
from whet.engines.vllm import check_whole, save_weights
from whet.engines.vllm_servers import GONE
from whet.errors import RunError
from whet.models.policy import Policy

LOOK_S = 0.5
"""Seconds between two looks at the servers."""
ANSWER_S = 10.0
"""Seconds that an actor has to say how its server is."""
CLOSE_S = 30.0
"""Seconds that all servers have to end in."""
Tell = Callable[[str, str], None]
"""Receives a level (info, warning) and a sentence."""


class ServerDied(Exception):
    """A server, or its actor, is gone."""


@dataclass(eq=False)
class Placed:
    """One of the servers."""

    number: int
    actor: Any
    facts: dict[str, Any]
    """As `ServerProcess.facts` gives them. {}: its actor has not started yet."""
    pid: int | None = None

    @property
    def name(self) -> str:
        return f"server {self.number}"

    @property
    def url(self) -> str:
        host = self.facts["host"]
        return f"http://{f'[{host}]' if ':' in host else host}:{self.facts['port']}"

    @property
    def title(self) -> str:
        """For messages, once its actor has started."""
        process = f"process {self.pid} " if self.pid is not None else ""
        return f"{self.name} ({self.url}, {process}on {self.facts['node']})"


def check_servers(settings: ClusterConfig, engine: EngineConfig) -> None:
    """Refuses servers that cannot be, before anything is loaded or started.

    Raises: ConfigError where the engine samples without them, Ray or the servers' command is missing, or there are too
        few GPUs.
    """
    if engine.kind != "vllm":
        raise ConfigError(
            f"cluster.servers = {settings.servers} starts servers of vLLM, and engine.kind = {engine.kind} samples "
            "without them: set engine.kind=vllm, or leave cluster.servers out"
        )
    if engine.urls:
        raise ConfigError(
            f"cluster.servers = {settings.servers} starts servers, and engine.urls names some that run: leave one of "
            "the two out"
        )
    check_ray(settings)
    if importlib.util.find_spec("httpx") is None:
        raise ConfigError(f"engine.kind = vllm needs a package: {how_to_install('vllm')}")
    check_command(settings)


class RayServers:
    """The servers of a run, by settings that `check_servers` has let pass. They start with the first engine.

    Args:
        engine: settings of the engines, without urls.
        tell: receives what happens to them.
    """

    def __init__(self, settings: ClusterConfig, engine: EngineConfig, tell: Tell) -> None:
        self.settings, self.engine, self.tell = settings, engine, tell
        self.num_restarts = 0
        self.servers: list[Placed] = []
        self._placed: EngineConfig | None = None
        self._error: RunError | None = None
        self._model: Path | None = None
        self._is_over = threading.Event()
        self._watch: threading.Thread | None = None

    def engine_settings(self, policy: Policy) -> EngineConfig:
        """The engine's settings with the servers' urls. The first call starts them, with the policy's weights.

        Raises: ConfigError, RunError where they do not answer in `engine.limit_s`.
        """
        self.check()
        if self._placed is None:
            check_whole(policy)
            try:
                self._start(policy)
            except BaseException:
                self.close()
                raise
            urls = tuple(server.url for server in self.servers)
            self._placed = self.engine.model_copy(update={"urls": urls})
        return self._placed

    def check(self) -> None:
        """Raises: RunError where a server will not come back."""
        if self._error is not None:
            raise self._error

    def metrics(self) -> dict[str, float]:
        """`cluster/restarts`: servers that died and were started again."""
        return {"cluster/restarts": float(self.num_restarts)} if self.servers else {}

    def close(self) -> None:
        """End all servers. Returns once their processes are gone."""
        self._is_over.set()
        if self._watch is not None and self._watch is not threading.current_thread():
            self._watch.join()
        if self.servers:
            with suppress(Exception):  # an actor that is gone has no server any more
                self._ray.wait([s.actor.stop.remote() for s in self.servers], num_returns=len(self.servers),
                               timeout=CLOSE_S)  # fmt: skip
            for server in self.servers:
                with suppress(Exception):
                    self._ray.kill(server.actor)
                if server.facts:
                    GONE.pop(server.url, None)
        if self._model is not None:
            shutil.rmtree(self._model, ignore_errors=True)
        self.servers, self._placed, self._model, self._watch = [], None, None, None

    # --- starting -----------------------------------------------------------------------------------------------------

    def _start(self, policy: Policy) -> None:
        self._is_over = threading.Event()
        self._ray = ray = connect(self.settings)
        try:
            self._model = Path(tempfile.mkdtemp(prefix="whet-model-", dir=self.engine.sync_folder)).absolute()
        except OSError as error:
            raise ConfigError(f"engine.sync_folder: {self.engine.sync_folder} cannot be written ({error})") from error
        save_weights(policy, policy, self._model)
        dtype = str(policy.dtype).removeprefix("torch.")
        self._launch = Launch(
            command_of(self.settings, str(self._model), dtype),
            os.getcwd(),
            os.getpid(),
            ray.util.get_node_ip_address(),
            os.environ.get("OMP_NUM_THREADS"),
        )
        self.servers = [Placed(number, self._new_actor(number), {}) for number in range(self.settings.servers)]
        for server in self.servers:
            self._await_facts(server)
        self._check_folder()
        for server in self.servers:
            self._launch_server(server)
        self._await_answers()
        self._watch = threading.Thread(target=self._keep, name="servers of vLLM", daemon=True)
        self._watch.start()

    def _new_actor(self, number: int, node: str | None = None) -> Any:
        """An actor of a server.

        Args:
            node: Ray's id of the machine that it has to be on. None: any.
        """
        options: dict[str, Any] = dict(resources(self.settings))
        if node is not None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
        return self._ray.remote(ServerProcess).options(**options).remote(number, self._launch)

    def _await_facts(self, server: Placed) -> None:
        """Wait until an actor has started. Raises: RunError where it cannot."""
        asked, started, told_s = server.actor.facts.remote(), time.monotonic(), SLOW_S
        while not self._ray.wait([asked], timeout=LOOK_S)[0]:
            if self._is_over.is_set():
                raise TimeoutError("the run has ended meanwhile")
            if (waited_s := time.monotonic() - started) > told_s:
                self.tell("warning", unstarted([server.name], waited_s, is_idle=True))
                told_s += SLOW_S
        try:
            server.facts = dict(checked_facts(self._ray.get(asked), server.name))
        except self._ray.exceptions.RayError as error:
            raise RunError(f"{server.name} could not start: its actor {cause_of(error, {})}") from error

    def _check_folder(self) -> None:
        """Raises: ConfigError where a server is on another machine, which may not see this one's folders."""
        far = [server for server in self.servers if not server.facts["is_here"]]
        if far and self.engine.sync_folder is None:
            raise ConfigError(
                f"{far[0].name} is on another machine ({far[0].facts['node']}): give engine.sync_folder, a folder that "
                "all machines see under the same path"
            )

    def _launch_server(self, server: Placed) -> None:
        facts = server.facts
        self._get(server.actor.start.remote(facts["host"], facts["port"], facts["log"]), CLOSE_S)

    def _await_answers(self) -> None:
        """Wait until all servers answer. Raises: RunError where one ends, or is too slow."""
        number = f"{len(self.servers)} server{'s' if len(self.servers) > 1 else ''} of vLLM"
        self.tell("info", f"starting {number}; logs: {', '.join(server.facts['log'] for server in self.servers)}")
        waiting, started, is_told = list(self.servers), time.monotonic(), False
        while waiting:
            time.sleep(LOOK_S)
            for server in list(waiting):
                if problem := self._problem(server, "ended before it answered,"):
                    raise RunError(f"{server.title} {problem}")
                if answers(server.url):
                    waiting.remove(server)
            waited_s = time.monotonic() - started
            if waiting and waited_s > self.engine.limit_s:
                raise RunError(
                    f"{waiting[0].title} does not answer {self.engine.limit_s:g} s after its start (engine.limit_s); "
                    f"{_said(self._state(waiting[0]))}"
                )
            if waiting and waited_s > SLOW_S and not is_told:
                is_told = True
                lines = self._state(waiting[0]).lines[-1:]
                self.tell("info", f"{waiting[0].title} does not answer yet, after {waited_s:.0f} s{_newest(lines)}")
        urls = ", ".join(server.url for server in self.servers)
        self.tell("info", f"{number} answered after {time.monotonic() - started:.0f} s: {urls}")

    # --- while the run goes on ----------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Start servers again that have died. In a thread of its own."""
        while not self._is_over.wait(LOOK_S):
            for server in self.servers:
                try:
                    if problem := self._problem(server):
                        self._again(server, problem)
                except TimeoutError:
                    continue  # its machine is busy
                except Exception as error:
                    self._give_up(server, f"{server.name} cannot be looked after: {type(error).__name__}: {error}")
                if self._error is not None or self._is_over.is_set():
                    return

    def _again(self, server: Placed, problem: str) -> None:
        """Start a server again, at the same address. After `cluster.restarts` of them the run ends."""
        text = f"{server.title} {problem}"
        if self.num_restarts >= self.settings.restarts:
            number = self.settings.restarts
            self._give_up(server, f"{text}\nThe run ends, as cluster.restarts = {number} processes have died before")
            return
        self.num_restarts += 1
        left = self.settings.restarts - self.num_restarts
        self.tell("warning", f"{text}\nIt starts again, and gets the newest weights ({left} more such restarts)")
        try:
            self._launch_server(server)
        except ServerDied:
            facts = server.facts
            server.actor = self._new_actor(server.number, facts["node_id"])
            self._await_facts(server)
            server.facts |= {name: facts[name] for name in ("host", "port")}
            self._launch_server(server)

    def _give_up(self, server: Placed, text: str) -> None:
        self._error = RunError(f"{text}; `whet resume` goes on from its last checkpoint")
        for other in self.servers:
            GONE[other.url] = str(self._error)

    def _problem(self, server: Placed, ended: str = "ended") -> str:
        """Why a server is gone, with its last lines. Empty: it goes on. Raises: TimeoutError."""
        try:
            state = self._state(server)
        except ServerDied as error:
            return f"is gone with its actor, which {error}"
        return "" if state.code is None else f"{ended} with code {state.code}; {_said(state)}"

    def _state(self, server: Placed) -> State:
        """Raises: ServerDied where its actor is gone. TimeoutError."""
        state: State = self._get(server.actor.state.remote(), ANSWER_S)
        server.pid = state.pid or server.pid
        return state

    def _get(self, asked: Any, limit_s: float) -> Any:
        """Raises: ServerDied, TimeoutError."""
        try:
            return self._ray.get(asked, timeout=limit_s)
        except self._ray.exceptions.GetTimeoutError as error:
            raise TimeoutError(str(error)) from error
        except self._ray.exceptions.RayError as error:
            if has_failed(error):
                raise RunError(f"a server's actor {cause_of(error, {})}") from error
            raise ServerDied(cause_of(error, {})) from error


def _said(state: State) -> str:
    return "its last lines:\n" + "\n".join(state.lines) if state.lines else "it wrote nothing"


def _newest(lines: tuple[str, ...]) -> str:
    return f"; its last line: {lines[0]}" if lines else ""


def answers(url: str) -> bool:
    """Whether a server is ready."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health", timeout=ANSWER_S / 2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError, ValueError):
        return False
