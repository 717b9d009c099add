"""The names of an agent's critics, and the rows of its tables."""

from __future__ import annotations

from whet.methods.names import BEST, POLICY

CRITIC, ORACLE = "critic", "oracle"


ROWS = {"before": POLICY, "after": BEST, "last": POLICY}
"""Rows of the final table, and the policy that each measures: after is the best validated one."""
