"""What the sandbox withstands, and what it costs.

    python benchmarks/sandbox.py

Puts every reply of `hostile_replies.py` to one sandbox, one after the other. After each: a right answer must be right
and a wrong one wrong, in the same parent process; no process may be left, no file with the reply's mark in any folder
that is usually open to all, no System V memory; and nobody may have knocked at the ports that listen outside. Then the
time of an honest reply is put beside that of a worker that lives on, which is what reasoning-gym had before.

As root it runs itself once more as an ordinary user, with `--user PYTHON`, a Python that this user may run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hostile_replies import REPLIES, reply
from whet.sandbox.client import Forfeit, Request, Sandbox, why_not
from whet.sandbox.limits import Limits
from whet.sandbox.workers import NUM_WORKERS, WorkerPool

ROOT = Path(__file__).parents[1]
RUN_PYTHON = ROOT / "tests" / "programs" / "run_python.py"
RESULTS = ROOT / "benchmarks" / "results" / "sandbox.md"
LIMITS = Limits(wall_s=1.0, memory_gib=0.5, processes=8)
OPEN_TO_ALL = ("/", "/tmp", "/var/tmp", "/dev", "/dev/shm", "/run", "/run/lock", "/home", str(Path.home()))
ORDINARY = 65534


class Witness:
    """Stands outside and looks at what replies leave behind."""

    def __init__(self) -> None:
        self.mark = f"left-{secrets.token_hex(4)}"
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind(f"\0{self.mark}")
        self._unix.listen()
        self._shared = _shared_memory()

    def __enter__(self) -> Witness:
        for each in (self._tcp, self._udp, self._unix):
            each.setblocking(False)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._tcp, self._udp, self._unix):
            each.close()

    def request(self, code: str, parents: Sequence[int]) -> Request:
        text = reply(code, mark=self.mark, port=self.port, abstract=self.mark, parents=list(parents))
        return Request({}, {"code": text, "text": "wrong"})

    def complaints(self, sandbox: Sandbox, before: Sequence[int]) -> list[str]:
        """What is not as it was.

        Args:
            before: the sandbox's processes, before the reply.
        """
        found = [f"{folder}/{name}" for folder in self._folders() for name in os.listdir(folder) if self.mark in name]
        found += [f"a connection to {each}" for each in (self._tcp, self._unix) if _accepts(each)]
        with contextlib.suppress(BlockingIOError):
            found.append(f"a packet: {self._udp.recv(99)!r}")
        if (now := wait_for(lambda: processes(sandbox), before)) != before:
            found.append(f"processes {before} are now {now}")
        if _shared_memory() != self._shared:
            found.append("System V memory")
        if os.geteuid() == 0:  # the parent lets nobody else look
            found += [f"scratch: {name}" for name in os.listdir(f"/proc/{before[-1]}/root/scratch") if name[0] != "."]
            devices = Path(f"/proc/{before[-1]}/net/dev").read_text().splitlines()[2:]
            found += [f"packets: {line}" for line in devices if set(line.split()[1:]) != {"0"}]
        return found

    def _folders(self) -> Iterator[Path]:
        places = [*OPEN_TO_ALL, sys.prefix, str(RUN_PYTHON.parent), str(ROOT / "src" / "whet"), tempfile.gettempdir()]
        return (Path(place) for place in places if os.access(place, os.R_OK) and os.path.isdir(place))


def _accepts(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _shared_memory() -> list[int]:
    return [len(Path(f"/proc/sysvipc/{kind}").read_text().splitlines()) for kind in ("shm", "sem", "msg")]


def processes(sandbox: Sandbox) -> list[int]:
    """The sandbox's process and all below it, sorted; at rest bubblewrap and the parent."""
    below: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            before, _, after = status.read_text().rpartition(")")
            below.setdefault(int(after.split()[1]), []).append(int(before.split()[0]))
    (worker,) = sandbox._pool._workers
    found = [worker._process.pid]
    for pid in found:
        found += below.get(pid, [])
    return sorted(found)


def wait_for(look: Callable[[], list[int]], wanted: Sequence[int]) -> list[int]:
    """What is there, as soon as it is what is wanted, and after a second at the latest: the keeper goes last."""
    deadline = time.monotonic() + 1
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.002)
    return found


def honest(sandbox: Sandbox) -> list[str]:
    """What is wrong with the scores of honest replies."""
    right, wrong = sandbox.map([Request({}, {"text": text}) for text in ("right", "wrong")])
    expected = [{"score": score, "calls": 1, "said": None} for score in (1.0, 0.0)]
    return [] if [right, wrong] == expected else [f"honest replies got {right} and {wrong}"]


def attack() -> tuple[dict[str, Counter[str]], list[str]]:
    """How the replies of each kind ended, and every complaint."""
    ends: dict[str, Counter[str]] = {}
    complaints: list[str] = []
    with Witness() as witness, Sandbox(RUN_PYTHON, limits=LIMITS, slots=2) as sandbox:
        assert not honest(sandbox)
        before = wait_for(lambda: processes(sandbox)[:3], processes(sandbox)[:2])
        for kind, codes in REPLIES.items():
            ends[kind] = Counter()
            for code in codes:
                (outcome,) = sandbox.map([witness.request(code, [os.getpid(), *before])])
                found = [*witness.complaints(sandbox, before), *honest(sandbox)]
                complaints += [f"{kind}: {code!r}: {each}" for each in found]
                ends[kind][how(outcome)] += 1
    return ends, complaints


def how(outcome: object) -> str:
    if isinstance(outcome, Forfeit):
        return "out of time" if "timed out" in outcome.reason else "ended, no answer"
    if isinstance(outcome, dict):
        return "answered: 1.0" if outcome.get("score") == 1.0 else "answered: wrong"
    return "our failure"


# --- cost -----------------------------------------------------------------------------------------------------------

LIVING = """
import importlib.util, json, sys
from functools import lru_cache
spec = importlib.util.spec_from_file_location("program", sys.argv[1])
program = sys.modules["program"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)
program.warm()
prepare = lru_cache(maxsize=256)(lambda text: program.prepare(json.loads(text)))
print("ready", flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps(program.answer(prepare(json.dumps(request["common"])), request["own"])), flush=True)
"""


def costs() -> list[tuple[str, list[float]]]:
    """Milliseconds an honest reply: in a worker that lives on; in the sandbox, one and several at a time."""
    from whet.tasks.gym import ENVIRONMENT, PROCESS, make_tasks

    cases: list[tuple[str, Path, list[Request]]] = [("nothing", RUN_PYTHON, [Request({}, {"text": "right"})] * 64)]
    for dataset in ("chain_sum", "spiral_matrix", "countdown"):
        tasks = make_tasks(dataset, {}, seed=0, counts={"train": 64, "validation": 0, "test": 0})[0]["train"]
        what = [{"question": t.prompt, "answer": t.answer, **t.info} for t in tasks]
        pairs = [Request(each, {"reply": f"{task.answer} "}) for each, task in zip(what, tasks, strict=True)]
        cases.append((f"reasoning-gym's {dataset}", PROCESS, pairs))
    rows = []
    for name, program, requests in cases:
        command = (sys.executable, "-P", "-c", LIVING, str(program))
        lines = [{"common": each.common, "own": each.private} for each in requests]
        with WorkerPool(command, num_workers=1, timeout_s=60, environment=ENVIRONMENT) as pool:
            row = [best(lambda pool=pool, lines=lines: pool.map(lines), len(requests))]
        for slots in (1, NUM_WORKERS):
            with Sandbox(program, limits=Limits(), slots=slots, environment=ENVIRONMENT) as sandbox:
                row.append(best(lambda sandbox=sandbox, requests=requests: sandbox.map(requests), len(requests)))
        rows.append((name, row))
    return rows


def best(run: Callable[[], object], count: int) -> float:
    """Milliseconds an item of the fastest of five runs, after one that warms up."""
    run()
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return 1000 * min(seconds) / count


# --- the report -----------------------------------------------------------------------------------------------------


def table(ends: dict[str, Counter[str]]) -> list[str]:
    columns = ["answered: wrong", "answered: 1.0", "ended, no answer", "out of time", "our failure"]
    lines = [f"| kind | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {kind} | {' | '.join(str(found[c]) for c in columns)} |" for kind, found in ends.items()]
    total = sum(ends.values(), Counter())
    return [*lines, f"| all {total.total()} | {' | '.join(str(total[c]) for c in columns)} |"]


def as_ordinary_user(python: str) -> str:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, __file__, "--attacks-only"]
    done = subprocess.run(
        command,
        env=environment,
        user=ORDINARY,
        group=ORDINARY,
        extra_groups=[],
        capture_output=True,
        text=True,
        cwd="/",
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks-only", action="store_true", help="print the table of the attacks, write nothing")
    parser.add_argument("--user", metavar="PYTHON", help="a Python for an ordinary user; as root only")
    arguments = parser.parse_args()
    if trouble := why_not():
        raise SystemExit(trouble)
    start = time.monotonic()
    ends, complaints = attack()
    if complaints:
        raise SystemExit("\n".join(complaints))
    lines = [*table(ends), "", f"{time.monotonic() - start:.0f} s as user {os.geteuid()}; complaints: none."]
    if arguments.attacks_only:
        print("\n".join(lines))
        return
    others = os.getloadavg()[0]
    rows = [f"| {name} | {' | '.join(f'{each:.2f}' for each in row)} |" for name, row in costs()]
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    bubblewrap = subprocess.run(["bwrap", "--version"], capture_output=True, text=True).stdout.strip()
    where = {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "bubblewrap": bubblewrap,
        "num_cores": os.cpu_count(),
        "commit": commit,
        "others": others,
    }
    text = [
        "# What the sandbox withstands, and what it costs",
        "",
        "Hostile replies by kind (`hostile_replies.py`), and how they ended. A reply that takes its process over",
        "may lie about its own score (*answered: 1.0*). After each: the next honest ones were scored right, by the",
        "same parent; no process, file or shared memory was left; nothing outside was reached.",
        "",
        *lines,
        "",
        *(["As an ordinary user:", "", as_ordinary_user(arguments.user)] if arguments.user else []),
        "Milliseconds an honest reply, the fastest of five runs of 64 (`others`: the load that was there before):",
        "",
        f"| program | a worker that lives on | the sandbox | {NUM_WORKERS} at a time |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Measured {time.strftime('%Y-%m-%d')}: `{' '.join(['python', *sys.argv])}`. Machine: {json.dumps(where)}.",
    ]
    RESULTS.write_text("\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
