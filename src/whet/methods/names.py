"""The names that a run's policies have, in settings, tables and checkpoints."""

from __future__ import annotations

POLICY = "policy"
"""The name of the policy that trains."""
BEST = "policy_best"
"""The name of its weights of the best validation."""
