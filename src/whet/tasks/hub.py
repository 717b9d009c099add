"""Data sets of the Hugging Face hub: a folder of a set's files at one commit, and the rows that `datasets` reads of it.

`huggingface_hub` downloads the files into its cache, at a commit and never at a moving name, and `datasets` reads them
there. Alone and without a network, `datasets` would take whatever version it loaded last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from whet.distribution import how_to_install
from whet.tasks.row_formats import DataError
from whet.tasks.tables import BATCH_ROWS, batch_rows, check_values, first_line

T = TypeVar("T")
ANSWER_S = 8.0
"""Seconds that the hub has to answer at all. Its client tries again and again, for minutes."""
COMMIT = re.compile(r"[0-9a-f]{40}")
WANTED = [
    *(f"*.{kind}{packed}" for kind in ("parquet", "json", "jsonl", "csv", "tsv", "arrow") for packed in ("", ".*")),
    *("README.md", "*.yaml"),
]
"""The files of a set that are downloaded: its rows, and its card, which names its subsets and splits."""


def local_folder(name: str) -> Path | None:
    """The folder that a name of a set is, if it is one."""
    folder = Path(name).expanduser()
    try:
        return folder if folder.is_dir() else None
    except (OSError, ValueError):
        return None


def commit_of(name: str, revision: str | None) -> str:
    """The commit that a revision of a hub's set stands for now; without the hub, in the cached copy.

    Args:
        revision: a commit, a branch or a tag. None: the newest.
    Raises: DataError where the hub and the cache have none such.
    """
    if revision is not None and COMMIT.fullmatch(revision):
        return revision
    answer = _asked(name, revision)
    return answer if isinstance(answer, str) else _cached(name, revision, answer).name


def snapshot(name: str, commit: str) -> Path:
    """The folder with the set's files at a commit: the cache's, where it is whole, else downloaded.

    Raises: DataError.
    """
    answer = _asked(name, commit)
    if not isinstance(answer, str):
        return _cached(name, commit, answer)
    try:
        return _folder(name, commit)
    except Exception as error:
        raise DataError(f"data.hub = {name} could not be downloaded ({first_line(error)}); try again") from error


def rows_of(folder: Path, name: str, subset: str | None) -> Mapping[str, Callable[[], Iterator[tuple[str, Any]]]]:
    """By split, the rows that `datasets` finds in a folder, each with its place. Nothing is written elsewhere, and no
    code of the set is run: `datasets` has no scripts any more.

    Args:
        name: of the set, in sentences.
    Raises: DataError.
    """
    if find_spec("datasets") is None:
        raise DataError(f"data.hub = {name} needs a package that is not installed: {how_to_install('data')}")
    import datasets

    place = str(folder.resolve())
    try:
        _check_card(folder, name)
        subsets = datasets.get_dataset_config_names(place)
        is_known = subset in subsets or (subset is None and len(subsets) == 1)
        tables_by_split = datasets.load_dataset(place, subset, streaming=True) if is_known else {}
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"data.hub = {name} cannot be loaded ({first_line(error)})") from error
    if not is_known:
        has = f"has no subset {subset!r}" if subset else "has several subsets"
        raise DataError(f"{name} {has}: give data.subset one of {', '.join(subsets)}")

    def read(split: str) -> Iterator[tuple[str, Any]]:
        tables = tables_by_split[split].with_format("arrow").iter(batch_size=BATCH_ROWS)
        try:
            for number, row in enumerate((row for table in tables for row in batch_rows(table)), 1):
                check_values(row, f"split {split} of {name}, row {number}")
                yield f"row {number}", row
        except Exception as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"split {split} of {name} cannot be read ({first_line(error)})") from error

    return {str(split): partial(read, split) for split in tables_by_split}


def _check_card(folder: Path, name: str) -> None:
    """Raises: DataError where the set's card names files outside of its folder, which `datasets` would read."""
    from huggingface_hub import DatasetCard

    card, card_yaml = folder / "README.md", folder / ".huggingface.yaml"
    cards = [card.read_text(encoding="utf-8")] if card.is_file() else []
    cards += [f"---\n{card_yaml.read_text(encoding='utf-8')}\n---\n"] if card_yaml.is_file() else []
    for text in cards:
        for subset in DatasetCard(text).data.get("configs") or ():
            for place in _texts([subset.get("data_files"), subset.get("data_dir")]):
                if "://" in place or "::" in place or Path(place).is_absolute() or ".." in Path(place).parts:
                    raise DataError(
                        f"data.hub = {name}: its card reads {place!r}, which is not in the set's folder: take another "
                        "set, or give your files by data.path"
                    )


def _texts(tree: Any) -> Iterator[str]:
    """The texts in lists and the values of dicts, at any depth."""
    if isinstance(tree, str):
        yield tree
    for inner in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _texts(inner)


def answered(ask: Callable[[], T]) -> T | Exception | None:
    """The answer, or the error. None: it took too long. It asks in a thread, because looking up a host's name obeys no
    time limit, and a timeout is for each read alone."""
    answers: list[T | Exception] = []

    def work() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            answers.append(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(ANSWER_S + 1)
    return answers[0] if answers else None


def _asked(name: str, revision: str | None) -> str | Exception | None:
    """The commit that the hub names; or the error. None: it did not answer."""
    import huggingface_hub

    if huggingface_hub.is_offline_mode():
        return huggingface_hub.errors.OfflineModeIsEnabled()
    return answered(lambda: huggingface_hub.HfApi().dataset_info(name, revision=revision, timeout=ANSWER_S).sha)


def _folder(name: str, revision: str | None, *, only_cached: bool = False) -> Path:
    import huggingface_hub

    place = huggingface_hub.snapshot_download(
        name, repo_type="dataset", revision=revision, allow_patterns=WANTED, local_files_only=only_cached
    )
    return Path(place)


def _cached(name: str, revision: str | None, failure: Exception | None) -> Path:
    """The copy in the hub's cache. Without a revision, and where the cache knows no newest, its only one."""
    from huggingface_hub.errors import HFValidationError, IncompleteSnapshotError

    try:
        return _folder(name, revision, only_cached=True)
    except HFValidationError as error:
        raise DataError(f"data.hub = {name}: there is no such folder, and no set of the hub has such a name") from error
    except IncompleteSnapshotError as error:
        raise DataError(f"data.hub = {name}: {_why(failure)}, and the cache has only some of its files") from error
    except Exception as error:
        copies = [copy.name for copy in sorted(_copies(name))]
        if revision is None and len(copies) == 1:
            return _cached(name, copies[0], failure)
        if copies:
            raise DataError(
                f"data.hub = {name}: {_why(failure)}, and the cache has {', '.join(copies)}: give data.revision one of "
                "these commits"
            ) from error
        raise DataError(
            f"data.hub = {name}: there is no such folder, the hub's cache has no such set, and {_why(failure)}; check "
            f"the name, download it (`hf download {name} --repo-type dataset`), or give a folder"
        ) from error


def _copies(name: str) -> Iterator[Path]:
    """What the cache has of a set, a folder a commit."""
    from huggingface_hub import constants, file_download

    cache = Path(constants.HF_HUB_CACHE)
    folder = cache / file_download.repo_folder_name(repo_id=name, repo_type="dataset") / "snapshots"
    yield from folder.iterdir() if folder.is_dir() else ()


def _why(failure: Exception | None) -> str:
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if failure is None:
        return f"the hub did not answer in {ANSWER_S:.0f} s"
    if isinstance(failure, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    if isinstance(failure, HfHubHTTPError) and failure.response.status_code in (401, 403, 404):
        return "the hub has no such set or revision, or asks for a token (`hf auth login`)"
    return f"the hub cannot be reached ({type(failure).__name__})"
