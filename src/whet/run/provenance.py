"""The provenance of a run: settings, digests of the files that it read, number of threads, versions of packages.

Every checkpoint holds it. It is compared before a run resumes, so that no run silently continues as another one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
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
from whet.config.environment_data import EnvironmentData, RemoteEnvironment
from whet.config.inputs import inputs_of
from whet.config.runs import RunConfig
from whet.digests import digest
from whet.distribution import version
from whet.engines.products import instructions
from whet.envs import ENVIRONMENTS
from whet.errors import RunError
from whet.models.places import resolve
from whet.plugin_modules import module_files
from whet.plugins import package_files
from whet.run_folder.files import made_by
from whet.tasks.hub import local_folder

PACKAGE = Path(whet.__file__).parent
MODEL_FILES = (".safetensors", ".json", ".jinja", ".txt", ".model")
"""Endings of the files that loading reads from a model's folder. Others, such as a readme, may change."""
PACKAGES = ("torch", "transformers", "tokenizers", "peft", "math-verify", "reasoning-gym")


def compute_provenance(config: RunConfig) -> dict[str, Any]:
    """The provenance of a run with these settings and the files as they are now: a tree of JSON.

    Reads every file whole. 1 GB takes 0.7 s where loading the model has just brought it into memory.
    """
    inputs = dict(_inputs(config))
    digests = {path: _digest(path) for path in set(inputs.values())}
    return {
        "settings": plain(config),
        "inputs": {name: digests[path] for name, path in inputs.items()},
        "num_threads": plain(config)["num_threads"] or torch.get_num_threads(),
        "versions": {
            "whet": version(),
            **{name: installed for name in PACKAGES if (installed := _version(name))},
            "whet's code": _code_digest(PACKAGE),
            "processor features": torch.backends.cpu.get_cpu_capability(),
            **({"instructions": ", ".join(instructions())} if config.engine.products != "float32" else {}),
            **({"GPU": torch.cuda.get_device_name(0)} if torch.cuda.is_available() else {}),
        },
    }


def check_settings(saved: Mapping[str, Any], config: RunConfig, place: Path) -> None:
    """Checks that a checkpoint was made with these settings. Phases may be longer now, and access to endpoints differ.

    A key that the checkpoint lacks had its default then.

    Args:
        saved: the checkpoint's provenance.
        place: the checkpoint's folder.
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
    free |= changed_access(plain(before), plain(config))
    if changes := [change for change in difference(before, config) if change.partition(":")[0] not in free]:
        raise RunError(
            f"{place} was made with other settings than config.yaml has now ({first_few(changes)}): put the file back "
            "as it was, or start another run"
        )
    was, now = (
        "all rollouts at once" if unit is None else f"units of {unit} rollouts"
        for unit in (before.cluster.rollouts_a_unit, config.cluster.rollouts_a_unit)
    )
    if was != now:
        raise RunError(
            f"{place} was made with {was}, and cluster.workers = {config.cluster.workers} takes {now}, which changes "
            f"results by rounding: resume with cluster.workers={before.cluster.workers}, or start another run"
        )


def changed_steps(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Numbers of steps that differ between two settings: the dotted key, the value before, the value now."""
    old, new = (dict(_steps_by_key("", settings)) for settings in (before, now))
    return [(key, old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]]


ACCESS = ("url", "key_env", "max_concurrency", "timeout_s", "retries", "max_tokens", "cache")
"""Settings of how an endpoint is reached, which may change when a run resumes. Who answers there may not."""


PLACING = ("ranks", "workers", "servers", "server_command", "server_args", "address", "restarts")
"""Settings of where a run computes, which may change when it resumes. Another `unit` would change its results."""
FREE = {"": ("track",), "cluster.": PLACING, "callbacks.": ("use", "on_error")}
"""By where they lie, settings that may change when a run resumes."""


def changed_access(before: Any, now: Any, prefix: str = "") -> set[str]:
    """The dotted keys of endpoints' `ACCESS` and of `FREE` settings that differ between two settings."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return set()
    is_endpoint = before.get("kind") == now.get("kind") == "endpoint"
    free = ACCESS if is_endpoint else FREE.get(prefix, ())
    changed = {f"{prefix}{name}" for name in free if before.get(name) != now.get(name)}
    for name in before.keys() & now.keys():
        changed |= changed_access(before[name], now[name], f"{prefix}{name}.")
    return changed


def _steps_by_key(prefix: str, tree: Any) -> Iterator[tuple[str, int]]:
    for name, value in tree.items() if isinstance(tree, Mapping) else ():
        if name == "num_steps" and isinstance(value, int):
            yield f"{prefix}{name}", value
        yield from _steps_by_key(f"{prefix}{name}.", value)


def changed_inputs(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The files and threads that are not as they were, a sentence each.

    Args:
        saved: the provenance of a checkpoint.
        now: the provenance that a run would have now.
    """
    before, after = saved["inputs"], now["inputs"]
    changes = [
        f"{name} {'is gone' if name not in after else 'is new' if name not in before else 'was replaced'} since the "
        "run began"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if saved["num_threads"] != now["num_threads"]:
        was, threads = saved["num_threads"], now["num_threads"]
        changes.append(f"the CPU threads were {was} and would be {threads} (OMP_NUM_THREADS={was} makes them so)")
    return changes


def changed_versions(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The versions that are not as they were: `torch 2.8.0 -> 2.9.0`.

    They call for a warning, not a refusal: only last bits may differ, and an update can often not be undone.
    """
    before, after = saved["versions"], now["versions"]
    names = sorted(before.keys() | after.keys())
    return [f"{name} {before.get(name)} -> {after.get(name)}" for name in names if before.get(name) != after.get(name)]


def first_few(clauses: Sequence[str]) -> str:
    """The first four clauses, for a sentence, and how many more there are."""
    more = len(clauses) - 4
    return "; ".join(clauses[:4]) + (f"; and {more} more" if more > 0 else "")


def _inputs(config: RunConfig) -> Iterator[tuple[str, Path]]:
    """The files that a run reads, each with a name that begins with its setting."""
    yield from _plugin_modules(config)
    yield from _environment_files(config)
    for setting, kind, name in inputs_of(config):
        if kind == "file":
            if _is_there(path := _place(name)) and path.is_file():
                yield f"{setting} = {name}", path
            continue
        if kind == "dataset":  # the commit identifies what is in a data set of the hub
            if data_folder := local_folder(name):
                for path in sorted(file for file in data_folder.rglob("*") if file.is_file()):
                    yield f"{setting} = {name}, file {path.relative_to(data_folder)},", path
            continue
        folder = _model_folder(name)
        if folder is None:
            continue
        for path in sorted([*folder.glob("*"), *folder.glob("additional_chat_templates/*")]):
            if path.suffix in MODEL_FILES and path.is_file():
                yield f"{setting} = {name}, file {path.relative_to(folder)},", path


def _plugin_modules(config: RunConfig) -> Iterator[tuple[str, Path]]:
    """The modules that plug-ins import from their folders, and the files of installed plug-ins."""
    for name in config.__dict__["plugins"]:  # a look-up that counts as no read
        file = Path(name).resolve()
        for path in module_files(file):
            yield f"plugins = {name}, module {path.relative_to(file.parent)},", path
    for package, files in package_files().items():
        for path in files:
            yield f"the installed plug-in {package}, file {'/'.join(path.parts[-2:])},", path


def _environment_files(config: RunConfig) -> Iterator[tuple[str, Path]]:
    """The files and folders that settings of environments name. Those of a remote environment are its server's."""
    data = config.__dict__.get("data")  # look-ups that count as no read
    if not isinstance(data, EnvironmentData):
        return
    settings, env = data.__dict__["settings"], data.__dict__["env"]
    for name in sorted(settings):
        if name not in ENVIRONMENTS or isinstance(env.get(name), RemoteEnvironment):
            continue
        for key in sorted(ENVIRONMENTS.get(name).file_settings() & settings[name].keys()):
            value = settings[name][key]
            if isinstance(value, str) and _is_there(path := _place(value)):
                yield f"data.settings.{name}.{key} = {value}", path


def _place(name: str) -> Path:
    return Path(os.path.expanduser(name))  # unlike Path.expanduser it leaves an unknown `~name` as it is


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # no possible name: whoever reads it reports it
        return False


def _digest(path: Path) -> str:
    """The digest of a file, or one of all files in a folder and their names."""
    try:
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            lines = "".join(f"{file.relative_to(path)} {digest(file)}\n" for file in files)
            return sha256(os.fsencode(lines)).hexdigest()
        return digest(path)
    except OSError as error:  # whoever reads it reports it, with advice
        return f"unreadable: {error.strerror}"


def _model_folder(name: str) -> Path | None:
    """The folder itself, or a hub id's snapshot in the cache."""
    place = Path(resolve(name))
    if place.is_dir():
        return place
    try:
        config_file = try_to_load_from_cache(name, "config.json")
    except ValueError:  # no hub id either: loading reports it
        return None
    return Path(config_file).parent if isinstance(config_file, str) else None


@cache
def _code_digest(package: Path) -> str:
    """A digest of a package's modules: one version number may have seen many of them. A process runs the modules
    that it has imported, so the first digest holds for all its runs."""
    code = sha256()
    for path in sorted(package.rglob("*.py")):
        code.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return code.hexdigest()[:12]


def _version(name: str) -> str | None:
    try:
        return package_version(name)
    except PackageNotFoundError:
        return None
