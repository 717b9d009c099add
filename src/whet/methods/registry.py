"""The methods by name, and the settings that each name starts from. It needs no torch, so listing them is instant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whet.config import ConfigError, load
from whet.config.loading import parse_override
from whet.config.runs import RunConfig
from whet.config.yaml_text import read_file
from whet.methods import ALGORITHMS, METHODS
from whet.plugins import load_entry_points, load_plugins

if TYPE_CHECKING:
    from whet.methods.base import Algorithm


@dataclass(frozen=True)
class Preset:
    """What `whet train NAME` starts from."""

    config: RunConfig
    registered: type[Algorithm[Any]] | None = None
    """The algorithm of a plug-in."""

    @property
    def algorithm(self) -> type[Algorithm[Any]]:
        """Runs the settings. Imports torch."""
        return self.registered or ALGORITHMS.get(self.config.method)


def preset_of(name: str) -> Preset:
    """What a name starts from.

    Raises: UnknownName.
    """
    start = METHODS.get(name)
    if isinstance(start, Preset):
        return start
    if isinstance(start, RunConfig):
        return Preset(start)
    return Preset(start()) if issubclass(start, RunConfig) else Preset(start.spec.config(), start)


def config_of(name: str, file: Path | None = None, overrides: Sequence[str] = ()) -> RunConfig:
    """The settings of a run: those of a name, then a file's, then single ones. Loads the plug-ins that they name.

    Args:
        overrides: `key.sub=value`.
    Raises: ConfigError, PluginError, UnknownName.
    """
    sources = [*([read_file(file)] if file is not None else ()), *map(parse_override, overrides)]
    plugins: Any = ()
    for source in sources:
        plugins = source.get("plugins", plugins)
    load_entry_points()
    load_plugins([plugin for plugin in plugins if isinstance(plugin, str)] if isinstance(plugins, list) else [])
    preset = preset_of(name)
    try:
        return load(type(preset.config), file, overrides, base=preset.config)
    except ConfigError as error:
        refused = [
            kind for source in sources for kind in _kinds(source) if kind in METHODS and repr(kind) in str(error)
        ]
        if not refused:
            raise
        raise ConfigError(f"{error}; {refused[0]} is a method: whet train {refused[0]}") from error


def _kinds(settings: Any) -> Iterator[str]:
    """Every `kind` that the settings name, at any depth."""
    for name, value in settings.items() if isinstance(settings, Mapping) else ():
        if name == "kind" and isinstance(value, str):
            yield value
        yield from _kinds(value)
