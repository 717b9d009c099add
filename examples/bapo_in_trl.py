"""BAPO's bounds and whet's clipped loss inside TRL's `GRPOTrainer` (TRL 1.16.0), on whet's tiny model.

    pip install trl==1.16.0               # or whet's extra `benchmarks`
    python examples/bapo_in_trl.py        # under a minute on one core; prints the bounds of every update

The bounds belong to an optimizer update: they are found from the ratios of all its tokens. TRL shows its loss one
micro-batch at a time, but has cut the whole generation batch into `_buffered_inputs` before the first of them, so an
update's micro-batches can be scored together when it starts. That costs a forward pass without gradient over the
update's rows, a third of its forward and backward passes. The first update after sampling does not pay it: there all
ratios are 1.

The loss is what stands here: TRL's KL term, entropy bonus and dual clip (`delta`) are refused, images are not passed
on, and TRL's metrics of its own loss are not logged. To keep them, find the bounds as here, set `self.epsilon_low = 1 -
low` and `self.epsilon_high = high - 1`, and call TRL's `_compute_loss`.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from whet.models.shipped import TINY
from whet.objectives import PAPER_RULE, BoundsRule, balanced_bounds, clipped_policy_loss
from whet.tasks.chains import sample_chains

HAS_TO_BE = {"beta": 0.0, "delta": None, "entropy_coef": 0.0, "use_adaptive_entropy": False, "top_entropy_quantile": 1,
             "off_policy_mask_threshold": None, "importance_sampling_level": "token"}  # fmt: skip


class BapoTrainer(GRPOTrainer):
    """GRPO whose bounds are found anew before every update. The loss is a mean over all tokens of the update."""

    def __init__(self, *args: Any, rule: BoundsRule = PAPER_RULE, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rule = rule
        if ignored := [name for name, value in HAS_TO_BE.items() if getattr(self.args, name) != value]:
            raise ValueError(f"this loss would ignore {', '.join(ignored)}; it needs {HAS_TO_BE}")
        if self.args.steps_per_generation % self.args.gradient_accumulation_steps:
            raise ValueError("steps_per_generation has to be a multiple of gradient_accumulation_steps: otherwise "
                             "updates start before all of their rows have been sampled")  # fmt: skip

    def _compute_loss(self, model: torch.nn.Module, inputs: dict[str, Any]) -> Tensor:
        if not self.model.training:  # evaluation: TRL's own
            return super()._compute_loss(model, inputs)
        if self._step % self.args.gradient_accumulation_steps == 0:
            self._start_update(model)
        policy = self._policy_logprobs(model, inputs)
        old = inputs.get("old_per_token_logps", policy)  # TRL leaves them out where they equal the policy's
        weight = self.token_weight * inputs.get("importance_sampling_ratio", 1.0)  # there where vLLM samples
        low, high = self.bounds.low, self.bounds.high
        return clipped_policy_loss(policy, old, *_credit_and_mask(inputs), weight, low=low, high=high)[0]

    @torch.no_grad()
    def _start_update(self, model: torch.nn.Module) -> None:
        """Find the bounds from all tokens of all micro-batches and ranks, and count those tokens."""
        first = self._step % self.args.steps_per_generation
        rows = self._buffered_inputs[first : first + self.args.gradient_accumulation_steps]
        advantages, mask = (torch.cat(parts) for parts in zip(*map(_credit_and_mask, rows), strict=True))
        if self._step % (self.args.steps_per_generation * self.num_iterations) == 0:  # just sampled: every ratio is 1
            policy = old = torch.zeros(mask.shape, device=mask.device)
        else:
            policy = torch.cat([self._policy_logprobs(model, each) for each in rows])
            old = torch.cat([each["old_per_token_logps"] for each in rows])
        self.bounds = balanced_bounds(policy, old, advantages, mask, self.rule, reduce=self.accelerator.reduce)
        # The gradients of ranks are averaged: for a mean over all tokens, each rank's sum counts as often as ranks are.
        self.token_weight = self.accelerator.num_processes / self.accelerator.reduce(mask.sum()).clamp(min=1)
        for name in ("low", "high", "num_moves", "start_share", "share"):
            self._metrics["train"][f"bapo/{name}"].append(float(getattr(self.bounds, name)))

    def _policy_logprobs(self, model: torch.nn.Module, rows: dict[str, Any]) -> Tensor:
        ids, attention = (torch.cat([rows[f"prompt_{x}"], rows[f"completion_{x}"]], dim=1) for x in ("ids", "mask"))
        return self._get_per_token_logps_and_entropies(model, ids, attention, rows["completion_ids"].size(1))[0]


def _credit_and_mask(rows: dict[str, Any]) -> tuple[Tensor, Tensor]:
    mask = (rows["completion_mask"] * rows.get("tool_mask", 1)).bool()
    return rows["advantages"].view(len(mask), -1).expand(mask.shape), mask  # TRL's advantages are one a row


def is_right(completions: list[list[dict[str, str]]], answer: list[int], **_: Any) -> list[float]:
    return [float(c[0]["content"].endswith(f"The answer is {a}")) for c, a in zip(completions, answer, strict=True)]


def tiny_trainer(kind: Callable[..., GRPOTrainer], folder: str, **options: Any) -> GRPOTrainer:
    """On sums of the tiny world: 8 attempts at each of 8 problems, used for 4 updates of 2 micro-batches."""
    chains = list(itertools.islice(sample_chains("train", 0, min_steps=4, max_steps=8), 200))
    prompts = [[{"role": "user", "content": f"Solve: {chain.text}"}] for chain in chains]
    data = Dataset.from_dict({"prompt": prompts, "answer": [chain.values[-1] for chain in chains]})
    settings = {
        "per_device_train_batch_size": 32, "gradient_accumulation_steps": 2, "num_generations": 8, "num_iterations": 4,
        "max_steps": 16, "max_completion_length": 96, "learning_rate": 1e-3, "temperature": 1.5, "logging_steps": 1,
        "use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no", "disable_tqdm": True,
    }  # fmt: skip
    model, tokenizer = AutoModelForCausalLM.from_pretrained(TINY), AutoTokenizer.from_pretrained(TINY)
    trainer = kind(model, is_right, GRPOConfig(folder, **settings | options), data, processing_class=tokenizer)
    trainer.remove_callback(PrinterCallback)
    return trainer


if __name__ == "__main__":
    # Solutions of a problem are equally long here, so good and bad tokens start in balance (share 0.5). Where wrong
    # answers are the longer ones it is less, and the paper's target is 0.4: this one is for the search to have work.
    with tempfile.TemporaryDirectory() as folder:
        trainer = tiny_trainer(partial(BapoTrainer, rule=BoundsRule(target=0.52)), folder)
        trainer.train()
    print("update  c_low  c_high  moves  share: at the start, at the bounds")
    for line in trainer.state.log_history[:-1]:  # the last one sums up the run
        found = [line[f"bapo/{name}"] for name in ("low", "high", "num_moves", "start_share", "share")]
        found = [math.nan if value is None else value for value in found]  # so TRL logs NaN: no token had credit
        print("{:6}  {:5.2f}  {:6.2f}  {:5.0f}  {:19.3f}  {:13.3f}".format(line["step"], *found))
