"""A run's settings: frozen, validated, from YAML and dotted overrides. Free of torch, so that `--help` is instant.

config = load(CritiqueRLConfig, Path("run.yaml"), ["stage1.kl_coef=0.02"])
session = prepare(config)
check_all_read(config)  # a key that the user set and nothing reads stops the run
"""

from whet.config.base import Config, ConfigError, NameOf, PerStep
from whet.config.critics import CriticEvaluation, RolesConfig, WarmStartConfig
from whet.config.inputs import InputFile, ModelPlace
from whet.config.loading import load, of_tree
from whet.config.losses import (
    Aggregation,
    BalancedBounds,
    BoundRange,
    CispoLoss,
    ClipLoss,
    CorrectionConfig,
    DppoLoss,
    FixedBounds,
    GspoLoss,
    KLConfig,
    M2poLoss,
    PolicyLoss,
    ReinforceLoss,
    SapoLoss,
    ToprLoss,
    ValueConfig,
)
from whet.config.parts import LearningConfig, ModelConfig, PolicyEvaluation, SamplingConfig
from whet.config.reads import check_all_read, read_all, unread
from whet.config.regimes import AsyncData, FreshData, OffPolicy
from whet.config.runs import CriticRunConfig, PolicyRunConfig, RunConfig, TrainingConfig
from whet.config.schedule import Constant, Gate, Gated, Gates, Linear, Schedule, Steps, advanced, after_step, value_at
from whet.config.scheduled import Scheduled, config_at, counted, possible, schedulable
from whet.config.show import describe, difference, to_yaml

__all__ = [
    "Aggregation",
    "AsyncData",
    "BalancedBounds",
    "BoundRange",
    "CispoLoss",
    "ClipLoss",
    "Config",
    "ConfigError",
    "Constant",
    "CorrectionConfig",
    "CriticEvaluation",
    "CriticRunConfig",
    "DppoLoss",
    "FixedBounds",
    "FreshData",
    "Gate",
    "Gated",
    "Gates",
    "GspoLoss",
    "InputFile",
    "KLConfig",
    "LearningConfig",
    "Linear",
    "M2poLoss",
    "ModelConfig",
    "ModelPlace",
    "NameOf",
    "OffPolicy",
    "PerStep",
    "PolicyEvaluation",
    "PolicyLoss",
    "PolicyRunConfig",
    "ReinforceLoss",
    "RolesConfig",
    "RunConfig",
    "SamplingConfig",
    "SapoLoss",
    "Schedule",
    "Scheduled",
    "Steps",
    "ToprLoss",
    "TrainingConfig",
    "ValueConfig",
    "WarmStartConfig",
    "advanced",
    "after_step",
    "check_all_read",
    "config_at",
    "counted",
    "describe",
    "difference",
    "load",
    "of_tree",
    "possible",
    "read_all",
    "schedulable",
    "to_yaml",
    "unread",
    "value_at",
]
