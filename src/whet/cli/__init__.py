"""The command line: parse, validate, call the library. Nothing heavy is imported before it is needed.

Each file holds a group of commands. Importing it adds them to `app`, in the order of `whet --help`.
"""

from whet.cli import train, doctor, measure, compare, show, track, chat, serve, export, data, lists  # noqa: I001 - the order of the help
from whet.cli import get, tiny, envs, env_serve, env_check, env_export, record, reward, new
from whet.cli.app import app

__all__ = [
    "app", "chat", "compare", "data", "doctor", "env_check", "env_export", "env_serve", "envs", "export", "get",
    "lists", "main", "measure", "new", "record", "reward", "serve", "show", "tiny", "track", "train",
]  # fmt: skip


def main() -> None:
    app()
