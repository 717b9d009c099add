"""Whole checkpoints: written aside, listed in a manifest with checksums, renamed; `latest` names the last one.

checkpoints/step_000040/
  policies/<name>/      loads with `from_pretrained` as it is (a LoRA policy: with PEFT)
  optim/<name>.safetensors
  rng.safetensors
  store/                what the run keeps: queues of rows, episodes and tasks
  state.json            phase, step, best values, weights versions, digests of the logs, settings, digests of the inputs
  MANIFEST.json         sha256 of every file above

Weights that did not change from one checkpoint to the next are one file with two names (hard links).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from whet.digests import digest
from whet.errors import RunError
from whet.files import sync, whole_folder
from whet.run_folder.files import disk_error, older_layout, write_atomic
from whet.trainer.buffers import Store
from whet.trainer.protocol import Trainer

MANIFEST = "MANIFEST.json"
FORMAT = 3
"""Of a checkpoint's files. One of another number is refused: `load_state`."""
KEEP = 2
"""Checkpoints kept: the last, and the one before it in case the last is damaged. While a run only measures, also the
last one with an optimiser: from there it can be made longer."""


def save_checkpoint(
    run: Path,
    step: int,
    trainers: Mapping[str, Trainer],
    training: Mapping[str, Trainer],
    state: Mapping[str, Any],
    store: Store,
) -> Path:
    """Write `checkpoints/step_<step>` and point `latest` at it.

    Args:
        trainers: of all policies, the frozen ones included.
        training: of those that the phase trains, whose optimisers are saved too.
    Raises: RunError where the disk is full; earlier checkpoints are untouched then.
    """
    root = run / "checkpoints"
    target = root / f"step_{step:06d}"
    try:
        for left in root.glob(".step_*"):  # by a kill
            _delete(left)
        root.mkdir(parents=True, exist_ok=True)
        with whole_folder(target, over=True) as aside:
            (aside / "optim").mkdir()
            for name, trainer in trainers.items():
                trainer.save(aside / "policies" / name)
            for name, trainer in training.items():
                save_file(trainer.optimizer_state(), aside / "optim" / f"{name}.safetensors")
            save_file({"torch": torch.get_rng_state()}, aside / "rng.safetensors")
            (aside / "store").mkdir()
            store.save(aside / "store")
            (aside / "state.json").write_text(json.dumps({"format": FORMAT, **state}, indent=1))
            manifest = {name: digest(aside / name) for name in _files_of(aside)}
            _share(aside, manifest, newest_first(run))
            (aside / MANIFEST).write_text(json.dumps(manifest, indent=1))
        sync([run])
        write_atomic(root / "latest", target.name)
        # Those of later steps were passed over when the run was resumed.
        by_age = newest_first(run)
        earlier = by_age[by_age.index(target) :]
        trained = next((each for each in earlier if any((each / "optim").iterdir())), target)
        for old in {*by_age} - {*earlier[:KEEP], trained}:
            # A kill in the middle leaves nothing that looks like a checkpoint.
            _delete(old.rename(old.with_name(f".{old.name}.old")))
    except OSError as error:
        raise disk_error(target, error) from error
    except Exception as error:
        if "os error" not in str(error):  # safetensors and tokenizers have classes of their own for a full disk
            raise
        raise RunError(
            f"could not write {target}: {error}; earlier checkpoints are whole: make room, then `whet resume` the run"
        ) from error
    return target


def _share(aside: Path, manifest: Mapping[str, str], before: Sequence[Path]) -> None:
    """Weights that the newest checkpoint has too, as those of frozen policies, are on the disk once: as hard links.

    A file system without links keeps its copies. What was damaged since it was written is not taken over."""
    for name in manifest if before else ():
        twin, own = before[0] / name, aside / name
        if own.suffix != ".safetensors" or not twin.is_file() or twin.stat().st_size != own.stat().st_size:
            continue
        if digest(twin) == manifest[name]:
            try:
                os.link(twin, linked := own.with_suffix(".link"))
            except OSError:
                return
            linked.replace(own)


def newest_first(run: Path) -> list[Path]:
    """The folders that look like checkpoints. `latest` is for people: a file that names one can be lost or be wrong."""
    numbered = {p: _number(p) for p in (run / "checkpoints").glob("step_*") if _number(p) is not None}
    return sorted(numbered, key=lambda path: numbered[path] or 0, reverse=True)


def steps_between(newer: Path, older: Path) -> int:
    """Steps that are done again where one goes on from the older checkpoint; the end of a phase counts as one."""
    return (_number(newer) or 0) - (_number(older) or 0)


def damage(folder: Path) -> str | None:
    """What keeps a checkpoint from being whole; None: it holds the files of its manifest, those bytes, no others."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return f"its {MANIFEST} cannot be read"
    if not isinstance(manifest, dict) or "state.json" not in manifest:
        return f"its {MANIFEST} is no list of a checkpoint's files"
    try:
        found = set(_files_of(folder))
        if odd := sorted(found ^ manifest.keys()):
            name = odd[0] if odd[0].isprintable() else repr(odd[0])
            return f"{name} is {'missing' if odd[0] in manifest else f'not in its {MANIFEST}'}"
        changed = sorted(name for name in found if digest(folder / name) != manifest[name])
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return f"{changed[0]} is not what was written" if changed else None


def newest_whole(run: Path) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is whole, and a sentence on each newer one that is not.

    Raises: RunError where there are checkpoints, and none is whole.
    """
    passed: list[str] = []
    for folder in newest_first(run):
        wrong = damage(folder)
        if wrong is None:
            return folder, passed
        passed.append(f"{folder.name} is damaged: {wrong}")
    if passed:
        raise RunError(f"no checkpoint in {run} is whole ({'; '.join(passed)}): put the files back from a copy")
    return None, []


def load_state(folder: Path) -> dict[str, Any]:
    """What `state.json` of a checkpoint says.

    Raises: RunError where a whet of another layout wrote it.
    """
    state: dict[str, Any] = json.loads((folder / "state.json").read_text())
    if state.get("format") != FORMAT:
        raise RunError(older_layout(folder.parents[1], folder))
    return state


def load_optimizers(folder: Path, training: Mapping[str, Trainer]) -> None:
    for name, trainer in training.items():
        trainer.load_optimizer_state(load_file(folder / "optim" / f"{name}.safetensors"))


def load_rng(folder: Path) -> None:
    torch.set_rng_state(load_file(folder / "rng.safetensors")["torch"])


def _files_of(folder: Path) -> list[str]:
    """Every file below but the manifest, by its path from there; links, which we never write, count as files."""
    listed = [p for p in folder.rglob("*") if p.is_symlink() or not p.is_dir()]
    return sorted(str(p.relative_to(folder)) for p in listed if p != folder / MANIFEST)


def _number(path: Path) -> int | None:
    number = path.name.removeprefix("step_")
    return int(number) if number.isdecimal() and not path.is_symlink() else None


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
