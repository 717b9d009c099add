"""Whether an engine and a trainer of one policy hold the same weights: by number, and by the logprobs of a probe."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor

from whet.engines.protocol import Engine
from whet.errors import RunError
from whet.models.policy import Policy
from whet.seeds import seed_of
from whet.trainer.protocol import Trainer
from whet.types import Row, tail_row

AGREEMENT = {torch.float32: ("largest", 1e-4), torch.bfloat16: ("mean", 1e-2)}
"""Difference allowed between engine's and trainer's logprobs, by type of the weights. In bf16 the largest difference
of a few hundred tokens is a matter of luck (0.03 to 0.2 on the tiny model, at any time of a run); their mean is not
(0.0005 to 0.0015)."""
PROBE_ROWS, PROBE_LENGTH = 2, 16
"""Rows of a probe, and tokens of each."""
PROBE_BUDGET = 4096
"""Tokens of one pass over a probe."""


def probe_rows(policy: Policy) -> list[Row]:
    """Rows of tokens drawn from the vocabulary, the same ones each time. All but the first token of each are scored."""
    rng = random.Random(seed_of(0, "probe", policy.name))
    texts = [[rng.randrange(len(policy.tokenizer)) for _ in range(PROBE_LENGTH)] for _ in range(PROBE_ROWS)]
    return [tail_row(policy.name, text[:1], text[1:], 0.0) for text in texts]


def difference_of(policy: Policy, engine_scores: Sequence[Tensor], trainer_scores: Sequence[Tensor]) -> float:
    """How far two sides are apart on the same rows, in nats a token: the largest or the mean, as `AGREEMENT` says.

    Raises: RunError where they do not score the same number of tokens.
    """
    for number, (sampled, scored) in enumerate(zip(engine_scores, trainer_scores, strict=True), 1):
        if len(sampled) != len(scored):
            raise RunError(
                f"engine and trainer of policy {policy.name!r} do not score the same tokens: of row {number} of a "
                f"probe the engine has {len(sampled)} logprobs, and the trainer {len(scored)}, so the run would train "
                "on credit for other tokens; try another transformers version"
            )
    differences = (torch.cat([*engine_scores, torch.empty(0)]) - torch.cat([*trainer_scores, torch.empty(0)])).abs()
    if not len(differences):
        return 0.0
    which, _ = AGREEMENT[policy.dtype]
    return float(differences.max() if which == "largest" else differences.mean())


def check_weights(trainer: Trainer, engine: Engine) -> None:
    """Hold an engine with weights of its own to the trainer's: the version, and the logprobs of a probe.

    Nothing is scored where both are one memory.

    Raises: RunError where they differ: replies would come from other weights than those that train.
    """
    policy = trainer.policy
    if engine.version != trainer.version:
        raise _apart(policy, f"its version is {engine.version}, and the trainer's is {trainer.version}")
    if engine.shares_memory(policy):
        return
    rows = probe_rows(policy)
    engine_scores = engine.score(rows, token_budget=PROBE_BUDGET)
    difference = difference_of(policy, engine_scores, trainer.score(rows, token_budget=PROBE_BUDGET))
    which, allowed = AGREEMENT[policy.dtype]
    if not difference <= allowed:  # NaN is refused too
        how = f"the logprobs of a probe differ by {difference:.2g} (the {which} difference, allowed {allowed:.0e})"
        raise _apart(policy, how)


def _apart(policy: Policy, how: str) -> RunError:
    return RunError(
        f"the engine of policy {policy.name!r} does not hold the trainer's weights: {how}. Restart the engine and "
        "resume the run: its last checkpoint is whole"
    )
