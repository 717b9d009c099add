"""The strategies of inference scaling by name. `inference_scaling` has them, and is imported when one is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whet.registry import Registry

if TYPE_CHECKING:
    from whet.evaluation.inference_scaling import Strategy

STRATEGIES: Registry[type[Strategy]] = Registry("strategy")
"""The strategies for inference scaling that `whet eval --strategy` takes."""

for _name, _class, _says in (
    ("single", "Single", "One greedy answer, whatever the budget."),
    ("majority", "Majority", "As many answers as fit, and the majority of them (self-consistency)."),
    (
        "ceiling",
        "Ceiling",
        "As many answers as fit, and a right one if there is any: pass@K, which no vote and no choice can exceed.",
    ),
    (
        "parallel",
        "Parallel",
        "Chains of answer, critique and refinement, as many as fit, and the majority of their ends.",
    ),
    ("verdict_gated", "VerdictGated", "As parallel, but an answer is refined only where the verdict calls it wrong."),
    ("sequential", "Sequential", "One answer, critiqued and refined round after round; the last refinement counts."),
    (
        "critic_filtered",
        "CriticFiltered",
        "Answers with a critique each; the majority of those not judged wrong, or of all where none is left.",
    ),
    (
        "critic_weighted",
        "CriticWeighted",
        "Answers with critiques; each votes with the weight that its critiques give it.",
    ),
    ("best_of_n", "BestOfN", "Answers with critiques; the one that they speak for most, of equals the first."),
    (
        "self_check",
        "SelfCheck",
        "Answers; where they agree too little, those judged wrong are dropped before the vote.",
    ),
):
    STRATEGIES.late(_name, f"whet.evaluation.inference_scaling:{_class}", says=_says)
