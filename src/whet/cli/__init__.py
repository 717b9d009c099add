"""The command line: parse, validate, call the library. Nothing heavy is imported before it is needed.

Each file holds a group of commands. Importing it adds them to `app`, in the order of `whet --help`.
"""

from whet.cli import train, measure, chat, serve, export, data, lists, get, tiny, envs, env_export, record, new  # noqa: I001 - the order of the help
from whet.cli.app import app

__all__ = [
    "app", "chat", "data", "env_export", "envs", "export", "get", "lists", "main", "measure", "new", "record", "serve",
    "tiny", "train",
]  # fmt: skip


def main() -> None:
    app()
