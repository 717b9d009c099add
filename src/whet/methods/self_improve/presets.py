"""The baselines of critique-in-the-loop self-improvement, as settings of it.

Sizes are the tiny world's: what a preset has of its paper is who speaks, what is kept, and where a round starts.
Learning rates and numbers of samples are ours; docs/critique-loop.md says of each what is the paper's and what is not.
"""

from __future__ import annotations

from whet.config.critics import WarmStartConfig
from whet.methods.self_improve.config import CritiqueLoopConfig

BINARY = CritiqueLoopConfig(feedback="binary")
HINT = CritiqueLoopConfig(feedback="hint")
ORACLE = CritiqueLoopConfig(feedback="oracle")
VANILLA = CritiqueLoopConfig(feedback="none")
EQUAL = CritiqueLoopConfig(feedback="none", token_budget=(114_006, 78_507, 69_517))
"""What `critique_loop` wrote in its rounds with default settings and seed 7."""
RFT = CritiqueLoopConfig(feedback="none", num_rounds=1, num_samples=20, distinct=True)
STAR = CritiqueLoopConfig(
    feedback="hint",
    num_samples=1,
    num_refinements=1,
    barrier=False,
    merge="none",
    warm_start=WarmStartConfig(actor_steps=0),
)
REST = CritiqueLoopConfig(feedback="none", num_samples=10, start="last")
REST_EM = CritiqueLoopConfig(
    feedback="none", num_samples=10, per_question=10, merge="none", warm_start=WarmStartConfig(actor_steps=0)
)
