"""What each preset has of its paper or its published code, key by key. Sizes and rates of the tiny world are not here:
docs/fidelity.md says that they are ours."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from whet.methods import METHODS
from whet.methods.registry import preset_of

CLIP, NO_KL = {"loss.bounds.low": 0.8, "loss.bounds.high": 1.2, "loss.dual": None}, {"kl.coef": 0.0}
REPLIES = NO_KL | {"entropy_coef": 0.0, "sampling.temperature": 1.0, "sampling.top_p": 1.0}
BAPO = REPLIES | {
    "advantage": "grpo",
    "aggregation": "token_mean",
    "learning.num_epochs": 2,
    "loss.bounds.kind": "bapo",
}
PAPER_RANGES = {
    "loss.bounds.target": 0.4, "loss.bounds.target_as": "share", "loss.bounds.order": "high_first",
    "loss.bounds.low.start": 0.6, "loss.bounds.low.ceiling": 0.9, "loss.bounds.low.step": 0.02,
    "loss.bounds.high.start": 1.2, "loss.bounds.high.ceiling": 3.0, "loss.bounds.high.step": 0.05, "loss.dual": None,
}  # fmt: skip
STAGE = {"group_size": 4, "kl_coef": 0.01, "clip": 0.2, "learning.num_epochs": 2, "learning.minibatch_rows": 64,
         "learning.betas": (0.9, 0.95), "learning.weight_decay": 0.0, "learning.final_share": 0.1,
         "sequence_level": False}  # fmt: skip
PUBLISHED: dict[str, dict[str, Any]] = {
    "grpo": REPLIES | CLIP | {"advantage": "grpo"},
    "dr_grpo": REPLIES | CLIP | {"advantage": "dr_grpo", "aggregation": "constant"},
    "dapo": REPLIES | CLIP | {"loss.bounds.high": 1.28, "aggregation": "token_mean", "signed": True},
    "cispo": REPLIES | {"loss.bounds.low": 0.0, "loss.bounds.high": 5.0, "aggregation": "token_mean"},
    "dppo": REPLIES | {
        "loss.divergence": "tv", "loss.low": 0.2, "loss.high": 0.2, "loss.max_ratio": 20.0, "aggregation": "token_mean",
    },
    "gspo": REPLIES | {"loss.low": 1 - 3e-4, "loss.high": 1 + 4e-4, "aggregation": "sequence_mean"},
    "sapo": REPLIES | {"loss.tau_positive": 1.0, "loss.tau_negative": 1.05, "aggregation": "sequence_mean"},
    "topr": REPLIES | {"loss.level": "sequence"},
    "m2po": REPLIES | {"loss.budget": 0.04, "aggregation": "token_mean"},
    "rloo": REPLIES | {"advantage": "rloo", "loss.kind": "reinforce"},
    "reinforce_pp": REPLIES | CLIP | {"advantage": "reinforce_pp", "aggregation": "token_mean", "signed": True},
    "reinforce_pp_baseline": REPLIES | CLIP | {"advantage": "reinforce_pp_baseline", "aggregation": "token_mean"},
    "ppo": REPLIES | CLIP | {"advantage": "gae", "value.gamma": 1.0, "value.gae_lambda": 0.95, "value.clip": 0.5},
    "bapo": BAPO | PAPER_RANGES | {"loss.bounds.contribution": "value", "loss.bounds.token_weight": "none"},
    "bapo_gradient": BAPO | PAPER_RANGES | {"loss.bounds.contribution": "gradient"},
    "bapo_code": BAPO | {
        "loss.bounds.target": 1.0, "loss.bounds.target_as": "odds", "loss.bounds.order": "low_first",
        "loss.bounds.low.start": 0.6, "loss.bounds.low.ceiling": 0.8, "loss.bounds.low.step": 0.05,
        "loss.bounds.high.start": 1.2, "loss.bounds.high.ceiling": 2.0, "loss.bounds.high.step": 0.05,
        "loss.bounds.low.onto_ceiling": True, "loss.bounds.high.onto_ceiling": True, "loss.dual": 3.0,
    },
    "critique_rl": {f"{stage}.{key}": value for stage in ("stage1", "stage2") for key, value in STAGE.items()} | {
        "stage1.scale": "signed", "stage2.combine": "gated", "stage2.weight": 0.2, "stage2.indirect": "refine",
        "roles.refinement.temperature": 0.0, "roles.answer.temperature": 0.7, "warm_start.refine_share": 0.4,
    },
    "ctrl": {"requires_verdict": True, "indirect": "refine", "advantage": "grpo", "kl.estimator": "k3",
             "kl.where": "loss", "roles.refinement.temperature": 0.0},
    "retroformer": {"requires_verdict": False, "indirect": "delta", "advantage": "gae", "kl.where": "reward"},
    "star_critic": {"anew": True},
    "ref_critic": CLIP | NO_KL | {"refine_weight": 1.0},
    "nft": {"loss.omega": "dr_grpo", "loss.negative_weight": 1.0, "loss.epsilon": 1.0, "aggregation": "constant"},
    "rltf_sd": {"discount": 0.1, "distil": 0.1, "floor": -5.0, "group_size": 8, "learning.betas": (0.9, 0.95)},
    "score_rl": {"bonus": 10.0},
    "critique_coder": CLIP | {"loss.bounds.high": 1.3, "judge_share": 0.2, "judge_reward": 1.0, "right_above": 0.8,
                              "group_size": 8},
    "spc": {"sft_weight": 0.15, "num_rounds": 2},
    "critique_loop": {
        "num_rounds": 3, "num_samples": 5, "num_refinements": None, "keep": 1, "barrier": True, "merge": "base",
        "start": "base", "num_epochs": 1.0, "per_question": None, "sampling.temperature": 0.7,
        "critique.temperature": 0.0, "refinement.temperature": 0.7, "conditional": False,
    },
    "rft": {"num_rounds": 1, "distinct": True, "feedback": "none"},
    "star": {"num_samples": 1, "num_refinements": 1, "feedback": "hint", "start": "base", "merge": "none"},
    "rest": {"feedback": "none", "start": "last"},
    "rest_em": {"feedback": "none", "start": "base", "per_question": 10, "merge": "none"},
    "auto_critique": {"filters.num_refinements": 10, "filters.threshold": 0.3},
    "agent_dpo": {"beta": 0.5, "num_epochs": 3.0, "reward_gap": 0.01, "threshold": 0.7, "likelihood": 0.0},
    "agent_evol": {"num_rounds": 4, "group_size": 1, "merge": "base", "start": "initial"},
    "agent_ppo": {"advantage": "gae", "value.gamma": 1.0, "value.gae_lambda": 1.0},
    "agent_gigpo": {"credit.per": "gigpo", "credit.gamma": 0.95, "credit.weight": 1.0, "advantage": "grpo"},
    "scaling_inter": {"aggregation": "sequence_mean"},
}  # fmt: skip
"""By preset, the settings that its paper or its code names."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_settings_of_its_paper(name):
    config = preset_of(name).config
    found = {key: reduce(getattr, key.split("."), config) for key in PUBLISHED[name]}
    assert found == PUBLISHED[name]


def test_no_preset_of_a_method_that_is_gone_is_held_to_its_paper():
    assert set(METHODS.names()) >= PUBLISHED.keys()


def test_spec_2_4_bapos_published_run_makes_eight_updates_of_a_batch():
    """Two epochs of four minibatches: staleness 8."""
    config = preset_of("bapo_code").config
    assert config.learning.updates_a_step(config.prompts_per_step * config.group_size) == 8
