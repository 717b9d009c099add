"""`@whet.preset`: a user's name for a method with settings, which `whet train` takes like a bundled one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from whet.config import ConfigError, of_tree
from whet.config.base import plain
from whet.config.loading import merged
from whet.config.reads import check_effects
from whet.config.scheduled import nested
from whet.errors import WhetError
from whet.methods import METHODS
from whet.methods.registry import Preset, preset_of

F = TypeVar("F", bound=Callable[[], Mapping[str, Any]])


class PresetError(ConfigError):
    """The settings of a user's preset do not fit its method."""


def preset(name: str, *, of: str, says: str = "") -> Callable[[F], F]:
    """Registers settings over a method or another preset, for `whet train NAME`:

        @whet.preset("patient", of="grpo")
        def patient():
            return {"num_steps": 400, "learning.learning_rate": 1e-5, "loss": {"kind": "gspo"}}

    Keys are those of `whet config`, nested or dotted. Other settings are as in `of`. `whet train` may change single
    settings, as of any method. The settings are checked when the name is first used.

    Args:
        of: a registered method or preset. One of the same file has to stand above.
        says: what it is, in a line. Empty: the docstring's first line.
    Raises: UnknownName if nothing is called `of`; ValueError if the function returns no mapping.
    """

    def register(make: F) -> F:
        METHODS.entry(of)
        if of == name:
            raise ValueError(f"the preset {name!r} cannot be one of itself: give it another name")
        settings = make()
        if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
            raise ValueError(f"the preset {name!r} has to return its settings by key, as in {{'num_steps': 40}}")
        settings = dict(settings)  # the caller's may change
        says_of = says or (make.__doc__ or "").strip().partition("\n")[0]
        METHODS.make_by(name, lambda: _made(name, of, settings), says=says_of or f"{of} with other settings")
        return make

    return register


def _made(name: str, of: str, settings: Mapping[str, Any]) -> Preset:
    """Raises: PresetError if the method has no such settings, or they have no effect beside the others."""
    whose = f"the preset {name!r} of {METHODS.entry(name).origin}"
    base = preset_of(of)
    try:
        tree: Mapping[str, Any] = {}
        for key, value in settings.items():
            tree = merged(tree, nested(key.split("."), plain(value)))
        config = of_tree(type(base.config), tree, base=base.config)
        check_effects(config)
    except WhetError as error:
        raise PresetError(f"{whose}: {error}") from error
    except RecursionError as error:
        raise PresetError(f"{whose}: its settings hold themselves, or are nested too deeply: write them out") from error
    if "plugins" in tree:
        raise PresetError(f"{whose}: plugins are named by who trains it, plugins=[FILE]: leave them out")
    return Preset(config, base.registered)
