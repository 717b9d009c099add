"""The names that a run's policies have, in settings, tables and checkpoints."""

from __future__ import annotations

POLICY, BEST = "policy", "policy_best"
"""The policy that trains, and its weights of the best validation."""
