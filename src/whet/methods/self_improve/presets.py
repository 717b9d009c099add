"""The baselines of critique-in-the-loop self-improvement, as settings of it.

Sizes are the tiny world's: what a preset has of its paper is who speaks, what is kept, and where a round starts.
Learning rates and numbers of samples are ours; docs/critique-loop.md says of each what is the paper's and what is not.
"""

from __future__ import annotations

from typing import Any

from whet.config.critics import WarmStartConfig
from whet.methods.registry import Preset
from whet.methods.self_improve.config import CritiqueLoopConfig
from whet.methods.self_improve.critique_loop import CritiqueLoop


def _preset(**settings: Any) -> Preset:
    return Preset(CritiqueLoop, CritiqueLoopConfig(**settings))


BINARY = _preset(feedback="binary")
HINT = _preset(feedback="hint")
ORACLE = _preset(feedback="oracle")
VANILLA = _preset(feedback="none")
EQUAL = _preset(feedback="none", token_budget=(114_006, 78_507, 69_517))
"""What `critique_loop` wrote in its rounds with default settings and seed 7."""
RFT = _preset(feedback="none", num_rounds=1, num_samples=20, distinct=True)
STAR = _preset(
    feedback="hint",
    num_samples=1,
    num_refinements=1,
    barrier=False,
    merge="none",
    warm_start=WarmStartConfig(actor_steps=0),
)
REST = _preset(feedback="none", num_samples=10, start="last")
REST_EM = _preset(
    feedback="none", num_samples=10, per_question=10, merge="none", warm_start=WarmStartConfig(actor_steps=0)
)
