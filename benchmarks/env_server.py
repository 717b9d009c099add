"""The server of environments under load: latency, 64 clients at once, batches, and OpenEnv's own server beside it.

    .venv/bin/python benchmarks/env_server.py                                # a minute
    .venv/bin/python benchmarks/env_server.py --openenv VENV/bin/python      # the same TextCraft behind openenv 0.10

The server has one core and the clients another. Every client plays TextCraft: it asks for its inventory, which is as
long an answer as any. The clients of `/v1` write plain HTTP/1.1 on kept connections; those of OpenEnv's wire are
`websockets`, the same for both servers. Sides that are compared take turns, and of each the round with most steps a
second counts. Other work on the machine moves seconds and percentiles; the server's CPU seconds a step are steadier.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import websockets

from study import machine_now, write

NUM_CLIENTS, BATCH = 64, 64
ACTION = "inventory"
BARS = {"one_p99_ms": 5.0, "batch_steps_per_s": 5000.0}
"""What issue 36 asks: at most, and at least."""
Step = Callable[[], Awaitable[None]]
Side = tuple[Callable[[], Awaitable[Any]], psutil.Process]
"""How a client connects, and the server."""


class Plain:
    """A client of `/v1` on one kept connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.turn = reader, writer, 0
        self.id = ""

    @classmethod
    async def connected(cls, port: int) -> Plain:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        content = json.dumps(body).encode()
        head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
        self.writer.write(head.encode() + content)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        return int(answer[9:12]), await self.reader.readexactly(length)

    async def begin(self, item: int) -> None:
        self.id = json.loads((await self.post("create", {"env": "textcraft"}))[1])["id"]
        status, _ = await self.post("reset", {"id": self.id, "item": item, "seed": 0})
        assert status == 200

    async def step(self) -> None:
        self.turn += 1
        status, _ = await self.post("step", {"id": self.id, "action": ACTION, "turn": self.turn})
        if status != 200:
            raise RuntimeError(f"status {status}")

    async def close(self) -> None:
        await self.post("close", {"id": self.id})
        self.writer.close()


class Socket:
    """A client of OpenEnv's wire."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.message = json.dumps({"type": "step", "data": {"text": ACTION}})

    @classmethod
    async def connected(cls, url: str) -> Socket:
        return cls(await websockets.connect(url, compression=None, open_timeout=60))

    async def begin(self, item: int) -> None:
        await self.connection.send(json.dumps({"type": "reset", "data": {"split": "train", "index": item, "seed": 0}}))
        assert json.loads(await self.connection.recv())["type"] == "observation"

    async def step(self) -> None:
        await self.connection.send(self.message)
        if not (await self.connection.recv()).startswith('{"type":"observation"'):
            raise RuntimeError("an error")

    async def close(self) -> None:
        await self.connection.send('{"type": "close"}')
        await self.connection.close()


async def timed(step: Step, count: int, latencies: list[float], errors: Counter[str]) -> None:
    for _ in range(count):
        begun = time.perf_counter()
        try:
            await step()
        except Exception as error:  # counted, whatever it is
            errors[type(error).__name__] += 1
            return
        latencies.append(time.perf_counter() - begun)


async def many(side: Side, clients: int, steps: int) -> dict[str, Any]:
    """What some clients come to, each with its own episode."""
    connect, server = side
    players = [await connect() for _ in range(clients)]
    for number, player in enumerate(players):
        await player.begin(number)
    latencies, errors = list[float](), Counter[str]()
    begun, used, waited = time.perf_counter(), cpu_seconds(server), waiting_seconds(server)
    await asyncio.gather(*(timed(player.step, steps, latencies, errors) for player in players))
    seconds, used = time.perf_counter() - begun, cpu_seconds(server) - used
    waited = waiting_seconds(server) - waited
    for player in players:
        await player.close()
    percentiles = statistics.quantiles(latencies, n=100)
    return {
        "steps": len(latencies),
        "errors": dict(errors),
        "steps_per_s": len(latencies) / seconds,
        "server_cpu_ms": 1000 * used / len(latencies),
        "server_waited_ms": 1000 * waited / len(latencies),
        "p50_ms": 1000 * percentiles[49],
        "p99_ms": 1000 * percentiles[98],
    }


def cpu_seconds(server: psutil.Process) -> float:
    """Of a server so far."""
    times = server.cpu_times()
    return float(times.user + times.system)


def waiting_seconds(server: psutil.Process) -> float:
    """How long its threads that still run have waited for a core that others had."""
    tasks = Path(f"/proc/{server.pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[1]) for task in tasks) / 1e9


async def batched(port: int, server: psutil.Process, count: int) -> dict[str, Any]:
    """Batches of `/v1/steps`, one step of each of 64 episodes."""
    client = await Plain.connected(port)
    ids = []
    for item in range(BATCH):
        await client.begin(item)
        ids.append(client.id)
    begun, used, num_errors = time.perf_counter(), cpu_seconds(server), 0
    for turn in range(1, count + 1):
        asked = [{"id": id, "action": ACTION, "turn": turn} for id in ids]
        status, content = await client.post("steps", {"steps": asked})
        num_errors += status != 200 or b'"error":{' in content
    seconds, used = time.perf_counter() - begun, cpu_seconds(server) - used
    for id in ids:
        await client.post("close", {"id": id})
    steps = BATCH * count
    return {
        "steps": steps,
        "errors": num_errors,
        "steps_per_s": steps / seconds,
        "server_cpu_ms": 1000 * used / steps,
    }


@contextmanager
def running(command: Sequence[str], ready: str, core: int) -> Any:
    """A server on a core of its own."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        for _ in range(1200):
            try:
                urllib.request.urlopen(ready, timeout=1)
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise SystemExit(f"{command[0]} did not start within two minutes")
        yield psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


def best(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of several rounds, the one with most steps a second; errors are those of all."""
    errors: Counter[str] = Counter()
    for one in rounds:
        errors.update(one["errors"])
    return {**max(rounds, key=lambda one: one["steps_per_s"]), "errors": dict(errors)}


async def measured(sides: dict[str, Side], port: int, steps: int, num_rounds: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for clients, each in ((1, steps), (NUM_CLIENTS, max(20, steps // 16))):
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
        for _ in range(num_rounds):
            for name, side in sides.items():
                rounds[name].append(await many(side, clients, each))
        result[f"{clients}"] = {name: best(of_side) for name, of_side in rounds.items()}
    batches = [await batched(port, sides["v1"][1], max(10, steps // 20)) for _ in range(num_rounds)]
    result["batch"] = max(batches, key=lambda one: one["steps_per_s"])
    result["batch"]["errors"] = sum(one["errors"] for one in batches)
    return result


def _ws(port: int, path: str) -> str:
    return f"ws://127.0.0.1:{port}{path}"


def shown(result: dict[str, Any]) -> str:
    names = {"v1": "whet /v1 (HTTP)", "ws": "whet /openenv (WebSocket)", "openenv": "openenv 0.10's own (WebSocket)"}
    lines = [
        "| server | clients | steps/s | server CPU, ms a step | waited, ms a step | p50 ms | p99 ms | errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for clients in ("1", str(NUM_CLIENTS)):
        for side, one in result[clients].items():
            lines.append(
                f"| {names[side]} | {clients} | {one['steps_per_s']:,.0f} | {one['server_cpu_ms']:.3f} "
                f"| {one['server_waited_ms']:.2f} | {one['p50_ms']:.2f} | {one['p99_ms']:.2f} "
                f"| {sum(one['errors'].values())} |"
            )
    batch = result["batch"]
    lines.append(
        f"| whet /v1/steps, {BATCH} a batch | 1 | {batch['steps_per_s']:,.0f} "
        f"| {batch['server_cpu_ms']:.3f} | | | | {batch['errors']} |"
    )
    return "\n".join(lines)


def verdicts(result: dict[str, Any]) -> dict[str, bool]:
    """Which bars are met."""
    one, crowd = result["1"]["v1"], result[str(NUM_CLIENTS)]["v1"]
    met = {
        "one client's p99 is at most 5 ms": one["p99_ms"] <= BARS["one_p99_ms"],
        "64 clients have no errors": not any(side["errors"] for side in result[str(NUM_CLIENTS)].values()),
        "64 clients' p99 is at most 3 x 64 / throughput": crowd["p99_ms"] <= 3000 * NUM_CLIENTS / crowd["steps_per_s"],
        "batches of 64 give 5,000 steps/s": result["batch"]["steps_per_s"] >= BARS["batch_steps_per_s"],
    }
    if "openenv" in result["1"]:
        for clients in ("1", str(NUM_CLIENTS)):
            for side, wire in (("ws", "by OpenEnv's wire"), ("v1", "by /v1")):
                ours, theirs = result[clients][side], result[clients]["openenv"]
                met[f"{clients} client(s) {wire}: at least openenv's steps/s"] = (
                    ours["steps_per_s"] >= theirs["steps_per_s"]
                )
                met[f"{clients} client(s) {wire}: at most openenv's CPU a step"] = (
                    ours["server_cpu_ms"] <= theirs["server_cpu_ms"]
                )
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--openenv", metavar="PYTHON", help="an interpreter with openenv 0.10, ruamel.yaml and numpy")
    parser.add_argument("--steps", type=int, default=2000, help="of one client")
    parser.add_argument("--rounds", type=int, default=5, help="how often the sides take turns; the best of each counts")
    parser.add_argument("--port", type=int, default=9170, help="this one, and the next")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[-1]})
    whet = [str(Path(sys.executable).parent / "whet"), "env", "serve", "textcraft", "--port", str(options.port)]
    port = options.port
    with ExitStack() as stack:
        ours = stack.enter_context(running(whet, f"http://127.0.0.1:{port}/v1/health", cores[0]))
        sides: dict[str, Side] = {
            "v1": (lambda: Plain.connected(port), ours),
            "ws": (lambda: Socket.connected(_ws(port, "/openenv/textcraft/ws")), ours),
        }
        if options.openenv is not None:
            theirs = [options.openenv, str(Path(__file__).with_name("openenv_textcraft.py")), str(port + 1)]
            other = stack.enter_context(running(theirs, f"http://127.0.0.1:{port + 1}/health", cores[0]))
            sides["openenv"] = (lambda: Socket.connected(_ws(port + 1, "/ws")), other)
        result = asyncio.run(measured(sides, port, options.steps, options.rounds))
    met = verdicts(result)
    load = os.getloadavg()[0]
    bars = "\n".join(f"- {'yes' if is_met else 'NO'}: {bar}" for bar, is_met in met.items())
    text = f"# The server of environments\n\nLoad of the machine at the end: {load:.1f}.\n\n{shown(result)}\n\n{bars}\n"
    write("env_server", {"machine": machine_now(), "load": load, "result": result, "met": met}, text)


if __name__ == "__main__":
    main()
