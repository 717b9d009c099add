"""Updates of every kind, in this process or in the ranks of a torchrun: both print the same numbers, up to rounding.

python tests/cluster/ranks_cases.py OUT.pt [CASE ...]
torchrun --nproc-per-node 2 tests/cluster/ranks_cases.py OUT.pt [CASE ...]
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.random_policy import random_policy
from whet.config.losses import (
    BalancedBounds,
    ClipLoss,
    CorrectionConfig,
    FixedBounds,
    GspoLoss,
    KLConfig,
    M2poLoss,
    PolicyLoss,
)
from whet.config.parts import LearningConfig
from whet.models.policy import Policy
from whet.models.scoring import score, score_here
from whet.models.value import value_model_of
from whet.trainer.local import LocalTrainer
from whet.trainer.losses import correction_of, entropy_clip, policy_terms, preference_term, value_term
from whet.trainer.protocol import Trainer
from whet.trainer.terms import Update
from whet.types import Row

MakeTrainer = Callable[[Policy], Trainer]
NUM_ROWS, NUM_STEPS = 32, 2


def with_lora(policy: Policy) -> Policy:
    """The same with an adapter whose effect is not 0."""
    import peft

    settings = peft.LoraConfig(r=4, lora_alpha=8.0, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(policy.model, settings, adapter_name="policy").eval()
    lora = Policy("policy", model, policy.tokenizer, adapter="policy", stop_ids=policy.stop_ids)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for _, parameter in lora.trainable_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    return lora


def rows_of(policy: Policy, seed: int, **more: Any) -> list[Row]:
    """Rows of 4 to a context, whose old logprobs are the policy's with noise: ratios on both sides of any bound."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(NUM_ROWS):
        context = [5 + number // 4, 6, 7]
        text = torch.randint(5, 50, (3 + number * 7 % 13,), generator=generator).tolist()
        credit = float(torch.randn((), generator=generator))
        rows.append(
            Row(
                tokens=(*context, *text),
                trains=range(3, 3 + len(text)),
                credit=[credit] * len(text),
                policy=policy.name,
                logprobs=None,
            )
        )
    scored = score(policy, rows, token_budget=4096)
    noisy = [logprobs + 0.3 * torch.randn(len(logprobs), generator=generator) for logprobs in scored]
    return [
        replace(row, logprobs=old.tolist(), ref_logprobs=(old - 0.1).tolist(), **more)
        for row, old in zip(rows, noisy, strict=True)
    ]


def learning(**more: Any) -> LearningConfig:
    settings = {"learning_rate": 1e-3, "minibatch_rows": NUM_ROWS // 2, "token_budget": 120} | more
    return LearningConfig(**settings)


def on_policy_loss(
    trainer_of: MakeTrainer, policy: Policy, loss: PolicyLoss, aggregation: Any = "token_mean", **more: Any
) -> Trainer:
    """Learns from two steps of two updates with a policy loss."""
    kl, settings = more.pop("kl", KLConfig()), more.pop("learning", learning())
    terms = policy_terms(loss, kl, aggregation)
    rule = Update(terms, settings, 4, observers=(entropy_clip(loss, 2),), **more)
    return learn(trainer_of(policy), rule, [rows_of(policy, step) for step in range(NUM_STEPS)])


def learn(trainer: Trainer, rule: Update, steps: Sequence[Sequence[Row]]) -> Trainer:
    trainer.begin(rule)
    METRICS.clear()
    for step, rows in enumerate(steps):
        METRICS.append(trainer.update(rows, seed=step))
    OPTIMIZER.clear()
    OPTIMIZER.update(trainer.optimizer_state())
    trainer.finish()
    return trainer


METRICS: list[dict[str, float]] = []
OPTIMIZER: dict[str, torch.Tensor] = {}


def values(trainer_of: MakeTrainer) -> Trainer:
    value_model = value_model_of(random_policy(), "value_model")
    torch.manual_seed(5)
    with torch.no_grad():
        value_model.model.score.weight.normal_()  # type: ignore[union-attr, operator]
    rows = [replace(row, policy="value_model") for row in rows_of(random_policy(), 0)]
    return learn(trainer_of(value_model), Update((value_term(0.2),), learning(), 4), [rows, rows])


def pairs(trainer_of: MakeTrainer) -> Trainer:
    policy = random_policy()
    rows = [
        replace(row, bundle=f"pair {number // 2}", credit=[1.0 if number % 2 else -1.0] * row.num_trained)
        for number, row in enumerate(rows_of(policy, 0))
    ]
    return learn(trainer_of(policy), Update((preference_term(),), learning(), 4), [rows, rows])


def recomputing(trainer_of: MakeTrainer) -> Trainer:
    policy = random_policy()
    policy.causal_lm.gradient_checkpointing_enable({"use_reentrant": False})
    return on_policy_loss(trainer_of, policy, ClipLoss())


CLIP = ClipLoss(bounds=FixedBounds(low=0.8, high=1.2))
CASES: dict[str, Callable[[MakeTrainer], Trainer]] = {
    "token_mean": lambda of: on_policy_loss(of, random_policy(), CLIP),
    "sequence_mean": lambda of: on_policy_loss(of, random_policy(), CLIP, "sequence_mean"),
    "one_pass": lambda of: on_policy_loss(
        of, random_policy(), ClipLoss(bounds=BalancedBounds()), learning=learning(token_budget=100_000)
    ),
    "bapo": lambda of: on_policy_loss(of, random_policy(), ClipLoss(bounds=BalancedBounds())),
    "m2po": lambda of: on_policy_loss(of, random_policy(), M2poLoss()),
    "gspo": lambda of: on_policy_loss(of, random_policy(), GspoLoss(), "sequence_mean"),
    "kl": lambda of: on_policy_loss(of, random_policy(), CLIP, kl=KLConfig(coef=0.1)),
    "proximal": lambda of: on_policy_loss(
        of, random_policy(), CLIP, proximal=True, correct=correction_of(CorrectionConfig())
    ),
    "values": values,
    "pairs": pairs,
    "lora": lambda of: on_policy_loss(of, with_lora(random_policy()), CLIP),
    "recomputing": recomputing,
    "bfloat16": lambda of: on_policy_loss(of, random_policy(torch.bfloat16), CLIP),
}


CARRIED: dict[str, Callable[[], Policy]] = {
    "float32": random_policy,
    "bfloat16": lambda: random_policy(torch.bfloat16),
    "lora": lambda: with_lora(random_policy()),
}


def carry(trainer_of: MakeTrainer, source: Path | None, target: Path) -> None:
    """Saves trained policies with their optimisers, from a folder or after two updates."""
    for name, make in CARRIED.items():
        policy = make()
        rows = rows_of(policy, 0)
        trainer = trainer_of(policy)
        rule = Update(policy_terms(CLIP, KLConfig(), "token_mean"), learning(), 4)
        if source is not None:
            trainer.load(source / name, version=2)
        trainer.begin(rule)
        if source is None:
            trainer.update(rows, seed=0)
        else:
            trainer.load_optimizer_state(load_file(source / f"{name}.safetensors"))
        (target / name).mkdir(parents=True)
        trainer.save(target / name)
        save_file(trainer.optimizer_state(), target / f"{name}.safetensors")
        trainer.finish()


def forks(trainer_of: MakeTrainer) -> dict[str, Any]:
    """What becomes of weights that are forked, copied and given back: tensors by name."""
    results: dict[str, Any] = {}
    for kind, policy in (("full", random_policy()), ("lora", with_lora(random_policy()))):
        rows = rows_of(policy, 0)
        trainer = trainer_of(policy)
        before = trainer.score(rows, token_budget=200)
        reference = trainer.fork("reference")
        rule = Update(policy_terms(CLIP, KLConfig(), "token_mean"), learning(learning_rate=1e-2), 4)
        trainer.begin(rule)
        trainer.update(rows, seed=0)
        trainer.finish()
        results[f"{kind} reference, then policy"] = [reference.score(rows, token_budget=200), before]
        results[f"{kind} learnt"] = trainer.score(rows, token_budget=200)
        results[f"{kind} here"] = [score_here(policy, rows, token_budget=200), score(policy, rows, token_budget=200)]
        best = trainer.fork("best")
        trainer.copy(reference, version=9)
        results[f"{kind} restarted"] = [trainer.version, trainer.score(rows, token_budget=200), dict(trainer.state())]
        reference.copy(best)
        results[f"{kind} copied"] = [reference.version, reference.score(rows, token_budget=200)]
        trainer.begin(rule)
        results[f"{kind} again"] = trainer.update(rows, seed=1)["loss/mean"]
        trainer.finish()
        trainer.drop_optimizer()
    return results


def main() -> None:
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    trainer_of: MakeTrainer = LocalTrainer
    ranks = None
    if "RANK" in os.environ:
        from whet.cluster.torch_ranks import TorchRanks
        from whet.trainer.sharded import ShardedTrainer

        ranks = TorchRanks()
        if ranks.number:
            ranks.serve()
            return
        trainer_of = partial(ShardedTrainer, ranks=ranks)
    match sys.argv[1:]:
        case ["carry", *folders]:
            carry(trainer_of, Path(folders[0]) if len(folders) > 1 else None, Path(folders[-1]))
        case ["forks", out]:
            torch.save(forks(trainer_of), out)
        case [out, *names]:
            results = {}
            for name in names or CASES:
                trainer = CASES[name](trainer_of)
                results[name] = copy.deepcopy((METRICS, dict(trainer.state()), OPTIMIZER))
            torch.save(results, out)
    if ranks is not None:
        ranks.stop()


if __name__ == "__main__":
    main()
