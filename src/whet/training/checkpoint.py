"""Whole checkpoints: written aside, listed in a manifest with checksums, renamed; `latest` names the last whole one.

checkpoints/step_000040/
  policies/<name>/      loads with `from_pretrained` as it is (a LoRA policy: with PEFT)
  optim/<name>.safetensors
  rng.safetensors
  phase/                what the phase keeps from step to step: buffers of rows, unfinished replies
  state.json            phase, step, best values, weights versions, lengths of the logs
  MANIFEST.json         sha256 of every file above
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from whet.models.policy import Policy
from whet.training.folder import RunError, disk_error
from whet.training.learner import Learner

KEEP = 2
"""Checkpoints kept: the last, and the one before it in case the last is damaged."""


def save_checkpoint(
    run: Path,
    step: int,
    policies: Mapping[str, Policy],
    learners: Mapping[str, Learner],
    state: Mapping[str, Any],
    save_phase: Callable[[Path], None] | None = None,
) -> Path:
    """Write `checkpoints/step_<step>` and point `latest` at it.

    Args:
        save_phase: writes what else the phase has to remember (buffers) into the folder that it is given.
    Raises: RunError where the disk is full; earlier checkpoints are untouched then.
    """
    root = run / "checkpoints"
    target, aside = root / f"step_{step:06d}", root / f".step_{step:06d}.tmp"
    try:
        shutil.rmtree(aside, ignore_errors=True)
        (aside / "optim").mkdir(parents=True)
        for name, policy in policies.items():
            policy.save(aside / "policies" / name)
        for name, learner in learners.items():
            save_file(learner.state(), aside / "optim" / f"{name}.safetensors")
        save_file({"torch": torch.get_rng_state()}, aside / "rng.safetensors")
        if save_phase is not None:
            (aside / "phase").mkdir()
            save_phase(aside / "phase")
        (aside / "state.json").write_text(json.dumps(state, indent=1))
        files = sorted(p for p in aside.rglob("*") if p.is_file())
        manifest = {str(p.relative_to(aside)): _sha256(p) for p in files}
        (aside / "MANIFEST.json").write_text(json.dumps(manifest, indent=1))
        shutil.rmtree(target, ignore_errors=True)
        aside.rename(target)
        pointer = root / ".latest.tmp"
        pointer.write_text(target.name)
        pointer.replace(root / "latest")
        for old in sorted(root.glob("step_*"))[:-KEEP]:
            shutil.rmtree(old)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise disk_error(target, error) from error
    except SafetensorError as error:  # its own class, also for a full disk
        shutil.rmtree(aside, ignore_errors=True)
        raise RunError(
            f"could not write {target}: {error}; earlier checkpoints are whole: make room, then `whet resume` the run"
        ) from error
    return target


def latest_checkpoint(run: Path) -> Path | None:
    """The last whole checkpoint, or the one before where its files do not match the manifest."""
    root = run / "checkpoints"
    pointer = root / "latest"
    if not pointer.exists():
        return None
    named = root / pointer.read_text().strip()
    others = [p for p in sorted(root.glob("step_*"), reverse=True) if p != named]
    for folder in [named, *others]:
        if is_whole(folder):
            return folder
    raise RunError(f"no checkpoint in {root} is whole: their files do not match their manifests; start the run anew")


def is_whole(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / "MANIFEST.json").read_text())
        return all(_sha256(folder / name) == digest for name, digest in manifest.items())
    except (OSError, ValueError):
        return False


def load_state(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((folder / "state.json").read_text())
    return state


def load_learners(folder: Path, learners: Mapping[str, Learner]) -> None:
    for name, learner in learners.items():
        learner.load_state(load_file(folder / "optim" / f"{name}.safetensors"))


def load_rng(folder: Path) -> None:
    torch.set_rng_state(load_file(folder / "rng.safetensors")["torch"])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
