"""`whet env serve` as a process: with a plug-in, until a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import httpx
import pytest

from support.commands import ENVIRONMENT
from support.env_server import SPLITS, Wire, env_server, wild
from whet.envs import EnvError

PLUGIN = """
    import whet

    @whet.env("echo", splits={"train": range(3), "test": range(3, 5)}, rules="Say something.")
    class Echo:
        def __init__(self, loud: bool = False):
            self.loud = loud

        def reset(self, item, *, seed=0):
            return f"item {item}", {}

        async def step(self, action):
            return action.upper() if self.loud else action, 0.5, action == "end", False, {}
"""


@pytest.mark.integration
def test_a_server_serves_plugins_until_a_signal(tmp_path):
    plugin = tmp_path / "echo_env.py"
    plugin.write_text(textwrap.dedent(PLUGIN))
    command = [
        sys.executable,
        "-m",
        "whet.cli",
        "env",
        "serve",
        "maze",
        "echo",
        "--plugins",
        str(plugin),
        "--port",
        "0",
    ]
    variables = {**ENVIRONMENT, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)
    try:
        first = process.stdout.readline()
        address = first.split(" at ")[1].split()[0]
        assert first.startswith("serving maze, echo at http://127.0.0.1:")
        wire = Wire(address)
        assert wire.get("info") == {"environments": ["maze", "echo"]}
        described = wire.get("info/echo")
        assert described["rules"] == "Say something."
        assert described["splits"] == {"train": [[0, 3, 1]], "test": [[3, 5, 1]]}
        id = wire.begin("echo", item=4, settings={"loud": True})
        assert wire.post("step", id=id, action="end", turn=1)["observation"] == "END"
        assert httpx.get(f"{address}/openenv/list_environments").json() == ["maze", "echo"]
    finally:
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=30)
    assert rest.strip().endswith("stopped")
    assert (process.returncode, errors) == (0, "")


def test_items_that_cannot_be_read_are_an_error_of_the_environment():
    def unreadable():
        raise EnvError("items.json is not there: name another file")

    served = wild()
    info = type(served.info)(
        name="wild", make=served.info.make, splits=unreadable, rules="", max_turns=3, group=lambda item: SPLITS["x"]
    )
    with env_server(more={"wild": type(served)(info, "", False, {})}) as (address, _):
        assert Wire(address).get("info/wild") == (500, "env_error")
        answer = httpx.get(f"{address}/openenv/wild/splits")
        assert (answer.status_code, "items.json" in answer.json()["detail"]) == (500, True)
