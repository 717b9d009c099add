"""Does BAPO's search have a lever? Reach and effective samples of every rule on the same old tokens, without training
long.

    .venv/bin/python benchmarks/bapo_reach.py             # measures what is not measured yet, then writes the results
    .venv/bin/python benchmarks/bapo_reach.py --collect   # only reads what is there

In each world a policy learns for a few steps by the fixed clip, on fresh batches or on batches that waited eight steps,
with eight updates a batch. The tokens of the last two steps' updates are kept as they stand before each update: new and
old logprobs, and credit. Every rule is then asked what it would do with these same tokens. So the rules are compared on
one path, that of the fixed clip; where a rule would lead a policy is for `bapo_settled.py`.

One process, one thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import whet.methods  # noqa: F401 - registers them
from study import arguments, cell, machine_now, train, write
from whet.config import load
from whet.config.losses import BalancedBounds, BoundRange, CispoLoss, ClipLoss, DppoLoss, FixedBounds, M2poLoss
from whet.methods import gradient
from whet.methods.registry import preset_of
from whet.objectives import contributions, effective_sample_size, reach, search
from whet.run import launch
from whet.run.session import Session
from whet.trainer.losses import EntropyClip, bounds_rule, loss_of

CODE = BalancedBounds(
    target=1.0, target_as="odds", order="low_first",
    low=BoundRange(start=0.6, ceiling=0.8, step=0.05, onto_ceiling=True),
    high=BoundRange(start=1.2, ceiling=2.0, step=0.05, onto_ceiling=True),
)  # fmt: skip
RULES = {
    "fixed clip 0.8, 1.2": ClipLoss(),
    "clip-higher 0.8, 1.28": ClipLoss(bounds=FixedBounds(high=1.28)),
    "CISPO 0, 5": CispoLoss(),
    "M2PO 0.04": M2poLoss(),
    "DPPO 0.2": DppoLoss(),
    "BAPO, paper": ClipLoss(bounds=BalancedBounds()),
    "BAPO, code": ClipLoss(bounds=CODE),
    "BAPO, gradient": ClipLoss(bounds=BalancedBounds(contribution="gradient")),
}
DUALS = (None, 3.0)
"""The dual clip: a bad token whose ratio is above it is not pushed. The losses that have no such setting are given it
here, so that all rules are asked alike."""
STALENESS = (0, 8)
NUM_LAST, NUM_UPDATES = 2, 8
"""Steps at the end of a run whose updates are kept, and updates a step. An update without credit is not counted, so
that where groups have no signal the ones before take its place."""
SEVERAL = ("learning.num_epochs=2", "learning.learning_rate=1e-4", "learning.final_share=1")
SMALL = ("num_threads=1", "traces_per_step=0", "checkpoint_every=0", "probe_every=0", "data.num_test=1",
         "data.num_validation=1", "validate_every=1000")  # fmt: skip
RAMBLE = 12
CHAINS = ("data.min_steps=5", "data.max_steps=6")
WRITER = (*CHAINS, f"ramble={RAMBLE}", "num_steps=200", "num_threads=1", "sampling.max_new_tokens=400",
          "data.num_test=100", "data.num_validation=32", "validate_every=200", "evaluation.num_samples=0")  # fmt: skip
"""Raises the policy of the world of long wrong replies."""
WORLDS = {
    "agents": ("agent_grpo", ("data.env=textcraft", "policy.path=tiny_agent_early", "prompts_per_step=8",
                              "learning.minibatch_rows=16", "max_turns=5", "evaluation.num_samples=1")),
    "rambling": ("grpo", (*CHAINS, "prompts_per_step=16", "learning.minibatch_rows=32",
                          "sampling.max_new_tokens=400", "evaluation.num_samples=0")),
}  # fmt: skip
TITLES = {
    "agents": "Agents: TextCraft, tiny_agent_early",
    "rambling": f"Chains whose wrong replies are long: imitation with ramble={RAMBLE}",
}
SEEDS = (400, 401, 402)


# --- measuring --------------------------------------------------------------------------------------------------------


class Quiet:
    """Watches a run and says nothing."""

    def begin(self, phase: str, done: int, total: int) -> None: ...
    def step(self, step: int, shown: object) -> None: ...
    def tell(self, level: str, text: str) -> None: ...
    def end(self) -> None: ...


def measured(root: Path, world: str, staleness: int, seed: int) -> dict[str, Any]:
    """What every rule makes of one run's last updates; from its file where it is there."""
    file = root / f"{world}-{staleness}-{seed}.json"
    if file.exists():
        return dict(json.loads(file.read_text()))
    updates: list[tuple[Tensor, Tensor, Tensor]] = []

    class Recorder(EntropyClip):
        def before(self, chosen: Mapping[str, float]) -> Mapping[str, float]:
            parts = [tokens for _, _, tokens in self.seen]
            names = ("policy_N", "old_N", "credit_N")
            if parts:
                updates.append(tuple(torch.cat([getattr(part, name) for part in parts]).double() for name in names))
            return super().before(chosen)

    preset, options = WORLDS[world]
    num_steps = 2 * staleness + 1 + NUM_LAST  # the first that is trained on is fresh, the rest find the age they keep
    settings = [f"seed={seed}", f"num_steps={num_steps}", *SMALL, *SEVERAL, *options]
    if world == "rambling":
        settings.append(f"policy.path={writer(root, seed)}")
    if staleness:
        settings += ["off_policy.kind=replay", f"off_policy.staleness={staleness}"]
    config = load(type(preset_of(preset).config), None, settings, base=preset_of(preset).config)
    original = gradient.entropy_clip
    gradient.entropy_clip = lambda loss, every: lambda: Recorder(original(loss, every)().bounds)  # type: ignore[assignment]
    try:
        begun = launch.start(config, root / file.stem, Quiet(), overwrite=True)
        assert isinstance(begun, Session)
        begun.go()
    finally:
        gradient.entropy_clip = original
    last = updates[-NUM_LAST * NUM_UPDATES :]
    found = {
        "first_share": credit_share(updates[0][2]),
        "share_at_1": fmean(credit_share(credit) for _, _, credit in last),
        "rules": {f"{rule}/{dual or 0:g}": asked(rule, dual, last) for rule in RULES for dual in DUALS},
    }
    file.write_text(json.dumps(found, indent=1))
    print(file.stem, "measured", flush=True)
    return found


def writer(root: Path, seed: int) -> Path:
    """The policy whose wrong replies are long, raised now unless it was before."""
    run = root / f"writer-{seed}"
    train("imitation", [*WRITER, f"seed={seed}"], run)
    return run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip() / "policies" / "policy"


def premise_of(run: Path) -> dict[str, float]:
    """Of the last steps whose replies gave credit: how good and bad tokens, ages and ratios are."""
    names = ("balance/tokens_positive", "ratio/effective_samples", "ratio/effective_rows", "ratio/q01", "ratio/q99",
             "staleness/mean", "length/good", "length/bad", "reward/success", "reward/correct")  # fmt: skip
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["phase"] == "train" and "balance/tokens_positive" in row][-NUM_LAST:]
    return {name: fmean(row[name] for row in last) for name in names if all(name in row for row in last)}


def credit_share(credit: Tensor) -> float:
    """Of good tokens, where every ratio is 1."""
    return float(credit.clamp(min=0).sum() / credit.abs().sum())


def asked(rule: str, dual: float | None, updates: Sequence[tuple[Tensor, Tensor, Tensor]]) -> dict[str, Any]:
    """Means over updates of what a rule does to them."""
    rows: list[dict[str, float]] = []
    for policy, old, credit in updates:
        loss, choose = loss_of(RULES[rule])
        chosen = choose(policy, old, credit)[0] if choose else {}
        push = pushes(loss, policy, old, credit, chosen, dual)
        row = {"share": share(push, credit), "effective": effective_sample_size((push / credit).abs()[credit != 0])}
        bounds = getattr(RULES[rule], "bounds", None)
        if isinstance(bounds, BalancedBounds):
            row |= searched(bounds_rule(bounds), loss, policy, old, credit, push, dual)
        rows.append(row)
    return {name: fmean(row[name] for row in rows) for name in rows[0]}


def searched(
    rule: Any, loss: Any, policy: Tensor, old: Tensor, credit: Tensor, push: Tensor, dual: float | None
) -> dict[str, float]:
    """Where a search could end and where it did, and how far its pushes are from those at the nearer end."""
    sums = contributions(policy, old, credit, torch.ones_like(policy, dtype=torch.bool), rule)
    within, found = reach(sums, rule), search(sums, rule)
    ends = [(rule.low.values[at], rule.high.values[at]) for at in (0, -1)]
    at_ends = [pushes(loss, policy, old, credit, {"low": low, "high": high}, dual) for low, high in ends]
    between = (found.low, found.high) not in ends
    size = float(push.abs().sum())
    return {
        "start": within.start, "end": within.end, "most": within.most, "short": float(within.is_short),
        "stayed": float(found.num_moves == 0), "between": float(between),
        "ran_out": float(not between and found.num_moves > 0),
        "start_push": share(at_ends[0], credit), "end_push": share(at_ends[1], credit),
        "apart": min(float((push - other).abs().sum()) for other in at_ends) / size,
        "ends_apart": float((at_ends[0] - at_ends[1]).abs().sum()) / size,
    }  # fmt: skip


def pushes(
    loss: Any, policy: Tensor, old: Tensor, credit: Tensor, chosen: Mapping[str, float], dual: float | None
) -> Tensor:
    """What a loss pushes each token's logprob up with, [N]."""
    leaf = policy[None].clone().requires_grad_()
    mask, weight = torch.ones_like(leaf, dtype=torch.bool), torch.ones_like(leaf)
    seen = SimpleNamespace(policy=leaf, old=old[None], credit=credit[None], mask=mask, weight=weight)
    total, _ = loss(seen, **chosen)
    [slope] = torch.autograd.grad(total, leaf)
    stopped = (credit < 0) & ((policy - old).exp() > dual) if dual else torch.zeros_like(credit, dtype=torch.bool)
    return torch.where(stopped, 0.0, -slope[0])


def share(push: Tensor, credit: Tensor) -> float:
    good, bad = float(push[credit > 0].abs().sum()), float(push[credit < 0].abs().sum())
    return good / (good + bad) if good + bad else float("nan")


# --- writing ----------------------------------------------------------------------------------------------------------


def collect(root: Path, seeds: Sequence[int], worlds: Sequence[str]) -> dict[str, Any]:
    """By world and staleness, each number by seed."""
    found: dict[str, Any] = {}
    for world in worlds:
        for staleness in STALENESS:
            files = [root / f"{world}-{staleness}-{seed}.json" for seed in seeds]
            if all(file.exists() for file in files):
                found[f"{world}/{staleness}"] = [
                    {**json.loads(file.read_text()), "premise": premise_of(file.with_suffix(""))} for file in files
                ]
    return found


COLUMNS = (("share", "share, by its pushes"), ("effective", "effective tokens"))
OF_SEARCH = (
    ("start", "share at starts"), ("end", "at ends"), ("most", "most between"), ("short", "out of reach"),
    ("stayed", "stayed"), ("between", "between"), ("ran_out", "ran out"), ("apart", "pushes off the nearer end"),
    ("ends_apart", "of both ends, apart"),
)  # fmt: skip


def markdown(result: Mapping[str, Any]) -> str:
    """Two tables a setting: all rules, and what the searches could do."""
    lines = [
        "# What BAPO's search can reach, and what every rule leaves of old data",
        "",
        f"Seeds {', '.join(map(str, result['seeds']))}; in percent, mean ± half width of a 95 % t interval over seeds. "
        f"A policy learns by the fixed clip, eight updates a batch, at a rate of 1e-4; every rule is asked about the "
        f"last {NUM_LAST * NUM_UPDATES} updates that had credit, on the same tokens. *Share*: of good tokens, in what "
        "a rule pushes with. *Effective tokens*: `(sum w)^2 / (n sum w^2)` of `w = push / |A|`, over tokens with "
        "credit. Of a search: the share, in its own way of counting, at both ends of its bounds and the most between; "
        "in how many updates the target was *out of reach*, the search *stayed* at its start, ended *between*, or "
        "*ran out*; by how much of their absolute sum its pushes differ from those at the nearer end, and the ends' "
        "from one "
        "another. Dual 3: bad tokens with a ratio above 3 are not pushed.",
        "",
    ]
    for key, runs in result["settings"].items():
        world, staleness = key.split("/")
        premise = {name: [run["premise"][name] for run in runs] for name in runs[0]["premise"]}
        lines += [f"## {TITLES[world]}; staleness {staleness}", ""]
        told = [f"good tokens at the first update {cell([run['first_share'] for run in runs])} of the credit"]
        told += [f"in the measured updates {cell([run['share_at_1'] for run in runs])}"]
        told += [f"positive tokens {cell(premise['balance/tokens_positive'])}"]
        for name, title in (("length/good", "tokens of right replies"), ("length/bad", "of wrong ones")):
            if name in premise:
                told.append(f"{title} {cell(premise[name], scale=1)}")
        told += [f"age {cell(premise['staleness/mean'], scale=1)} updates"]
        told += [f"98 % of ratios from {fmean(premise['ratio/q01']):.2f} to {fmean(premise['ratio/q99']):.2f}"]
        told += [f"effective samples of the ratios {cell(premise['ratio/effective_samples'])} of the tokens, "
                 f"{cell(premise['ratio/effective_rows'])} of the rows"]  # fmt: skip
        lines += [f"Premise: {'; '.join(told)}.", ""]
        lines += [
            "| rule | " + " | ".join(f"{title}{dual}" for dual in ("", ", dual 3") for _, title in COLUMNS) + " |"
        ]
        lines += ["|---" * (2 * len(COLUMNS) + 1) + "|"]
        for rule in RULES:
            cells = [
                cell([run["rules"][f"{rule}/{dual or 0:g}"][name] for run in runs])
                for dual in DUALS
                for name, _ in COLUMNS
            ]
            lines.append(f"| {rule} | " + " | ".join(cells) + " |")
        lines += ["", "| search | " + " | ".join(title for _, title in OF_SEARCH) + " |"]
        lines += ["|---" * (len(OF_SEARCH) + 1) + "|"]
        for rule, loss in RULES.items():
            if isinstance(getattr(loss, "bounds", None), BalancedBounds):
                cells = [cell([run["rules"][f"{rule}/0"][name] for run in runs]) for name, _ in OF_SEARCH]
                lines.append(f"| {rule} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += [f"Command: `{result['command']}`. Machine: {result['machine']}.", ""]
    return "\n".join(lines)


def main() -> None:
    options = arguments(__doc__, "bapo_reach", tuple(WORLDS), seeds=SEEDS)
    options.root.mkdir(parents=True, exist_ok=True)
    if not options.collect:
        torch.set_num_threads(1)
        for seed in options.seeds:
            for world in options.only:
                for staleness in STALENESS:
                    measured(options.root, world, staleness, seed)
    settings = collect(options.root, options.seeds, options.only)
    result = {"command": options.command, "seeds": options.seeds, "machine": machine_now(), "settings": settings}
    write(options.name, result, markdown(result))


if __name__ == "__main__":
    main()
