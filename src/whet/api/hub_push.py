"""Uploads an exported folder to a Hugging Face hub: the one that `HF_ENDPOINT` names, with `hf auth login`'s token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from whet.config import ConfigError
from whet.errors import RunError
from whet.types import in_brief

MAX_SAID = 200
"""Characters of what a hub says, in our sentences."""
AGAIN = "push again with --update (in Python update=True) if the hub has the model by now, and else without it"


@dataclass(frozen=True)
class Upload:
    """What a push would do."""

    folder: Path
    name: str
    """OWNER/NAME on the hub, or NAME for the token's owner."""
    is_private: bool
    is_update: bool
    endpoint: str
    has_token: bool
    is_offline: bool
    """Whether `HF_HUB_OFFLINE` forbids it."""
    files: tuple[tuple[str, int], ...]
    """Paths below the folder, and their sizes in bytes."""

    @property
    def num_bytes(self) -> int:
        return sum(size for _, size in self.files)

    def in_words(self) -> str:
        """One line."""
        kind = (
            "in place of the files of" if self.is_update else f"to a new {'private' if self.is_private else 'PUBLIC'}"
        )
        return f"{len(self.files)} files, {self.num_bytes / 1e6:,.1f} MB, {kind} model {self.name} at {self.endpoint}"


def plan_push(folder: str | Path, name: str, *, private: bool = True, update: bool = False) -> Upload:
    """What `push_to_hub` would do, without asking the hub. Arguments as there.

    Raises: ConfigError: the name, an address that is none, or a folder that nobody exported.
    """
    import huggingface_hub
    from huggingface_hub import constants  # no attribute of the package before somebody has imported it

    check_name(name, update=update)
    check_endpoint(constants.ENDPOINT)
    folder = Path(folder)
    if not is_exported(folder):
        raise ConfigError(
            f"{folder} is no exported model with its card, so nothing of it is uploaded: give the folder that "
            "`whet export RUN FOLDER` (in Python whet.export) wrote"
        )
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    sizes = tuple((file.relative_to(folder).as_posix(), file.stat().st_size) for file in files)
    return Upload(
        folder,
        name,
        is_private=private,
        is_update=update,
        endpoint=constants.ENDPOINT,
        has_token=huggingface_hub.get_token() is not None,
        is_offline=huggingface_hub.is_offline_mode(),
        files=sizes,
    )


def is_exported(folder: Path) -> bool:
    """Whether a folder is what was exported from a run: a model with its card. A run's own folder holds more."""
    has_model = any((folder / name).is_file() for name in ("config.json", "adapter_config.json"))
    has_card, is_run = (folder / "README.md").is_file(), (folder / "config.yaml").exists()
    return has_card and not is_run and (has_model or any(folder.glob("*.gguf")))


def push_to_hub(folder: str | Path, name: str, *, private: bool = True, update: bool = False) -> str:
    """Upload an exported folder as one commit of a model on the hub.

    Args:
        folder: as `whet.export` wrote it.
        name: OWNER/NAME, or NAME for the owner of the token.
        private: who may see a new model. An update leaves it as it is.
        update: the model is on the hub already. The commit replaces its files; the hub keeps the old ones in its
            history. False: a new one.
    Returns: the model's address.
    Raises: ConfigError: the name, no token, a folder that nobody exported, a model that is or is not there already.
        RunError: the hub cannot be reached, refuses, or breaks off.
    """
    from huggingface_hub import HfApi

    check_ready()
    upload = plan_push(folder, name, private=private, update=update)
    api = HfApi(endpoint=upload.endpoint)
    with _answered(upload):
        repo_id = name if update else api.create_repo(name, private=private, repo_type="model").repo_id
        api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            commit_message="Update by whet export" if update else "Upload by whet export",
            delete_patterns="*" if update else None,
        )
    return f"{upload.endpoint}/{repo_id}"


def check_name(name: str, *, update: bool) -> None:
    """Raises: ConfigError where no hub has such names."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ConfigError(f"no hub has models of the name {in_brief(name)}: give OWNER/NAME or NAME") from error
    if update and "/" not in name:
        raise ConfigError(f"which model to update is said by OWNER/NAME, and {name!r} has no owner")


def check_endpoint(address: str) -> None:
    """Raises: ConfigError where `HF_ENDPOINT` holds no address of a hub."""
    try:
        parts = urlsplit(address)
        is_address = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        is_address = False
    if not (is_address and address.isascii() and address.isprintable() and " " not in address):
        raise ConfigError(
            f"HF_ENDPOINT is {in_brief(address)}, which is no hub's address: set it to one such as "
            "https://huggingface.co, or unset it"
        )


def check_ready() -> None:
    """Raises: ConfigError where the hub is not to be asked, or has no reason to answer."""
    import huggingface_hub
    from huggingface_hub import constants

    if huggingface_hub.is_offline_mode():
        raise ConfigError("HF_HUB_OFFLINE is set, so nothing is sent to a hub: unset it to push")
    check_endpoint(constants.ENDPOINT)
    if huggingface_hub.get_token() is None:
        raise ConfigError(
            f"there is no token for the hub {constants.ENDPOINT}: log in with `hf auth login`, or set "
            "HF_TOKEN to one that may write"
        )


@contextmanager
def _answered(upload: Upload) -> Iterator[None]:
    """Turns what the hub's client raises into one sentence. None of them holds the token."""
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        yield
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        raise _sentence(upload, error) from error


def _sentence(upload: Upload, error: Exception) -> ConfigError | RunError:
    from huggingface_hub.errors import HfHubHTTPError

    wrapped = error.__cause__ if type(error) is RuntimeError else None  # of one file of several
    cause = wrapped or error
    if isinstance(cause, HfHubHTTPError):
        return _refused(upload, cause.response.status_code, cause.server_message or "")
    if isinstance(cause, ValueError | RuntimeError):  # malformed answers, refused objects, a card that it does not like
        return RunError(f"the hub {upload.endpoint} did not take the files ({_line(str(cause))}): {AGAIN}")
    reason = f"cannot be reached or broke off ({type(cause).__name__})"
    return RunError(f"the hub {upload.endpoint} {reason}: look at the network, and {AGAIN}")


def _refused(upload: Upload, status: int, message: str) -> ConfigError | RunError:
    hub, said = f"the hub {upload.endpoint}", f" ({_line(message)})" if message else ""
    if status == 401 or (status == 404 and not upload.is_update):
        return ConfigError(
            f"{hub} does not accept the token for {upload.name} ({status}){said}: log in with `hf auth login`, or set "
            "HF_TOKEN to one that may write"
        )
    if status == 403:
        return ConfigError(f"the token may not write to {upload.name} (403){said}: take another token, or another name")
    if status == 404:
        return ConfigError(f"{hub} has no model {upload.name} that the token may see (404): leave --update out")
    if status == 409:
        return ConfigError(
            f"{hub} has a model {upload.name} already (409): give another name, or --update (in Python update=True) to "
            "replace its files by a commit"
        )
    return RunError(f"{hub} answers {status}{said}: wait a while, and {AGAIN}")


def _line(text: str) -> str:
    return " ".join(text.split())[:MAX_SAID]
