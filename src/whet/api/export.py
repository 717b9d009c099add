"""Exports a run's policy to a folder for `transformers`, hubs and servers, with a model card.

whet.export("runs/first", "models/critic")
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, Literal

from whet.api.card import Weights, model_card
from whet.config import ConfigError
from whet.errors import RunError
from whet.files import whole_folder
from whet.models.policy import Policy
from whet.models.provenance import LICENCE_KEYS, public_name
from whet.run.load import LoadedRun, load_run

CARD = "README.md"


def export(
    run: str | Path,
    folder: str | Path,
    policy: str | None = None,
    *,
    merge: bool = False,
    to: Literal["huggingface", "gguf"] = "huggingface",
) -> Path:
    """Write a policy of a run in the Hugging Face layout: the bytes of its newest checkpoint, and a model card.

    `transformers.AutoModelForCausalLM.from_pretrained(folder)` then gives the logits of the run's policy, to the bit.
    Of a policy with LoRA the adapter is written. It loads in this way if PEFT is installed and the hub has the base
    model. Over a base in a folder, `PeftModel.from_pretrained(base, folder)` loads it. Nothing written names this
    machine's folders.

    Args:
        folder: a new or empty one. It appears once whole.
        policy: None: the run's best one.
        merge: write the base's weights with the LoRA adapter merged in (equal up to rounding).
        to: gguf: one file for llama.cpp, in float32, with the card. For Llama and Qwen2 shapes with byte-level BPE.
    Returns: the folder.
    Raises: ConfigError: the folder is not empty, there is no such policy, nothing to merge, or an adapter alone over
        random weights, or a model that GGUF cannot hold as it is. RunError: the run has no checkpoint, or the folder
            cannot be written.
    """
    run, folder = Path(run), Path(folder).absolute()
    trained = load_run(run)
    name = policy or trained.best
    place, has_adapter = trained.place(name), trained.model(name).lora is not None
    if merge and not has_adapter:
        raise ConfigError(f"policy {name!r} of {run} trains all weights: there is no adapter to merge, so leave it out")
    if has_adapter and not merge and to == "gguf":
        raise ConfigError(
            f"policy {name!r} of {run} is an adapter, and a GGUF file holds whole weights: add --merge (in Python "
            "merge=True)"
        )
    if has_adapter and not merge and trained.model(name).random_weights is not None:
        raise ConfigError(
            f"the adapter of policy {name!r} lies over random weights, which no folder holds: add --merge (in Python "
            "merge=True), and the whole model is written"
        )
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()) or (folder.is_dir() and any(folder.iterdir())):
        raise ConfigError(f"{folder} is there and not empty: give a new folder; nothing was written")
    if run.resolve() in folder.resolve().parents:
        raise ConfigError(f"{folder} lies in the run itself, which holds nothing but its own: give another folder")
    weights: Weights = "merged" if merge else "adapter" if has_adapter else "whole"
    if to == "gguf":
        weights = "gguf"
    card = model_card(trained, name, weights)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with whole_folder(folder) as aside:
            if to == "gguf":
                _write_gguf(trained, name, aside)
            elif merge:
                _merge(trained, name, aside)
            else:  # with the permissions of other new files
                shutil.copytree(place, aside, copy_function=shutil.copyfile, dirs_exist_ok=True)
                _name_base(aside, public_name(trained.model(name).path))
            (aside / CARD).write_text(card, encoding="utf-8")
    except OSError as error:
        raise RunError(
            f"could not write {folder}: {error.strerror or error}; nothing was left behind: choose another folder, or "
            "make room"
        ) from error
    return folder


def _write_gguf(trained: LoadedRun, name: str, folder: Path) -> None:
    from whet.models.gguf_export import write_gguf

    [policy] = trained.load([name], device="cpu", dtype="float32").values()
    model = policy.model if policy.adapter is None else _merged(policy, name)
    record = trained.source(name)
    about = {"name": f"{trained.config.method} {name}"}
    about |= {key.replace("license_", "license."): str(record[key]) for key in LICENCE_KEYS if record.get(key)}
    write_gguf(model, policy.tokenizer, folder / f"{name}.gguf", about=about)
    if policy.source is not None:
        policy.source.write(folder)


def _merged(policy: Policy, name: str) -> Any:
    return policy.model.merge_and_unload(adapter_names=[name])  # type: ignore[operator]


def _merge(trained: LoadedRun, name: str, folder: Path) -> None:
    [policy] = trained.load([name], device="cpu").values()
    merged = _merged(policy, name)
    merged.save_pretrained(str(folder))
    policy.tokenizer.save_pretrained(str(folder))
    if policy.source is not None:
        policy.source.write(folder)


def _name_base(folder: Path, base: str) -> None:
    """Replace the base's absolute path by its public name: other machines lack the folder."""
    file = folder / "adapter_config.json"
    if not file.is_file():
        return
    settings = json.loads(file.read_text(encoding="utf-8"))
    if os.path.isabs(settings["base_model_name_or_path"]):
        settings["base_model_name_or_path"] = base
        file.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")
