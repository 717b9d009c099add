"""All settings of a run that have no effect, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator

from whet.config.acts import Idle
from whet.config.base import Config, Key, dotted
from whet.config.effects import why_idle


def idle_keys(root: Config) -> dict[str, Idle]:
    """By dotted key, the settings without effect. A part in which nothing has an effect is listed alone."""
    return dict(_idle_below(root, root, ()))


def _idle_below(root: Config, node: Config, at: Key) -> Iterator[tuple[str, Idle]]:
    for name, value in node.__dict__.items():
        key = (*at, name)
        if reason := why_idle(root, key):
            yield dotted(key), reason
        elif isinstance(value, Config):
            yield from _idle_below(root, value, key)
