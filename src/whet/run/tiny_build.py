"""`whet tiny build`: pretrains the tiny model from scratch on the careless textbook. Same seed, same bits.

Each batch mixes worked solutions, drills, critiques and refinements. The model first learns to follow a critique
(copying is easy), then its author's arithmetic, misconceptions included, and last to compare two results.
"""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import torch
from transformers import Qwen2ForCausalLM

from whet.config.parts import LearningConfig
from whet.errors import RunError
from whet.methods.warm_start import demonstration_row
from whet.models.policy import Policy
from whet.models.stand_in import save_stand_in
from whet.models.tiny import SPECIAL, tiny_config, tiny_tokenizer
from whet.run.data import SPLIT_SEED
from whet.seeds import seed_of
from whet.tasks.chains import sample_chains
from whet.tasks.demonstrations import Kind, chain_demonstration
from whet.tasks.files import read_text
from whet.tasks.prompts import CHAINS
from whet.tasks.tables import parquet_rows
from whet.trainer.local import trainer_of
from whet.trainer.loop import Progress
from whet.trainer.losses import imitation
from whet.trainer.process import set_determinism

NUM_STEPS = 1000
ROWS: dict[Kind, int] = {"solve": 48, "drill": 32, "critique": 24, "refine": 24}
"""Rows of each kind in a batch."""
MIN_STEPS, MAX_STEPS = 3, 6
NUM_THREADS = 2
"""Sums depend on the number of threads, so it is part of the recipe."""
LEARNING = LearningConfig(
    learning_rate=4e-3, final_share=0.03, warmup_steps=100, weight_decay=0.01, minibatch_rows=sum(ROWS.values())
)


def build(out: Path, progress: Progress, *, num_steps: int = NUM_STEPS, seed: int = 0) -> Policy:
    """Pretrains a model and saves it in `out`, as `from_pretrained` loads it.

    Args:
        num_steps: fewer steps give a weaker model. The shipped one took the default.
    """
    out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    set_determinism(NUM_THREADS)
    torch.manual_seed(seed)
    tokenizer = tiny_tokenizer()
    model = Qwen2ForCausalLM(tiny_config(len(tokenizer))).eval()
    policy = Policy("tiny", model, tokenizer, stop_ids=frozenset({SPECIAL.index("<|end|>")}))
    trainer = trainer_of(policy)
    trainer.begin(imitation(LEARNING, num_steps))
    problems = sample_chains("train", SPLIT_SEED + 1, min_steps=MIN_STEPS, max_steps=MAX_STEPS)
    progress.begin("pretraining", 0, num_steps)
    for step in range(1, num_steps + 1):
        rng = random.Random(seed_of(seed, "tiny build", step))
        kinds: list[Kind] = [kind for kind, count in ROWS.items() for _ in range(count)]
        rows = [
            demonstration_row(chain_demonstration(kind, chain, CHAINS, rng), policy.name, tokenizer)
            for kind, chain in zip(kinds, islice(problems, len(kinds)), strict=True)
        ]
        metrics = trainer.update(rows, seed=seed_of(seed, step))
        progress.step(step, {"loss/nll": metrics["loss/nll"]})
    trainer.finish()
    progress.end()
    policy.save(out)
    return policy


def build_stand_in(text: Path, out: Path, *, seed: int = 0) -> int:
    """Saves a small random model whose tokenizer is trained on a file: its lines, or the texts in Parquet rows.

    Returns: the number of weights.
    Raises: DataError where the file cannot be read, RunError where `out` is not empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} is not empty; choose another --out")
    if text.suffix == ".parquet":
        lines = [value for row in parquet_rows(text) for value in row.values() if isinstance(value, str)]
    else:
        lines = read_text(text, "FILE").splitlines()
    return save_stand_in(lines, out, seed=seed)
