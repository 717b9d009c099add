"""The methods: one file each, a line here for each name that `whet train` takes. Numbers are arXiv ids.

Importing this imports none of them: a name's file is loaded when the name is asked for.
"""

from whet.methods.registry import METHODS

__all__ = ["METHODS"]

_HERE = "whet.methods"
_CLONES = f"{_HERE}.presets.agent_clones"
_GRPO, _BAPO, _REINFORCE, _CRITICS, _AGENTS, _IMPROVING = (
    f"{_HERE}.presets.{family}" for family in ("grpo", "bapo", "reinforce", "critics", "agents", "improvement")
)

for _name, _place, _says in (
    ("critique_rl", f"{_HERE}.critique_rl:CritiqueRL", "Critique-RL: a critic to judge, then to help (2510.24320)"),
    ("critic_gradient", f"{_CRITICS}:CTRL", "a critic paid for refinements alone; starts as ctrl"),
    ("ctrl", f"{_CRITICS}:CTRL", "CTRL: GRPO on what refinements come to (2502.03492)"),
    ("ctrl_published", f"{_CRITICS}:CTRL_PUBLISHED", "CTRL with the settings of its published script"),
    ("retroformer", f"{_CRITICS}:RETROFORMER", "Retroformer: PPO on what refinements add (2308.02151)"),
    ("retroformer_published", f"{_CRITICS}:RETROFORMER_PUBLISHED", "Retroformer with its published settings"),
    ("star_critic", f"{_HERE}.star_critic:Star", "STaR: iterated imitation of one's own critiques that helped"),
    ("open_ended", f"{_HERE}.open_ended:OpenEnded", "a critic that gives scores, paid by a learned reward model"),
    ("ref_critic", f"{_HERE}.ref_critic:RefCritic", "RefCritic: paid for the verdict, then for refinements too"),
    ("critique_loop", f"{_HERE}.critique_loop:CritiqueLoop", "self-improvement with a critic in the loop (2411.16579)"),
    ("loop_binary", f"{_IMPROVING}:BINARY", "critique_loop where all that is said is that an answer is wrong"),
    ("loop_hint", f"{_IMPROVING}:HINT", "critique_loop where the reference answer is given away"),
    ("loop_oracle", f"{_IMPROVING}:ORACLE", "critique_loop where a rule that knows the solution critiques"),
    ("self_improve", f"{_IMPROVING}:VANILLA", "self-improvement without a critic: wrong answers are left"),
    ("self_improve_equal", f"{_IMPROVING}:EQUAL", "the same, with as many tokens as critique_loop writes"),
    ("rft", f"{_IMPROVING}:RFT", "rejection sampling: one round, distinct solutions (2308.01825)"),
    ("star", f"{_IMPROVING}:STAR", "STaR: one answer, one more with the reference as a hint (2203.14465)"),
    ("rest", f"{_IMPROVING}:REST", "ReST: grow, filter, go on from the round before (2308.08998)"),
    ("rest_em", f"{_IMPROVING}:REST_EM", "ReST-EM: grow, filter, start anew (2312.06585)"),
    ("critique_dpo", f"{_HERE}.critique_dpo:CritiqueDPO", "DPO on critique pairs (2305.18290)"),
    ("auto_critique", f"{_HERE}.auto_critique:AutoCritique", "AutoMathCritique: critique data without people"),
    ("nft", f"{_HERE}.nft:NFT", "NFT: likelihood of right and wrong answers (2505.18116)"),
    ("rltf_sd", f"{_HERE}.rltf_sd:RLTF", "RLTF-SD: what text feedback made possible, learnt for one turn"),
    ("score_rl", f"{_HERE}.score_rl:Score", "SCoRe: a policy learns to mend its own answer (2409.12917)"),
    ("critique_coder", f"{_HERE}.critique_coder:CritiqueCoder", "Critique-Coder: solves and judges with one policy"),
    ("spc", f"{_HERE}.spc:SPC", "SPC: a step critic against a sneaky generator, both trained"),
    ("agent", f"{_HERE}.agent:Agent", "an agent that is measured in environments, and not trained"),
    ("agent_clone", f"{_HERE}.agent_clone:AgentClone", "behavioural cloning of an agent's trajectories (2406.04151)"),
    ("agent_clone_careless", f"{_CLONES}:CARELESS", "cloning of careless play, from random weights"),
    ("agent_clone_more", f"{_CLONES}:MORE", "more cloning of that careless play: the control in `make agents`"),
    ("agent_clone_expert", f"{_CLONES}:EXPERT", "cloning of play without mistakes: the ceiling in `make agents`"),
    ("agent_dpo", f"{_HERE}.agent_dpo:AgentDPO", "DPO of an agent: the better of two episodes (2305.18290)"),
    ("agent_evol", f"{_HERE}.agent_evol:AgentEvol", "AgentEvol: explore, keep what was rewarded, learn (2406.04151)"),
    ("agent_critic", f"{_HERE}.agent_critic:AgentCritic", "a critic in the loop of an agent, trained by what it does"),
    ("agent_gradient", f"{_AGENTS}:GRPO", "any of the agent_... below, by its settings; starts as agent_grpo"),
    ("agent_grpo", f"{_AGENTS}:GRPO", "multi-turn RL: an item's episodes compared (2509.08755)"),
    ("agent_dr_grpo", f"{_AGENTS}:DR_GRPO", "multi-turn RL, without division by std or length"),
    ("agent_rloo", f"{_AGENTS}:RLOO", "multi-turn RL: leave-one-out and REINFORCE"),
    ("agent_reinforce_pp", f"{_AGENTS}:REINFORCE_PP", "multi-turn RL: whitened over the batch"),
    ("agent_ppo", f"{_AGENTS}:PPO", "multi-turn RL: a value model, GAE over the agent's tokens alone"),
    ("agent_bapo", f"{_AGENTS}:BAPO", "multi-turn RL with BAPO's bounds on several updates a batch"),
    ("agent_gigpo", f"{_AGENTS}:GIGPO", "multi-turn RL: turns in equal states compared too (2505.10978)"),
    ("agent_grpo_tiny", f"{_AGENTS}:GRPO_TINY", "multi-turn RL from the agent of careless play: `make agents`"),
    ("scaling_inter", f"{_AGENTS}:SCALING_INTER", "ScalingInter-RL: a horizon that grows (2509.08755)"),
    *(
        (f"agentgym_rl_{env}", f"{_AGENTS}:{env.upper()}", f"AgentGym-RL's settings for {env}, GRPO")
        for env in ("textcraft", "babyai", "sciworld")
    ),
    *(
        (f"scaling_inter_{env}", f"{_AGENTS}:{env.upper()}_SCALING", f"ScalingInter-RL's settings for {env}")
        for env in ("textcraft", "babyai", "sciworld")
    ),
    ("self_talk", f"{_HERE}.self_talk:SelfTalkMethod", "self-talk: an actor checks its own steps (2411.16579)"),
    ("imitation", f"{_HERE}.imitation:Imitation", "supervised learning of given texts"),
    ("policy_gradient", f"{_GRPO}:GRPO", "any of those below, by its settings; starts as grpo"),
    ("grpo", f"{_GRPO}:GRPO", "clipped ratios, rewards compared within a group (2402.03300)"),
    ("bapo", f"{_BAPO}:PAPER", "GRPO with clip bounds that balance good and bad tokens (2510.18927)"),
    ("bapo_code", f"{_BAPO}:CODE", "BAPO as its published code has it"),
    ("bapo_gradient", f"{_BAPO}:GRADIENT", "BAPO with contributions counted by gradient"),
    ("dapo", f"{_GRPO}:DAPO", "clip-higher, dynamic sampling, soft penalty on length (2503.14476)"),
    ("cispo", f"{_GRPO}:CISPO", "clipped weights that keep every gradient (2506.13585)"),
    ("gspo", f"{_GRPO}:GSPO", "one ratio a reply (2507.18071)"),
    ("sapo", f"{_GRPO}:SAPO", "a soft gate instead of a clip (2511.20347)"),
    ("topr", f"{_GRPO}:TOPR", "tapered off-policy REINFORCE (2503.14286)"),
    ("dppo", f"{_GRPO}:DPPO", "a bound on how far a token's probability moves (2602.04879)"),
    ("m2po", f"{_GRPO}:M2PO", "a budget for the second moment of the log ratio (2510.01161)"),
    ("dr_grpo", f"{_GRPO}:DR_GRPO", "no division by std or length (2503.20783)"),
    ("rloo", f"{_REINFORCE}:RLOO", "leave-one-out and REINFORCE (2402.14740)"),
    ("reinforce_pp", f"{_REINFORCE}:REINFORCE_PP", "REINFORCE++, whitened over the batch (2501.03262)"),
    ("reinforce_pp_baseline", f"{_REINFORCE}:REINFORCE_PP_BASELINE", "REINFORCE++ with the group's mean taken off"),
    ("reinforce", f"{_REINFORCE}:REINFORCE", "plain REINFORCE"),
    ("ppo", f"{_REINFORCE}:PPO", "a value model and GAE (1707.06347)"),
):  # fmt: skip
    METHODS.late(_name, _place, says=_says)
