"""Does a run that was killed at any moment end in the same bits, and is every damaged run folder noticed?

    .venv/bin/python benchmarks/kill_resume.py                # 200 kills and all damages, then the results
    .venv/bin/python benchmarks/kill_resume.py --kills 12     # a look
    .venv/bin/python benchmarks/kill_resume.py --collect      # only reads what is there

*Kills*: small runs of every kind (`kill_scenarios.py`) get SIGKILL after a random share of the time that an unbroken
one takes, go on with `whet resume` (or the command again, where nothing was there yet), are killed again, and in the
end are held against the unbroken run: weights, optimisers, the store, metrics but for times, traces, final table.

*Damages*: a run that was killed in the middle is copied, damaged in one way (`damages.py`), and resumed. It has to end
in the same bits, with a word on the console where anything was lost, or to be refused with a sentence.

Some processes side by side (`--processes`), one thread each. What was done is kept under `--root`: a study that was
stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from damages import DAMAGES, make_base, try_damage
from faulty_endpoint import PLACE, endpoint
from forked import KILLED, difference, end_state, run
from kill_scenarios import SCENARIOS, TITLES
from study import RESULTS, machine, write

FAILING = 0.05
"""Of the requests to the endpoint."""
ADDRESS = "endpoint.txt"
"""Below the root: where it listens."""
EVAL = ("--samples", "3", "--critic", "best", "--critic", "last")
KILLS_A_JOB = 5


@dataclass(frozen=True)
class Job:
    """A few kills of one kind of run."""

    scenario: str
    number: int
    kills: int


def jobs(total: int, kinds: Sequence[str]) -> list[Job]:
    """Kinds in turn, so that a study cut short has some of each."""
    counts = {name: total // len(kinds) + (i < total % len(kinds)) for i, name in enumerate(kinds)}
    found = []
    for number in range(-(-max(counts.values()) // KILLS_A_JOB)):
        for name, count in counts.items():
            kills = min(KILLS_A_JOB, count - number * KILLS_A_JOB)
            if kills > 0:
                found.append(Job(name, number, kills))
    return found


def reference(root: Path, name: str) -> None:
    """Two unbroken runs of a kind, which have to be the same, and how long the shorter took."""
    place = root / "unbroken" / name
    if place.with_suffix(".json").exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    again, seconds = place.with_name(f"{name}_again"), []
    for each in (again, place):
        shutil.rmtree(each, ignore_errors=True)
        seconds.append(_unbroken(root, name, each))
    assert difference(end_state(again), end_state(place)) is None, f"{again} and {place} differ"
    place.with_suffix(".json").write_text(json.dumps({"seconds": min(seconds)}))


def _unbroken(root: Path, name: str, place: Path) -> float:
    begun = time.monotonic()
    assert run(_begun(root, name, place), place.with_suffix(".log")) == 0, place.with_suffix(".log")
    if name == "eval":
        shutil.copytree(place, root / "unbroken" / "eval_before", dirs_exist_ok=True)
        begun = time.monotonic()
        assert run(["eval", place, *EVAL], place.with_suffix(".log")) == 0, place.with_suffix(".log")
    return time.monotonic() - begun


def killed(root: Path, seed: int, job: Job) -> None:
    """Kill and go on until the job's kills are used up; each run that ends on the way is compared as well."""
    place = root / "killed" / f"{job.scenario}-{job.number}-{job.kills}"
    if place.with_suffix(".json").exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    unbroken = root / "unbroken" / job.scenario
    whole = json.loads(unbroken.with_suffix(".json").read_text())["seconds"]
    wanted = end_state(unbroken)
    rng = random.Random(f"{seed} {job}")
    kills: list[dict[str, Any]] = []
    ended: list[str | None] = []
    shutil.rmtree(place, ignore_errors=True)
    while (len(kills) < job.kills or place.exists()) and sum(map(bool, ended)) < 3:
        life = rng.uniform(0, whole) if len(kills) < job.kills else None
        code = run(_command(root, place, job.scenario), place.with_suffix(".log"), life)
        if code == KILLED:
            kills.append({"after": life, **_where(place)})
        else:
            ended.append(f"exit code {code}" if code else difference(wanted, end_state(place)))
            if ended[-1] is None:
                shutil.rmtree(place)
            elif place.exists():
                place.rename(place.with_name(f"{place.name}.differs{len(ended)}"))
    place.with_suffix(".json").write_text(json.dumps({"scenario": job.scenario, "kills": kills, "ended": ended}))


def _command(root: Path, place: Path, scenario: str) -> list[object]:
    if scenario == "eval":
        if not place.exists():
            shutil.copytree(root / "unbroken" / "eval_before", place)
        return ["eval", place, *EVAL]
    goes_on = SCENARIOS[scenario][0] != "data" and (place / "config.yaml").exists()
    return ["resume", place] if goes_on else _begun(root, scenario, place)


def _begun(root: Path, scenario: str, place: Path) -> list[object]:
    """The command that begins a run; `whet data` goes on by the same one."""
    settings = SCENARIOS[scenario]
    if settings[0] == "data":
        url = (root / ADDRESS).read_text()
        return [*(each.replace(PLACE, url) for each in settings), "--out", place]
    return ["train", *settings, "--out", place]


def _where(place: Path) -> dict[str, Any]:
    """What the kill met: nothing yet, a checkpoint half written, or the run at work."""
    metrics = place / "metrics.jsonl"
    return {
        "lines": len(metrics.read_bytes().splitlines()) if metrics.exists() else 0,
        "writing": any(place.glob("checkpoints/.*")) or any(place.glob("eval/.*")),
    }


# --- all of it --------------------------------------------------------------------------------------------------------


def work(root: Path, asked: argparse.Namespace) -> None:
    with served(root), ProcessPoolExecutor(asked.processes, multiprocessing.get_context("fork")) as pool:
        _all(pool, "unbroken runs", partial(reference, root), asked.kinds)
        _all(pool, "kills", partial(killed, root, asked.seed), jobs(asked.kills, asked.kinds))
        _all(pool, "run to damage", make_base, [root] if asked.damages else [])
        _all(pool, "damages", partial(try_damage, root), asked.damages)


@contextmanager
def served(root: Path) -> Iterator[None]:
    """The endpoint that fails, in a process of its own: others are forked from this one."""
    listening = multiprocessing.get_context("fork").Event()
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(root, listening), daemon=True)
    server.start()
    assert listening.wait(30)
    try:
        yield
    finally:
        server.terminate()
        server.join()


def _serve(root: Path, listening: Any) -> None:
    with endpoint(FAILING, root / "requests.log") as server:
        (root / ADDRESS).write_text(server.url)
        listening.set()
        signal.pause()


def _all(pool: ProcessPoolExecutor, what: str, do: Callable[[Any], None], each: Iterable[Any]) -> None:
    each = list(each)
    begun = time.monotonic()
    for done, job in enumerate(as_completed([pool.submit(do, one) for one in each]), 1):
        job.result()
        print(f"\r{what}: {done} of {len(each)}, {time.monotonic() - begun:.0f} s  ", end="", flush=True)
    print(flush=True)


def collect(root: Path, command: str, asked: argparse.Namespace) -> dict[str, Any]:
    """What was found, as it is on disk."""
    wanted = {f"{j.scenario}-{j.number}-{j.kills}.json" for j in jobs(asked.kills, asked.kinds)}
    files = [path for path in sorted((root / "killed").glob("*.json")) if path.name in wanted]
    found = [json.loads(path.read_text()) for path in files]
    rows = {}
    for name in asked.kinds:
        mine = [each for each in found if each["scenario"] == name]
        kills = [kill for each in mine for kill in each["kills"]]
        ended = [end for each in mine for end in each["ended"]]
        rows[name] = {
            "kills": len(kills),
            "before_the_first_step": sum(kill["lines"] == 0 for kill in kills),
            "while_writing": sum(kill["writing"] for kill in kills),
            "runs": len(ended),
            "same_bits": sum(end is None for end in ended),
            "others": [end for end in ended if end],
            "unbroken_seconds": json.loads((root / "unbroken" / f"{name}.json").read_text())["seconds"],
        }
    log = root / "requests.log"
    requests = Counter(log.read_text()) if log.exists() else Counter()
    places = [root / "damaged" / f"{name}.json" for name in asked.damages]
    damages = {path.stem: json.loads(path.read_text()) for path in places if path.exists()}
    return {
        "command": command,
        "machine": machine(root / "unbroken" / asked.kinds[0]),
        "kills": rows,
        "damages": damages,
        "requests": {"sent": requests.total(), "failed": requests["5"] + requests["d"]},
    }


def table(result: dict[str, Any]) -> str:
    kills, damages = result["kills"], result["damages"]
    total = sum(row["kills"] for row in kills.values())
    runs, same = (sum(row[name] for row in kills.values()) for name in ("runs", "same_bits"))
    others = [name for name, found in damages.items() if found["outcome"] != found["expected"]]
    outcomes = Counter(found["outcome"] for found in damages.values())
    lines = [
        "# Kills and damaged run folders", "",
        f"`{result['command']}`; {result['machine']['processor']}, whet {result['machine']['whet']}, commit "
        f"{result['machine']['commit']}.", "",
        f"**{total} kills in {runs} runs: {same} ended in the same bits.** SIGKILL after a random share of the time of "
        "an unbroken run, then `whet resume`, until it is through.", "",
        "| run | kills | before the first step | while a file was written | runs | same bits |",
        "|---|---|---|---|---|---|",
        *(
            f"| {TITLES[name]} | {row['kills']} | {row['before_the_first_step']} | {row['while_writing']} "
            f"| {row['runs']} | {row['same_bits']} |"
            for name, row in kills.items()
        ), "",
    ]  # fmt: skip
    if sent := result["requests"]["sent"]:
        lines += [f"The endpoint was asked {sent:,} times, and {result['requests']['failed']:,} of these failed "
                  "(503, or dropped).", ""]  # fmt: skip
    if not damages:
        return "\n".join(lines)
    lines += [
        f"**{len(damages)} damaged folders: {outcomes['silent']} silent, {outcomes['traceback']} tracebacks;** "
        + ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items())) + ". "
        + f"Not as expected: {', '.join(others) or 'none'}.", "",
        "| damage | outcome | what was said |", "|---|---|---|",
        *(
            f"| {name.replace('_', ' ')} | {found['outcome']} | {found['said'].replace('|', '/')} |"
            for name, found in damages.items()
        ), "",
    ]  # fmt: skip
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("runs/kill_resume"), help="where the runs are")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument(
        "--kinds", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="of runs that are killed"
    )
    parser.add_argument("--damages", nargs="*", choices=DAMAGES, default=list(DAMAGES), metavar="DAMAGE")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--processes", type=int, default=2, help="side by side")
    parser.add_argument("--collect", action="store_true", help="run nothing, only read what is there")
    parser.add_argument("--name", default="kill_resume", help=f"of the result files in {RESULTS.name}/")
    options = parser.parse_args(arguments)
    root = Path(os.path.abspath(options.root))
    if not options.collect:
        work(root, options)
    command = " ".join(["python benchmarks/kill_resume.py", *arguments])
    result = collect(root, command, options)
    write(options.name, result, table(result))


if __name__ == "__main__":
    main(sys.argv[1:])
