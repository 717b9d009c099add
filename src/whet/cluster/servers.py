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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from whet.cluster.placed_server import PlacedServer, ServerDied
from whet.cluster.ray_start import SLOW_S, cause_of, check_ray, checked_facts, connect, resources, unstarted
from whet.cluster.server_process import STOP_S, Launch, ServerProcess, check_command, command_of
from whet.config.base import ConfigError
from whet.config.parts import ClusterConfig, EngineConfig
from whet.distribution import how_to_install
from whet.engines.vllm import check_whole, save_weights
from whet.engines.vllm_servers import GONE
from whet.errors import RunError
from whet.models.policy import Policy

LOOK_S = 0.5
"""Seconds between two looks at the servers."""
CLOSE_S = STOP_S + 10.0
"""Seconds that all servers have to end in."""
Tell = Callable[[str, str], None]
"""Receives a level (info, warning) and a sentence."""


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
        self.servers: list[PlacedServer] = []
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
        if self._watch is not None:
            self._watch.join()
        if self.servers:
            with suppress(Exception):  # an actor that is gone has no server any more
                stopping = [server.actor.stop.remote() for server in self.servers]
                self._ray.wait(stopping, num_returns=len(stopping), timeout=CLOSE_S)
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
        launch = Launch(
            command_of(self.settings, str(self._model), str(policy.dtype).removeprefix("torch.")),
            os.getcwd(),
            os.getpid(),
            ray.util.get_node_ip_address(),
            os.environ.get("OMP_NUM_THREADS"),
        )

        def make(number: int) -> PlacedServer:
            return PlacedServer(number, ray, lambda node: self._new_actor(number, launch, node))

        self.servers = [make(number) for number in range(self.settings.servers)]
        for server in self.servers:
            self._await_facts(server)
        self._check_folder()
        for server in self.servers:
            self._launch_first(server)
        self._await_answers()
        self._watch = threading.Thread(target=self._keep, name="servers of vLLM", daemon=True)
        self._watch.start()

    def _new_actor(self, number: int, launch: Launch, node: str | None) -> Any:
        options: dict[str, Any] = dict(resources(self.settings))
        if node is not None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(node, soft=False)
        return self._ray.remote(ServerProcess).options(**options).remote(number, launch)

    def _await_facts(self, server: PlacedServer) -> None:
        """Wait until an actor has started. Raises: RunError where it cannot. TimeoutError where the run has ended."""
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

    def _launch_first(self, server: PlacedServer) -> None:
        """Raises: RunError."""
        try:
            server.launch()
        except (ServerDied, TimeoutError) as error:
            raise RunError(f"{server.name} could not start: its actor {error or 'does not answer'}") from error

    def _await_answers(self) -> None:
        """Wait until all servers answer. Raises: RunError where one ends, or is too slow."""
        number = f"{len(self.servers)} server{'s' if len(self.servers) > 1 else ''} of vLLM"
        self.tell("info", f"starting {number}; logs: {', '.join(server.facts['log'] for server in self.servers)}")
        waiting, started, is_told = list(self.servers), time.monotonic(), False
        while waiting:
            time.sleep(LOOK_S)
            try:
                for server in list(waiting):
                    if problem := server.problem("ended before it answered,"):
                        raise RunError(f"{server.title} {problem}")
                    if server.answers():
                        waiting.remove(server)
                state = waiting[0].state() if waiting else None
            except TimeoutError:  # a machine that is busy
                state = None
            waited_s = time.monotonic() - started
            if waiting and waited_s > self.engine.limit_s:
                said = state.said if state else "nor does its actor"
                limit = f"{self.engine.limit_s:g} s after its start (engine.limit_s)"
                raise RunError(f"{waiting[0].title} does not answer {limit}; {said}")
            if waiting and waited_s > SLOW_S and not is_told and state is not None:
                is_told = True
                newest = f"; its last line: {state.lines[-1]}" if state.lines else ""
                self.tell("info", f"{waiting[0].title} does not answer yet, after {waited_s:.0f} s{newest}")
        urls = ", ".join(server.url for server in self.servers)
        self.tell("info", f"{number} answered after {time.monotonic() - started:.0f} s: {urls}")

    # --- while the run goes on ----------------------------------------------------------------------------------------

    def _keep(self) -> None:
        """Start servers again that have died. In a thread of its own."""
        while not self._is_over.wait(LOOK_S):
            for server in self.servers:
                try:
                    if problem := server.problem():
                        self._start_again(server, f"{server.title} {problem}")
                except TimeoutError:
                    continue  # its machine is busy, or the run has ended
                except Exception as error:
                    self._give_up(f"{server.name} cannot be looked after: {error}")
                if self._error is not None or self._is_over.is_set():
                    return

    def _start_again(self, server: PlacedServer, problem: str) -> None:
        """Start a server again, at the same address. After `cluster.restarts` of them the run ends.

        Raises: RunError where it cannot. TimeoutError: look again.
        """
        left = self.settings.restarts - self.num_restarts - 1
        if left < 0:
            number = self.settings.restarts
            self._give_up(f"{problem}\nThe run ends, as cluster.restarts = {number} processes have died before")
            return
        self.num_restarts += 1
        self.tell("warning", f"{problem}\nIt starts again, and gets the newest weights ({left} more such restarts)")
        try:
            server.launch()
        except ServerDied:
            facts = server.facts
            server.actor = server.make(facts["node_id"])
            self._await_facts(server)
            server.facts |= {name: facts[name] for name in ("host", "port")}
            server.launch()

    def _give_up(self, text: str) -> None:
        self._error = RunError(f"{text}; `whet resume` goes on from its last checkpoint")
        for server in self.servers:
            GONE[server.url] = str(self._error)
