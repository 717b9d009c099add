"""The methods: a folder for each family, a line here for each name that `whet train` takes. Numbers are arXiv ids.

A name stands for settings, which need no torch. Their `method` says which algorithm runs them. Importing this package
imports neither: files are loaded when a name is first used.
"""

from typing import Any

from whet.registry import Registry

__all__ = ["ALGORITHMS", "METHODS"]

METHODS: Registry[Any] = Registry("method")
"""What each name starts from: settings, or the class of settings with their defaults. Of a plug-in, its algorithm."""

for _name, _place, _says in (
    (
        "critique_rl",
        "critic.critique_rl_config:CritiqueRLConfig",
        "Critique-RL: a critic to judge, then to help (2510.24320)",
    ),
    ("critic_gradient", "critic.presets:CTRL", "a critic rewarded for refinements alone; starts as ctrl"),
    ("ctrl", "critic.presets:CTRL", "CTRL: GRPO on the refinements after a critique (2502.03492)"),
    ("ctrl_published", "critic.presets:CTRL_PUBLISHED", "CTRL with the settings of its published script"),
    ("retroformer", "critic.presets:RETROFORMER", "Retroformer: PPO on what refinements add (2308.02151)"),
    ("retroformer_published", "critic.presets:RETROFORMER_PUBLISHED", "Retroformer with its published settings"),
    (
        "star_critic",
        "critic.star_critic_config:StarConfig",
        "STaR: iterated imitation of one's own critiques that helped",
    ),
    ("open_ended", "critic.open_ended_config:OpenEndedConfig", "a critic that scores, under a learned reward model"),
    (
        "ref_critic",
        "critic.ref_critic_config:RefCriticConfig",
        "RefCritic: rewards for the verdict, then for refinements",
    ),
    ("critique_loop", "self_improve.config:CritiqueLoopConfig", "self-improvement, a critic in the loop (2411.16579)"),
    ("loop_binary", "self_improve.presets:BINARY", "critique_loop where a critique only says that an answer is wrong"),
    ("loop_hint", "self_improve.presets:HINT", "critique_loop where the reference answer is given away"),
    ("loop_oracle", "self_improve.presets:ORACLE", "critique_loop where a rule that knows the solution critiques"),
    ("self_improve", "self_improve.presets:VANILLA", "self-improvement without a critic: wrong answers are left"),
    ("self_improve_equal", "self_improve.presets:EQUAL", "the same, with as many tokens as critique_loop writes"),
    ("rft", "self_improve.presets:RFT", "rejection sampling: one round, distinct solutions (2308.01825)"),
    ("star", "self_improve.presets:STAR", "STaR: one answer, one more with the reference as a hint (2203.14465)"),
    ("rest", "self_improve.presets:REST", "ReST: grow, filter, go on from the round before (2308.08998)"),
    ("rest_em", "self_improve.presets:REST_EM", "ReST-EM: grow, filter, start anew (2312.06585)"),
    ("critique_dpo", "critic.critique_dpo_config:CritiqueDPOConfig", "DPO on critique pairs (2305.18290)"),
    (
        "auto_critique",
        "critique_data.auto_critique_config:AutoCritiqueConfig",
        "AutoMathCritique: critique data without people",
    ),
    ("nft", "policy.nft_config:NFTConfig", "NFT: likelihood of right and wrong answers (2505.18116)"),
    (
        "rltf_sd",
        "self_correct.rltf_sd_config:RLTFConfig",
        "RLTF-SD: what text feedback made possible, learnt for one turn",
    ),
    ("score_rl", "critic.score_rl_config:ScoreConfig", "SCoRe: a policy learns to mend its own answer (2409.12917)"),
    (
        "critique_coder",
        "critic.critique_coder_config:CritiqueCoderConfig",
        "Critique-Coder: solves and judges with one policy",
    ),
    ("spc", "critic.spc_config:SPCConfig", "SPC: a step critic against a sneaky generator, both trained"),
    ("agent", "agent.agent_config:AgentConfig", "an agent that is measured in environments, and not trained"),
    (
        "agent_clone",
        "agent.agent_clone_config:AgentCloneConfig",
        "behavioural cloning of an agent's trajectories (2406.04151)",
    ),
    ("agent_clone_careless", "agent.clone_presets:CARELESS", "cloning of careless episodes, from random weights"),
    ("agent_clone_more", "agent.clone_presets:MORE", "more of that cloning: the control in `make agents`"),
    ("agent_clone_expert", "agent.clone_presets:EXPERT", "cloning of faultless episodes: the ceiling in `make agents`"),
    ("agent_dpo", "agent.agent_dpo_config:AgentDPOConfig", "DPO of an agent: the better of two episodes (2305.18290)"),
    (
        "agent_evol",
        "agent.agent_evol_config:AgentEvolConfig",
        "AgentEvol: explore, keep what was rewarded, learn (2406.04151)",
    ),
    (
        "agent_critic",
        "agent.agent_critic_config:AgentCriticConfig",
        "a critic in the loop of an agent, trained by what it does",
    ),
    ("agent_gradient", "agent.agent_gradient_config:AgentGradientConfig", "any of agent_... below, by its settings"),
    (
        "agent_grpo",
        "agent.agent_gradient_config:AgentGradientConfig",
        "multi-turn RL: an item's episodes compared (2509.08755)",
    ),
    ("agent_dr_grpo", "agent.presets:DR_GRPO", "multi-turn RL, without division by std or length"),
    ("agent_rloo", "agent.presets:RLOO", "multi-turn RL: leave-one-out and REINFORCE"),
    ("agent_reinforce_pp", "agent.presets:REINFORCE_PP", "multi-turn RL: whitened over the batch"),
    ("agent_ppo", "agent.presets:PPO", "multi-turn RL: a value model, GAE over the agent's tokens alone"),
    ("agent_bapo", "agent.presets:BAPO", "multi-turn RL with BAPO's bounds on several updates a batch"),
    ("agent_gigpo", "agent.presets:GIGPO", "multi-turn RL: turns in equal states compared too (2505.10978)"),
    ("agent_grpo_tiny", "agent.presets:GRPO_TINY", "multi-turn RL from a clone of careless episodes: `make agents`"),
    ("agent_clone_worlds", "agent.world_presets:CLONE", "cloning of careless episodes in four environments"),
    ("agent_grpo_academia", "agent.world_presets:ACADEMIA", "multi-turn RL of that clone in academia"),
    ("scaling_inter_cooking", "agent.world_presets:COOKING", "a growing horizon, of that clone in cookingworld"),
    ("agent_evol_worlds", "agent.world_presets:EVOL", "AgentEvol of that clone in all four at once"),
    ("scaling_inter", "agent.presets:SCALING_INTER", "ScalingInter-RL: a horizon that grows (2509.08755)"),
    *(
        (f"agentgym_rl_{env}", f"agent.presets:{env.upper()}", f"AgentGym-RL's settings for {env}, GRPO")
        for env in ("textcraft", "babyai", "sciworld")
    ),
    *(
        (f"scaling_inter_{env}", f"agent.presets:{env.upper()}_SCALING", f"ScalingInter-RL's settings for {env}")
        for env in ("textcraft", "babyai", "sciworld")
    ),
    (
        "self_talk",
        "self_correct.self_talk_config:SelfTalkConfig",
        "self-talk: an actor checks its own steps (2411.16579)",
    ),
    ("imitation", "policy.imitation_config:ImitationConfig", "supervised learning of given texts"),
    ("policy_gradient", "policy.presets:GRPO", "any method below, by its settings; like grpo"),
    ("grpo", "policy.presets:GRPO", "clipped ratios, rewards compared within a group (2402.03300)"),
    ("bapo", "policy.presets:BAPO", "GRPO with clip bounds that balance good and bad tokens (2510.18927)"),
    ("bapo_code", "policy.presets:BAPO_CODE", "BAPO as its published code has it"),
    ("bapo_gradient", "policy.presets:BAPO_GRADIENT", "BAPO with contributions counted by gradient"),
    ("dapo", "policy.presets:DAPO", "clip-higher, dynamic sampling, soft penalty on length (2503.14476)"),
    ("cispo", "policy.presets:CISPO", "clipped weights that keep every gradient (2506.13585)"),
    ("gspo", "policy.presets:GSPO", "one ratio a reply (2507.18071)"),
    ("sapo", "policy.presets:SAPO", "a soft gate instead of a clip (2511.20347)"),
    ("topr", "policy.presets:TOPR", "tapered off-policy REINFORCE (2503.14286)"),
    ("dppo", "policy.presets:DPPO", "a bound on how far a token's probability moves (2602.04879)"),
    ("m2po", "policy.presets:M2PO", "a budget for the second moment of the log ratio (2510.01161)"),
    ("dr_grpo", "policy.presets:DR_GRPO", "no division by std or length (2503.20783)"),
    ("rloo", "policy.presets:RLOO", "leave-one-out and REINFORCE (2402.14740)"),
    ("reinforce_pp", "policy.presets:REINFORCE_PP", "REINFORCE++, whitened over the batch (2501.03262)"),
    ("reinforce_pp_baseline", "policy.presets:REINFORCE_PP_BASELINE", "REINFORCE++, the group's mean off"),
    ("reinforce", "policy.presets:REINFORCE", "plain REINFORCE"),
    ("ppo", "policy.presets:PPO", "a value model and GAE (1707.06347)"),
):
    METHODS.late(_name, f"{__name__}.{_place}", says=_says)

ALGORITHMS: Registry[Any] = Registry("algorithm")
"""By the `method` of settings, the class that runs them."""

for _name, _place in (
    ("critique_rl", "critic.critique_rl:CritiqueRL"),
    ("star_critic", "critic.star_critic:Star"),
    ("open_ended", "critic.open_ended:OpenEnded"),
    ("ref_critic", "critic.ref_critic:RefCritic"),
    ("critique_loop", "self_improve.critique_loop:CritiqueLoop"),
    ("critique_dpo", "critic.critique_dpo:CritiqueDPO"),
    ("auto_critique", "critique_data.auto_critique:AutoCritique"),
    ("nft", "policy.nft:NFT"),
    ("rltf_sd", "self_correct.rltf_sd:RLTF"),
    ("score_rl", "critic.score_rl:Score"),
    ("critique_coder", "critic.critique_coder:CritiqueCoder"),
    ("spc", "critic.spc:SPC"),
    ("agent", "agent.agent:Agent"),
    ("agent_clone", "agent.agent_clone:AgentClone"),
    ("agent_dpo", "agent.agent_dpo:AgentDPO"),
    ("agent_evol", "agent.agent_evol:AgentEvol"),
    ("agent_critic", "agent.agent_critic:AgentCritic"),
    ("agent_gradient", "agent.agent_gradient:AgentGradient"),
    ("self_talk", "self_correct.self_talk:SelfTalkMethod"),
    ("imitation", "policy.imitation:Imitation"),
    ("policy_gradient", "policy.policy_gradient:PolicyGradient"),
    ("critic_gradient", "critic.critic_gradient:CriticGradient"),
):
    ALGORITHMS.late(_name, f"{__name__}.{_place}", says="")
