"""Seeds: each random choice of a run has its own, derived from the subject of the choice."""

from __future__ import annotations

from hashlib import blake2b


def seed_of(*parts: object) -> int:
    """A 64-bit seed from (run seed, policy, step, task id, sample index, ...), each part told apart from its
    neighbours."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest(), "big")
