"""The sandbox: what replies do in it ends with them, and touches nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from hostile_replies import REPLIES
from sandbox import ORDINARY, RUN_PYTHON, Witness, honest, processes, wait_for
from whet.sandbox import client, host
from whet.sandbox.client import Forfeit, Request, Sandbox, why_not
from whet.sandbox.limits import Limits
from whet.sandbox.workers import NUM_WORKERS, Failure, WorkerError, WorkerPool

needs_sandbox = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
SOURCE = Path(__file__).parents[2] / "src"
LIMITS = Limits(wall_s=0.5, memory_gib=0.5, processes=6)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    os.environ["SECRET"] = "of the parent's"
    with Sandbox(RUN_PYTHON, limits=LIMITS, slots=4) as shared:
        yield shared
    del os.environ["SECRET"]


def ask(sandbox: Sandbox, *codes: str) -> list[Any]:
    return sandbox.map([Request({}, {"code": code, "text": "right"}) for code in codes])


# --- what replies do ------------------------------------------------------------------------------------------------


def test_there_are_a_hundred_hostile_replies() -> None:
    assert sum(map(len, REPLIES.values())) >= 100


@needs_sandbox
@pytest.mark.parametrize("kind", REPLIES)
def test_hostile_replies_leave_nothing_and_change_nothing(sandbox: Sandbox, kind: str) -> None:
    assert honest(sandbox) == []
    before = wait_for(lambda: processes(sandbox), processes(sandbox)[:2])
    with Witness() as witness:
        attacks = [witness.request(code, [os.getpid(), *before]) for code in REPLIES[kind]]
        right = Request({}, {"text": "right"})
        outcomes = sandbox.map([each for attack in attacks for each in (attack, right)])
        assert outcomes[1::2] == [{"score": 1.0, "calls": 1, "said": None}] * len(attacks)
        assert not [each for each in outcomes if isinstance(each, Failure)]
        assert witness.complaints(sandbox, before) == []
    assert honest(sandbox) == []
    assert len(before) == 2, "bubblewrap and the warm parent"


@needs_sandbox
def test_a_child_sees_no_more_than_it_needs(sandbox: Sandbox) -> None:
    code = "import os\nsaid = [os.listdir('/scratch'), sorted(os.listdir('/proc')), os.getpid(), os.getuid() == 0]"
    code += "\nsaid += [sorted(os.environ), os.listdir('/dev'), [f for f in range(99) if is_open(f)]]"
    is_open = "def is_open(f):\n import os\n try: return bool(os.fstat(f))\n except OSError: return False\n"
    (outcome,) = ask(sandbox, is_open + code)
    scratch, proc, pid, is_root, names, devices, files = outcome["said"]
    assert (scratch, proc, pid, is_root, files) == ([], [], 1, False, [0, 1, 2, 3])
    assert set(devices) <= {"null", "zero", "random", "urandom", "shm"}
    assert "SECRET" not in names


@needs_sandbox
def test_three_endless_replies_cost_one_limit() -> None:
    with Sandbox(RUN_PYTHON, limits=Limits(wall_s=3), slots=NUM_WORKERS) as sandbox:
        ask(sandbox, "")
        start = time.monotonic()
        assert ask(sandbox, *["while True: pass"] * 3) == [Forfeit("timed out after 3 s")] * 3
        assert time.monotonic() - start < 3 * 3


@needs_sandbox
def test_what_ends_a_child_is_told(sandbox: Sandbox) -> None:
    reasons = {
        "x = bytearray(10**11)": "ended with MemoryError",
        "import os; os._exit(3)": "ended without an answer (exit code 3)",
        "import os; os.abort()": "ended without an answer",
        "1 / 0": "ended with ZeroDivisionError: division by zero",
        "while True: pass": "timed out after 0.5 s",
        "said = 'x' * 2**20": "its answer has more than 1048576 bytes",
    }
    for outcome, reason in zip(ask(sandbox, *reasons), reasons.values(), strict=True):
        assert isinstance(outcome, Forfeit)
        assert outcome.reason.startswith(reason)


@needs_sandbox
def test_the_fault_of_a_preparation_is_ours() -> None:
    with Sandbox(RUN_PYTHON, limits=LIMITS, slots=2, prepare_s=0.5) as sandbox:
        wishes = [{"do": "raise"}, {}, {"do": "hang"}, {}]
        outcomes = sandbox.map([Request(wish, {"text": "right"}) for wish in wishes])
    assert outcomes[0] == Failure("broken", "ValueError: no such item")
    assert outcomes[2] == Failure("broken", "not ready within 0.5 s")
    assert [outcomes[1]["score"], outcomes[3]["score"]] == [1.0, 1.0]


@needs_sandbox
def test_a_sandbox_that_was_killed_starts_anew() -> None:
    with Sandbox(RUN_PYTHON, limits=LIMITS, slots=2) as sandbox:
        ask(sandbox, "")
        lasting = wait_for(lambda: processes(sandbox), processes(sandbox)[:2])  # what ran the code may still be going
        os.kill(lasting[-1], signal.SIGKILL)
        outcomes = [*ask(sandbox, ""), *ask(sandbox, "")]
        assert outcomes[1] == {"score": 1.0, "calls": 1, "said": None}


ENDLESS = """
import sys
sys.path[:0] = {path!r}
from sandbox import *
sandbox = Sandbox(RUN_PYTHON, limits=Limits(wall_s=99), slots=2)
honest(sandbox)
print(*processes(sandbox), flush=True)
sandbox.map([Request({{}}, {{"code": "while True: pass"}})])
"""


@needs_sandbox
def test_nothing_outlives_a_parent_that_was_killed() -> None:
    code = ENDLESS.format(path=sys.path)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        pids = [int(pid) for pid in run.stdout.readline().split()]
        time.sleep(0.3)
        run.kill()
    assert len(pids) >= 2
    alive = wait_for(lambda: [pid for pid in pids if is_alive(pid)], [])
    assert not alive


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


ORDINARY_USER = """
import sys
sys.path[:0] = {path!r}
from sandbox import *
assert why_not() is None, why_not()
with Witness() as witness, Sandbox(RUN_PYTHON, limits=Limits(wall_s=1, processes=4), slots=2) as sandbox:
    assert not honest(sandbox)
    before = wait_for(lambda: processes(sandbox), processes(sandbox)[:2])
    for kind in ("fork bomb", "signals", "tracing", "staying"):
        sandbox.map([witness.request(code, [os.getpid(), *before]) for code in REPLIES[kind][:6]])
        assert not witness.complaints(sandbox, before)
    assert not honest(sandbox)
    print(sandbox.map([Request({{}}, {{"code": "import os; said = os.getuid()"}})])[0]["said"], os.getuid())
"""


@needs_sandbox
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become somebody else")
def test_as_an_ordinary_user() -> None:
    python = next((each for each in (sys.executable, "/usr/bin/python3") if _runs(each)), None)
    if python is None:
        pytest.skip("no Python of 3.11 or newer that an ordinary user may run with these sources")
    done = _as_user(python, ORDINARY_USER.format(path=[str(RUN_PYTHON.parents[2] / "benchmarks"), str(SOURCE)]))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(ORDINARY)] * 2


def _runs(python: str) -> bool:
    check = f"import sys, os; sys.exit(sys.version_info < (3, 11) or not os.access({str(RUN_PYTHON)!r}, os.R_OK))"
    try:
        return _as_user(python, check).returncode == 0
    except OSError:
        return False


def _as_user(python: str, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-B", "-c", code],
        user=ORDINARY,
        group=ORDINARY,
        extra_groups=[],
        env={"PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
    )


# --- where there is none --------------------------------------------------------------------------------------------


@pytest.fixture
def asked_anew() -> Iterator[None]:
    why_not.cache_clear()
    yield
    why_not.cache_clear()


@pytest.mark.usefixtures("asked_anew")
@pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")
def test_why_not_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "not installed: apt install bubblewrap" in str(why_not())
    why_not.cache_clear()
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(refusing))
    assert "did not start: bwrap: No permissions to create a new namespace): allow user namespaces" in str(why_not())
    why_not.cache_clear()
    monkeypatch.setattr(client.sys, "platform", "darwin")
    assert "needs Linux" in str(why_not())


def test_an_open_sandbox_forks_too() -> None:
    with Sandbox(RUN_PYTHON, limits=Limits(wall_s=1), slots=3, enclosed=False) as sandbox:
        codes = ["import sys; sys.modules['program'].score = lambda _: 0.5", "while True: pass", "1 / 0", ""]
        changed, late, broken, right = ask(sandbox, *codes)
        assert (changed["score"], right) == (0.5, {"score": 1.0, "calls": 1, "said": None})
        assert late == Forfeit("timed out after 1 s")
        assert broken == Forfeit("ended with ZeroDivisionError: division by zero")


# --- parts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (b'{"answer": {"score": 1}}', {"answer": {"score": 1}}),
        (b'{"answer": {"x": [[1], {"y": "\\u00e9"}]}}', {"answer": {"x": [[1], {"y": "é"}]}}),
        (b'{"error": "ValueError"}', {"forfeit": "ended with ValueError"}),
        *((bad, {"forfeit": "its answer cannot be read"}) for bad in (b"", b"{", b"\xff", b"3", b"[]", b'{"a": NaN}')),
        (b'{"answer": "\\ud800"}', {"forfeit": "its answer cannot be read"}),
        (b'{"answer": ' + b"9" * 9999 + b"}", {"forfeit": "its answer cannot be read"}),
        (b'{"answer": {"x": ' + b"[" * 60 + b"]" * 60 + b"}}", {"forfeit": "its answer cannot be read"}),
        (b'{"answer": ' + b"[" * 10**5 + b"]" * 10**5 + b"}", {"forfeit": "its answer cannot be read"}),
        (b'{"answer": [1]}', {"forfeit": "ended with None"}),
    ],
)
def test_what_a_child_says_is_read_with_care(said: bytes, outcome: dict[str, Any]) -> None:
    assert host.read_answer(said) == outcome


def test_a_machine_short_of_processes_gets_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = iter([BlockingIOError(11, "short"), 42])

    def fork() -> int:
        if isinstance(found := next(tries), OSError):
            raise found
        return found

    monkeypatch.setattr(os, "fork", fork)
    assert host.fork() == 42


# --- the pool -------------------------------------------------------------------------------------------------------

ECHO = """
import json, sys, time
print("ready", flush=True)
for line in sys.stdin:
    time.sleep(json.loads(line)["sleep"])
    print(line, end="", flush=True)
"""
SECOND_TIME = """
import os, sys
if not os.path.exists(sys.argv[1]):
    open(sys.argv[1], "w").close()
    sys.exit("not yet")
print("ready", flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
"""


JUNK = """
import json, sys
print("ready", flush=True)
for line in sys.stdin:
    print(json.loads(line)["say"], flush=True)
"""


@pytest.mark.parametrize("junk", ["junk", "", "[" * 100_000])
@pytest.mark.parametrize("slots", [1, 2])
def test_a_worker_that_writes_what_is_no_answer_is_replaced(junk: str, slots: int) -> None:
    good = {"say": '{"ticket": 0, "n": 1}'}
    wanted = json.loads(good["say"]) if slots == 1 else {"n": 1}
    command = (sys.executable, "-S", "-E", "-c", JUNK)
    with WorkerPool(command, num_workers=1, timeout_s=60, slots=slots) as pool:
        [failure] = pool.map([{"say": junk}])
        assert failure == Failure("broken", "wrote what is no answer where its answers belong")
        assert pool.map([good]) == [wanted]


def test_what_comes_while_nobody_waits_is_no_answer_to_the_next_request() -> None:
    command = (sys.executable, "-S", "-E", "-c", JUNK)
    with WorkerPool(command, num_workers=1, timeout_s=60) as pool:
        assert pool.map([{"say": "5\n6"}]) == [5]
        while pool._events.empty():
            time.sleep(0.01)
        assert pool.map([{"say": "7"}]) == [7]


def test_a_worker_that_died_while_nobody_waited_costs_no_request() -> None:
    with WorkerPool((sys.executable, "-S", "-E", "-c", ECHO), num_workers=1, timeout_s=60) as pool:
        pool.map([{"sleep": 0}])
        pool._workers[0]._process.kill()
        while pool._events.empty():
            time.sleep(0.01)
        assert pool.map([{"sleep": 0}]) == [{"sleep": 0}]


def test_three_late_requests_cost_one_limit() -> None:
    command = (sys.executable, "-S", "-E", "-c", ECHO)
    with WorkerPool(command, num_workers=NUM_WORKERS, timeout_s=2) as pool:
        start = time.monotonic()
        answers = pool.map([{"sleep": 60}] * 3)
        assert time.monotonic() - start < 3 * 2
    assert [answer.kind for answer in answers if isinstance(answer, Failure)] == ["timeout"] * 3


def test_a_pool_starts_no_more_workers_than_requests_need() -> None:
    with WorkerPool((sys.executable, "-S", "-E", "-c", ECHO), num_workers=4, timeout_s=9) as pool:
        pool.map([{"sleep": 0}])
        assert len(pool._workers) == 1
    with WorkerPool((sys.executable, "-S", "-E", "-c", ECHO), num_workers=4, slots=2, timeout_s=9) as pool:
        pool._staff(3)
        assert len(pool._workers) == 2


def test_a_worker_that_dies_while_starting_is_started_again(tmp_path: Path) -> None:
    command = (sys.executable, "-S", "-E", "-c", SECOND_TIME, str(tmp_path / "seen"))
    with WorkerPool(command, num_workers=1, timeout_s=9) as pool:
        assert pool.map([{"n": 1}]) == [{"n": 1}]


def test_a_pool_gives_up_on_what_never_starts(tmp_path: Path) -> None:
    script = "import sys; open(sys.argv[1], 'a').write('x'); sys.exit('no such package')"
    tries = tmp_path / "tries"
    with WorkerPool((sys.executable, "-c", script, str(tries)), num_workers=1, timeout_s=1, name="the echo") as pool:
        with pytest.raises(WorkerError, match="the echo did not start: no such package"):
            pool.map([{}])
        assert tries.read_text() == "xxx"
        assert not pool._workers
    with pytest.raises(WorkerError, match="No such file"):
        WorkerPool(("/nowhere/at-all",), num_workers=1, timeout_s=1).map([{}])


def test_workers_get_their_environment() -> None:
    code = (
        "import json, os; print('ready', flush=True); input(); print(json.dumps(os.environ['WHET_TEST']), flush=True)"
    )
    command = (sys.executable, "-c", code)
    with WorkerPool(command, num_workers=1, timeout_s=60, environment={"WHET_TEST": "here"}) as pool:
        assert pool.map([{}]) == ["here"]


def test_payloads_hold_what_the_child_alone_sees_apart() -> None:
    payload = client._payload(7, Request({"item": 1}, {"reply": "é"}))
    sizes, rest = payload[:16], payload[16:]
    head_size = int.from_bytes(sizes[:8], "big")
    assert json.loads(rest[:head_size]) == {"ticket": 7, "common": {"item": 1}}
    assert json.loads(rest[head_size:]) == {"reply": "é"}


def test_a_preparation_that_failed_is_tried_again() -> None:
    """Once it is not ready in time; that says nothing of the next reply to the same task."""
    calls: list[str] = []

    class Program:
        def prepare(self, common: object) -> str:
            calls.append(str(common))
            if len(calls) == 1:
                raise MemoryError
            return "ready"

    served = host.Host(Program(), LIMITS, prepare_s=5.0, enclosed=False, replies=1)
    with pytest.raises(host.Broken, match="MemoryError"):
        served._prepared("{}")
    assert [served._prepared("{}") for _ in range(2)] == ["ready", "ready"]
    assert len(calls) == 2  # what succeeds is kept
