"""Cloning an agent: which weights are kept."""

from __future__ import annotations

import torch

from support.agent_model import agent_model
from support.sessions import finished

MAZE = (
    f"policy.path={agent_model()}", "data.env=maze", "data.num_train=3", "data.num_test=1", "data.num_validation=1",
    "num_steps=4", "rows_per_step=2", "validate_every=2", "sampling.max_new_tokens=8", "evaluation.max_turns=1",
)  # fmt: skip


def test_where_nothing_succeeds_the_last_weights_are_the_best(tmp_path):
    """A model of random weights does not find out of a maze in a turn, and what it was cloned for is RL after it."""
    session = finished("agent_clone", *MAZE, folder=tmp_path / "run")
    best, last = (session.loop.policies[name].causal_lm.state_dict() for name in ("policy_best", "policy"))
    assert all(torch.equal(best[name], last[name]) for name in last)
    [told] = [row for row in session.loop.folder.logs.rows("events.jsonl") if row["event"] == "none_succeeded"]
    assert told["message"] == (
        "train: nothing succeeded in any validation, so the best weights (policy_best) are the last ones that were "
        "validated"
    )
