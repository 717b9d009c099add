"""The small runs that `kill_resume.py` kills, each a command of some seconds with checkpoints after every step."""

from __future__ import annotations

from pathlib import Path

from faulty_endpoint import PLACE

SOLVE = (
    "num_threads=1", "seed=3", "data.num_train=64", "data.num_validation=8", "data.num_test=8", "num_steps=6",
    "prompts_per_step=4", "group_size=4", "validate_every=3", "evaluation.num_samples=2", "checkpoint_every=1",
    "learning.minibatch_rows=8", "probe_every=3", "sampling.max_new_tokens=48",
)  # fmt: skip
CRITIQUE = (
    "num_threads=1", "seed=3", "data.num_train=64", "data.num_validation=8", "data.num_test=12",
    "warm_start.actor_steps=3", "warm_start.critic_steps=3", "warm_start.rows_per_step=8", "checkpoint_every=1",
    *(
        f"stage{n}.{setting}"
        for n in (1, 2)
        for setting in ("num_steps=3", "prompts_per_step=4", "validate_every=2", "learning.minibatch_rows=8")
    ),
)  # fmt: skip
WORLDS = (
    "num_threads=1", "seed=3", "data.num_validation=6", "data.num_test=8", "checkpoint_every=1",
    "sampling.max_new_tokens=40", "evaluation.max_turns=4", "engine.latency=3", "engine.max_rows=16",
)  # fmt: skip
ACTING = (
    *WORLDS, "num_steps=6", "prompts_per_step=4", "group_size=4", "max_turns=5", "validate_every=3",
    "learning.minibatch_rows=8", "probe_every=3",
)  # fmt: skip
"""Free-running play, as all agents': their worlds answer three steps later, and sixteen rows are less than are open."""
GROWING = tuple(setting for setting in ACTING if not setting.startswith("max_turns"))
AGES = Path(__file__).with_name("kill_ages.jsonl")
"""By step, the units of an asynchronous run and the steps in which they begin: ages of 0, 1 and 2."""
SEAT = "{{kind: endpoint, url: '{}', model: textbook, cache: null, prefill: continue}}"
"""Whose replies are kept nowhere, so that each is really asked for again."""
CRITIQUES = (
    "num_threads=1", "seed=3", "data.num_train=8", "data.num_validation=4", "data.num_test=4", "checkpoint_every=1",
    "rg1.num_samples=4", "rg2.num_samples=2", "rg3.num_samples=2", "filters.num_refinements=4", "ratio={}",
    "locate.num_completions=2", "questions_per_step=2", "records_per_step=8",
)  # fmt: skip
SCENARIOS: dict[str, tuple[str, ...]] = {
    "critique_rl": ("critique_rl", *CRITIQUE),
    "replay": ("bapo", *SOLVE, "off_policy.kind=replay", "off_policy.staleness=2"),
    "partial": ("grpo", *SOLVE, "off_policy.kind=partial", "off_policy.budget=12"),
    "async": (
        "grpo", *SOLVE, "cluster.unit=8", "off_policy.kind=async", "off_policy.max_age=2", f"off_policy.log={AGES}",
    ),
    "ppo": ("ppo", *SOLVE, "value.warmup_updates=1", "kl.coef=0.01", "kl.where=reward"),
    "lora_bf16": ("grpo", *SOLVE, "policy.dtype=bfloat16", "policy.lora.rank=4", "learning.learning_rate=1e-3"),
    "spc": (
        "spc",
        "num_threads=1",
        "seed=3",
        "data.num_train=64",
        "data.num_validation=8",
        "data.num_test=12",
        "sft_steps=2",
        "games=16",
        "num_rounds=2",
        "learning.minibatch_rows=16",
        "checkpoint_every=1",
    ),
    "mix": (
        "critique_coder",
        *(s for s in SOLVE if not s.startswith("probe")),
        "judge_share=0.5",
        "learning.num_epochs=2",
        "schedule.judge_reward={kind: gated, values: [1.0, 0.8], metric: reward/correct, above: 0.1, patience: 2}",
    ),
    "free": ("critique_rl", *CRITIQUE, "engine.rollout=free", "engine.latency=3", "engine.max_rows=16"),
    "eval": ("grpo", *SOLVE, "num_steps=1", "data.num_test=48"),
    "agent_grpo": ("agent_grpo", *ACTING, "data.env=[textcraft, maze]"),
    "agent_ppo": ("agent_ppo", *ACTING, "value.warmup_updates=1", "kl.coef=0.01", "kl.where=reward"),
    "agent_gigpo": ("agent_gigpo", *ACTING, "off_policy.kind=replay", "off_policy.staleness=2"),
    "scaling_inter": (
        "scaling_inter", *GROWING, "schedule.max_turns={kind: steps, values: [2, 4, 6], every: 2}",
    ),
    "scaling_gated": (
        "scaling_inter", *GROWING,
        "schedule.max_turns={kind: gated, values: [2, 5], metric: episodes/cut, above: 0.2, patience: 3}",
    ),
    "agent_evol": (
        "agent_evol", *WORLDS, "data.num_train=32", "num_rounds=2", "items_per_step=8", "group_size=2", "max_turns=5",
        "num_epochs=1", "rows_per_step=4", "validate_every=2",
    ),
    "agent_clone": (
        "agent_clone", *WORLDS, "data.num_train=48", "num_steps=10", "rows_per_step=8", "validate_every=3",
    ),
    "agent_rloo": ("agent_rloo", *ACTING),
    "agent_reinforce_pp": ("agent_reinforce_pp", *ACTING, "credit.per=turn"),
    "agent_critic": (
        "agent_critic", *WORLDS, "data.env=textcraft", "data.num_train=24", "max_turns=4",
        "warm_start.policy_steps=3", "warm_start.critic_steps=4", "warm_start.attempts=8",
        "warm_start.rows_per_step=4",
        *(f"stage{n}.{setting}" for n in (1, 2)
          for setting in ("num_steps=3", "prompts_per_step=3", "validate_every=2", "learning.minibatch_rows=8")),
    ),
    "agent_dpo": (
        "agent_dpo", *WORLDS, "data.num_train=16", "num_explored=8", "items_per_step=4", "group_size=2", "max_turns=5",
        "num_rounds=2", "num_epochs=1", "pairs_per_step=4", "learning.minibatch_rows=8", "validate_every=2",
    ),
    "agent_actions": (
        "agent_critic", *WORLDS, "data.env=textcraft", "data.num_train=24", "of=action", "critic.kind=rule",
        "warm_start.policy_steps=6", "warm_start.rows_per_step=4",
    ),
    "critiques": (
        "data", "critiques", *CRITIQUES, *(f"{role}={SEAT.format(PLACE)}" for role in ("actor", "annotator")),
    ),
}  # fmt: skip
COMMANDS = ("data", "eval")
"""Those of `whet` that are no `train`, and begin a scenario."""
TITLES = {
    "critique_rl": "Critique-RL", "replay": "BAPO with replay", "partial": "GRPO, partial rollout",
    "async": "GRPO, asynchronous, by a log",
    "ppo": "PPO with a value model", "lora_bf16": "GRPO, LoRA, bf16",
    "spc": "SPC: two policies, lazy phases", "mix": "Critique-Coder: store, gated schedule",
    "free": "Critique-RL, free-running play", "eval": "`whet eval`",
    "agent_grpo": "agents, GRPO, two worlds", "agent_ppo": "agents, PPO with a value model and KL",
    "agent_gigpo": "agents, GiGPO with replay", "scaling_inter": "ScalingInter-RL, horizon by step",
    "scaling_gated": "ScalingInter-RL, horizon by a gate", "agent_evol": "AgentEvol, two rounds",
    "agent_clone": "cloning of experts", "agent_rloo": "agents, RLOO",
    "agent_reinforce_pp": "agents, REINFORCE++, credit of turns", "agent_critic": "a critic in the loop of an agent",
    "agent_dpo": "DPO of an agent, two rounds", "agent_actions": "a rule that critiques an agent's actions",
    "critiques": "`whet data critiques`, all seats on an endpoint that fails",
}  # fmt: skip
