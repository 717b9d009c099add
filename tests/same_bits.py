"""What a rebuild must not change: short runs of every method, as digests of each metric's values and of the weights.

    python tests/same_bits.py                # holds this machine's bits against the recorded ones
    python tests/same_bits.py --record       # records them anew: only in a commit that says why they had to change

Bits depend on the processor and on torch, so a recording holds for the machine that it names, and the test skips on
others: `--record` at an older commit, then the check at a newer one, compares the two anywhere. Times and speeds are
left out. A metric that is new is no difference, and is listed. What a codemod has renamed is recorded by its former
name, which `tests/data/renamed.json` has; `same_numbers.py`, which holds on every machine, says how.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it

from support.renamed import RENAMED

FORMER = RENAMED.back()
RECORD = Path(__file__).parent / "data" / "same_bits.json"
WARM = ("warm_start.actor_steps=2", "warm_start.critic_steps=2", "warm_start.rows_per_step=8")
CRITIQUE = (
    "num_threads=1", "seed=3", "data.num_train=64", "data.num_validation=8", "data.num_test=12", "checkpoint_every=0",
    *(
        f"stage{n}.{setting}"
        for n in (1, 2)
        for setting in ("num_steps=2", "prompts_per_step=6", "validate_every=2", "learning.minibatch_rows=8")
    ),
)  # fmt: skip
SOLVE = (
    "num_threads=1", "seed=3", "data.num_train=64", "data.num_validation=8", "data.num_test=8", "num_steps=3",
    "prompts_per_step=6", "group_size=4", "validate_every=3", "evaluation.num_samples=2", "checkpoint_every=0",
    "learning.minibatch_rows=8", "probe_every=2", "sampling.max_new_tokens=48",
)  # fmt: skip
PRESETS = (
    *("grpo", "bapo", "bapo_code", "bapo_gradient", "dapo", "cispo", "gspo", "sapo", "topr", "m2po", "dr_grpo"),
    *("rloo", "reinforce_pp", "reinforce_pp_baseline", "reinforce", "ppo"),
)
REPLAY = ("off_policy.kind=replay", "off_policy.staleness=1")
PARTIAL = ("off_policy.kind=partial", "off_policy.budget=24")
OWN = {"ppo": ("value.warmup_updates=1",)}
NO_WARM_START = "no_warm_start"
CRITICS: dict[str, tuple[str, ...]] = {
    "two_stages": (),
    "paper": ("stage1.scale=unit", "stage2.combine=additive", "stage2.indirect=delta"),
    "help_only": ("stage1.num_steps=0", "stage2.discrimination=false", "stage2.indirect=correction"),
    "judge_only": ("stage2.num_steps=0", "stage1.sequence_level=true"),
    NO_WARM_START: ("warm_start.actor_steps=0", "warm_start.critic_steps=0", "stage1.kl_coef=0"),
    "cached": ("answers=cached", "cached_per_task=2"),
    "cached_file": ("answers=cached", "answers_file=ANSWERS"),
    "rounds": ("evaluation.num_rounds=2", "evaluation.history=last", "evaluation.oracle_verifier=true"),
    "lora": ("critic.lora.rank=4", "actor.lora.rank=4", "stage2.learning.learning_rate=1e-3"),
}
MORE: dict[str, tuple[str, ...]] = {
    "grpo/kl_loss": ("grpo", "kl.coef=0.05"),
    "grpo/kl_reward": ("grpo", "kl.coef=0.05", "kl.where=reward", "kl.estimator=k1"),
    "rloo/kl_reward": ("rloo", "kl.coef=0.05", "kl.where=reward"),
    "ppo/kl_reward": ("ppo", *OWN["ppo"], "kl.coef=0.05", "kl.where=reward"),
    "grpo/proximal": ("grpo", *REPLAY, "proximal=true", "correction.high=2.0", "learning.num_epochs=2"),
    "grpo/drop": ("grpo", *REPLAY, "proximal=true", "correction.low=0.5", "correction.outside=drop",
                  "correction.scope=geometric"),
    "bapo/small_passes": ("bapo", "learning.token_budget=256"),
    "bapo/old": ("bapo", "loss.bounds.token_weight=old"),
    "grpo/bf16": ("grpo", "policy.dtype=bfloat16", "learning.learning_rate=1e-3"),
    "grpo/lora": ("grpo", "policy.lora.rank=4", "kl.coef=0.05"),
    "topr/token": ("topr", "loss.level=token", "learning.num_epochs=2"),
    "grpo/dual": ("grpo", "loss.dual=3.0", "signed=true", "learning.num_epochs=2"),
}  # fmt: skip
RUNS: dict[str, tuple[str, ...]] = {
    **{
        f"critique_rl/{name}": ("critique_rl", *CRITIQUE, *(() if name == NO_WARM_START else WARM), *settings)
        for name, settings in CRITICS.items()
    },
    **{f"{preset}/fresh": (preset, *SOLVE, *OWN.get(preset, ())) for preset in PRESETS},
    **{f"{preset}/replay": (preset, *SOLVE, *OWN.get(preset, ()), *REPLAY) for preset in PRESETS},
    **{f"{preset}/partial": (preset, *SOLVE, *OWN.get(preset, ()), *PARTIAL) for preset in PRESETS if preset != "dapo"},
    **{name: (settings[0], *SOLVE, *settings[1:]) for name, settings in MORE.items()},
}
EVALS = {"critique_rl/two_stages": ("--samples", "3"), "grpo/fresh": ("--samples", "3")}
"""`whet eval` of these runs, on top."""


def machine() -> dict[str, str]:
    """What bits depend on."""
    import torch
    import transformers

    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"^(?:model name|cpu family|model|cache size)\s*: (.*)$", cpuinfo.read_text(), re.MULTILINE)[:4]
    return {
        "processor": ", ".join(names) or platform.processor(),
        "features": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def short(data: bytes) -> str:
    return sha256(data).hexdigest()[:12]


def is_timed(name: str) -> bool:
    return name.startswith(("time/", "throughput/"))


def bits_of(folder: Path) -> dict[str, str]:
    """Digests of a finished run: each metric's values by phase and step, each policy's weights, the final table."""
    from safetensors.torch import load_file

    found: dict[str, list[str]] = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        for name, value in row.items():
            if name not in ("phase", "step") and not is_timed(name):
                place = f"{FORMER.phases.get(row['phase'], row['phase'])} {row['step']}"
                found.setdefault(FORMER.metric(name), []).append(f"{place} {value!r}")
    bits = {name: short("\n".join(values).encode()) for name, values in found.items()}
    last = max((folder / "checkpoints").glob("step_*"))
    for weights in sorted((last / "policies").glob("*/*.safetensors")):
        tensors = load_file(weights)
        data = b"".join(name.encode() + tensors[name].contiguous().view(-1).view(_BYTES).numpy().tobytes()
                        for name in sorted(tensors))  # fmt: skip
        bits[f"weights of {weights.parent.name}"] = short(data)
    summary = json.loads((folder / "summary.json").read_text())
    bits["table"] = short(json.dumps(by_former_names(summary["rows"]), sort_keys=True).encode())
    for record in sorted((folder / "eval").glob("*[!s].json")):
        metrics = json.loads(record.read_text())["metrics"]
        bits[f"eval {record.stem}"] = short(json.dumps(by_former_names(metrics), sort_keys=True).encode())
    return bits


def by_former_names(value: Any) -> Any:
    """Metrics, or metrics by row, as they were called when they were recorded."""
    if not isinstance(value, Mapping):
        return value
    return {FORMER.metric(name): by_former_names(inner) for name, inner in value.items()}


def run(name: str, folder: Path) -> dict[str, str]:
    """Make one of `RUNS` in a new folder, as the command line does. Returns: its bits."""
    import torch
    from typer.testing import CliRunner

    from whet.cli import app

    global _BYTES
    _BYTES = torch.uint8
    method, *settings = RUNS[name]
    answers = folder.with_name(f"{folder.name}.answers.jsonl")
    if any("ANSWERS" in setting for setting in settings):
        answers.write_text(_answers())
    settings = [RENAMED.setting(setting.replace("ANSWERS", str(answers))) for setting in settings]
    command = ["train", RENAMED.method(method), *settings, "--out", str(folder)]
    for args in (command, ["eval", str(folder), *EVALS[name]] if name in EVALS else []):
        if args:
            done = CliRunner().invoke(app, args)
            assert done.exit_code == 0, f"{' '.join(args)}\n{done.output}"
    return bits_of(folder)


_BYTES: Any = None


def _answers() -> str:
    """Some right and wrong answers to training problems, two each."""
    import random
    from itertools import islice

    from whet.tasks.chains import answer_text, corrupt_chain, sample_chains

    rng = random.Random(0)
    chains = list(islice(sample_chains("train", 20251028, min_steps=3, max_steps=6), 64))
    rows = [
        {"question": chain.text, "answer": answer_text(chain, values)}
        for chain in chains[:40]
        for values in (chain.values, corrupt_chain(chain, rng, 0.35))
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def differences(was: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The recorded bits that are others now."""
    return [f"{name}{'' if name in now else ' (gone)'}" for name in sorted(was) if was[name] != now.get(name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the recording instead of checking it")
    parser.add_argument("--only", default="", help="runs whose name contains this")
    chosen = parser.parse_args()
    names = [name for name in RUNS if chosen.only in name]
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {"runs": {}}
    if not chosen.record and record["machine"] != machine():
        sys.exit(f"recorded on {record['machine']}, this is {machine()}: --record at the older commit first")
    failed = 0
    new: set[str] = set()
    with tempfile.TemporaryDirectory() as root:
        for number, name in enumerate(names):
            bits = run(name, Path(root) / str(number))
            if chosen.record:
                record["runs"][name] = bits
            else:
                changed = differences(record["runs"][name], bits)
                new |= bits.keys() - record["runs"][name].keys()
                failed += bool(changed)
                print(f"{'DIFFERS' if changed else 'same'}  {name}  {', '.join(changed)}", flush=True)
    if chosen.record:
        record["machine"] = machine()
        RECORD.write_text(json.dumps(record, indent=0, sort_keys=True) + "\n")
    print(f"{len(names)} runs, {failed} differ; new: {', '.join(sorted(new)) or 'nothing'}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
