"""The one place that makes trainers."""

from __future__ import annotations

from whet.models.policy import Policy
from whet.trainer.local import LocalTrainer
from whet.trainer.protocol import Trainer


def trainer_of(policy: Policy) -> Trainer:
    """What trains a policy. Another kind of trainer is chosen here, and nowhere else."""
    return LocalTrainer(policy)
