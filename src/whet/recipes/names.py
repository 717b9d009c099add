"""What `whet train` can run, by name: for the help, so this imports nothing. Numbers are arXiv ids."""

METHODS = {
    "grpo": "clipped ratios, rewards compared within a group (2402.03300)",
    "bapo": "GRPO with clip bounds that balance good and bad tokens (2510.18927)",
    "bapo_code": "BAPO as its published code has it",
    "bapo_gradient": "BAPO with contributions counted by gradient",
    "dapo": "clip-higher, dynamic sampling, soft penalty on length (2503.14476)",
    "cispo": "clipped weights that keep every gradient (2506.13585)",
    "gspo": "one ratio a reply (2507.18071)",
    "sapo": "a soft gate instead of a clip (2511.20347)",
    "topr": "tapered off-policy REINFORCE (2503.14286)",
    "m2po": "a budget for the second moment of the log ratio (2510.01161)",
    "dr_grpo": "no division by std or length (2503.20783)",
    "rloo": "leave-one-out and REINFORCE (2402.14740)",
    "reinforce_pp": "REINFORCE++, whitened over the batch (2501.03262)",
    "reinforce_pp_baseline": "REINFORCE++ with the group's mean taken off",
    "reinforce": "plain REINFORCE",
    "ppo": "a value model and GAE (1707.06347)",
}
"""Presets of the recipe `solve`: plain RL of one policy with a verifiable reward."""

RECIPES = {"critique_rl": "Critique-RL: train a critic, first to judge, then to help (2510.24320)", **METHODS}
