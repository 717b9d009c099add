"""The distribution's name and version, and how an extra is installed.

The distribution is not called `whet`: that name belongs to another owner on the package index. Nothing here may be
installed from there, so hints install from the checkout.
"""

from __future__ import annotations

import re
from importlib import metadata

NAME = "whet-rl"
"""The distribution's name, as in pyproject.toml. The import and the command are `whet`."""


def version() -> str:
    """The version of the installed whet, such as `0.2.0`."""
    return metadata.version(NAME)


def licence_text() -> str | None:
    """The licence of whet and of the models that ship with it. None where the installation left it out."""
    return metadata.distribution(NAME).read_text("licenses/LICENSE")


def has_extra(name: str) -> bool:
    """Whether all packages of an extra are installed. False where whet has no extra of that name."""
    needed = [line.partition(";") for line in metadata.requires(NAME) or () if f"extra == '{name}'" in line]
    names = [re.split(r"[^\w.-]", requirement)[0] for requirement, _, _ in needed]
    try:
        return bool([metadata.version(package) for package in names])
    except metadata.PackageNotFoundError:
        return False


def how_to_install(*extras: str) -> str:
    """The commands that install extras of pyproject.toml, as the end of a sentence.

    Args:
        extras: one or more, such as `serve`.
    """
    names = ",".join(extras)
    return f"in whet's checkout, `make setup EXTRAS={names}`, or pip install -e '.[{names}]'"
