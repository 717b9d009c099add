"""What a run is: frozen, validated settings from YAML and dotted overrides. Free of torch, so that `--help` is instant.

config = load(CritiqueRLConfig, Path("run.yaml"), ["stage1.kl_coef=0.02"])
recipe = prepare(config)
check_all_read(config)  # what the user set and nothing reads stops the run
"""

from whet.config.base import Config, ConfigError, PerStep
from whet.config.loading import load, of_tree
from whet.config.reads import check_all_read, read_all, unread
from whet.config.schedule import Constant, Gate, Gated, Gates, Linear, Schedule, Steps, advanced, after_step, value_at
from whet.config.schedule_keys import schedulable
from whet.config.scheduled import Scheduled, config_at, possible
from whet.config.show import describe, difference, to_yaml

__all__ = [
    "Config", "ConfigError", "Constant", "Gate", "Gated", "Gates", "Linear", "PerStep", "Schedule", "Scheduled",
    "Steps", "advanced", "after_step", "check_all_read", "config_at", "describe", "difference", "load", "of_tree",
    "possible", "read_all", "schedulable", "to_yaml", "unread", "value_at",
]  # fmt: skip
