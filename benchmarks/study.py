"""What the learning studies share: runs side by side that go on where they stopped, and result files.

A study of many seeds is made in several sittings, on machines that are lent for hours and then lost with all their
runs. Its result file keeps every seed's numbers, so each sitting adds seeds to it (`accumulate`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from whet.evaluation.critique import mean_interval

RESULTS = Path(__file__).parent / "results"


def arguments(
    doc: str | None, name: str, parts: Sequence[str] = (), *, seeds: Sequence[int] = (0, 1, 2, 3, 4),
    steps: int | None = None, processes: int | None = None,
) -> argparse.Namespace:  # fmt: skip
    """The command line of a study: `root`, `seeds`, `collect`, `name`, `settings`, and the `command` itself.

    Args:
        parts: of the study, of which some can be chosen: `only`.
        seeds: those that it takes by default.
        steps: of training, by default, where the study has one number of them. None: it has no such option.
        processes: runs side by side by default, in a study of several sittings (`accumulate`), which has `again` too.
            None: it has no such options.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, help="where the runs are: runs/ and the name, if not given")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(seeds))
    if steps is not None:
        parser.add_argument("--steps", type=int, default=steps, help="of training, in all (a multiple of 4)")
    parser.add_argument("--collect", action="store_true", help="run nothing, only read what is there")
    parser.add_argument("--name", default=name, help="of the result files")
    if processes is not None:
        parser.add_argument("--again", action="store_true", help="run seeds whose numbers the result file has, too")
        parser.add_argument("--processes", type=int, default=processes, help="runs side by side")
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, default=list(parts), help="the others' results stay")
    parser.add_argument("settings", nargs="*", help="key.sub=value for every run")
    command = " ".join([f"python benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    chosen = parser.parse_args(namespace=argparse.Namespace(command=command))
    # Another name has other runs: those of the default one may have other settings.
    chosen.root = chosen.root or Path("runs") / chosen.name
    return chosen


def train(method: str, settings: Sequence[str], out: Path, *, threads: int = 1) -> None:
    """Train in so many threads, or go on with the run that is there; a finished one is left as it is. What it prints is
    in a log beside its folder.

    Raises: RuntimeError where it stopped.
    """
    if (out / "summary.json").exists():
        return
    log = out.with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    whet(log, "train", method, *settings, "--out", str(out), threads=threads)
    print(f"{out.parent.name} {out.name}: {time.monotonic() - begun:.0f} s", flush=True)


def evaluated(
    run: Path, critic: str, *, samples: int = 1, refinements: int = 1, rounds: int = 1, changed: Sequence[str] = ()
) -> Mapping[str, Any]:
    """What `whet eval` keeps of one critic of a run; measured now, unless it was before.

    Args:
        changed: settings other than the run's.
    Raises: RuntimeError where it stopped.
    """

    def kept() -> Mapping[str, Any] | None:
        for file in sorted((run / "eval").glob("*[!s].json")):
            record: Mapping[str, Any] = json.loads(file.read_text())
            asked, counts = record["settings"], (samples, refinements, rounds)
            episodes = record.get("evaluation", {}).get("num_rounds", 1)  # an agent's critic has one round
            was = (asked["num_samples"], asked["num_refinements"], episodes)
            if (record["critic"], was, tuple(asked["changed"])) == (critic, counts, tuple(changed)):
                return record
        return None

    if (found := kept()) is None:
        options = ["--critic", critic, "--samples", samples, "--refinements", refinements]
        options += ["--rounds", rounds] if rounds > 1 else []
        whet(run.with_suffix(".eval.log"), "eval", str(run), *changed, *map(str, options))
        found = kept()
    assert found is not None
    return found


def whet(log: Path, *arguments: str, threads: int = 1) -> None:
    """A command of ours; what it prints is added to the log.

    Raises: RuntimeError where it stopped.
    """
    with log.open("a") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "whet.cli", *arguments]
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False).returncode
    if code:
        raise RuntimeError(f"whet {' '.join(arguments)} stopped with code {code}: see {log}")


def policies_of(run: Path) -> Path:
    """The folder of the policies in a run's last checkpoint."""
    return run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip() / "policies"


def rows_of(run: Path) -> Mapping[str, Mapping[str, float | None]]:
    """The final table of a run that has finished."""
    rows: Mapping[str, Mapping[str, float | None]] = json.loads((run / "summary.json").read_text())["rows"]
    return rows


def machine(run: Path) -> dict[str, Any]:
    """Where and with what a run was made, and at which commit."""
    found = json.loads((run / "env.json").read_text())
    kept = ("whet", "torch", "transformers", "python", "platform", "num_cores", "commit")
    card = {"card": found["device"]} if found.get("device", "cpu") != "cpu" else {}
    return {**{name: found.get(name) for name in kept}, "processor": processor(), **card}


def machine_now() -> dict[str, Any]:
    """Where this process runs, and at which commit."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    found = {"python": platform.python_version(), "platform": platform.platform(), "num_cores": os.cpu_count()}
    return {**found, "commit": commit or None, "processor": processor()}


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def cell(values: Sequence[float | None], *, sign: bool = False, scale: float = 100) -> str:
    """The mean over seeds and the half width of its 95 % t interval, in percent; a dash where no seed has the value."""
    known = [scale * value for value in values if value is not None]
    if not known:
        return "–"
    mean, half = mean_interval(known)
    shown = f"{mean:+.1f}" if sign else f"{mean:.1f}"
    return shown if half is None else f"{shown} ± {half:.1f}"


def minus(left: Sequence[float | None], right: Sequence[float | None]) -> list[float | None]:
    """Paired differences, seed by seed."""
    pairs = zip(left, right, strict=True)
    return [None if a is None or b is None else a - b for a, b in pairs]


def paired_lead(title: str, left: Sequence[float | None], right: Sequence[float | None]) -> str:
    """A row of a table: the mean of the paired differences in points, and the difference of each seed."""
    lead = minus(left, right)
    by_seed = ", ".join("–" if value is None else f"{100 * value:+.1f}" for value in lead)
    return f"| {title} | {cell(lead, sign=True)} | {by_seed} |"


def seconds_of(run: Path) -> float:
    """Wall time of a finished run."""
    seconds: float = json.loads((run / "summary.json").read_text())["seconds"]
    return seconds


def lines_of(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def updates_of(run: Path) -> dict[str, int]:
    """By phase that imitates, such as a round of AgentEvol, its updates."""
    counts: dict[str, int] = {}
    for line in lines_of(run):
        if "loss/nll" in line and line["step"]:
            counts[line["phase"]] = counts.get(line["phase"], 0) + 1
    return counts


def validated_success(run: Path) -> list[float]:
    """In [0, 1], in the order of the steps that were validated."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["validation/success"] for line in lines if "validation/success" in line]


def greedy_metrics(run: Path, which: str) -> Mapping[str, float | None]:
    """Metrics of a run's greedy episodes on the test items; measured now, unless they were before.

    Args:
        which: weights, `after` (the best validated ones) or `last`.
    Raises: RuntimeError where the evaluation stopped.
    """

    def files() -> list[Path]:
        return sorted((run / "eval").glob(f"{which}-test-n*-k1.json"))

    if not files():
        whet(run.with_suffix(".eval.log"), "eval", str(run), "--critic", which, "--samples", "1")
    metrics: Mapping[str, float | None] = json.loads(files()[0].read_text())["metrics"]
    return metrics


def write(name: str, result: Mapping[str, Any], text: str) -> None:
    """Both files under `results/`, and the text on the screen."""
    save(name, result, text)
    print(text)


def save(name: str, result: Mapping[str, Any], text: str) -> None:
    """Both files under `results/`. A process that dies here leaves the earlier files whole."""
    RESULTS.mkdir(exist_ok=True)
    for file, content in ((f"{name}.json", json.dumps(result, indent=1) + "\n"), (f"{name}.md", text)):
        draft = RESULTS / f"{file}.draft"
        draft.write_text(content)
        draft.replace(RESULTS / file)


# --- studies of several sittings --------------------------------------------------------------------------------------

Table = dict[str, Any]
"""Numbers of many seeds. `seeds`; `settings`: what all of them were made with; `machines`: by seed, where and at which
commit it was made; and columns: nested mappings whose leaves are lists with one entry a seed."""
NOT_COLUMNS = ("seeds", "settings", "machines")


@dataclass(frozen=True)
class Part:
    """One table of a study: how a seed of it is run and read."""

    place: tuple[str, ...]
    """Keys of the table in the result file: `("worlds", "cheap")`."""
    settings: Mapping[str, Any]
    """Everything that its seeds must share, as JSON has it."""
    seeds: Sequence[int]
    run: Callable[[int], None]
    """Trains what is missing of a seed."""
    folder: Callable[[int], Path]
    """Where a seed's runs are."""
    is_whole: Callable[[int], bool]
    measure: Callable[[int], Mapping[str, Any]]
    """A seed's numbers, and its `machine`."""
    queue: str = ""
    """Parts of one queue run a seed one after the other."""


def join(measured: Mapping[int, Mapping[str, Any]], settings: Mapping[str, Any]) -> Table:
    """The table of seeds that were measured one by one, in the order of the seeds.

    Raises: SystemExit where seeds have different numbers.
    """
    seeds = sorted(measured)
    numbers = [{key: value for key, value in measured[seed].items() if key != "machine"} for seed in seeds]
    machines = {str(seed): measured[seed]["machine"] for seed in seeds}
    return {"seeds": seeds, "settings": settings, "machines": machines, **_columns(numbers)}


def split(table: Table) -> dict[int, dict[str, Any]]:
    """What `join` had been given: a table's numbers, by seed."""
    columns = {key: value for key, value in table.items() if key not in NOT_COLUMNS}
    return {
        seed: {"machine": table["machines"][str(seed)], **_entry(columns, place)}
        for place, seed in enumerate(table["seeds"])
    }


def _columns(numbers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    if differ := set().union(*numbers) - set(numbers[0]).intersection(*numbers):
        raise SystemExit(
            f"some seeds have no {', '.join(sorted(differ))}: the study measured other numbers when they were made, so "
            "run them --again, or give another --name"
        )
    for key, first in numbers[0].items():
        values = [each[key] for each in numbers]
        columns[key] = _columns(values) if isinstance(first, Mapping) else values
    return columns


def _entry(columns: Mapping[str, Any], place: int) -> dict[str, Any]:
    return {key: _entry(value, place) if isinstance(value, Mapping) else value[place] for key, value in columns.items()}


def table_at(result: Mapping[str, Any], place: Sequence[str]) -> Table | None:
    """A table of a result file. None: it has none there."""
    table: Any = result
    for key in place:
        table = table.get(key, {})
    return table or None


def read_result(name: str) -> dict[str, Any]:
    """The result file of a study; empty where there is none yet."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def add_seeds(result: dict[str, Any], part: Part, measured: Mapping[int, Mapping[str, Any]]) -> None:
    """Put seeds into their table of a result; the table's other seeds stay as they are.

    Raises: SystemExit where the table was made with other settings.
    """
    settings = json.loads(json.dumps(part.settings))  # as a file gives it back: lists for tuples
    table = table_at(result, part.place)
    if table is not None and table["settings"] != settings:
        old = table["settings"]
        differ = sorted(key for key in {*old, *settings} if old.get(key) != settings.get(key))
        seeds, name = ", ".join(map(str, table["seeds"])), " ".join(part.place)
        raise SystemExit(
            f"the result file's seeds {seeds} of {name} were made with other settings ({', '.join(differ)}), which do "
            "not mix: restore these settings, or give another --name"
        )
    if not measured:
        return
    home = result
    for key in part.place[:-1]:
        home = home.setdefault(key, {})
    home[part.place[-1]] = join({**(split(table) if table else {}), **measured}, settings)


def is_to_run(result: Mapping[str, Any], part: Part, seed: int, *, again: bool) -> bool:
    """Whether a seed's numbers are missing, or its folder is here to go on with."""
    table = table_at(result, part.place)
    return again or part.folder(seed).exists() or table is None or seed not in table["seeds"]


def accumulate(
    options: argparse.Namespace, parts: Sequence[Part], markdown: Callable[[Mapping[str, Any]], str]
) -> dict[str, Any]:
    """Run seeds and add them to the result file, each as soon as it is whole. Returns the result.

    A seed whose numbers are in the file already, and whose runs are not here, is not run, unless `--again` asks for it.
    Its numbers stay. Numbers of runs that are here replace those in the file.

    Raises: SystemExit where the file has seeds of other settings, or where no seed is whole; the first error of a run,
        once all others have ended.
    """
    lock = Lock()
    for part in parts:
        add_seeds(read_result(options.name), part, {})  # refuses before anything is trained

    def add(part: Part, seed: int) -> None:
        numbers = part.measure(seed)
        with lock:
            result = read_result(options.name)  # again: another process may have added seeds
            add_seeds(result, part, {seed: numbers})
            result["command"] = options.command
            save(options.name, result, markdown(result))
        print(f"{' '.join(part.place)} seed {seed}: in {options.name}.json", flush=True)

    def run_queue(queue: Iterable[tuple[Part, int]]) -> None:
        for part, seed in queue:
            if not options.collect and is_to_run(read_result(options.name), part, seed, again=options.again):
                part.run(seed)
            if part.is_whole(seed):
                add(part, seed)

    # Seed by seed, so that the first seeds are whole wherever a sitting ends.
    queues: dict[tuple[int, str], list[tuple[Part, int]]] = {}
    for seed in dict.fromkeys(seed for part in parts for seed in part.seeds):
        for part in parts:
            if seed in part.seeds:
                queues.setdefault((seed, part.queue or " ".join(part.place)), []).append((part, seed))
    with ThreadPoolExecutor(options.processes) as pool:
        jobs = [pool.submit(run_queue, queue) for queue in queues.values()]
    for job in jobs:
        job.result()
    result = read_result(options.name)
    if not any(table_at(result, part.place) for part in parts):
        raise SystemExit(f"no seed has finished in {options.root}: run without --collect")
    return result


def run_study(
    options: argparse.Namespace, settings: Mapping[str, Any], run: Callable[[Path, int, Sequence[str]], None],
    is_whole: Callable[[Path, int], bool], measure: Callable[[Path], Mapping[str, Any]],
    markdown: Callable[[Mapping[str, Any]], str],
) -> None:  # fmt: skip
    """A study of one table, `found`: runs its seeds, adds them to the result file and prints it.

    Args:
        settings: what its seeds must share, beside those of the command line.
        run: trains what is missing of a seed, from the root, the seed and the command line's settings.
        measure: a seed's numbers, from its folder.
    """
    root, extra = options.root, options.settings
    part = Part(
        place=("found",),
        settings={**settings, "extra": extra},
        seeds=options.seeds,
        run=lambda seed: run(root, seed, extra),
        folder=lambda seed: root / f"seed{seed}",
        is_whole=lambda seed: is_whole(root, seed),
        measure=lambda seed: measure(root / f"seed{seed}"),
    )
    print(markdown(accumulate(options, [part], markdown)))


def made_with(table: Table) -> list[str]:
    """Lines that name each machine and commit of a table, with the seeds that were made there."""
    seeds: dict[str, list[str]] = {}
    for seed, where in table["machines"].items():
        processor_and_cores = f"{where.get('processor')}, {where.get('num_cores')} cores"
        versions = ", ".join(f"{name} {where.get(name)}" for name in ("torch", "transformers", "python"))
        line = f"commit {where.get('commit')}; {processor_and_cores}; {versions}; {where.get('platform')}"
        if (recorded := where.get("recorded_for_seed")) is not None:  # a file that had one machine for all seeds
            line += f" (recorded for seed {recorded} only, assumed for these)"
        seeds.setdefault(line, []).append(seed)
    return [f"Made with seeds {', '.join(numbers)}: {line}." for line, numbers in seeds.items()]
