"""The lines of a model card about where a policy came from: its method's papers, its command, and licences of data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from whet.config.base import plain
from whet.distribution import NAME
from whet.methods import METHODS
from whet.methods.registry import preset_of
from whet.models.provenance import public
from whet.report.read import read_object
from whet.run.load import LoadedRun

_ARXIV = re.compile(r"\b\d{4}\.\d{5}\b")
MADE_HERE = f"made by whet's own code, which is Apache-2.0 ({NAME})"
DATA_LICENCES: Mapping[str, str] = {
    "chains": MADE_HERE,
    "basics": MADE_HERE,
    "reasoning_gym": "made by the package reasoning-gym, which is Apache-2.0",
}
"""By the data's kind."""
UNKNOWN = "unknown: neither settings nor files state one, so look at the data's source before you publish"


def method_name(trained: LoadedRun) -> str:
    """What followed `whet train`, such as `grpo`. The run's method if another command began it: settings do not say
    which of the method's names they began with."""
    method = trained.config.method
    command = (read_object(trained.folder / "env.json") or {}).get("command")
    match str(command).split():
        case ["whet", "train", name, *_] if name in METHODS and preset_of(name).config.method == method:
            return name
    return method


def papers(trained: LoadedRun) -> list[str]:
    """arXiv ids that the descriptions of the name and of the method give."""
    texts = (METHODS.entry(method_name(trained)).says, trained.algorithm.__doc__ or "")
    return list(dict.fromkeys(found for text in texts for found in _ARXIV.findall(text)))


def method_in_words(trained: LoadedRun) -> str:
    """The method's name, and links to its papers."""
    links = [f"[arXiv:{paper}](https://arxiv.org/abs/{paper})" for paper in papers(trained)]
    name, method = method_name(trained), trained.config.method
    named = f"`{name}`" if name == method else f"`{name}`, settings of `{method}`"
    return named + (f", after {', '.join(links)}" if links else "")


def trained_by(env: Mapping[str, Any]) -> str:
    """The command of the run, without this machine's folders, and the commit of the code.

    Args:
        env: the run's `env.json`.
    """
    commit = env.get("commit")
    code = f"commit {commit}" if commit else "an installed whet, whose commit is unknown"
    return f"`{public(str(env.get('command') or '?'))}`, {code}"


def data_licence(data: Any) -> str:
    """The licence of a run's data, where it is known."""
    values = plain(data)
    if values.get("hub"):
        return f"unknown: no file here states it, so look at the card of `{public(str(values['hub']))}` on its hub"
    return DATA_LICENCES.get(str(values.get("kind")), UNKNOWN)
