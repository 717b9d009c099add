"""What a run is: frozen, validated settings from YAML and dotted overrides. Free of torch, so that `--help` is instant.

config = load(CritiqueRLConfig, Path("run.yaml"), ["stage1.kl_coef=0.02"])
recipe = prepare(config)
check_all_read(config)  # what the user set and nothing reads stops the run
"""

from whet.config.base import Config, ConfigError
from whet.config.loading import load, of_tree
from whet.config.reads import check_all_read, read_all, unread
from whet.config.show import describe, difference, to_yaml

__all__ = [
    "Config", "ConfigError", "check_all_read", "describe", "difference", "load", "of_tree", "read_all", "to_yaml",
    "unread",
]  # fmt: skip
