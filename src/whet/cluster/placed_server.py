"""One vLLM server as the run sees it: its actor, its address, and whether it goes on."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.error import URLError

from whet.cluster.ray_start import cause_of, has_failed
from whet.cluster.server_process import PORT_S, STOP_S, State
from whet.errors import RunError

ANSWER_S = 10.0
"""Seconds that an actor has to say how its server is."""
HEALTH_S = 5.0
"""Seconds that a server has to say that it is ready."""
LAUNCH_S = PORT_S + STOP_S + ANSWER_S
"""Seconds that an actor has to start its server again."""


class ServerDied(Exception):
    """A server's actor is gone, and the server with it."""


@dataclass(eq=False)
class PlacedServer:
    """One of the servers.

    Args:
        ray: the module, connected.
        make: makes an actor, on the machine with this id of Ray's. None: on any.
    """

    number: int
    ray: Any
    make: Callable[[str | None], Any]
    facts: dict[str, Any] = field(default_factory=dict)
    """As `ServerProcess.facts` gives them. {}: its actor has not started yet."""
    pid: int | None = None

    def __post_init__(self) -> None:
        self.actor = self.make(None)

    @property
    def name(self) -> str:
        return f"server {self.number}"

    @property
    def url(self) -> str:
        """Once its actor has started."""
        host = self.facts["host"]
        return f"http://{f'[{host}]' if ':' in host else host}:{self.facts['port']}"

    @property
    def title(self) -> str:
        """For messages, once its actor has started."""
        process = f"process {self.pid} " if self.pid is not None else ""
        return f"{self.name} ({self.url}, {process}on {self.facts['node']})"

    def launch(self) -> None:
        """Start the server, or start it again. Does not wait until it answers. Raises: ServerDied, TimeoutError."""
        self._get(self.actor.start.remote(self.facts["host"], self.facts["port"], self.facts["log"]), LAUNCH_S)

    def state(self) -> State:
        """Raises: ServerDied, TimeoutError where its machine is busy."""
        state: State = self._get(self.actor.state.remote(), ANSWER_S)
        self.pid = state.pid or self.pid
        return state

    def problem(self, ended: str = "ended") -> str:
        """Why it is gone, with its last lines. Empty: it goes on. Raises: TimeoutError where its machine is busy."""
        try:
            state = self.state()
        except ServerDied as error:
            return f"is gone with its actor, which {error}"
        return "" if state.code is None else f"{ended} with code {state.code}; {state.said}"

    def answers(self) -> bool:
        """Whether it is ready."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.url}/health", timeout=HEALTH_S) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError, ValueError):
            return False

    def _get(self, asked: Any, limit_s: float) -> Any:
        try:
            return self.ray.get(asked, timeout=limit_s)
        except self.ray.exceptions.GetTimeoutError as error:
            raise TimeoutError(str(error)) from error
        except self.ray.exceptions.RayError as error:
            if has_failed(error):
                raise RunError(f"the actor of {self.name} {cause_of(error, {})}") from error
            raise ServerDied(cause_of(error, {})) from error
