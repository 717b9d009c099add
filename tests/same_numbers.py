"""Holds a refactor to the numbers from before it, on any machine: short runs of every method, to rounding.

    python tests/same_numbers.py                       # checks every run; under a minute of CPU time
    python tests/same_numbers.py --only critique_rl    # checks the runs whose name contains this
    python tests/same_numbers.py --record              # records anew: only in a commit that says why numbers change
    python tests/same_numbers.py --record --only nft   # records these alone; the others stay as they are

`same_bits.py` compares every bit, and holds for one processor and one torch. This check holds everywhere, for less: a
run passes if each early step has the recorded texts exactly and the recorded metrics to rounding. Times and speeds are
left out. A metric that is new is no difference, and is listed.

Processors round differently, which can change a sampled token. So a recording makes each run twice, with the vector
instructions of this processor and with none. It ends before the first step where a token may change: where the two
disagree on a text or by one percent of a metric, or where a draw lay within `NEAREST_DRAW` of another token. Where the
two disagree on a metric by a tenth of the usual tolerance, the recording widens the tolerance of that value.

A codemod may rename metrics, settings, phases and methods. `tests/data/renamed.json` says how: former name to new name,
by table. The check reads the recording and the settings below through it, so nothing has to be recorded anew:

    {"metrics": {"episodes/played": "episodes/completed"}, "settings": {"warm_start.rows_per_step": "sft.batch_size"},
     "phases": {}, "methods": {"critique_loop": "critic_in_the_loop"}}

A name is whole (`reward/mean`) or a run of its parts (`episodes` renames `validation/episodes/lost` too). A setting can
stand with its value (`off_policy.kind=replay`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it

from support.renamed import RENAMED, Renamed

RECORD = Path(__file__).parent / "data" / "same_numbers.json"
RELATIVE, ABSOLUTE = 2e-4, 1e-6
"""How far a metric may be from the recorded value, at least: rounding changes about 1e-6 of most."""
COUNTED, COUNT = ("clip/", "optim/moved"), 0.01
"""Metrics with one of these in their recorded name are shares, of tokens beyond a bound or of weights that changed.
Rounding takes some across, so such a share may be this far from the recorded one."""
WIDER = 10.0
"""How many times the disagreement of the two recordings is allowed, where that is more."""
TOO_WIDE = 0.01
"""Of a value. Where the two recordings are further apart, an update was of rounding alone, as where a batch has no
signal: the recording ends, for Adam makes a whole step of it."""
NEAREST_DRAW = 1e-6
"""Probability, for each unit of the largest logit, whose size rounding goes by. A draw this near to another token may
give that token on another processor."""
MOST_STEPS = 24
"""Of a run, in the recording."""
DIGITS = 7
"""Of a recorded number."""
NO_VECTORS = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_CBWR": "COMPATIBLE"}
"""The other order of floating-point sums that a recording tries."""

ALL = ("num_threads=1", "seed=3", "checkpoint_every=0", "data.num_train=24", "data.num_validation=2", "data.num_test=2")
STEPS = ("num_steps=2", "prompts_per_step=3", "group_size=3", "validate_every=2", "learning.minibatch_rows=5")
SOLVE = (*ALL, *STEPS, "sampling.max_new_tokens=32", "evaluation.num_samples=1")
WARM = (
    *("warm_start.actor_steps=1", "warm_start.critic_steps=1"),
    *("warm_start.rows_per_step=6", "warm_start.learning.minibatch_rows=6"),
)
SHORT = tuple(f"roles.{role}.max_new_tokens=32" for role in ("answer", "critique", "refinement"))
CRITIC = (*ALL, *SHORT, *WARM, "seed=0")
STAGES = tuple(
    f"stage{stage}.{setting}"
    for stage in (1, 2)
    for setting in ("num_steps=2", "prompts_per_step=4", "validate_every=2", "learning.minibatch_rows=5")
)
MAZE = (
    *("num_threads=1", "seed=3", "checkpoint_every=0", "policy.path=AGENT", "data.env=maze", "data.num_train=4"),
    *("data.num_validation=1", "data.num_test=1", "evaluation.max_turns=2", "evaluation.num_samples=1", "rules=none"),
    *("max_context=4000", "sampling.max_new_tokens=16"),
)
AGENT_STEPS = (*STEPS, "max_turns=2")
RUNS: dict[str, tuple[str, ...]] = {
    "grpo": ("grpo", *SOLVE, "kl.coef=0.05", "probe_every=2"),
    "bapo": ("bapo", *SOLVE),
    "ppo": ("ppo", *SOLVE, "value.warmup_updates=1"),
    "rloo_replay": ("rloo", *SOLVE, "off_policy.kind=replay", "off_policy.staleness=1", "kl.coef=0.05",
                    "kl.where=reward"),
    "nft": ("nft", *SOLVE),
    "rltf_sd": ("rltf_sd", *SOLVE, "critique.max_new_tokens=32"),
    "score_rl": ("score_rl", *SOLVE, "first_stage=1"),
    "critique_coder": ("critique_coder", *SOLVE, "critique.max_new_tokens=32"),
    "imitation": ("imitation", *ALL, "num_steps=2", "rows_per_step=6", "learning.minibatch_rows=5", "validate_every=2",
                  "sampling.max_new_tokens=32", "evaluation.num_samples=1"),
    "critique_rl": ("critique_rl", *CRITIC, *STAGES),
    "critic_gradient": ("critic_gradient", *CRITIC, *STEPS),
    "star_critic": ("star_critic", *CRITIC, *STEPS, "num_rounds=1"),
    "open_ended": ("open_ended", *CRITIC, *STEPS, "reward_model.num_steps=1", "reward_model.rows_per_step=6",
                   "reward_model.learning.minibatch_rows=6"),
    "ref_critic": ("ref_critic", *CRITIC, *STEPS),
    "critique_dpo": ("critique_dpo", *CRITIC, *STEPS, "learning.minibatch_rows=6"),
    "critique_loop": ("critique_loop", *ALL, *WARM, "sampling.max_new_tokens=32", "critique.max_new_tokens=32",
                      "refinement.max_new_tokens=32", "num_rounds=1", "prompts_per_step=6", "num_samples=2",
                      "rows_per_step=6", "learning.minibatch_rows=6", "validate_every=2", "evaluation.num_samples=1",
                      "difficulty.num_samples=1", "num_explored=6", "num_originals=6"),
    "self_talk": ("self_talk", *ALL, "warm_start.critic_steps=1", "warm_start.rows_per_step=6", "num_steps=1",
                  "warm_start.learning.minibatch_rows=6", "prompts_per_step=16", "group_size=2", "rows_per_step=6",
                  "learning.minibatch_rows=6", "validate_every=1", "sampling.max_new_tokens=160",
                  "roles.critique.max_new_tokens=80", "evaluation.num_samples=1"),
    "auto_critique": ("auto_critique", *ALL, "roles.answer.max_new_tokens=32", "roles.refinement.max_new_tokens=32",
                      "rg1.num_samples=1", "rg2.num_samples=1", "rg3.num_samples=1", "num_questions=3",
                      "questions_per_step=3", "records_per_step=6", "locate.num_completions=2"),
    "spc": ("spc", *ALL, "sft_steps=2", "roles.answer.max_new_tokens=32", "roles.critique.max_new_tokens=32",
            "roles.refinement.max_new_tokens=16", "num_rounds=1", "learning.minibatch_rows=6"),
    "agent": ("agent", *MAZE),
    "agent_clone": ("agent_clone", *MAZE, "num_steps=2", "rows_per_step=6", "learning.minibatch_rows=5",
                    "validate_every=2"),
    "agent_dpo": ("agent_dpo", *MAZE, "max_turns=2", "threshold=0", "items_per_step=2", "num_epochs=1",
                  "pairs_per_step=2", "num_rounds=1", "group_size=3", "learning.minibatch_rows=6", "validate_every=2"),
    "agent_evol": ("agent_evol", *MAZE, "items_per_step=2", "num_epochs=1", "weighting=binary",
                   "kept_above.maze=-1000", "num_rounds=1", "rows_per_step=6", "learning.minibatch_rows=6",
                   "group_size=2", "validate_every=2"),
    "agent_gradient": ("agent_gradient", *MAZE, "seed=1", *AGENT_STEPS, "credit.per=turn"),
    "agent_ppo": ("agent_ppo", *MAZE, "seed=2", *AGENT_STEPS, "value.warmup_updates=1"),
    "agent_critic": ("agent_critic", *MAZE, "critic.path=AGENT", "max_turns=1", "evaluation.max_turns=1",
                     "warm_start.policy_steps=1", "warm_start.attempts=2", "warm_start.misled=0.5",
                     "warm_start.critic_steps=1", "warm_start.rows_per_step=2", "critique.max_new_tokens=16",
                     *(f"stage{n}.{size}" for n in (1, 2)
                       for size in ("num_steps=1", "prompts_per_step=2", "group_size=2"))),
}  # fmt: skip
"""A run of each method, small enough for seconds."""


@dataclass
class Step:
    """One step of a phase: a digest of its texts, and its metrics."""

    texts: str = ""
    metrics: dict[str, float | None] = field(default_factory=dict)
    wider: dict[str, float] = field(default_factory=dict)
    """Tolerances of metrics, where the usual one is too narrow."""


Steps = dict[str, Step]
"""By `phase/step`, in the order of the run."""


def run(name: str, folder: Path, *more: str, renamed: Renamed = RENAMED) -> Steps:
    """Makes one of `RUNS` in a new folder, as the command line does.

    Args:
        more: settings over those of the run.
    Returns: its steps.
    """
    from typer.testing import CliRunner

    from support.agent_model import agent_model
    from whet.cli import app

    method, *settings = RUNS[name]
    if any("AGENT" in setting for setting in settings):
        settings = [setting.replace("AGENT", str(agent_model())) for setting in settings]
    command = ["train", renamed.method(method), *map(renamed.setting, (*settings, *more)), "--out", str(folder)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, f"{' '.join(command)}\n{result.output}"
    return steps_of(folder)


def steps_of(folder: Path) -> Steps:
    """The steps of a finished run, and its final table as the last one."""
    steps: Steps = {}
    for row in _rows(folder / "metrics.jsonl"):
        step = steps.setdefault(f"{row.pop('phase')}/{row.pop('step')}", Step())
        step.metrics |= {key: value for key, value in row.items() if not key.startswith(("time/", "throughput/"))}
    texts: dict[str, list[str]] = {}
    for file in sorted((folder / "traces").glob("*.jsonl")):
        for row in _rows(file):
            texts.setdefault(f"{row.pop('phase')}/{row.pop('step')}", []).extend(sorted(_texts(row)))
    for place, lines in texts.items():
        if place in steps:
            steps[place].texts = sha256("\n".join(lines).encode()).hexdigest()[:10]
    table = json.loads((folder / "summary.json").read_text())["rows"]
    steps["table"] = Step(metrics={f"{row}/{column}": value for row, cells in table.items()
                                   for column, value in cells.items()
                                   if isinstance(value, int | float | None)})  # fmt: skip
    return steps


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _texts(value: Any) -> Iterator[str]:
    """Strings of several words: what models and environments wrote, and no labels, which a codemod may rename."""
    if isinstance(value, str):
        if " " in value:
            yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def differences(recorded: Steps, now: Steps, renamed: Renamed = RENAMED) -> list[str]:
    """What a run does otherwise than its recording, one line a fact; empty if nothing."""
    lines = []
    for place, before in recorded.items():
        place = renamed.place(place)
        if place not in now:
            lines.append(f"{place}: gone")
            continue
        after = now[place]
        if before.texts != after.texts:
            lines.append(f"{place}: other texts")
        for former, value in before.metrics.items():
            name = renamed.metric(former)
            if name not in after.metrics:
                lines.append(f"{place}: {name} is gone")
            elif not near(value, after.metrics[name], before.wider.get(former) or usual_tolerance(former, value)):
                lines.append(f"{place}: {name} was {value}, is {after.metrics[name]}")
    return lines


def new_metrics(recorded: Steps, now: Steps, renamed: Renamed = RENAMED) -> set[str]:
    """Metrics that a run logs and its recording lacks."""
    return {
        name
        for place, before in recorded.items()
        for name in now.get(renamed.place(place), Step()).metrics.keys() - set(map(renamed.metric, before.metrics))
    }


def usual_tolerance(recorded_name: str, value: float | None) -> float:
    """How far a metric may be from a recorded value, where the recording does not say."""
    return max(RELATIVE * abs(value or 0.0), ABSOLUTE, COUNT if any(part in recorded_name for part in COUNTED) else 0.0)


def near(was: float | None, now: float | None, tolerance: float) -> bool:
    """Whether two numbers are one to rounding. None is near to None alone."""
    return was is now or (was is not None and now is not None and abs(now - was) <= tolerance)


# --- the recording ----------------------------------------------------------------------------------------------------


def load() -> dict[str, Steps]:
    """The recorded steps of every run."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {name: {place: _read(row) for place, row in steps.items()} for name, steps in record.items()}


def _read(row: Mapping[str, Any]) -> Step:
    metrics = dict.fromkeys(row["zero"].split(), 0.0) | row["metrics"]
    return Step(row["texts"], metrics, row.get("wider", {}))


def save(runs: Mapping[str, Steps]) -> None:
    """Writes the recording, one line a step."""
    blocks = []
    for name in sorted(runs):
        lines = [f"  {json.dumps(place)}: {json.dumps(_written(step))}" for place, step in runs[name].items()]
        blocks.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    RECORD.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def _written(step: Step) -> dict[str, Any]:
    metrics = {
        name: None if value is None else float(f"{value:.{DIGITS}g}") for name, value in sorted(step.metrics.items())
    }
    zero = [name for name, value in metrics.items() if value == 0.0]
    row = {"texts": step.texts, "metrics": {name: value for name, value in metrics.items() if value != 0.0}}
    wider = {name: float(f"{value:.2g}") for name, value in step.wider.items()}
    return row | ({"wider": wider} if wider else {}) | {"zero": " ".join(zero)}


def recording(one: Steps, other: Steps, nearest: Mapping[str, float]) -> tuple[Steps, str]:
    """What can be held on any machine, of a run that was made in two orders of floating-point sums.

    Args:
        nearest: by step, how closely a draw missed another token, as `Draws.nearest` has it.
    Returns: the steps before a sampled token may differ, `MOST_STEPS` at most, with their tolerances; and where a token
        may differ, or "".
    """
    steps: Steps = {}
    for place, step in islice(one.items(), MOST_STEPS):
        distance = nearest.get(place, 1.0)
        if distance < NEAREST_DRAW:
            return steps, f"{place}: a draw is within {distance:.1g} of another token"
        twin = other.get(place)
        if twin is None or twin.texts != step.texts or twin.metrics.keys() != step.metrics.keys():
            return steps, f"{place}: the two recordings have other texts or metrics"
        wider = {}
        for name, value in step.metrics.items():
            again = twin.metrics[name]
            if (value is None) != (again is None):
                return steps, f"{place}: {name} is {value} in one recording and {again} in the other"
            spread = abs((value or 0.0) - (again or 0.0))
            usual = usual_tolerance(name, value)
            if spread > max(TOO_WIDE * abs(value or 0.0), WIDER * ABSOLUTE, usual):
                return steps, f"{place}: {name} is {value} in one recording and {again} in the other"
            if WIDER * spread > usual:
                wider[name] = WIDER * spread
        steps[place] = Step(step.texts, step.metrics, wider)
    return steps, ""


@dataclass
class Draws:
    """By how much each draw of a token missed another token."""

    nearest: dict[str, float] = field(default_factory=dict)
    """By step, of its closest draw: the probability that lay between, over the largest logit (if above 1)."""
    since: float = 1.0
    """The closest draw since the last step ended."""

    def saw(self, logits_BV: Any, temperature_B: Any, top_p_B: Any, uniform_B: Any) -> None:
        """Args: those of the engine's `sample`."""
        import torch

        weights_BV = logits_BV.double()
        if temperature_B is not None:
            weights_BV = weights_BV / torch.where(temperature_B == 0, 1.0, temperature_B)[:, None]
        weights_BV = weights_BV.softmax(-1)
        size_B = logits_BV.abs().where(logits_BV.isfinite(), 0.0).amax(-1).clamp(min=1.0)
        first, second = weights_BV.topk(2, dim=-1).values.unbind(-1)
        if top_p_B is not None:
            sorted_BV, order_BV = weights_BV.sort(dim=-1, descending=True)
            before_BV = sorted_BV.cumsum(-1) - sorted_BV
            for row in (top_p_B < 1).nonzero().flatten():
                self.since = min(self.since, float((before_BV[row] - top_p_B[row]).abs().min() / size_B[row]))
            cut_BV = torch.where(before_BV < top_p_B[:, None], sorted_BV, 0.0)
            weights_BV = torch.zeros_like(weights_BV).scatter(-1, order_BV, cut_BV)
        ends_BV = weights_BV.cumsum(-1) / weights_BV.sum(-1, keepdim=True)
        # Below the first token and above the last one there is no other token.
        inner_BV = torch.where((ends_BV > 1e-12) & (ends_BV < 1 - 1e-12), ends_BV, torch.inf)
        distance_B = (inner_BV - uniform_B[:, None]).abs().amin(-1)
        if temperature_B is not None:
            distance_B = torch.where(temperature_B == 0, first - second, distance_B)
        self.since = min(self.since, float((distance_B / size_B).min()))

    def step_ends(self, place: str) -> None:
        self.nearest[place] = min(self.nearest.get(place, 1.0), self.since)
        self.since = 1.0


@contextmanager
def draws_watched() -> Iterator[Draws]:
    """Watches every draw of this process. A step's draws end where its metrics are logged."""
    from whet.engines import running
    from whet.run_folder.folder import RunFolder

    draws = Draws()
    sample, metrics = running.sample, RunFolder.metrics

    def watched_sample(logits: Any, temperature: Any, top_p: Any, uniform: Any) -> Any:
        tokens, logprobs = sample(logits, temperature, top_p, uniform)
        draws.saw(logits, temperature, top_p, uniform)
        return tokens, logprobs

    def watched_metrics(self: Any, phase: str, step: int, values: Any) -> None:
        draws.step_ends(f"{phase}/{step}")
        metrics(self, phase, step, values)

    running.sample, RunFolder.metrics = watched_sample, watched_metrics  # type: ignore[method-assign]
    try:
        yield draws
    finally:
        running.sample, RunFolder.metrics = sample, metrics  # type: ignore[method-assign]


def measured(names: Sequence[str]) -> Iterator[tuple[str, Steps, Mapping[str, float]]]:
    """Makes the runs here: their names, their steps, and the closest draws."""
    with tempfile.TemporaryDirectory() as root:
        for name in names:
            with draws_watched() as draws:
                steps = run(name, Path(root) / name)
            yield name, steps, draws.nearest


def measured_elsewhere(names: Sequence[str], environment: Mapping[str, str]) -> Iterator[Steps]:
    """Makes the runs meanwhile, in a process of its own with more environment variables, such as `NO_VECTORS`."""
    command = [sys.executable, __file__, "--steps", *names]
    with subprocess.Popen(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield {place: Step(row["texts"], row["metrics"]) for place, row in json.loads(line).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the recording instead of checking it")
    parser.add_argument("--only", default="", metavar="NAME", help="runs whose name contains this")
    parser.add_argument("--steps", nargs="+", metavar="RUN", help="print the steps of these runs, a line of JSON each")
    chosen = parser.parse_args()
    if chosen.steps:
        for _, steps, _ in measured(chosen.steps):
            print(json.dumps({place: {"texts": each.texts, "metrics": each.metrics} for place, each in steps.items()}),
                  flush=True)  # fmt: skip
        return
    names = [name for name in RUNS if chosen.only in name]
    if not names:
        sys.exit(f"no run has {chosen.only!r} in its name: the runs are {', '.join(RUNS)}")
    recorded = load()
    if chosen.record:
        if RENAMED:
            sys.exit(f"{RENAMED.file} renames things: a recording is in one language, so empty it first")
        both = zip(measured(names), measured_elsewhere(names, NO_VECTORS), strict=True)
        for (name, steps, nearest), other in both:
            recorded[name], why = recording(steps, other, nearest)
            save({name: steps for name, steps in recorded.items() if name in RUNS})
            print(f"{len(recorded[name])} of {len(steps)} steps  {name}  {why}", flush=True)
        return
    failed, new = 0, set()
    for name, steps, _ in measured(names):
        changed = differences(recorded[name], steps)
        new |= new_metrics(recorded[name], steps)
        failed += bool(changed)
        print(f"{'DIFFERS' if changed else 'same'}  {name}", *changed[:8], sep="\n  ", flush=True)
    print(f"{len(names)} runs, {failed} differ; new: {', '.join(sorted(new)) or 'nothing'}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
