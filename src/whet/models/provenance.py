"""Where a model came from and under which licence: read from its files, and copied to the models trained from it.

A folder states it in `provenance.json`, which `whet get` writes, and every checkpoint for each policy. The front matter
of a model card may state it too. The licence's text, `LICENSE`, is copied. What a file does not state is not guessed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from whet.config.yaml_text import NotYaml, load
from whet.distribution import licence_text
from whet.models.shipped import OURS

PROVENANCE = "provenance.json"
CARD = "README.md"
LICENCE_TEXTS = ("LICENSE", "LICENSE.md", "LICENSE.txt", "LICENCE")
NOT_STATED = "licence not stated by its file; look at its source before you publish"
LICENCE_KEYS = ("license", "license_name", "license_link")
"""As on model hubs: an SPDX id in small letters, or `other` with a name and a link."""
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_PATH_ALONE = re.compile(r"(?:~[^/\s]*)?/[^\n{}]*/[^\n{}]*|/[^\s{}]*")
"""A whole text that is a path, which may have spaces. A prompt that begins with `/no_think` is none."""
_PART = r"[^\s/'\"`,;:|<>(){}\[\]=]+"
_PATH_WITHIN = re.compile(rf"(?<![\w./~\\)}}\]-])(?:file://)?(?:~[\w.-]*)?(?:/{_PART}){{2,}}/?")
"""A path of two parts or more within a text; the path of an address (`https://...`) is none."""
MAX_BYTES = 2**20
"""Size of a file that is read for this, at most."""


@dataclass(frozen=True)
class Source:
    """Origin and licence that a model's files state."""

    record: Mapping[str, Any]
    """As JSON, without this machine's folders. `license`: None where none is stated. `base_model`: a hub id or a
    packaged model, where known."""
    text: str | None = None
    """Of the licence."""

    def write(self, folder: Path) -> None:
        """Write it beside weights that were trained from the model's."""
        record = {key: self.record[key] for key in ("base_model", *LICENCE_KEYS) if key in self.record}
        record |= {"trained_from": self.record}
        (folder / PROVENANCE).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        if self.text is not None:
            (folder / LICENCE_TEXTS[0]).write_text(self.text, encoding="utf-8")


def public_name(place: str) -> str:
    """A place by a name without this machine's folders. A hub id or a relative path stays; an absolute path becomes
    its last part."""
    path = os.path.expanduser(place)
    return os.path.basename(path.rstrip("/")) or place if os.path.isabs(path) else place


def public(tree: Any) -> Any:
    """Settings as plain data, with every absolute path replaced by its public name. This covers keys, values, and
    paths within a text, such as a command line."""
    if isinstance(tree, Mapping):
        return {public(key): public(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [public(value) for value in tree]
    if not isinstance(tree, str):
        return tree
    if _PATH_ALONE.fullmatch(tree):
        return public_name(tree)
    return _PATH_WITHIN.sub(lambda match: os.path.basename(match[0].rstrip("/")), tree)


def is_hub_id(name: object) -> bool:
    """Whether a name has the form of a hub id."""
    return isinstance(name, str) and _HUB_ID.fullmatch(name) is not None


def source_of(path: str) -> Source:
    """Read what a model's files state.

    Args:
        path: as in settings: a folder, a hub id, or a packaged model.
    """
    if path in OURS:
        return Source({"base_model": path, "license": "apache-2.0", "source": "ships with whet"}, licence_text())
    folder = _folder(path)
    is_here = Path(path).expanduser().is_dir()
    record: dict[str, Any] = {"name": public_name(path)} if is_here else {"base_model": path}
    record |= {"license": None}
    if folder is None:
        return Source(record)
    card = {key: value for key, value in _front_matter(folder / CARD).items() if key in LICENCE_KEYS}
    stated = {**card, **{key: value for key, value in _json(folder / PROVENANCE).items() if value is not None}}
    texts = (_text(folder / name) for name in LICENCE_TEXTS)
    return Source({**record, **stated}, next((text for text in texts if text is not None), None))


def licence_in_words(record: Mapping[str, Any]) -> str:
    """The licence, or that none is stated."""
    if not record.get("license"):
        return NOT_STATED
    details = ", ".join(str(record[key]) for key in LICENCE_KEYS[1:] if record.get(key))
    return f"licence {record['license']}" + (f" ({details})" if details else "")


def provenance_in_words(record: Mapping[str, Any]) -> str:
    """Where the first model of a chain of trained ones came from; empty where its files do not say."""
    while isinstance(record.get("trained_from"), Mapping):
        record = record["trained_from"]
    parts = [str(record["source"])] if record.get("source") else []
    parts += [f"file `{record['file']}`"] if record.get("file") else []
    parts += [f"sha256 {record['sha256']}"] if record.get("sha256") else []
    return ", ".join(parts)


def _folder(path: str) -> Path | None:
    folder = Path(path).expanduser()
    if folder.is_dir():
        return folder
    try:
        config_file = try_to_load_from_cache(path, "config.json")
    except ValueError:
        return None
    return Path(config_file).parent if isinstance(config_file, str) else None


def _text(file: Path) -> str | None:
    """None: there is no such file, or it is too large for one that a person wrote."""
    try:
        if not file.is_file() or file.stat().st_size > MAX_BYTES:
            return None
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _json(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(_text(file) or "{}")
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _front_matter(file: Path) -> dict[str, str]:
    """The keys of a model card's metadata that are text."""
    match = re.match(r"---\n(.*?)\n---\n", _text(file) or "", re.DOTALL)
    try:
        metadata = load(match[1]) if match else {}
    except (NotYaml, RecursionError):
        return {}
    return (
        {key: value for key, value in metadata.items() if isinstance(value, str)} if isinstance(metadata, dict) else {}
    )
