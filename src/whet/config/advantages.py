"""The advantages by name, for settings and lists. `credit.advantages` has them, and is imported when one is used."""

from __future__ import annotations

from typing import Any

from whet.registry import Registry

ADVANTAGES: Registry[Any] = Registry("advantage")
"""Of `credit.advantages.Advantage`, which imports torch."""

for _name, _says in (
    ("grpo", "Centred in the group, divided by its standard deviation (2402.03300); a KL is part of the reward."),
    ("dr_grpo", "Centred in the group (2503.20783); a KL is part of the reward."),
    ("rloo", "Each against the mean of the others of its group (2402.14740); a KL is part of the reward."),
    (
        "rloo_whitened",
        "Leave-one-out on the bare reward, the KL a token summed to the end, whitened over tokens: Critique-RL's code.",
    ),
    ("reinforce_pp", "Whitened over the batch's tokens (REINFORCE++, 2501.03262)."),
    ("reinforce_pp_baseline", "Centred in the group, then whitened over the batch's tokens."),
    ("reward", "The reward itself: plain REINFORCE."),
    ("gae", "PPO's, with a value model (1506.02438)"),
):
    ADVANTAGES.late(_name, f"whet.credit.advantages:{_name.upper()}", says=_says)
