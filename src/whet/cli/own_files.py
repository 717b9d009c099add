"""`--plugins FILE` and `plugins=[FILE]` mean the same, for every command that can use plug-ins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from os.path import isfile  # never raises, whatever a name is
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from whet.plugins import load_entry_points, load_plugins

OPTION, SETTING = "--plugins", "plugins="
METAVAR = "FILE[,FILE...]"
HELP = "Your Python files that register the named parts. May be repeated; plugins=[FILE] means the same."

PluginsOption = Annotated[list[Path] | None, typer.Option(OPTION, metavar=METAVAR, help=HELP)]


def load_own(files: Sequence[Path] | None) -> None:
    """Load plug-ins of installed packages, and these files.

    Raises: PluginError.
    """
    load_entry_points()
    load_plugins(files or ())


def with_plugins(settings: Sequence[str] | None, files: Sequence[Path] | None) -> list[str]:
    """Settings, with the files as the last of them."""
    return [*(settings or ()), *([f"{SETTING}{json.dumps([*map(str, files)])}"] if files else [])]


def without_plugins(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments without those that name plug-ins, and the named files.

    Of several `plugins=` settings the last one counts, as for all settings. Files of options come after it.
    """
    rest: list[str] = []
    of_setting: list[str] = []
    of_options: list[str] = []
    waiting = list(args)
    while waiting:
        arg = waiting.pop(0)
        if arg == "--":
            rest += [arg, *waiting]
            break
        if arg == OPTION and waiting:
            of_options += _split(waiting.pop(0))
        elif arg.startswith(f"{OPTION}="):
            of_options += _split(arg.partition("=")[2])
        elif arg.startswith(SETTING) and (files := _listed(arg)) is not None:
            of_setting = files
        else:
            rest.append(arg)
    return rest, list(dict.fromkeys([*of_setting, *of_options]))


def _split(value: str) -> list[str]:
    return [value] if isfile(value) else [part for part in value.split(",") if part]


def _listed(setting: str) -> list[str] | None:
    """The files of `plugins=[a.py, b.py]`. None: anything else, which the settings' parser judges."""
    from whet.config.base import ConfigError
    from whet.config.loading import parse_override

    try:
        files = parse_override(setting)["plugins"]
    except ConfigError:
        return None
    return files if files and isinstance(files, list) and all(isinstance(file, str) for file in files) else None


class PluginsCommand(TyperCommand):
    """A command with a parameter for plug-ins, which also takes their other forms."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest, files = without_plugins(args)
        return super().parse_args(ctx, [*(part for file in files for part in (OPTION, file)), *rest])
