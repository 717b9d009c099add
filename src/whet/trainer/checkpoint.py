"""Whole checkpoints: written aside, listed in a manifest with checksums, renamed. `latest` names the last one.

- `checkpoints/step_000040/`
    - `policies/<name>/`: loads with `from_pretrained` as it is (a LoRA policy: with PEFT)
    - `optim/<name>.safetensors`
    - `rng.safetensors`
    - `store/`: the run's queues of rows, episodes and tasks
    - `state.json`: phase, step, best values, versions of the weights, digests of the logs, settings, input digests
    - `MANIFEST.json`: the sha256 of every file above

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
"""The version of a checkpoint's files. `load_state` refuses any other."""
KEEP = 2
"""Checkpoints that stay: the last, and the one before it in case the last is damaged. While a run only measures, the
last one with an optimiser stays too, so that the run can be made longer."""


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
        trainers: by policy, the frozen ones included.
        training: by policy that the phase trains; their optimisers are saved too.
        state: JSON types, for `state.json`.
    Returns: the checkpoint's folder.
    Raises: RunError where the disk is full. Earlier checkpoints are untouched then.
    """
    root = run / "checkpoints"
    target = root / f"step_{step:06d}"
    try:
        for leftover in root.glob(".step_*"):  # of a run that was killed
            _delete(leftover)
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
        # Checkpoints of later steps are damaged ones, which resuming the run passed over.
        by_age = newest_first(run)
        earlier = by_age[by_age.index(target) :]
        last_trained = next((folder for folder in earlier if any((folder / "optim").iterdir())), target)
        for old in {*by_age} - {*earlier[:KEEP], last_trained}:
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
    """Link weights that equal the newest checkpoint's, such as those of frozen policies, so that they lie on disk once.

    A file system without links has copies. A file that was damaged since it was written is not linked.
    """
    for name in manifest if before else ():
        twin, new = before[0] / name, aside / name
        if new.suffix != ".safetensors" or not twin.is_file() or twin.stat().st_size != new.stat().st_size:
            continue
        if digest(twin) == manifest[name]:
            try:
                os.link(twin, linked := new.with_suffix(".link"))
            except OSError:
                return
            linked.replace(new)


def newest_first(run: Path) -> list[Path]:
    """The folders that look like checkpoints. The file `latest` is for people: it can be lost or wrong."""
    folders = (run / "checkpoints").glob("step_*")
    numbered = {folder: number for folder in folders if (number := _number(folder)) is not None}
    return sorted(numbered, key=numbered.__getitem__, reverse=True)


def steps_between(newer: Path, older: Path) -> int:
    """Steps that a resume from the older checkpoint repeats. The end of a phase counts as a step."""
    return (_number(newer) or 0) - (_number(older) or 0)


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, as a clause. None: its files are those of its manifest, to the byte."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError, RecursionError):
        return f"its {MANIFEST} cannot be read"
    if not isinstance(manifest, dict) or "state.json" not in manifest:
        return f"its {MANIFEST} is no list of a checkpoint's files"
    try:
        files = set(_files_of(folder))
        if odd := sorted(files ^ manifest.keys()):
            name = odd[0] if odd[0].isprintable() else repr(odd[0])
            return f"{name} is {'missing' if odd[0] in manifest else f'not in its {MANIFEST}'}"
        changed = sorted(name for name in files if digest(folder / name) != manifest[name])
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return f"{changed[0]} is not what was written" if changed else None


def newest_whole(run: Path) -> tuple[Path | None, list[str]]:
    """The newest whole checkpoint, and a sentence on each newer one that is damaged.

    Raises: RunError where there are checkpoints, and none is whole.
    """
    damaged: list[str] = []
    for folder in newest_first(run):
        problem = damage(folder)
        if problem is None:
            return folder, damaged
        damaged.append(f"{folder.name} is damaged: {problem}")
    if damaged:
        raise RunError(f"no checkpoint in {run} is whole ({'; '.join(damaged)}): put the files back from a copy")
    return None, []


def load_state(folder: Path) -> dict[str, Any]:
    """The contents of a checkpoint's `state.json`.

    Raises: RunError where it has another `FORMAT`.
    """
    state: dict[str, Any] = json.loads((folder / "state.json").read_text())
    if state.get("format") != FORMAT:
        raise RunError(older_layout(folder.parents[1], folder))
    return state


def load_optimizers(folder: Path, training: Mapping[str, Trainer]) -> None:
    """Give each trainer, by policy, its optimiser's state from a checkpoint."""
    for name, trainer in training.items():
        trainer.load_optimizer_state(load_file(folder / "optim" / f"{name}.safetensors"))


def load_rng(folder: Path) -> None:
    """Set torch's generator to its state in a checkpoint."""
    torch.set_rng_state(load_file(folder / "rng.safetensors")["torch"])


def _files_of(folder: Path) -> list[str]:
    """Relative paths of all files but the manifest. Symbolic links count too, though we never write any."""
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return sorted(str(path.relative_to(folder)) for path in paths if path != folder / MANIFEST)


def _number(path: Path) -> int | None:
    number = path.name.removeprefix("step_")
    return int(number) if number.isdecimal() and not path.is_symlink() else None


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
