"""What a run is made of: its settings, the files that it read, the threads that it sums with, the versions it runs on.

Kept in every checkpoint, and compared before one is gone on from: a run never goes on as another without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache

import whet
from whet.config import ConfigError, difference, of_tree
from whet.config.base import plain
from whet.config.inputs import inputs_of
from whet.config.runs import RunConfig
from whet.digests import digest
from whet.distribution import version
from whet.errors import RunError
from whet.models.places import resolve
from whet.plugin_modules import module_files
from whet.plugins import package_files
from whet.run_folder.files import made_by
from whet.tasks.hub import local_folder

PACKAGE = Path(whet.__file__).parent
MODEL_FILES = (".safetensors", ".json", ".jinja", ".txt", ".model")
"""What loading reads of a model's folder. The rest (a readme, optimiser states, older checkpoints) may change."""
PACKAGES = ("torch", "transformers", "tokenizers", "peft", "math-verify", "reasoning-gym")


def compute_provenance(config: RunConfig) -> dict[str, Any]:
    """As JSON. Every file is read whole, once at the start of a session: 0.7 s for 1 GB, which the model's loading has
    just brought into memory."""
    inputs = dict(_inputs(config))
    digests = {path: _digest(path) for path in set(inputs.values())}
    return {
        "settings": plain(config),
        "inputs": {name: digests[path] for name, path in inputs.items()},
        "num_threads": plain(config)["num_threads"] or torch.get_num_threads(),
        "versions": {
            "whet": version(),
            **{name: found for name in PACKAGES if (found := _version(name))},
            "whet's code": _own_code(),
            "processor features": torch.backends.cpu.get_cpu_capability(),
            **({"GPU": torch.cuda.get_device_name(0)} if torch.cuda.is_available() else {}),
        },
    }


def check_settings(saved: Mapping[str, Any], config: RunConfig, place: Path) -> None:
    """Whether a checkpoint was made under these settings, but for phases that are longer now. A key that is new since
    then has its default in it.

    Args:
        saved: its origin.
        place: the checkpoint.
    Raises: RunError with the difference.
    """
    try:
        before: RunConfig = of_tree(type(config), saved["settings"])
    except ConfigError as error:
        raise RunError(
            f"{place} was made by {made_by(place.parents[1])}, with settings that whet {version()} does not take "
            f"({error}): install that version to go on"
        ) from error
    free = {key for key, was, now in changed_steps(plain(before), plain(config)) if now > was}
    free |= changed_ways(plain(before), plain(config))
    if changes := [change for change in difference(before, config) if change.partition(":")[0] not in free]:
        raise RunError(
            f"{place} was made with other settings than config.yaml has now ({in_short(changes)}): put the file back "
            "as it was, or start another run"
        )


def changed_steps(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Phases' numbers of steps that differ between two settings: the key, what it was, what it is."""
    old, new = (dict(_num_steps("", settings)) for settings in (before, now))
    return [(key, old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]]


WAYS = ("url", "key_env", "max_concurrency", "timeout_s", "retries", "max_tokens", "cache")
"""How an endpoint is reached, which may change while a run goes on; not who answers there, and how."""


def changed_ways(before: Any, now: Any, key: str = "") -> set[str]:
    """The keys of an endpoint's ways that differ between two settings."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return set()
    is_endpoint = before.get("kind") == now.get("kind") == "endpoint"
    found = {f"{key}{name}" for name in WAYS if is_endpoint and before.get(name) != now.get(name)}
    return found.union(*(changed_ways(before[name], now[name], f"{key}{name}.") for name in before.keys() & now.keys()))


def _num_steps(key: str, tree: Any) -> Iterator[tuple[str, int]]:
    for name, value in tree.items() if isinstance(tree, Mapping) else ():
        if name == "num_steps" and isinstance(value, int):
            yield f"{key}{name}", value
        yield from _num_steps(f"{key}{name}.", value)


def changed_inputs(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What a run read or summed with, and is not so any more: a sentence each."""
    before, after = saved["inputs"], now["inputs"]
    found = [
        f"{name} {'is gone' if name not in after else 'is new' if name not in before else 'was replaced'} since the "
        "run began"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if saved["num_threads"] != now["num_threads"]:
        was, threads = saved["num_threads"], now["num_threads"]
        found.append(f"the CPU threads were {was} and would be {threads} (OMP_NUM_THREADS={was} makes them so)")
    return found


def changed_versions(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Another version is a warning, not a refusal: it is the same run, only its last bits may not be those of an
    unbroken one, and who updated a package often cannot go back."""
    before, after = saved["versions"], now["versions"]
    names = sorted(before.keys() | after.keys())
    return [f"{n} {before.get(n)} -> {after.get(n)}" for n in names if before.get(n) != after.get(n)]


def in_short(found: Sequence[str], most: int = 4) -> str:
    """The first few of a list, for a sentence."""
    more = len(found) - most
    return "; ".join(found[:most]) + (f"; and {more} more" if more > 0 else "")


def _inputs(config: RunConfig) -> Iterator[tuple[str, Path]]:
    """Files by a name that says which setting led to them."""
    yield from _plugin_modules(config)
    for setting, kind, name in inputs_of(config):
        if kind == "file":
            if _is_file(Path(name)):
                yield f"{setting} = {name}", Path(name)
            continue
        if kind == "dataset":  # of the hub's own, the commit says what is in it
            if set_folder := local_folder(name):
                for path in sorted(each for each in set_folder.rglob("*") if each.is_file()):
                    yield f"{setting} = {name}, file {path.relative_to(set_folder)},", path
            continue
        folder = _model_folder(name)
        if folder is None:
            continue
        for path in sorted([*folder.glob("*"), *folder.glob("additional_chat_templates/*")]):
            if path.suffix in MODEL_FILES and path.is_file():
                yield f"{setting} = {name}, file {path.relative_to(folder)},", path


def _plugin_modules(config: RunConfig) -> Iterator[tuple[str, Path]]:
    """What plug-ins import from their own folders, and the files of those that are installed."""
    for name in config.__dict__["plugins"]:  # looking is no reading
        file = Path(name).resolve()
        for path in module_files(file):
            yield f"plugins = {name}, module {path.relative_to(file.parent)},", path
    for package, files in package_files().items():
        for path in files:
            yield f"the installed plug-in {package}, file {'/'.join(path.parts[-2:])},", path


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # no possible name: reading it says so
        return False


def _digest(path: Path) -> str:
    try:
        return digest(path)
    except OSError as error:  # reading it says so, with advice
        return f"unreadable: {error.strerror}"


def _model_folder(name: str) -> Path | None:
    """The folder itself, or a hub id's snapshot in the cache."""
    place = Path(resolve(name))
    if place.is_dir():
        return place
    try:
        found = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no hub id either: loading says so
        return None
    return Path(found).parent if isinstance(found, str) else None


def _own_code() -> str:
    """A digest of this package's modules: one version number may have seen many of them."""
    found = sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        found.update(str(path.relative_to(PACKAGE)).encode() + path.read_bytes())
    return found.hexdigest()[:12]


def _version(name: str) -> str | None:
    try:
        return package_version(name)
    except PackageNotFoundError:
        return None
