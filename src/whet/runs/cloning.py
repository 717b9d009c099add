"""Rows of behavioural cloning: an agent's turns, to be learnt from trajectories."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from transformers import PreTrainedTokenizerBase

from whet.envs.sft import sft_row
from whet.envs.trajectories import FIRST_OBSERVATION, Trajectory
from whet.types import Row


def clone_row(trajectory: Trajectory, policy: str, tokenizer: PreTrainedTokenizerBase, *, shows_rules: bool) -> Row:
    """A trajectory as one row, each token of the agent's with credit 1.

    Args:
        shows_rules: False: it begins with the first observation.
    """
    shown = trajectory if shows_rules else replace(trajectory, messages=trajectory.messages[FIRST_OBSERVATION:])
    made = sft_row(shown, tokenizer)
    places = np.flatnonzero(np.asarray(made.mask))
    return Row(
        policy=policy,
        tokens=np.asarray(made.ids, np.int32),
        trains=places.astype(np.int32),
        credit=np.ones(len(places), np.float32),
        logprobs=None,
    )
