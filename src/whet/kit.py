"""One import for who writes a plug-in: what methods, losses, graders and environments are made of.

    from whet.kit import Batch, Phase, PolicyAlgorithm, PolicyRunConfig, method, nll_term

`docs/plugins.md` lists the names. Each is loaded when it is first used, so that a file with a grader alone loads no
torch in the grader's worker processes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers and editors; `_PLACES` says the same to Python
    from whet.callbacks import Begun, Ended, Saved, StepMade, Validated, callback
    from whet.config.acts import ActsUnless, ActsWhen, AllOf, AnyOf, Inside, NoEffect
    from whet.config.base import Config, ConfigError, PerStep
    from whet.config.environments import AgentRunConfig
    from whet.config.losses import ClipLoss, FixedBounds, KLConfig, PolicyLoss, ReinforceLoss
    from whet.config.parts import LearningConfig, ModelConfig, SamplingConfig
    from whet.config.runs import CriticRunConfig, PolicyRunConfig, RunConfig, TrainingConfig
    from whet.credit.advantages import ADVANTAGES, advantage
    from whet.credit.assignment import AssignedCredit, assign_credit, pair_rows
    from whet.credit.metrics import critique_signs, reaches_reference, reply_metrics, reply_signs, reward_metrics
    from whet.credit.rewards import (
        ScoredSegment,
        gated,
        groups_of,
        outcome,
        overlong,
        refine_outcome,
        rewarded,
        verdict_match,
    )
    from whet.credit.views import joined
    from whet.digests import read_bytes, read_text
    from whet.envs.adapters import from_gymnasium, from_reasoning_gym
    from whet.envs.plugin import env
    from whet.envs.verifiers_tasks import from_verifiers
    from whet.errors import RunError, WhetError
    from whet.evaluation.agents import succeeded, turns_of
    from whet.evaluation.inference_scaling import Strategy, strategy
    from whet.evaluation.user_benchmarks import Graded, benchmark
    from whet.grading import from_trl, from_verl, grader
    from whet.methods.agent.base import BY_SUCCESS, AgentAlgorithm, agent_spec
    from whet.methods.agent.turn_credit import assign_turn_credit
    from whet.methods.base import Algorithm, MethodSpec, RunContext, method
    from whet.methods.critics import (
        CriticAlgorithm,
        ask_critic,
        critic_spec,
        critique_rounds,
        roll_out_rounds,
        sample_critiques,
        training_batch,
    )
    from whet.methods.names import POLICY
    from whet.methods.report_specs import load_report
    from whet.methods.sampling import kept, whole
    from whet.methods.solvers import BY_BEST, PolicyAlgorithm, reply_traces, solve_rollout, solver_spec, training_phases
    from whet.methods.user_presets import preset
    from whet.objectives.ratio import log_ratios, masked_credit, ratio_metrics, summed
    from whet.report.spec import ReportSpec
    from whet.rewards import reward
    from whet.rollout.driver import Ask
    from whet.rollout.solve import Solve
    from whet.seeds import seed_of
    from whet.tasks.prompts import ENGLISH, Prompts, find_prompts, prompts
    from whet.trainer.loop import Batch, Phase, Selection
    from whet.trainer.losses import entropy_term, kl_term, nll_term, policy_term, policy_terms
    from whet.trainer.terms import Pass, Term, Update, on_likelihood, on_pairs, on_tokens, to_reference
    from whet.trainer.user_losses import loss
    from whet.trainer.watch import Signs
    from whet.types import Episode, Grade, Row, Segment, Task, as_row

__all__ = [
    "ADVANTAGES",
    "BY_BEST",
    "BY_SUCCESS",
    "ENGLISH",
    "POLICY",
    "ActsUnless",
    "ActsWhen",
    "AgentAlgorithm",
    "AgentRunConfig",
    "Algorithm",
    "AllOf",
    "AnyOf",
    "Ask",
    "AssignedCredit",
    "Batch",
    "Begun",
    "ClipLoss",
    "Config",
    "ConfigError",
    "CriticAlgorithm",
    "CriticRunConfig",
    "Ended",
    "Episode",
    "FixedBounds",
    "Grade",
    "Graded",
    "Inside",
    "KLConfig",
    "LearningConfig",
    "MethodSpec",
    "ModelConfig",
    "NoEffect",
    "Pass",
    "PerStep",
    "Phase",
    "PolicyAlgorithm",
    "PolicyLoss",
    "PolicyRunConfig",
    "Prompts",
    "ReinforceLoss",
    "ReportSpec",
    "Row",
    "RunConfig",
    "RunContext",
    "RunError",
    "SamplingConfig",
    "Saved",
    "ScoredSegment",
    "Segment",
    "Selection",
    "Signs",
    "Solve",
    "StepMade",
    "Strategy",
    "Task",
    "Term",
    "TrainingConfig",
    "Update",
    "Validated",
    "WhetError",
    "advantage",
    "agent_spec",
    "as_row",
    "ask_critic",
    "assign_credit",
    "assign_turn_credit",
    "benchmark",
    "callback",
    "critic_spec",
    "critique_rounds",
    "critique_signs",
    "entropy_term",
    "env",
    "find_prompts",
    "from_gymnasium",
    "from_reasoning_gym",
    "from_trl",
    "from_verifiers",
    "from_verl",
    "gated",
    "grader",
    "groups_of",
    "joined",
    "kept",
    "kl_term",
    "load_report",
    "log_ratios",
    "loss",
    "masked_credit",
    "method",
    "nll_term",
    "on_likelihood",
    "on_pairs",
    "on_tokens",
    "outcome",
    "overlong",
    "pair_rows",
    "policy_term",
    "policy_terms",
    "preset",
    "prompts",
    "ratio_metrics",
    "reaches_reference",
    "read_bytes",
    "read_text",
    "refine_outcome",
    "reply_metrics",
    "reply_signs",
    "reply_traces",
    "reward",
    "reward_metrics",
    "rewarded",
    "roll_out_rounds",
    "sample_critiques",
    "seed_of",
    "solve_rollout",
    "solver_spec",
    "strategy",
    "succeeded",
    "summed",
    "to_reference",
    "training_batch",
    "training_phases",
    "turns_of",
    "verdict_match",
    "whole",
]

_PLACES = {
    "whet.callbacks": ("Begun", "Ended", "Saved", "StepMade", "Validated", "callback"),
    "whet.config.acts": ("ActsUnless", "ActsWhen", "AllOf", "AnyOf", "Inside", "NoEffect"),
    "whet.config.base": ("Config", "ConfigError", "PerStep"),
    "whet.config.environments": ("AgentRunConfig",),
    "whet.config.losses": ("ClipLoss", "FixedBounds", "KLConfig", "PolicyLoss", "ReinforceLoss"),
    "whet.config.parts": ("LearningConfig", "ModelConfig", "SamplingConfig"),
    "whet.config.runs": ("CriticRunConfig", "PolicyRunConfig", "RunConfig", "TrainingConfig"),
    "whet.credit.advantages": ("ADVANTAGES", "advantage"),
    "whet.credit.assignment": ("AssignedCredit", "assign_credit", "pair_rows"),
    "whet.credit.metrics": ("critique_signs", "reaches_reference", "reply_metrics", "reply_signs", "reward_metrics"),
    "whet.credit.rewards": (
        "ScoredSegment",
        "gated",
        "groups_of",
        "outcome",
        "overlong",
        "refine_outcome",
        "rewarded",
        "verdict_match",
    ),
    "whet.credit.views": ("joined",),
    "whet.digests": ("read_bytes", "read_text"),
    "whet.envs.adapters": ("from_gymnasium", "from_reasoning_gym"),
    "whet.envs.verifiers_tasks": ("from_verifiers",),
    "whet.envs.plugin": ("env",),
    "whet.errors": ("RunError", "WhetError"),
    "whet.evaluation.agents": ("succeeded", "turns_of"),
    "whet.evaluation.inference_scaling": ("Strategy", "strategy"),
    "whet.evaluation.user_benchmarks": ("Graded", "benchmark"),
    "whet.grading": ("from_trl", "from_verl", "grader"),
    "whet.methods.agent.base": ("BY_SUCCESS", "AgentAlgorithm", "agent_spec"),
    "whet.methods.agent.turn_credit": ("assign_turn_credit",),
    "whet.methods.base": ("Algorithm", "MethodSpec", "RunContext", "method"),
    "whet.methods.critics": (
        "CriticAlgorithm",
        "ask_critic",
        "critic_spec",
        "critique_rounds",
        "roll_out_rounds",
        "sample_critiques",
        "training_batch",
    ),
    "whet.methods.names": ("POLICY",),
    "whet.methods.report_specs": ("load_report",),
    "whet.methods.sampling": ("kept", "whole"),
    "whet.methods.solvers": (
        "BY_BEST",
        "PolicyAlgorithm",
        "reply_traces",
        "solve_rollout",
        "solver_spec",
        "training_phases",
    ),
    "whet.methods.user_presets": ("preset",),
    "whet.objectives.ratio": ("log_ratios", "masked_credit", "ratio_metrics", "summed"),
    "whet.report.spec": ("ReportSpec",),
    "whet.rewards": ("reward",),
    "whet.rollout.driver": ("Ask",),
    "whet.rollout.solve": ("Solve",),
    "whet.seeds": ("seed_of",),
    "whet.tasks.prompts": ("ENGLISH", "Prompts", "find_prompts", "prompts"),
    "whet.trainer.loop": ("Batch", "Phase", "Selection"),
    "whet.trainer.losses": ("entropy_term", "kl_term", "nll_term", "policy_term", "policy_terms"),
    "whet.trainer.terms": ("Pass", "Term", "Update", "on_likelihood", "on_pairs", "on_tokens", "to_reference"),
    "whet.trainer.user_losses": ("loss",),
    "whet.trainer.watch": ("Signs",),
    "whet.types": ("Episode", "Grade", "Row", "Segment", "Task", "as_row"),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'whet.kit' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
