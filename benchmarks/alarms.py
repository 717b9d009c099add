"""Short runs of every registered method and preset on the models that ship: which raise an alarm, and is it right?

    .venv/bin/python benchmarks/alarms.py              # all of them (an hour on one core)
    .venv/bin/python benchmarks/alarms.py --only grpo,bapo # these; the others' rows stay

An alarm is a warning on the console. Sizes are small, and all else is the preset's own. Of a run whose premise holds on
the shipped models there may be none; `EXPECTED` says where it does not, and why.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from study import RESULTS, write
from whet.config.base import Config
from whet.config.effects import acts
from whet.config.tree import is_tag
from whet.errors import WhetError
from whet.methods import METHODS
from whet.methods.registry import config_of, preset_of
from whet.run.launch import start
from whet.run.session import Session

SIZES: dict[str, int] = {
    "num_validation": 4, "num_test": 4, "num_steps": 2, "rows_per_step": 8, "prompts_per_step": 16,
    "items_per_step": 6, "group_size": 8,
    "validate_every": 2, "num_samples": 2, "minibatch_rows": 24, "warmup_updates": 1, "checkpoint_every": 0,
    "num_threads": 1, "num_rounds": 1, "num_explored": 12, "num_originals": 12, "num_questions": 8,
    "questions_per_step": 4, "records_per_step": 8, "pairs_per_step": 4, "attempts": 6, "num_refinements": 1,
}  # fmt: skip
"""What a run has at most where its config has such a key.

A warm start stays whole: the method begins with what it teaches. Sixteen groups tell a poor start from chance
(`training.selfchecks.at_start`), eight do not.
"""
WHOLE = ("num_test", "num_explored", "num_threads")
"""Of `SIZES`: keys of which None means all."""
FEW_SERVERS = ("prompts_per_step=4", "group_size=4", "pool.capacity=4", "pool.timeout_s=300")
"""Of an environment that starts a Java server for each episode: 128 at once answer too late on two cores."""
OWN: dict[str, tuple[str, ...]] = {
    "score_rl": ("first_stage=1",),
    "self_talk": ("prompts_per_step=24",),
    "agent_critic": ("max_turns=4", "stage1.num_steps=1", "stage2.num_steps=1"),
    "agentgym_rl_sciworld": FEW_SERVERS,
    "scaling_inter_sciworld": FEW_SERVERS,
}
"""What a method or preset sets besides."""
NOT_TAUGHT = "right: the agent that ships was never taught this environment, and writes no action that it reads"
EXPECTED: dict[str, dict[str, str]] = {
    "retroformer_published": {r"^roles\.critique\.top_p": "right: the published sampling, which the paper's code has"},
    "agentgym_rl_sciworld": {"without a readable answer": NOT_TAUGHT},
    "scaling_inter_sciworld": {"without a readable answer": NOT_TAUGHT},
}
"""Of a preset: by a regular expression of the alarm, why it is right."""


def leaves(config: Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting that is no config itself, by its dotted key."""
    for name, value in config.__dict__.items():
        if isinstance(value, Config):
            yield from leaves(value, f"{prefix}{name}.")
        elif not is_tag(type(config), name):
            yield prefix + name, value


def settings_of(name: str) -> list[str]:
    """Of a run of seconds."""
    config = preset_of(name).config
    found: dict[str, object] = {}
    for key, value in leaves(config):
        last = key.rpartition(".")[2]
        if key.startswith("warm_start."):
            continue
        if not acts(config, key) or key in config.schedule:
            continue
        if last in SIZES and (isinstance(value, int) or (value is None and last in WHOLE)):
            found[key] = SIZES[last] if value is None else min(value, SIZES[last])
        elif last == "path" and isinstance(value, str) and "/" in value and not value.startswith("tiny"):
            found[key] = "tiny_agent_early"
    return [f"{key}={json.dumps(value)}" for key, value in found.items()] + list(OWN.get(name, ()))


class Told:
    """A console that keeps its warnings."""

    def __init__(self) -> None:
        self.starts: list[str] = []
        self.warnings: list[str] = []

    def begin(self, phase: str, done: int, total: int) -> None: ...
    def step(self, step: int, shown: object) -> None: ...
    def end(self) -> None: ...
    def tell(self, level: str, text: str) -> None:
        if level == "warning":
            self.warnings.append(text)
        elif "starts at" in text:
            self.starts.append(text)


def made(name: str, folder: Path, cuts: Sequence[str] = ()) -> dict[str, Any]:
    """Make one run; what it was told, and what ended it."""
    progress, ended = Told(), ""
    try:
        session = start(config_of(name, None, [*settings_of(name), *cuts]), folder / "run", progress)
        assert isinstance(session, Session)
        session.go()
    except WhetError as error:
        ended = " ".join(str(error).replace(str(folder), "RUN").split())
    found = folder / "run" / "metrics.jsonl"
    rows = [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []
    drift = [abs(row["kl/sampler"]) for row in rows if row.get("kl/sampler") is not None]
    return {"method": name, "starts": progress.starts, "alarms": progress.warnings, "ended": ended,
            "kl_sampler_max": max(drift, default=None), "cut": " ".join(cuts)}  # fmt: skip


def reason_of(name: str, alarm: str) -> str:
    return next((why for pattern, why in EXPECTED.get(name, {}).items() if re.search(pattern, alarm)), "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, by commas; the others' rows stay")
    parser.add_argument("--set", nargs="*", default=[], help="further settings, for runs cut shorter still")
    asked = parser.parse_args()
    only = asked.only.split(",")
    file = RESULTS / "alarms.json"
    known = json.loads(file.read_text())["runs"] if file.exists() else []
    rows = {row["method"]: row for row in known}
    for name in METHODS.names():
        if only == [""] or name in only:
            with tempfile.TemporaryDirectory() as root:
                rows[name] = made(name, Path(root), asked.set)
            print(f"{time.process_time():.0f} s", name, rows[name]["alarms"], rows[name]["ended"], flush=True)
            runs = [rows[name] for name in METHODS.names() if name in rows]
            file.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    runs = [rows[name] for name in METHODS.names() if name in rows]
    write("alarms", {"runs": runs}, _text(runs))


def _text(runs: list[dict[str, Any]]) -> str:
    alarms = [(run["method"], alarm) for run in runs for alarm in run["alarms"]]
    unexplained = [alarm for name, alarm in alarms if not reason_of(name, alarm)]
    drift = max((run["kl_sampler_max"] or 0.0 for run in runs), default=0.0)
    lines = [
        "# Alarms of short runs",
        "",
        f"{len(runs)} of {len(METHODS.names())} methods and presets, two steps a phase, on the models that ship: "
        f"{len(alarms)} alarms, of which {len(unexplained)} without a reason. The "
        f"largest KL from sampler to trainer is {drift:.2g} nats a token. Made by `benchmarks/alarms.py`.",
        "",
    ]
    if alarms:
        lines += ["| run | alarm | why |", "|---|---|---|"]
        lines += [f"| {name} | {alarm} | {reason_of(name, alarm) or '**none**'} |" for name, alarm in alarms]
        lines.append("")
    if cuts := sorted({run["cut"] for run in runs if run.get("cut")}):
        lines += ["Cut further than the others, so that their start is not the preset's own:", ""]
        lines += [f"- {cut}: {', '.join(run['method'] for run in runs if run.get('cut') == cut)}" for cut in cuts]
        lines.append("")
    if missing := [name for name in METHODS.names() if name not in {run["method"] for run in runs}]:
        lines += [f"Not made: {', '.join(missing)}.", ""]
    if ended := [(run["method"], run["ended"]) for run in runs if run["ended"]]:
        lines += ["Runs that did not end:", "", *(f"- {name}: {text}" for name, text in ended), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
