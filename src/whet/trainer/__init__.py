"""Training: from rows to optimiser steps, by updates that are sums of terms. It knows no rollout and no method."""

from whet.trainer.losses import (
    correction_of,
    entropy_clip,
    entropy_term,
    imitation,
    kl_term,
    nll_term,
    policy_term,
    policy_terms,
)
from whet.trainer.terms import Term, Update, on_likelihood, on_pairs, on_tokens, to_reference

__all__ = [
    "Term",
    "Update",
    "correction_of",
    "entropy_clip",
    "entropy_term",
    "imitation",
    "kl_term",
    "nll_term",
    "on_likelihood",
    "on_pairs",
    "on_tokens",
    "policy_term",
    "policy_terms",
    "to_reference",
]
